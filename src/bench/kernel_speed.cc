#include "lacuna/kernel_speed.h"

#include <algorithm>
#include <array>
#include <string>

#include "bench/problem.h"
#include "bench/tensors.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/stopwatch.h"
#include "problems.h"

namespace lacuna {
namespace {

constexpr const char* kWide = "window(512)";
constexpr const char* kNarrow = "window(128)";
// 16 globals spread evenly over 4096 tokens.
constexpr const char* kUnion = "window(512)+sink(4)+global(every=256)";
constexpr std::int64_t kLongPlanLength = 131072;
constexpr const char* kLongUnion = "window(512)+sink(4)+global(every=8192)";
constexpr std::int64_t kMaskedLength = 1024;
constexpr DType kMeasuredDTypes[] = {DType::kF32, DType::kBf16};
// Around every number of rows at which a tile, or a register block, changes.
constexpr std::int64_t kFewRows[] = {2,  3,  4,  5,  7,  8,  12, 15, 16, 17,
                                     24, 31, 32, 33, 47, 48, 49, 63, 64};
constexpr std::int64_t kFewRowsToPack[] = {2, 4, 8, 16, 32, 64};

KernelProblem problem_of(const char* attend, DType dtype, std::int64_t width = 128) {
  KernelProblem problem;
  problem.attend = attend;
  problem.dtype = dtype;
  problem.head_dim = problem.v_head_dim = width;
  return problem;
}

KernelProblem gpt_oss() {
  KernelProblem problem = problem_of(kNarrow, DType::kBf16, 64);
  problem.heads = {64, 8};
  problem.learned_sinks = true;
  return problem;
}

KernelProblem with_threads(KernelProblem problem, std::int64_t threads) {
  problem.threads = threads;
  return problem;
}

KernelProblem prepacked(KernelProblem problem) {
  problem.path = KernelPath::kPrepacked;
  return problem;
}

KernelProblem with_rows(KernelProblem problem, std::int64_t rows) {
  problem.rows = rows;
  return problem;
}

}  // namespace

std::vector<KernelProblem> speed_problems(std::int64_t max_threads) {
  std::vector<KernelProblem> problems;
  for (const DType dtype : kMeasuredDTypes) {
    for (const std::int64_t width : {64, 128, 256}) {
      problems.push_back(problem_of("full", dtype, width));
    }
    for (const char* attend : {kWide, kNarrow, kUnion}) {
      problems.push_back(problem_of(attend, dtype));
    }
    if (max_threads >= 2) {
      problems.push_back(with_threads(problem_of("full", dtype), 2));
      problems.push_back(with_threads(problem_of(kWide, dtype), 2));
    }
    problems.push_back(prepacked(problem_of("full", dtype)));
    for (const std::int64_t rows : kFewRows) {
      problems.push_back(prepacked(with_rows(problem_of("full", dtype), rows)));
    }
    for (const std::int64_t rows : kFewRowsToPack) {
      problems.push_back(with_rows(problem_of("full", dtype), rows));
    }
  }
  problems.push_back(gpt_oss());
  KernelProblem masked = problem_of(kNarrow, DType::kF32);
  masked.length = kMaskedLength;
  problems.push_back(masked);
  masked.path = KernelPath::kMaskedDense;
  problems.push_back(masked);
  return problems;
}

std::vector<KernelProblem> listed_problems(std::int64_t longest) {
  std::vector<KernelProblem> problems;
  for (const Problem& listed : kProblems) {
    KernelProblem problem;
    problem.attend = listed.attend;
    problem.causal = listed.causal;
    problem.heads = {4, 2};
    problem.head_dim = problem.v_head_dim = 64;
    problem.length = 0;
    for (const std::int64_t length : listed.lengths) {
      if (length <= longest) problem.length = std::max(problem.length, length);
    }
    if (problem.length > 0) problems.push_back(problem);
  }
  return problems;
}

std::vector<KernelProblem> scan_problems(const KernelProblem& base, std::int64_t from,
                                         std::int64_t to) {
  if (from < 1 || from > to) {
    throw Error("the scan is " + std::to_string(from) + ".." + std::to_string(to) +
                "; allowed: FROM..TO with 1 <= FROM <= TO");
  }
  std::vector<KernelProblem> problems;
  for (std::int64_t length = from; length <= to; length *= 2) {
    for (const char* attend : {"full", kWide}) {
      KernelProblem problem = base;
      problem.attend = attend;
      problem.length = length;
      problems.push_back(problem);
    }
  }
  return problems;
}

namespace {

ScanCurve& curve_of(std::vector<ScanCurve>& curves, const std::string& name) {
  const auto known = std::ranges::find(curves, name, &ScanCurve::name);
  if (known != curves.end()) return *known;
  curves.push_back({name, {}, {}});
  return curves.back();
}

// The mean layer of five windows and a full one, where both were timed.
std::optional<ScanCurve> hybrid_of(const std::vector<ScanCurve>& curves) {
  const auto full = std::ranges::find(curves, "full", &ScanCurve::name);
  const auto window = std::ranges::find_if(
      curves, [](const ScanCurve& curve) { return curve.name.starts_with("window("); });
  if (full == curves.end() || window == curves.end()) return std::nullopt;
  ScanCurve hybrid{window->name + "*5, full: mean layer", {}, {}};
  for (std::size_t idx = 0; idx < full->lengths.size(); ++idx) {
    const auto same = std::ranges::find(window->lengths, full->lengths[idx]);
    if (same == window->lengths.end()) continue;
    const auto at = static_cast<std::size_t>(same - window->lengths.begin());
    hybrid.lengths.push_back(full->lengths[idx]);
    hybrid.seconds.push_back((5 * window->seconds[at] + full->seconds[idx]) / 6);
  }
  if (hybrid.lengths.empty()) return std::nullopt;
  return hybrid;
}

}  // namespace

std::vector<ScanCurve> scan_curves(std::span<const KernelRow> rows) {
  std::vector<ScanCurve> curves;
  for (const KernelRow& row : rows) {
    ScanCurve& curve = curve_of(curves, row.problem.attend);
    curve.lengths.push_back(static_cast<double>(row.problem.length));
    curve.seconds.push_back(row.seconds(&KernelRound::whole_seconds).p50);
  }
  if (const std::optional<ScanCurve> hybrid = hybrid_of(curves)) curves.push_back(*hybrid);
  return curves;
}

namespace {

double seconds_to_plan(const KernelProblem& problem, std::span<const Topology> topologies) {
  const Stopwatch watch;
  const Plan plan = bench::plan_of(problem, topologies);
  const double taken = watch.seconds();
  return plan.items.empty() ? 0 : taken;
}

// The workspace depends on views' shapes and dtypes alone: no memory of this length is touched.
std::int64_t workspace_of(const KernelProblem& problem, const Plan& plan) {
  static constexpr std::byte kNoData{};
  const std::int64_t length = problem.length;
  const auto view = [&](std::int64_t heads, std::int64_t width) {
    return tensor_view(&kNoData, problem.dtype, {length, heads, width});
  };
  const std::array<std::int64_t, 1> starts = {0};
  const std::array<std::int64_t, 1> lengths = {length};
  const KvView kv = kv_view(view(problem.heads.num_kv_heads, problem.head_dim),
                            view(problem.heads.num_kv_heads, problem.v_head_dim), starts, lengths);
  return workspace_bytes(plan, view(problem.heads.num_q_heads, problem.head_dim), kv);
}

const KernelRow* row_like(std::span<const KernelRow> rows, KernelProblem problem,
                          const char* attend) {
  problem.attend = attend;
  problem.length = 4096;
  const auto found = std::ranges::find(rows, problem, &KernelRow::problem);
  return found == rows.end() ? nullptr : &*found;
}

LongPlan time_long_plan(const KernelProblem& problem, const KernelRow* like,
                        std::int64_t repetitions, const std::stop_token& stop) {
  const std::vector<Topology> topologies = bench::topologies_of(problem);
  LongPlan long_plan;
  long_plan.problem = problem;
  std::vector<double> seconds;
  do {
    seconds.push_back(seconds_to_plan(problem, topologies));
  } while (std::ssize(seconds) < repetitions && !stop.stop_requested());
  long_plan.plan_seconds = statistics_of(seconds);
  long_plan.workspace_bytes = workspace_of(problem, bench::plan_of(problem, topologies));
  long_plan.needed_pairs = bench::predicted_pairs(problem, topologies).needed_pairs;
  if (like != nullptr) {
    const double rate = like->useful_flops() / like->seconds(&KernelRound::planned_seconds).p50;
    KernelRow longer;
    longer.problem = problem;
    longer.needed_pairs = long_plan.needed_pairs;
    long_plan.run_seconds_estimate = longer.useful_flops() / rate;
    long_plan.rate_of = like->problem.name();
  }
  return long_plan;
}

}  // namespace

std::vector<LongPlan> time_long_plans(std::span<const KernelRow> rows, std::int64_t repetitions,
                                      const std::stop_token& stop) {
  struct Pair {
    const char* attend;
    const char* at_4096;
  };
  std::vector<LongPlan> plans;
  for (const Pair& pair : {Pair{"full", "full"}, Pair{kWide, kWide}, Pair{kLongUnion, kUnion}}) {
    for (const DType dtype : kMeasuredDTypes) {
      if (stop.stop_requested()) return plans;
      KernelProblem problem = problem_of(pair.attend, dtype);
      problem.length = kLongPlanLength;
      plans.push_back(
          time_long_plan(problem, row_like(rows, problem, pair.at_4096), repetitions, stop));
    }
  }
  return plans;
}

}  // namespace lacuna

#include "lacuna/kernel_bench.h"

#include <algorithm>
#include <deque>

#include "bench/limits.h"
#include "bench/problem.h"
#include "bench/timed_row.h"

namespace lacuna {
namespace {

using bench::Shared;
using bench::Stopped;
using bench::TimedRow;

void check_options(const KernelBenchOptions& options) {
  bench::require("repetitions", options.repetitions, 1, 1000);
  bench::require("run_ns", options.run_ns, 1, 10'000'000'000);
  bench::require("row_ns", options.row_ns, 1, std::int64_t{1} << 60);
}

void announce(const KernelBenchOptions& options, std::int64_t done, std::int64_t total,
              const std::string& next) {
  if (options.progress) options.progress(done, total, next);
}

// What the products of such inputs could reach: bf16 ones need f32 work between them.
double limit_of(const KernelRound& round, DType dtype) {
  constexpr double kReachedByBf16 = 0.95;
  if (dtype == DType::kF32) return round.f32_flops_per_s;
  return std::max(round.f32_flops_per_s, kReachedByBf16 * round.bf16_flops_per_s);
}

std::int64_t kv_bytes(const KernelProblem& problem) {
  return problem.length * problem.heads.num_kv_heads * (problem.head_dim + problem.v_head_dim) *
         size_bytes(problem.dtype);
}

double timed_seconds(const KernelRow& row) {
  double sum = 0;
  for (const KernelRound& round : row.rounds) {
    sum += (round.whole_seconds + round.planned_seconds) * static_cast<double>(row.calls_per_run);
  }
  return sum;
}

}  // namespace

bool KernelRow::as_predicted() const {
  return ledger.executed_pairs == predicted_pairs && ledger.needed_pairs == needed_pairs;
}

double KernelRow::executed_per_needed() const {
  if (ledger.needed_pairs == 0) return 1;
  return static_cast<double>(ledger.executed_pairs) / static_cast<double>(ledger.needed_pairs);
}

double KernelRow::useful_flops() const {
  return 2 * static_cast<double>(problem.head_dim + problem.v_head_dim) *
         static_cast<double>(needed_pairs);
}

Statistics KernelRow::seconds(KernelStage stage) const {
  std::vector<double> samples;
  for (const KernelRound& round : rounds) samples.push_back(round.*stage);
  return statistics_of(samples);
}

Statistics KernelRow::share_of_limit(KernelStage stage) const {
  std::vector<double> samples;
  for (const KernelRound& round : rounds) {
    samples.push_back(useful_flops() / (round.*stage) / limit_of(round, problem.dtype));
  }
  return statistics_of(samples);
}

struct KernelBench::State {
  explicit State(const KernelBenchOptions& options) : shared(options.seed, options.stop) {}

  Shared shared;
  std::deque<TimedRow> timed;  // which never moves its rows: they hold views of themselves
  std::vector<KernelRow> rows;
};

KernelBench::KernelBench(std::span<const KernelProblem> problems, const KernelBenchOptions& options)
    : state_(std::make_unique<State>(options)) {
  check_options(options);
  const auto total = static_cast<std::int64_t>(problems.size());
  try {
    for (const KernelProblem& problem : problems) {
      announce(options, static_cast<std::int64_t>(state_->rows.size()), total,
               "making ready and checking " + problem.name());
      state_->timed.emplace_back(problem, state_->shared, options);
      state_->rows.push_back(state_->timed.back().row());
    }
  } catch (const Stopped&) {  // rows that are ready stay
  }
}

KernelBench::~KernelBench() = default;

const std::vector<KernelRow>& KernelBench::rows() const { return state_->rows; }

bool KernelBench::time_once(std::size_t row_idx, std::int64_t round) {
  bench::require("row", static_cast<std::int64_t>(row_idx), 0,
                 static_cast<std::int64_t>(state_->timed.size()) - 1);
  try {
    state_->timed[row_idx].time_once(round);
  } catch (const Stopped&) {
    return false;
  }
  state_->rows[row_idx] = state_->timed[row_idx].row();
  return true;
}

namespace {

// False once stop is asked.
bool time_rounds(KernelBench& bench, const KernelBenchOptions& options) {
  const auto num_rows = static_cast<std::int64_t>(bench.rows().size());
  const double most_seconds = static_cast<double>(options.row_ns) * 1e-9;
  std::int64_t done = 0;
  for (std::int64_t round = 0; round < options.repetitions; ++round) {
    for (std::size_t idx = 0; idx < bench.rows().size(); ++idx, ++done) {
      const KernelRow& row = bench.rows()[idx];
      if (timed_seconds(row) >= most_seconds) continue;
      announce(options, done, num_rows * options.repetitions, row.problem.name());
      if (!bench.time_once(idx, round)) return false;
    }
  }
  return true;
}

std::vector<BandwidthFigure> bandwidth_for(std::span<const KernelProblem> problems,
                                           const KernelBenchOptions& options) {
  std::int64_t num_threads = 1;
  std::int64_t largest_bytes = 0;
  for (const KernelProblem& problem : problems) {
    num_threads = std::max(num_threads, problem.threads);
    largest_bytes = std::max(largest_bytes, kv_bytes(problem));
  }
  announce(options, 0, 1, "probing the read bandwidth");
  return bench::measure_bandwidth(num_threads, largest_bytes, options.cpu_time, options.stop);
}

}  // namespace

KernelBenchResult run_kernel_bench(std::span<const KernelProblem> problems,
                                   const KernelBenchOptions& options) {
  KernelBenchResult result;
  KernelBench bench(problems, options);
  result.bandwidth = bandwidth_for(problems, options);
  result.interrupted = !time_rounds(bench, options) || options.stop.stop_requested();
  for (const KernelRow& row : bench.rows()) {
    if (!row.rounds.empty()) result.rows.push_back(row);
  }
  result.ratios = kernel_ratios(result.rows);
  return result;
}

}  // namespace lacuna

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "bench/limits.h"
#include "lacuna/kernel_speed.h"

namespace lacuna {
namespace {

constexpr double kMebibyte = 1 << 20;

std::string dtype_name(DType dtype) { return std::string(to_string(dtype)); }

class Goals {
 public:
  Goals(const KernelBenchResult& result, std::span<const LongPlan> long_plans)
      : result_(result), long_plans_(long_plans) {}

  std::vector<KernelGoal> all() && {
    add_dense(DType::kF32, {0.72, 0.82, 0.82});
    add_dense(DType::kBf16, {0.70, 0.80, 0.82});
    add_learned_sinks();
    for (const DType dtype : {DType::kF32, DType::kBf16}) add_windows(dtype);
    for (const DType dtype : {DType::kF32, DType::kBf16}) add_threads(dtype);
    for (const KernelPath path : {KernelPath::kPrepacked, KernelPath::kRun}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) add_few_rows(dtype, path);
    }
    add_long_plans();
    return std::move(goals_);
  }

 private:
  template <typename Like>
  const KernelRow* find(const Like& like) const {
    const auto found =
        std::ranges::find_if(result_.rows, [&](const KernelRow& row) { return like(row.problem); });
    return found == result_.rows.end() ? nullptr : &*found;
  }

  // A row of all query rows of the usual shape.
  const KernelRow* whole_row(std::string_view attend, DType dtype, std::int64_t width,
                             std::int64_t threads = 1) const {
    return find([&](const KernelProblem& p) {
      return p.attend == attend && p.dtype == dtype && p.head_dim == width &&
             p.threads == threads && p.rows == 0 && p.length == 4096 && !p.learned_sinks &&
             p.path == KernelPath::kRun;
    });
  }

  void at_least(std::string what, const char* unit, double bound, std::optional<double> value) {
    goals_.push_back({std::move(what), unit, bound, false, value});
  }
  void at_most(std::string what, const char* unit, double bound, std::optional<double> value) {
    goals_.push_back({std::move(what), unit, bound, true, value});
  }

  static std::optional<double> share(const KernelRow* row) {
    if (row == nullptr) return std::nullopt;
    return row->share_of_limit(&KernelRound::whole_seconds).p50;
  }

  std::optional<double> ratio(const KernelRow* row, std::string_view what) const {
    if (row == nullptr) return std::nullopt;
    for (const KernelRatio& one : result_.ratios) {
      if (one.row == row->problem.name() && one.what == what) return one.value.p50;
    }
    return std::nullopt;
  }

  void add_dense(DType dtype, const std::array<double, 3>& bounds) {
    std::size_t idx = 0;
    for (const std::int64_t width : {64, 128, 256}) {
      at_least("dense causal, " + dtype_name(dtype) + ", D " + std::to_string(width) +
                   ", of limit(" + dtype_name(dtype) + ")",
               "share", bounds[idx++], share(whole_row("full", dtype, width)));
    }
  }

  void add_learned_sinks() {
    at_least("window 128, learned sinks, D 64, H 64/8, bf16, useful, of limit(bf16)", "share", 0.45,
             share(find([](const KernelProblem& p) { return p.learned_sinks; })));
  }

  void add_windows(DType dtype) {
    const std::string suffix = ", " + dtype_name(dtype);
    const KernelRow* const wide = whole_row("window(512)", dtype, 128);
    const KernelRow* const narrow = whole_row("window(128)", dtype, 128);
    constexpr const char* kOverDense = "useful rate over the dense rate";
    at_least("window 512, useful rate over dense" + suffix, "share", 0.85, ratio(wide, kOverDense));
    at_least("window 128, useful rate over dense" + suffix, "share", 0.60,
             ratio(narrow, kOverDense));
    const auto executed = [](const KernelRow* row) {
      return row == nullptr ? std::nullopt : std::optional(row->executed_per_needed());
    };
    at_most("window 512, executed over needed pairs" + suffix, "ratio", 1.08, executed(wide));
    at_most("window 128, executed over needed pairs" + suffix, "ratio", 1.30, executed(narrow));
    const KernelRow* const united = whole_row("window(512)+sink(4)+global(every=256)", dtype, 128);
    at_least("window 512 + sink 4 + 16 globals, rate over window 512" + suffix, "share", 0.80,
             ratio(united, "useful rate over its first term's"));
  }

  void add_threads(DType dtype) {
    for (const char* attend : {"full", "window(512)"}) {
      at_least(
          std::string("2 threads, gain over the probe's own, ") + attend + ", " + dtype_name(dtype),
          "share", 0.95,
          ratio(whole_row(attend, dtype, 128, 2), "gain by threads over the probe's own"));
    }
  }

  // Time a row of so many over what is allowed: 1.5 times that of 64 rows, or what reading K and V
  // once takes where that is more.
  std::optional<double> over_allowed(const KernelRow& few, const KernelRow& many) const {
    const std::optional<double> of_64 = ratio(&few, "time a row over that of 64 rows");
    if (!of_64) return std::nullopt;
    const double read_seconds =
        static_cast<double>(few.ledger.distinct_bytes) /
        bench::bandwidth_at(result_.bandwidth, few.problem.threads, few.ledger.distinct_bytes);
    const auto a_row = [](const KernelRow& row, double seconds) {
      return seconds / static_cast<double>(row.problem.num_rows());
    };
    const double bound =
        a_row(few, read_seconds) / a_row(many, many.seconds(&KernelRound::whole_seconds).p50);
    return *of_64 / std::max(1.5, bound);
  }

  void add_few_rows(DType dtype, KernelPath path) {
    const auto is_alike = [&](const KernelProblem& p) {
      return p.dtype == dtype && p.path == path;
    };
    const KernelRow* const many =
        find([&](const KernelProblem& p) { return p.rows == 64 && is_alike(p); });
    std::optional<double> worst;
    for (const KernelRow& row : result_.rows) {
      if (many == nullptr || row.problem.rows < 2 || row.problem.rows > 63) continue;
      if (!is_alike(row.problem)) continue;
      if (const auto over = over_allowed(row, *many)) worst = std::max(worst.value_or(0), *over);
    }
    at_most(std::string("2..63 rows over 4096 keys") +
                (path == KernelPath::kRun ? " packed in the call" : "") +
                ", worst time a row over 1.5 × that of 64 rows or the bandwidth bound, " +
                dtype_name(dtype),
            "ratio", 1, worst);
  }

  void add_long_plans() {
    std::optional<double> workspace;
    for (const LongPlan& plan : long_plans_) {
      const double mebibytes = static_cast<double>(plan.workspace_bytes) / kMebibyte;
      workspace = std::max(workspace.value_or(0), mebibytes);
    }
    at_most("forward workspace at 131072 tokens, the largest", "MiB", 64, workspace);
    for (const LongPlan& plan : long_plans_) {
      std::optional<double> share;
      if (plan.run_seconds_estimate) share = plan.plan_seconds.p50 / *plan.run_seconds_estimate;
      at_most("plan for 131072 tokens over running it (estimate), " + plan.problem.attend + ", " +
                  dtype_name(plan.problem.dtype),
              "share", 0.02, share);
    }
  }

  const KernelBenchResult& result_;
  std::span<const LongPlan> long_plans_;
  std::vector<KernelGoal> goals_;
};

}  // namespace

std::vector<KernelGoal> speed_goals(const KernelBenchResult& result,
                                    std::span<const LongPlan> long_plans) {
  return Goals(result, long_plans).all();
}

}  // namespace lacuna

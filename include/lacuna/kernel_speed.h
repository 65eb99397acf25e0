#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lacuna/kernel_bench.h"

namespace lacuna {

// Lists of problems for `lacuna bench kernels`, and what follows from a list's rows together.

// The table of speeds: dense by width and dtype, windows, sinks and globals, two threads, few rows,
// a mask without skipping. Rows of two threads are left out where max_threads is below two.
std::vector<KernelProblem> speed_problems(std::int64_t max_threads);

// Every topology of tests/problems.h, at the longest length up to `longest`.
std::vector<KernelProblem> listed_problems(std::int64_t longest);

// `base` dense and with a window of 512, at every length from, 2·from, … up to `to`. Throws Error
// where they are not 1 <= from <= to.
std::vector<KernelProblem> scan_problems(const KernelProblem& base, std::int64_t from,
                                         std::int64_t to);

// Seconds of a whole call over the lengths of a scan.
struct ScanCurve {
  std::string name;
  std::vector<double> lengths;
  std::vector<double> seconds;  // medians
};
// One curve for each topology of the rows; where they are full and window(w), also a layer of the
// hybrid "window(w)*5, full": the mean of its six.
std::vector<ScanCurve> scan_curves(std::span<const KernelRow> rows);

// A plan for 131072 tokens: what it costs to make, and the memory that run() would need.
struct LongPlan {
  KernelProblem problem;
  Statistics plan_seconds;
  std::int64_t workspace_bytes = 0;
  std::int64_t needed_pairs = 0;
  // Time to run it at the rate of `rate_of`; absent without such a row.
  std::optional<double> run_seconds_estimate;
  std::string rate_of;  // name of the row at 4096 tokens
};
// Those of the table of speeds, each made `repetitions` times; what is done once stop is requested.
std::vector<LongPlan> time_long_plans(std::span<const KernelRow> rows, std::int64_t repetitions,
                                      const std::stop_token& stop);

// A line of the table of speeds: what is wanted and what was measured. Shown, never asserted.
struct KernelGoal {
  std::string what;
  std::string unit;  // "share", "ratio", "MiB", "ms"
  double bound = 0;
  bool at_most = false;         // else at least
  std::optional<double> value;  // absent where a row of it was not timed
  bool met() const { return value && (at_most ? *value <= bound : *value >= bound); }
};
std::vector<KernelGoal> speed_goals(const KernelBenchResult& result,
                                    std::span<const LongPlan> long_plans);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <span>

namespace lacuna {

// Order statistics of repeated measurements, in the unit of the samples.
struct Statistics {
  double p10 = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double min = 0;
  double max = 0;
  std::int64_t num_runs = 0;

  double median() const { return p50; }
};

// The percentile rule of every report: with samples x[0] <= … <= x[n−1], percentile p is the value
// at the place (n−1)·p/100, linear between its two neighbours (type 7 of Hyndman and Fan; the
// default of NumPy and R). So p99 of fewer than 101 runs lies between the two largest: it is shown,
// with the number of runs beside it. `sorted` is ascending and not empty, percent in 0..100; throws
// Error.
double percentile(std::span<const double> sorted, double percent);

// Throws Error where there is no sample or one of them is not finite. The order does not matter.
Statistics statistics_of(std::span<const double> samples);

}  // namespace lacuna

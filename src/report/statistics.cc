#include "lacuna/statistics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) throw Error("percentile of 0 samples; allowed: at least 1");
  if (!(percent >= 0 && percent <= 100)) {
    throw Error("percent is " + std::to_string(percent) + "; allowed: 0..100");
  }
  const double place = static_cast<double>(sorted.size() - 1) * percent / 100;
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  // Written as a weighted mean: exact where the neighbours are equal, no overflow of their
  // difference.
  if (share == 0 || sorted[below] == sorted[above]) return sorted[below];
  return sorted[below] * (1 - share) + sorted[above] * share;
}

Statistics statistics_of(std::span<const double> samples) {
  if (samples.empty()) throw Error("statistics of 0 samples; allowed: at least 1");
  std::vector<double> sorted(samples.begin(), samples.end());
  for (const double sample : sorted) {
    if (!std::isfinite(sample)) {
      throw Error("sample is " + std::to_string(sample) + "; allowed: finite numbers");
    }
  }
  std::sort(sorted.begin(), sorted.end());
  return {.p10 = percentile(sorted, 10),
          .p50 = percentile(sorted, 50),
          .p90 = percentile(sorted, 90),
          .p99 = percentile(sorted, 99),
          .min = sorted.front(),
          .max = sorted.back(),
          .num_runs = static_cast<std::int64_t>(sorted.size())};
}

}  // namespace lacuna

#include "bench/limits.h"

#include <algorithm>

#include "lacuna/probe.h"

namespace lacuna::bench {
namespace {

// Short: it stands beside every timed figure. The machine's mood is what it has to catch.
constexpr std::int64_t kProductRuns = 3;
constexpr std::int64_t kProductRunNs = 3'000'000;

double figure_of(const MeasuredRate& rate, bool cpu_time) {
  return cpu_time ? rate.median / std::max(rate.cpu_share, 1e-3) : rate.median;
}

double rate_of(std::string_view product, std::int64_t num_threads, bool cpu_time) {
  ProbeOptions options;
  options.num_runs = kProductRuns;
  options.run_ns = kProductRunNs;
  const std::optional<FlopRateRow> row = probe_product(product, num_threads, options);
  if (!row) return 0;
  return figure_of(row->flops_per_s, cpu_time);
}

// Whether `a` answers better than `b` for a set of so many bytes.
bool fits_better(const BandwidthFigure& a, const BandwidthFigure& b, std::int64_t bytes) {
  const bool a_holds = a.working_set_bytes >= bytes;
  const bool b_holds = b.working_set_bytes >= bytes;
  if (a_holds != b_holds) return a_holds;
  return a_holds ? a.working_set_bytes < b.working_set_bytes
                 : a.working_set_bytes > b.working_set_bytes;
}

}  // namespace

ProductRates measure_product_rates(std::int64_t num_threads, bool with_bf16, bool cpu_time) {
  return {rate_of("f32", num_threads, cpu_time),
          with_bf16 ? rate_of("bf16", num_threads, cpu_time) : 0};
}

std::vector<BandwidthFigure> measure_bandwidth(std::int64_t num_threads, std::int64_t largest_bytes,
                                               bool cpu_time, const std::stop_token& stop) {
  constexpr std::int64_t kSmallest = 1 << 20;
  ProbeOptions options;
  options.num_threads = num_threads;
  options.num_runs = kProductRuns;
  options.run_ns = kProductRunNs;
  options.max_working_set_bytes = std::max(largest_bytes, kSmallest);
  options.stop = stop;
  std::vector<BandwidthFigure> figures;
  const std::optional<ProbeResult> result = probe(options);
  if (!result) return figures;
  for (const ReadBandwidthRow& row : result->bandwidth) {
    figures.push_back(
        {row.num_threads, row.working_set_bytes, figure_of(row.bytes_per_s, cpu_time)});
  }
  return figures;
}

double bandwidth_at(std::span<const BandwidthFigure> figures, std::int64_t threads,
                    std::int64_t working_set_bytes) {
  const bool measured =
      std::ranges::find(figures, threads, &BandwidthFigure::threads) != figures.end();
  const BandwidthFigure* best = nullptr;
  for (const BandwidthFigure& figure : figures) {
    if (figure.threads != (measured ? threads : 1)) continue;
    if (best == nullptr || fits_better(figure, *best, working_set_bytes)) best = &figure;
  }
  return best->bytes_per_s;
}

}  // namespace lacuna::bench

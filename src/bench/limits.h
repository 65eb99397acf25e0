#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "lacuna/kernel_bench.h"

namespace lacuna::bench {

// What the machine's products reach right now with so many threads. 0: not measured. With
// `cpu_time` per second in which the threads had a CPU.
struct ProductRates {
  double f32_flops_per_s = 0;
  double bf16_flops_per_s = 0;
};
ProductRates measure_product_rates(std::int64_t num_threads, bool with_bf16, bool cpu_time);

// Read bandwidth with one thread and with the most that a problem uses, at working sets up to
// `largest_bytes`; `cpu_time` as above. Empty once stop is requested.
std::vector<BandwidthFigure> measure_bandwidth(std::int64_t num_threads, std::int64_t largest_bytes,
                                               bool cpu_time, const std::stop_token& stop);

// The figure for so many threads at the smallest measured set that is not smaller, else at the
// largest; of one thread where these threads were not measured. REQUIRES: there is a figure.
double bandwidth_at(std::span<const BandwidthFigure> figures, std::int64_t threads,
                    std::int64_t working_set_bytes);

}  // namespace lacuna::bench

#include "lacuna/product_rates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "lacuna/file.h"
#include "machine/probe_dispatch.h"
#include "machine/stored_rates.h"

namespace lacuna {
namespace {

// Well below the time slice of a scheduler: of many such bursts some run undisturbed.
constexpr double kBurstSeconds = 300e-6;
constexpr int kNumBursts = 12;

double burst_seconds(const ProbeKernel& kernel, std::int64_t count) {
  static std::atomic<double> sink;  // or an optimiser may drop the loop
  const auto begin = std::chrono::steady_clock::now();
  sink.store(kernel.multiply_add(count, 1), std::memory_order_relaxed);
  const auto end = std::chrono::steady_clock::now();
  return std::max(std::chrono::duration<double>(end - begin).count(), 1e-9);
}

// Iterations of one burst. The shortest of three is taken, as other work can only lengthen one.
std::int64_t burst_iterations(const ProbeKernel& kernel) {
  std::int64_t count = 64;
  while (true) {
    double taken = kBurstSeconds;
    for (int idx = 0; idx < 3; ++idx) taken = std::min(taken, burst_seconds(kernel, count));
    if (taken >= kBurstSeconds / 4) {
      return static_cast<std::int64_t>(static_cast<double>(count) * kBurstSeconds / taken);
    }
    count *= 4;
  }
}

}  // namespace

std::vector<ProductRate> measure_product_rates() {
  struct Burst {
    const ProbeKernel* kernel;
    std::int64_t iterations;
    double best_seconds;
  };
  std::vector<Burst> bursts;
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    const std::int64_t iterations = burst_iterations(*kernel);
    bursts.push_back({kernel, iterations, burst_seconds(*kernel, iterations)});
  }
  for (int idx = 1; idx < kNumBursts; ++idx) {
    for (Burst& burst : bursts) {
      burst.best_seconds =
          std::min(burst.best_seconds, burst_seconds(*burst.kernel, burst.iterations));
    }
  }
  std::vector<ProductRate> rates;
  for (const auto& [kernel, iterations, seconds] : bursts) {
    const auto flops = static_cast<double>(iterations * kernel->flops_per_iteration);
    rates.push_back({kernel->isa, kernel->product, flops / seconds});
  }
  return rates;
}

const std::vector<ProductRate>& product_rates() {
  static const std::vector<ProductRate> rates = load_or_measure_rates(product_rates_path());
  return rates;
}

std::string product_rates_path() { return default_cache_dir() + "/product_rates.json"; }

}  // namespace lacuna

#include "machine/probe_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "machine/probe_dispatch.h"

namespace lacuna {
namespace {

// The definition of multiply_add in plain loops, for f32; `product_sum` is acc + acc · step with
// one or two roundings.
template <typename ProductSum>
double expected_sum(const ProbeKernel& kernel, std::int64_t num_iterations, float seed,
                    ProductSum product_sum) {
  float sum = 0;
  for (std::int64_t idx = kernel.num_accumulators - 1; idx >= 0; --idx) {
    float acc = seed + static_cast<float>(idx);
    for (std::int64_t iteration = 0; iteration < num_iterations; ++iteration) {
      acc = product_sum(acc, kProbeUp);
      acc = product_sum(acc, kProbeDown);
    }
    sum = idx + 1 == kernel.num_accumulators ? acc : acc + sum;
  }
  return static_cast<double>(kernel.num_lanes) * static_cast<double>(sum);
}

// The same for a dot product, whose sums are all exact.
template <typename Dot>
double expected_dots(const ProbeKernel& kernel, std::int64_t num_iterations, float seed) {
  constexpr Dot dot = {};
  double step = 0;
  for (std::size_t idx = 0; idx < std::size(dot.left); ++idx) {
    step += static_cast<double>(dot.left[idx]) *
            (static_cast<double>(dot.up[idx]) + static_cast<double>(dot.down[idx]));
  }
  double sum = 0;
  for (std::int64_t idx = 0; idx < kernel.num_accumulators; ++idx) {
    sum += static_cast<double>(seed) + static_cast<double>(idx) +
           static_cast<double>(num_iterations) * step;
  }
  return static_cast<double>(kernel.num_lanes) * sum;
}

float fused(float acc, float step) { return std::fma(acc, step, acc); }

float separate(float acc, float step) {
  const float product = acc * step;
  return acc + product;
}

// A loop that multiplies and adds apart measures something else, and no speed would show it where
// both units run side by side.
TEST(ProbeKernel, MultiplyAddIsFusedWhereTheInstructionSetCan) {
  int num_different = 0;
  for (const ProbeKernel* kernel : probe_kernels_of("f32")) {
    const bool is_portable = std::strcmp(kernel->isa, "portable") == 0;
    for (const float seed : {1.5F, 0.3F, 7.7F, 12.34F}) {
      const double result = kernel->multiply_add(1000, seed);
      const double once = expected_sum(*kernel, 1000, seed, fused);
      const double twice = expected_sum(*kernel, 1000, seed, separate);
      num_different += once != twice ? 1 : 0;
      if (is_portable && result == twice) continue;
      EXPECT_EQ(result, once) << kernel->isa << " seed " << seed << ", unfused " << twice;
    }
  }
  EXPECT_GT(num_different, 0) << "the seeds must tell one rounding from two";
}

TEST(ProbeKernel, ValuesKeepTheirSizeThroughALongLoop) {
  for (const ProbeKernel* kernel : probe_kernels_of("f32")) {
    const double begin = kernel->multiply_add(0, 1);
    const double end = kernel->multiply_add(3'000'000, 1);
    EXPECT_GT(end, begin * 0.01) << kernel->isa;
    EXPECT_LT(end, begin * 100) << kernel->isa;
  }
}

// A wrong order of operands multiplies other bytes, or signed ones as unsigned.
TEST(ProbeKernel, DotProductsAreTheSumsOfAllTheirProducts) {
  for (const std::int64_t num_iterations : {0, 1, 1000}) {
    for (const float seed : {1.0F, 7.0F}) {
      for (const ProbeKernel* kernel : probe_kernels_of("bf16")) {
        EXPECT_EQ(kernel->multiply_add(num_iterations, seed),
                  expected_dots<ProbeBf16Dot>(*kernel, num_iterations, seed));
      }
      for (const ProbeKernel* kernel : probe_kernels_of("int8")) {
        EXPECT_EQ(kernel->multiply_add(num_iterations, seed),
                  expected_dots<ProbeInt8Dot>(*kernel, num_iterations, seed));
      }
    }
  }
}

TEST(ProbeKernel, FlopsAreTwoForEachProductOfEachLane) {
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    const std::map<std::string, std::int64_t> products_per_lane = {
        {"f32", 1}, {"bf16", 2}, {"int8", 4}};
    const std::int64_t products = products_per_lane.at(kernel->product);
    EXPECT_EQ(kernel->flops_per_iteration,
              4 * products * kernel->num_lanes * kernel->num_accumulators);
  }
}

TEST(ProbeKernel, EveryMachineMultipliesF32AndReads) {
  EXPECT_FALSE(probe_kernels_of("f32").empty());
  EXPECT_TRUE(probe_kernels_of("f64").empty());
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    EXPECT_EQ(kernel->read != nullptr, std::string(kernel->product) == "f32") << kernel->isa;
  }
}

TEST(ProbeKernel, ReadTouchesEveryByteOfEveryPass) {
  constexpr std::int64_t kBytes = 3 * kProbeReadBytes;
  struct alignas(64) Memory {
    std::uint64_t words[kBytes / 8];
  };
  Memory memory = {};
  for (const ProbeKernel* kernel : probe_kernels_of("f32")) {
    for (std::uint64_t& word : memory.words) {
      word = 1;
      EXPECT_NE(kernel->read(memory.words, kBytes, 1), 0U) << kernel->isa;
      EXPECT_NE(kernel->read(memory.words, kBytes, 3), 0U) << kernel->isa;
      EXPECT_EQ(kernel->read(memory.words, kBytes, 2), 0U) << kernel->isa;  // seen twice: cancels
      word = 0;
    }
  }
}

}  // namespace
}  // namespace lacuna

#include "machine/probe_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "machine/probe_dispatch.h"

namespace lacuna {
namespace {

// The definition of multiply_add in plain loops; `product_sum` is acc + acc · step with one or two
// roundings.
template <typename ProductSum>
float expected_sum(const ProbeKernel& kernel, std::int64_t num_iterations, float seed,
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
  float total = 0;
  for (std::int64_t lane = 0; lane < kernel.num_lanes; ++lane) total += sum;
  return total;
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
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    const bool is_portable = std::strcmp(kernel->isa, "portable") == 0;
    for (const float seed : {1.5F, 0.3F, 7.7F, 12.34F}) {
      const float result = kernel->multiply_add(1000, seed);
      const float once = expected_sum(*kernel, 1000, seed, fused);
      const float twice = expected_sum(*kernel, 1000, seed, separate);
      num_different += once != twice ? 1 : 0;
      if (is_portable && result == twice) continue;
      EXPECT_EQ(result, once) << kernel->isa << " seed " << seed << ", unfused " << twice;
    }
  }
  EXPECT_GT(num_different, 0) << "the seeds must tell one rounding from two";
}

TEST(ProbeKernel, ValuesKeepTheirSizeThroughALongLoop) {
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    const float begin = kernel->multiply_add(0, 1);
    const float end = kernel->multiply_add(3'000'000, 1);
    EXPECT_GT(end, begin * 0.01F) << kernel->isa;
    EXPECT_LT(end, begin * 100) << kernel->isa;
  }
}

TEST(ProbeKernel, FlopsAreTwoMultiplyAddsForEachLane) {
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
    EXPECT_EQ(kernel->flops_per_iteration, 4 * kernel->num_lanes * kernel->num_accumulators);
  }
}

TEST(ProbeKernel, ReadTouchesEveryByteOfEveryPass) {
  constexpr std::int64_t kBytes = 3 * kProbeReadBytes;
  struct alignas(64) Memory {
    std::uint64_t words[kBytes / 8];
  };
  Memory memory = {};
  for (const ProbeKernel* kernel : supported_probe_kernels()) {
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

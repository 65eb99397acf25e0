#include "lacuna/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lacuna/kernels.h"

namespace lacuna {
namespace {

double activated(double x, Activation activation) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(IsaActivation, EqualsTheFunctionInDoublePrecision) {
  std::vector<float> x;
  for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) * 0.01F);
  for (const float large : {-1e30F, -300.0F, -90.0F, 90.0F, 300.0F, 1e10F, -0.0F})
    x.push_back(large);
  const std::vector<float> up(x.size(), 1.5F);
  for (const std::string& isa : kernel_isas()) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      std::vector<float> out(x.size());
      gate(out.data(), x.data(), up.data(), std::ssize(x), activation, isa);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = 1.5 * activated(x[i], activation);
        ASSERT_NEAR(out[i], expected, 3e-7 * std::abs(1.5 * x[i]) + 1e-30) << isa << ' ' << x[i];
      }
    }
  }
}

TEST(IsaActivation, HasTheSameBitsForEveryLengthAndInPlace) {
  for (const std::string& isa : kernel_isas()) {
    for (std::int64_t size = 0; size <= 40; ++size) {
      std::vector<float> x(41, 7.0F), up(41, 2.0F), out(41, -1.0F);
      for (std::size_t i = 0; i < 40; ++i) x[i] = 0.3F * static_cast<float>(i) - 5;
      std::vector<float> all(41);
      gate(all.data(), x.data(), up.data(), 41, Activation::kSilu, isa);
      gate(out.data(), x.data(), up.data(), size, Activation::kSilu, isa);
      for (std::size_t i = 0; i < 41; ++i) {
        ASSERT_EQ(out[i], static_cast<std::int64_t>(i) < size ? all[i] : -1.0F) << isa;
      }
      gate(x.data(), x.data(), up.data(), 41, Activation::kSilu, isa);
      ASSERT_EQ(x, all);
    }
  }
}

TEST(IsaActivation, NotANumberStaysOne) {
  for (const std::string& isa : kernel_isas()) {
    const std::vector<float> x(16, std::numeric_limits<float>::quiet_NaN()), up(16, 1.0F);
    std::vector<float> out(16);
    gate(out.data(), x.data(), up.data(), 16, Activation::kGeluTanh, isa);
    for (const float y : out) EXPECT_TRUE(std::isnan(y)) << isa;
  }
}

}  // namespace
}  // namespace lacuna

#include "model/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace lacuna {
namespace {

using Numbers = std::vector<float>;

Numbers drawn(std::size_t size, unsigned seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Numbers numbers(size);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

// Around the 16 sums that stand beside each other.
constexpr std::array<std::size_t, 10> kSizes = {1, 2, 15, 16, 17, 31, 32, 33, 576, 641};

TEST(RmsNorm, IsAsDefinedInDouble) {
  for (const std::size_t size : kSizes) {
    for (const float scale : {1e-4F, 1.0F, 1e3F}) {
      const Numbers x = drawn(size, 1, scale);
      const Numbers weight = drawn(size, 2);
      Numbers found(size);
      rms_norm(found.data(), x.data(), weight, 1e-3F);
      double squares = 0;
      for (const float number : x) squares += double{number} * number;
      const double root = std::sqrt(squares / static_cast<double>(size) + double{1e-3F});
      for (std::size_t i = 0; i < size; ++i) {
        const double wanted = x[i] / root * weight[i];
        EXPECT_NEAR(found[i], wanted, 1e-6 * std::abs(wanted)) << size << ' ' << scale << ' ' << i;
      }
    }
  }
}

TEST(RmsNorm, MayWriteOverItsInputAndReadsNothingBehindIt) {
  for (const std::size_t size : kSizes) {
    const Numbers x = drawn(size, 3);
    const Numbers weight = drawn(size, 4);
    Numbers apart(size);
    rms_norm(apart.data(), x.data(), weight, 1e-6F);
    Numbers over = x;
    over.push_back(std::numeric_limits<float>::quiet_NaN());
    rms_norm(over.data(), over.data(), weight, 1e-6F);
    EXPECT_EQ(std::memcmp(apart.data(), over.data(), size * sizeof(float)), 0) << size;
    EXPECT_TRUE(std::isnan(over.back()));
  }
}

TEST(RmsNorm, ARowOfZerosStaysZero) {
  const Numbers zeros(20, 0.0F);
  Numbers found(20, 1.0F);
  rms_norm(found.data(), zeros.data(), Numbers(20, 2.0F), 1e-6F);
  EXPECT_EQ(found, zeros);
}

// A pair of dims as one complex number, turned by e^(iθ).
std::complex<double> turned(double a, double b, double angle) {
  return std::complex<double>(a, b) * std::polar(1.0, angle);
}

void expect_rotated(std::int64_t head_dim, std::int64_t position, const Rotary& rotary,
                    const Numbers& divisors, bool neighbours) {
  const auto width = static_cast<std::size_t>(head_dim);
  const Numbers x = drawn(width, 5);
  Numbers found = x;
  rotate(found.data(), angles_of(rotary, divisors, head_dim, position), neighbours);
  for (std::size_t pair = 0; pair < width / 2; ++pair) {
    const std::size_t a = neighbours ? 2 * pair : pair;
    const std::size_t b = neighbours ? 2 * pair + 1 : pair + width / 2;
    const double turns = std::exp(-std::log(rotary.base) * 2 * static_cast<double>(pair) /
                                  static_cast<double>(head_dim));
    const double divisor = divisors.empty() ? 1 : double{divisors[pair]};
    const double angle = static_cast<double>(position) * turns / rotary.factor / divisor;
    const std::complex<double> wanted = turned(x[a], x[b], angle);
    EXPECT_NEAR(found[a], wanted.real(), 1e-6 * std::abs(wanted) + 1e-9 * angle);
    EXPECT_NEAR(found[b], wanted.imag(), 1e-6 * std::abs(wanted) + 1e-9 * angle);
  }
}

TEST(RotaryPositions, TurnPairsOfBothKindsAsDefinedInDouble) {
  for (const bool neighbours : {false, true}) {
    for (const std::int64_t head_dim : {2, 4, 16, 64, 256}) {
      for (const std::int64_t position : {0, 1, 7, 8191, 131071}) {
        expect_rotated(head_dim, position, {10000, 1}, {}, neighbours);
        expect_rotated(head_dim, position, {1e6, 8}, {}, neighbours);
      }
    }
  }
}

TEST(RotaryPositions, DivideEachPairsAngleByItsOwnDivisor) {
  Numbers divisors(8);
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] = 1 + 0.75F * static_cast<float>(i);
  for (const bool neighbours : {false, true}) {
    expect_rotated(16, 100, {500000, 1}, divisors, neighbours);
    expect_rotated(16, 100, {500000, 2}, divisors, neighbours);
  }
}

TEST(RotaryPositions, PositionZeroTurnsNothing) {
  const Numbers x = drawn(64, 6);
  Numbers found = x;
  rotate(found.data(), angles_of({10000, 1}, {}, 64, 0), true);
  EXPECT_EQ(found, x);
}

constexpr std::array<float, 15> kGates = {-100,  -20,  -9, -3, -1, -0.5F, -1e-3F, 0,
                                          1e-3F, 0.5F, 1,  3,  9,  20,    100};

TEST(Gate, SiluIsAsDefinedInDouble) {
  const Numbers up = drawn(kGates.size(), 7);
  Numbers found(kGates.size());
  gate(found.data(), kGates.data(), up.data(), std::ssize(kGates), Activation::kSilu);
  for (std::size_t i = 0; i < kGates.size(); ++i) {
    const double x = kGates[i];
    const double wanted = x / (1 + std::exp(-x)) * up[i];
    // e^100 is beyond f32: what is left is below its smallest normal number.
    EXPECT_NEAR(found[i], wanted, 1e-6 * std::abs(wanted) + 1e-38) << x;
  }
}

TEST(Gate, GeluOfTanhIsAsDefinedInDouble) {
  const Numbers up = drawn(kGates.size(), 8);
  Numbers found(kGates.size());
  gate(found.data(), kGates.data(), up.data(), std::ssize(kGates), Activation::kGeluTanh);
  for (std::size_t i = 0; i < kGates.size(); ++i) {
    const double x = kGates[i];
    const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    const double wanted = 0.5 * x * (1 + std::tanh(inner)) * up[i];
    // 1 + tanh loses digits where tanh is near −1: half an ulp of 1 times x.
    EXPECT_NEAR(found[i], wanted, 1e-6 * std::abs(wanted) + 6e-8 * std::abs(x * up[i])) << x;
  }
}

TEST(Gate, MayBeWrittenOverAndOverflowsToItsLimits) {
  Numbers both = {-1e30F, 1e30F, -200, 200};
  const Numbers up(4, 1.0F);
  gate(both.data(), both.data(), up.data(), 4, Activation::kSilu);
  EXPECT_EQ(both, (Numbers{0, 1e30F, 0, 200}));
}

TEST(SoftCap, IsAsDefinedInDoubleAndNeverAboveTheCap) {
  for (const float cap : {1.0F, 30.0F, 50.0F}) {
    Numbers x = {-1e30F, -100, -31, -1, -1e-3F, 0, 1e-3F, 1, 31, 100, 1e30F};
    const Numbers before = x;
    soft_cap(x, cap);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = double{cap} * std::tanh(double{before[i]} / cap);
      EXPECT_NEAR(x[i], wanted, 1e-6 * std::abs(wanted)) << before[i];
      EXPECT_LE(std::abs(x[i]), cap);
    }
  }
}

TEST(ForRows, VisitsEachRowOnceForAnyThreads) {
  for (const std::int64_t threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const std::int64_t rows : {0, 1, 2, 3, 4, 7, 100}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(rows));
      for_rows(pool, rows, [&](std::int64_t row) { ++visits[static_cast<std::size_t>(row)]; });
      for (const auto& count : visits) EXPECT_EQ(count, 1) << threads << ' ' << rows;
    }
  }
}

}  // namespace
}  // namespace lacuna

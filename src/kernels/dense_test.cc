#include "lacuna/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/kernels.h"
#include "lacuna/tensor.h"

namespace lacuna {
namespace {

using Numbers = std::vector<float>;

Numbers draw(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Numbers numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) x = normal(generator);
  return numbers;
}

DenseWeights pack(DenseType type, const Numbers& w, std::int64_t outputs, std::int64_t inputs,
                  ThreadPool* pool = nullptr) {
  const auto read_row = [&](std::span<float> to, std::int64_t row) {
    std::copy_n(w.begin() + row * inputs, inputs, to.begin());
  };
  return {type, outputs, inputs, read_row, pool};
}

// A matrix of few bits, with what its numbers stand for and the sizes of the terms they are made
// of.
struct FewBits {
  DenseWeights weights;
  Numbers numbers;
  Numbers sizes;
};

FewBits draw_few_bits(int bits, std::int64_t outputs, std::int64_t inputs, unsigned seed,
                      ThreadPool* pool = nullptr) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const std::int64_t row_groups = inputs / kDenseGroup;
  std::vector<DenseGroup> groups(static_cast<std::size_t>(outputs * row_groups));
  FewBits drawn;
  for (DenseGroup& group : groups) {
    group.scale = normal(generator);
    group.offset = 8 * normal(generator);
    const float scale = from_f16(to_f16(group.scale));
    const float offset = from_f16(to_f16(group.offset));
    for (std::uint8_t& number : group.numbers) {
      number = static_cast<std::uint8_t>(generator() % (1U << bits));
      drawn.numbers.push_back(scale * number + offset);
      drawn.sizes.push_back(std::abs(scale) * number + std::abs(offset));
    }
  }
  const auto read = [&](std::span<DenseGroup> to, std::int64_t row) {
    std::copy_n(groups.begin() + row * row_groups, row_groups, to.begin());
  };
  drawn.weights = DenseWeights(bits, outputs, inputs, read, pool);
  return drawn;
}

// [rows, outputs] without the padding.
Numbers product(const Numbers& x, std::int64_t num_rows, const DenseWeights& weights,
                const std::string& isa = "", ThreadPool* pool = nullptr) {
  DenseRows rows(weights.type(), isa);
  rows.set(x.data(), num_rows, weights.inputs(), pool);
  const std::int64_t stride = weights.padded_outputs() + 16;
  const float untouched = 12345;
  Numbers out(static_cast<std::size_t>(num_rows * stride), untouched);
  multiply(out.data(), stride, rows, weights, pool);
  Numbers result;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto begin = out.begin() + row * stride;
    EXPECT_EQ(*(begin + weights.padded_outputs()), untouched);
    result.insert(result.end(), begin, begin + weights.outputs());
  }
  return result;
}

// The definition of lacuna/dense.h: a group of 32 as whole numbers and what they stand for.
Numbers dequantized(const Numbers& x, std::int64_t inputs, bool scale_is_f16) {
  Numbers result = x;
  for (std::size_t first = 0; first < x.size();) {
    const std::size_t at = first % static_cast<std::size_t>(inputs);
    const std::size_t count = std::min<std::size_t>(32, static_cast<std::size_t>(inputs) - at);
    float largest = 0;
    for (std::size_t i = first; i < first + count; ++i) largest = std::max(largest, std::abs(x[i]));
    float scale = largest / 127;
    if (scale_is_f16) scale = from_f16(to_f16(scale));
    for (std::size_t i = first; i < first + count; ++i) {
      const double number = scale > 0 ? std::nearbyint(x[i] / scale) : 0;
      result[i] = static_cast<float>(std::clamp(number, -127.0, 127.0) * scale);
    }
    first += count;
  }
  return result;
}

// sizes: of the terms that a weight is summed from.
void expect_near(const Numbers& out, const Numbers& x, const Numbers& w, const Numbers& sizes,
                 std::int64_t num_rows, std::int64_t outputs, std::int64_t inputs) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t output = 0; output < outputs; ++output) {
      double sum = 0;
      double size = 0;
      for (std::int64_t i = 0; i < inputs; ++i) {
        const double factor = x[static_cast<std::size_t>(row * inputs + i)];
        sum += factor * w[static_cast<std::size_t>(output * inputs + i)];
        size += std::abs(factor * sizes[static_cast<std::size_t>(output * inputs + i)]);
      }
      const double got = out[static_cast<std::size_t>(row * outputs + output)];
      ASSERT_NEAR(got, sum, 1e-6 * size + 1e-30) << row << ' ' << output << " of " << inputs;
    }
  }
}

struct Sizes {
  std::int64_t rows, outputs, inputs;
};
constexpr Sizes kSizes[] = {{1, 1, 1},     {1, 16, 32},   {2, 17, 33},  {3, 31, 31},
                            {4, 32, 64},   {5, 33, 65},   {7, 48, 96},  {8, 15, 576},
                            {9, 100, 100}, {16, 64, 640}, {17, 40, 48}, {33, 16, 160}};

TEST(IsaDense, EqualsTheSumInDoublePrecision) {
  for (const std::string& isa : kernel_isas()) {
    for (const Sizes& sizes : kSizes) {
      const Numbers x = draw(sizes.rows * sizes.inputs, 1);
      const Numbers w = draw(sizes.outputs * sizes.inputs, 2);
      const DenseWeights weights = pack(DenseType::kF32, w, sizes.outputs, sizes.inputs);
      SCOPED_TRACE(isa);
      expect_near(product(x, sizes.rows, weights, isa), x, w, w, sizes.rows, sizes.outputs,
                  sizes.inputs);
    }
  }
}

TEST(IsaDense, OfWholeNumbersEqualsTheSumOfWhatTheyStandFor) {
  for (const std::string& isa : kernel_isas()) {
    for (const Sizes& sizes : kSizes) {
      const Numbers x = draw(sizes.rows * sizes.inputs, 3);
      const Numbers w = draw(sizes.outputs * sizes.inputs, 4);
      const DenseWeights weights = pack(DenseType::kInt8, w, sizes.outputs, sizes.inputs);
      SCOPED_TRACE(isa);
      expect_near(product(x, sizes.rows, weights, isa), dequantized(x, sizes.inputs, false),
                  dequantized(w, sizes.inputs, true), w, sizes.rows, sizes.outputs, sizes.inputs);
    }
  }
}

TEST(IsaDense, OfFewBitsEqualsTheSumOfWhatTheyStandFor) {
  for (const std::string& isa : kernel_isas()) {
    for (const Sizes& sizes : kSizes) {
      const std::int64_t inputs = (sizes.inputs + kDenseGroup - 1) / kDenseGroup * kDenseGroup;
      const Numbers x = draw(sizes.rows * inputs, 3);
      for (const int bits : {4, 5}) {
        const FewBits drawn = draw_few_bits(bits, sizes.outputs, inputs, 4);
        SCOPED_TRACE(isa);
        expect_near(product(x, sizes.rows, drawn.weights, isa), dequantized(x, inputs, false),
                    drawn.numbers, drawn.sizes, sizes.rows, sizes.outputs, inputs);
      }
    }
  }
}

TEST(IsaDense, ARowHasTheSameBitsAloneAndAmongOthersWithAnyThreads) {
  ThreadPool pool(3);
  constexpr std::int64_t kRows = 21, kOutputs = 200, kInputs = 96;
  const Numbers x = draw(kRows * kInputs, 5);
  const Numbers w = draw(kOutputs * kInputs, 6);
  for (const int bits : {32, 8, 5, 4}) {
    const DenseWeights weights = bits < 8 ? draw_few_bits(bits, kOutputs, kInputs, 6, &pool).weights
                                          : pack(bits == 8 ? DenseType::kInt8 : DenseType::kF32, w,
                                                 kOutputs, kInputs, &pool);
    for (const std::string& isa : kernel_isas()) {
      const Numbers all = product(x, kRows, weights, isa, &pool);
      for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 16}) {
        for (std::int64_t first = 0; first + count <= kRows; first += count) {
          const Numbers part(x.begin() + first * kInputs, x.begin() + (first + count) * kInputs);
          const Numbers out = product(part, count, weights, isa);
          ASSERT_EQ(
              std::memcmp(out.data(), all.data() + first * kOutputs, out.size() * sizeof(float)), 0)
              << isa << ' ' << bits << " bits, " << count << " from " << first;
        }
      }
    }
  }
}

TEST(IsaDense, RowsThatAreMadeHaveTheBitsOfThoseThatAreGiven) {
  ThreadPool pool(3);
  for (const Sizes& sizes : kSizes) {
    const std::int64_t num_rows = sizes.rows, outputs = sizes.outputs, inputs = sizes.inputs;
    const Numbers x = draw(num_rows * inputs, 7);
    const Numbers w = draw(outputs * inputs, 8);
    for (const DenseType type : {DenseType::kF32, DenseType::kInt8}) {
      const DenseWeights weights = pack(type, w, outputs, inputs);
      const std::int64_t stride = weights.padded_outputs();
      for (const std::string& isa : kernel_isas()) {
        DenseRows rows(type, isa);
        rows.set(draw(inputs, 9).data(), 1, inputs);  // others before
        rows.make(
            [&](float* to, std::int64_t row) { std::copy_n(x.begin() + row * inputs, inputs, to); },
            num_rows, inputs, &pool);
        Numbers made(static_cast<std::size_t>(num_rows * stride));
        multiply(made.data(), stride, rows, weights);
        rows.set(x.data(), num_rows, inputs);
        Numbers given(made.size());
        multiply(given.data(), stride, rows, weights);
        ASSERT_EQ(std::memcmp(made.data(), given.data(), made.size() * sizeof(float)), 0)
            << isa << ' ' << num_rows << " rows of " << inputs;
      }
    }
  }
}

TEST(IsaDense, ARowThatIsNotFiniteSpoilsNoOther) {
  constexpr std::int64_t kRows = 9, kOutputs = 32, kInputs = 64;
  const Numbers w = draw(kOutputs * kInputs, 7);
  const Numbers x = draw(kRows * kInputs, 8);
  Numbers spoiled = x;
  spoiled[4 * kInputs + 40] = std::numeric_limits<float>::quiet_NaN();
  for (const DenseType type : {DenseType::kF32, DenseType::kInt8}) {
    const DenseWeights weights = pack(type, w, kOutputs, kInputs);
    for (const std::string& isa : kernel_isas()) {
      const Numbers clean = product(x, kRows, weights, isa);
      const Numbers out = product(spoiled, kRows, weights, isa);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (i / kOutputs == 4) {
          ASSERT_TRUE(std::isnan(out[i])) << isa << ' ' << to_string(type);
        } else {
          ASSERT_EQ(out[i], clean[i]) << isa << ' ' << to_string(type);
        }
      }
    }
  }
}

TEST(Dense, ZeroesStayZeroAndPaddingIsNotRead) {
  const DenseWeights weights = pack(DenseType::kInt8, Numbers(40 * 33, 0.0F), 40, 33);
  for (const float out : product(draw(3 * 33, 9), 3, weights)) EXPECT_EQ(out, 0);
}

TEST(Dense, TakesAtMostEightAndAHalfBitsAWeight) {
  const DenseWeights weights = pack(DenseType::kInt8, Numbers(64 * 576, 1.0F), 64, 576);
  EXPECT_EQ(weights.size_bytes(), 64 * 576 * 17 / 16);
  EXPECT_EQ(draw_few_bits(5, 64, 576, 1).weights.size_bytes(), 64 * 576 * 6 / 8);
  EXPECT_EQ(draw_few_bits(4, 64, 576, 1).weights.size_bytes(), 64 * 576 * 5 / 8);
}

TEST(Dense, RefusesWeightsThatAreNotFinite) {
  constexpr float kMost = 127 * 65504.0F;
  for (const DenseType type : {DenseType::kF32, DenseType::kInt8}) {
    Numbers w(20 * 40, 1.0F);
    w[19 * 40 + 39] = kMost;
    EXPECT_NO_THROW(pack(type, w, 20, 40));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::nextafter(kMost, 1e9F),
                            -std::numeric_limits<float>::infinity()}) {
      w[19 * 40 + 39] = bad;
      try {
        pack(type, w, 20, 40);
        FAIL() << bad;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("output 19"), std::string::npos);
      }
    }
  }
}

TEST(Dense, RefusesScalesAndOffsetsThatF16DoesNotHold) {
  for (const float bad : {65520.0F, -65520.0F, std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool in_scale : {true, false}) {
      const auto read = [&](std::span<DenseGroup> to, std::int64_t row) {
        for (DenseGroup& group : to) group = {{}, 65504, -65504};
        if (row == 17) (in_scale ? to.back().scale : to.back().offset) = bad;
      };
      EXPECT_NO_THROW(DenseWeights(4, 17, 64, read));
      try {
        const DenseWeights weights(4, 20, 64, read);
        FAIL() << bad;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("output 17"), std::string::npos);
      }
    }
  }
}

TEST(Dense, RefusesWhatDoesNotFit) {
  const DenseWeights weights = pack(DenseType::kF32, Numbers(20 * 8, 1.0F), 20, 8);
  const Numbers x(8, 1.0F);
  Numbers out(32);
  DenseRows rows(DenseType::kF32);
  rows.set(x.data(), 1, 8);
  EXPECT_THROW(multiply(out.data(), 20, rows, weights), Error);
  rows.set(x.data(), 1, 7);
  EXPECT_THROW(multiply(out.data(), 32, rows, weights), Error);
  DenseRows integers(DenseType::kInt8);
  integers.set(x.data(), 1, 8);
  EXPECT_THROW(multiply(out.data(), 32, integers, weights), Error);
  EXPECT_THROW(pack(DenseType::kF32, {}, 0, 8), Error);
  const auto no_groups = [](std::span<DenseGroup>, std::int64_t) {};
  for (const int bits : {3, 6, 8, 32}) EXPECT_THROW(DenseWeights(bits, 8, 32, no_groups), Error);
  EXPECT_THROW(DenseWeights(4, 8, 33, no_groups), Error);
}

}  // namespace
}  // namespace lacuna

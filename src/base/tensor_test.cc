#include "lacuna/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// A 16-bit format by its definition, in double: sign, `exponent_bits`, the rest mantissa.
struct Format {
  int exponent_bits;
  std::uint16_t (*to)(float);
  float (*from)(std::uint16_t);

  int mantissa_bits() const { return 15 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits());
  }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7FFF) > infinity(); }

  double value(std::uint16_t bits) const {
    const int exponent = (bits & 0x7FFF) >> mantissa_bits();
    const int mantissa = bits & ((1 << mantissa_bits()) - 1);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias() - mantissa_bits())
                                           : std::ldexp((1 << mantissa_bits()) + mantissa,
                                                        exponent - bias() - mantissa_bits());
    return bits & 0x8000 ? -magnitude : magnitude;
  }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const Format kFormats[] = {{8, to_bf16, from_bf16}, {5, to_f16, from_f16}};

std::uint16_t negative(std::uint16_t bits) { return static_cast<std::uint16_t>(bits | 0x8000); }

TEST(SixteenBit, EveryFiniteNumberHasTheValueOfItsDefinition) {
  for (const Format& format : kFormats) {
    for (std::uint32_t all = 0; all <= 0xFFFF; ++all) {
      const auto bits = static_cast<std::uint16_t>(all);
      if ((bits & 0x7FFF) >= format.infinity()) continue;
      ASSERT_EQ(static_cast<double>(format.from(bits)), format.value(bits)) << bits;
      ASSERT_EQ(std::signbit(format.from(bits)), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(SixteenBit, EveryNumberButNanComesBackAsItWas) {
  for (const Format& format : kFormats) {
    for (std::uint32_t all = 0; all <= 0xFFFF; ++all) {
      const auto bits = static_cast<std::uint16_t>(all);
      if (format.is_nan(bits)) continue;
      ASSERT_EQ(format.to(format.from(bits)), bits);
    }
  }
}

TEST(SixteenBit, BetweenNeighboursTheNearerOneIsTakenAndTheEvenOneOfATie) {
  for (const Format& format : kFormats) {
    for (std::uint16_t low = 0; low + 1 < format.infinity(); ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double exact = (format.value(low) + format.value(high)) / 2;
      const auto middle = static_cast<float>(exact);
      ASSERT_EQ(static_cast<double>(middle), exact);
      const std::uint16_t even = low % 2 == 0 ? low : high;
      ASSERT_EQ(format.to(middle), even) << low;
      ASSERT_EQ(format.to(-middle), negative(even)) << low;
      ASSERT_EQ(format.to(std::nextafter(middle, 0.0F)), low);
      ASSERT_EQ(format.to(std::nextafter(middle, kInfinity)), high);
      ASSERT_EQ(format.to(-std::nextafter(middle, 0.0F)), negative(low));
      ASSERT_EQ(format.to(-std::nextafter(middle, kInfinity)), negative(high));
    }
  }
}

TEST(SixteenBit, NumbersOverTheWholeRangeGoToANearestOne) {
  constexpr std::uint32_t kStep = 5'003;  // a prime: meets all exponents and low bits
  for (const Format& format : kFormats) {
    const auto largest = static_cast<std::uint16_t>(format.infinity() - 1);
    for (std::uint32_t bits = 0; bits < 0x7F800000; bits += kStep) {
      const auto number = std::bit_cast<float>(bits);
      const std::uint16_t rounded = format.to(number);
      if (rounded == format.infinity()) {
        ASSERT_GT(static_cast<double>(number), format.value(largest));
        continue;
      }
      const double error = std::abs(format.value(rounded) - static_cast<double>(number));
      for (const int neighbour : {rounded - 1, rounded + 1}) {
        if (neighbour < 0 || neighbour > largest) continue;
        const double value = format.value(static_cast<std::uint16_t>(neighbour));
        ASSERT_LE(error, std::abs(value - static_cast<double>(number))) << number;
      }
    }
  }
}

TEST(SixteenBit, TooLargeNumbersBecomeInfinite) {
  for (const Format& format : kFormats) {
    const auto largest = static_cast<std::uint16_t>(format.infinity() - 1);
    // Half a step above the largest number ties to the even one, which would be the next power.
    const double step = format.value(largest) - format.value(largest - 1);
    const auto limit = static_cast<float>(format.value(largest) + step / 2);
    EXPECT_EQ(format.to(std::nextafter(limit, 0.0F)), largest);
    EXPECT_EQ(format.to(limit), format.infinity());
    EXPECT_EQ(format.to(-limit), negative(format.infinity()));
    EXPECT_EQ(format.to(std::numeric_limits<float>::max()), format.infinity());
    EXPECT_EQ(format.to(kInfinity), format.infinity());
    EXPECT_EQ(format.to(-kInfinity), negative(format.infinity()));
    EXPECT_TRUE(std::isinf(format.from(format.infinity())));
    EXPECT_LT(format.from(negative(format.infinity())), 0);
  }
}

TEST(SixteenBit, NanStaysNanWhateverItsBits) {
  for (const Format& format : kFormats) {
    for (std::uint32_t low = 1; low < 0x00800000; low = low * 3 + 1) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const auto nan = std::bit_cast<float>(sign | 0x7F800000 | low);
        EXPECT_TRUE(format.is_nan(format.to(nan))) << low;
        EXPECT_EQ(format.to(nan) >> 15, static_cast<int>(sign >> 31)) << low;
      }
    }
    for (std::uint32_t all = 0; all <= 0xFFFF; ++all) {
      const auto bits = static_cast<std::uint16_t>(all);
      EXPECT_EQ(std::isnan(format.from(bits)), format.is_nan(bits)) << bits;
    }
  }
}

TEST(SixteenBit, TheSmallestNumbersOfF32GoToZeroWithTheirSign) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  for (const Format& format : kFormats) {
    EXPECT_EQ(format.to(smallest), 0);
    EXPECT_EQ(format.to(-smallest), 0x8000);
    EXPECT_EQ(format.to(-0.0F), 0x8000);
  }
}

TEST(DTypeText, ComesBackAndHasTheSizeOfItsName) {
  const std::pair<const char*, int> rows[] = {{"f32", 4}, {"bf16", 2}, {"f16", 2}};
  for (const auto& [name, bytes] : rows) {
    EXPECT_EQ(to_string(parse_dtype(name)), name);
    EXPECT_EQ(size_bytes(parse_dtype(name)), bytes);
  }
}

TEST(DTypeText, AnUnknownNameIsRefusedWithTheAllowedOnes) {
  const auto message = [](std::string_view name) -> std::string {
    try {
      parse_dtype(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("bf15"), "dtype is 'bf15'; allowed: f32, bf16, f16; did you mean 'bf16'?");
  EXPECT_EQ(message(""), "dtype is ''; allowed: f32, bf16, f16");
  EXPECT_LT(message(std::string(1 << 20, 'x')).size(), 200U);
}

TEST(TensorViews, AContiguousOneVisitsEveryElementOnceInOrder) {
  float data[2 * 3 * 5] = {};
  const TensorView view = tensor_view(data, DType::kF32, {2, 3, 5});
  const MutableTensorView writable = mutable_tensor_view(data, DType::kF32, {2, 3, 5});
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.dtype, DType::kF32);
  EXPECT_EQ(writable.data, data);
  EXPECT_EQ(writable.strides, view.strides);
  EXPECT_EQ(writable.shape, view.shape);
  std::int64_t expected = 0;
  for (std::int64_t token = 0; token < 2; ++token) {
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t dim = 0; dim < 5; ++dim) {
        EXPECT_EQ(view.offset(token, head) + dim * view.strides[2], expected++);
      }
    }
  }
}

TEST(TensorViews, OffsetsExceed32Bits) {
  const TensorView view = tensor_view(nullptr, DType::kF16, {1 << 20, 64, 576});
  EXPECT_EQ(view.offset((1 << 20) - 1, 63), (((std::int64_t{1} << 20) - 1) * 64 + 63) * 576);
}

}  // namespace
}  // namespace lacuna

// What blocks of weights mean: against the numbers of ggml's own Python package, and against the
// definition, read with divisions and remainders and computed in double precision. Products of
// scales and whole numbers are exact there, and rounding the one sum or product twice, to double
// and to f32, gives what rounding once gives.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lacuna/weights.h"

namespace lacuna {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr WeightType kPlain[] = {WeightType::kF32, WeightType::kF16, WeightType::kBf16};
constexpr WeightType kInBlocks[] = {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                    WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4K,
                                    WeightType::kQ5K,  WeightType::kQ6K};

std::vector<WeightType> all_types() {
  std::vector<WeightType> types(std::begin(kPlain), std::end(kPlain));
  types.insert(types.end(), std::begin(kInBlocks), std::end(kInBlocks));
  return types;
}

std::vector<float> numbers_of(const WeightMatrix& matrix, std::int64_t row) {
  std::vector<float> numbers(static_cast<std::size_t>(matrix.cols));
  read_row(numbers, matrix, row);
  return numbers;
}

std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

// --- the definition ------------------------------------------------------------------------------

double half_at(const std::uint8_t* at) {
  const int bits = at[0] + 256 * at[1];
  const double sign = bits < 32768 ? 1 : -1;
  const int exponent = bits / 1024 % 32;
  const int fraction = bits % 1024;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024 + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
}

int low(int byte) { return byte % 16; }
int high(int byte) { return byte / 16; }
int bit_at(int byte, int bit) { return byte >> bit & 1; }
int as_signed(int byte) { return byte < 128 ? byte : byte - 256; }

// Number i of 32 in 16 bytes, the first half of them in the low four bits.
int four_bits(const std::uint8_t* at, int i) { return i < 16 ? low(at[i]) : high(at[i - 16]); }
int fifth_bit(const std::uint8_t* at, int i) { return 16 * bit_at(at[i / 8], i % 8); }

struct SixBits {
  int scale;
  int minimum;
};
SixBits six_bits(const std::uint8_t* at, int run) {
  if (run < 4) return {at[run] % 64, at[run + 4] % 64};
  return {low(at[run + 4]) + at[run - 4] / 64 * 16, high(at[run + 4]) + at[run] / 64 * 16};
}

// Four or five bits of number i in a block of Q4_K or Q5_K, with the scales of its run of 32.
double number_of_run(const std::uint8_t* block, const std::uint8_t* nibbles, int i, int fifth) {
  const int byte = nibbles[i / 64 * 32 + i % 32];
  const int whole = (i % 64 < 32 ? low(byte) : high(byte)) + 16 * fifth;
  const SixBits of_run = six_bits(block + 4, i / 32);
  return half_at(block) * of_run.scale * whole - half_at(block + 2) * of_run.minimum;
}

double number_of_q6_k(const std::uint8_t* block, int i) {
  const int half = i / 128;
  const int quarter = i % 128 / 32;
  const int byte = block[64 * half + quarter % 2 * 32 + i % 32];
  const int two_bits = block[128 + 32 * half + i % 32] >> (2 * quarter) & 3;
  const int whole = (quarter < 2 ? low(byte) : high(byte)) + 16 * two_bits - 32;
  return half_at(block + 208) * as_signed(block[192 + i / 16]) * whole;
}

double number_by_definition(WeightType type, const std::uint8_t* block, int i) {
  switch (type) {
    case WeightType::kQ8_0:
      return half_at(block) * as_signed(block[2 + i]);
    case WeightType::kQ4_0:
      return half_at(block) * (four_bits(block + 2, i) - 8);
    case WeightType::kQ4_1:
      return half_at(block) * four_bits(block + 4, i) + half_at(block + 2);
    case WeightType::kQ5_0:
      return half_at(block) * (four_bits(block + 6, i) + fifth_bit(block + 2, i) - 16);
    case WeightType::kQ5_1:
      return half_at(block) * (four_bits(block + 8, i) + fifth_bit(block + 4, i)) +
             half_at(block + 2);
    case WeightType::kQ4K:
      return number_of_run(block, block + 16, i, 0);
    case WeightType::kQ5K:
      return number_of_run(block, block + 48, i, bit_at(block[16 + i % 32], i / 32));
    case WeightType::kQ6K:
      return number_of_q6_k(block, i);
    default:
      return std::nan("");
  }
}

// Where a block has its halves.
std::vector<std::size_t> halves_of(WeightType type) {
  if (type == WeightType::kQ6K) return {208};
  if (type == WeightType::kQ8_0 || type == WeightType::kQ4_0 || type == WeightType::kQ5_0) {
    return {0};
  }
  return {0, 2};
}

// Random bytes whose scales are finite: infinity times zero has no defined sign.
Bytes random_block(WeightType type) {
  const auto size = static_cast<std::size_t>(block_of(type).bytes);
  Bytes block = *rc::gen::container<Bytes>(size, rc::gen::arbitrary<std::uint8_t>());
  for (const std::size_t half : halves_of(type)) {
    const auto bits = *rc::gen::inRange<std::uint16_t>(0, 2 * 0x7C00);
    const auto half_bits = static_cast<std::uint16_t>(bits < 0x7C00 ? bits : bits + 0x0400);
    std::memcpy(block.data() + half, &half_bits, sizeof(half_bits));
  }
  return block;
}

// --- tests ---------------------------------------------------------------------------------------

TEST(Dequantize, EveryTypeGivesTheBitsOfGgmlsPackage) {
  const WeightFile file(LACUNA_TEST_DATA "/weight_blocks.gguf");
  for (const WeightType type : all_types()) {
    const std::string name(to_string(type));
    const bool plain = block_of(type).size == 1;
    const std::int64_t cols =
        plain ? 75 : (block_of(type).size == 256 ? 3 : 7) * block_of(type).size;
    const WeightMatrix stored = file.matrix(name, 4, cols);
    const WeightMatrix expected = file.matrix("expected." + name, 4, cols);
    ASSERT_EQ(stored.type, type);
    ASSERT_EQ(expected.type, WeightType::kF32);
    for (std::int64_t row = 0; row < 4; ++row) {
      const std::vector<float> numbers = numbers_of(stored, row);
      const std::byte* const wanted = expected.data + row * cols * 4;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, wanted + 4 * i, 4);
        ASSERT_EQ(bits_of(numbers[i]), bits) << name << " row " << row << " number " << i;
      }
    }
  }
}

TEST(Dequantize, EveryNumberIsTheF32NearestToItsDefinition) {
  for (const WeightType type : kInBlocks) {
    EXPECT_TRUE(rc::check(std::string(to_string(type)), [type] {
      const Bytes block = random_block(type);
      const WeightMatrix matrix = {type, 1, block_of(type).size,
                                   reinterpret_cast<const std::byte*>(block.data())};
      const std::vector<float> numbers = numbers_of(matrix, 0);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double exact = number_by_definition(type, block.data(), static_cast<int>(i));
        RC_ASSERT(bits_of(numbers[i]) == bits_of(static_cast<float>(exact)));
      }
    }));
  }
}

TEST(Dequantize, GroupsOfFewBitsStandForTheSameNumbers) {
  for (const WeightType type : kInBlocks) {
    const bool is_known = type != WeightType::kQ8_0 && type != WeightType::kQ6K;
    ASSERT_EQ(group_bits(type) != 0, is_known);
    if (!is_known) continue;
    EXPECT_TRUE(rc::check(std::string(to_string(type)), [type] {
      Bytes blocks = random_block(type);
      const Bytes second = random_block(type);
      blocks.insert(blocks.end(), second.begin(), second.end());
      const WeightMatrix matrix = {type, 1, 2 * block_of(type).size,
                                   reinterpret_cast<const std::byte*>(blocks.data())};
      const std::vector<float> numbers = numbers_of(matrix, 0);
      std::vector<DenseGroup> groups(numbers.size() / kDenseGroup);
      read_groups(groups, matrix, 0);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const DenseGroup& group = groups[i / kDenseGroup];
        const int number = group.numbers[i % kDenseGroup];
        RC_ASSERT(number < 1 << group_bits(type));
        const double exact = double{group.scale} * number + group.offset;
        RC_ASSERT(numbers[i] == static_cast<float>(exact));
      }
    }));
  }
}

TEST(Dequantize, EveryF16AndBf16IsItsValue) {
  std::vector<std::uint16_t> stored(65536);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::uint16_t>(i);
  const auto* const data = reinterpret_cast<const std::byte*>(stored.data());
  const std::vector<float> halves = numbers_of({WeightType::kF16, 1, 65536, data}, 0);
  const std::vector<float> bf16 = numbers_of({WeightType::kBf16, 1, 65536, data}, 0);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const double half = half_at(reinterpret_cast<const std::uint8_t*>(&stored[i]));
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(halves[i])) << i;
    } else {
      EXPECT_EQ(bits_of(halves[i]), bits_of(static_cast<float>(half))) << i;
    }
    EXPECT_EQ(bits_of(bf16[i]), 65536 * i);
  }
}

// Rows of 0, 1, 31, 32, 33 and more numbers: what is read in runs ends where the row ends.
TEST(Dequantize, RowsOfAnyLengthKeepToTheirOwnBytesAndNumbers) {
  constexpr float kUntouched = -7;
  for (const WeightType type : all_types()) {
    const WeightBlock block = block_of(type);
    for (const std::int64_t blocks : {0, 1, 2, 3, 31, 32, 33, 63, 64, 65}) {
      const WeightMatrix shape = {type, 1, blocks * block.size, nullptr};
      // The bytes end with the allocation, and begin at an odd address.
      Bytes bytes(static_cast<std::size_t>(shape.size_bytes()) + 1, 0x11);
      WeightMatrix matrix = shape;
      matrix.data = reinterpret_cast<const std::byte*>(bytes.data() + 1);
      std::vector<float> to(static_cast<std::size_t>(shape.cols) + 2, kUntouched);
      read_row(std::span(to).subspan(1, static_cast<std::size_t>(shape.cols)), matrix, 0);
      EXPECT_EQ(to.front(), kUntouched);
      EXPECT_EQ(to.back(), kUntouched);
      for (std::size_t i = 1; i + 1 < to.size(); ++i) {
        ASSERT_NE(to[i], kUntouched) << to_string(type) << " number " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

// Blocks of ggml-common.h in f32. A scale of 11 bits times a scale of 6 or 8 bits, and times a
// whole number where a minimum is added, fits the 24 bits of f32: in every formula only the last
// operation rounds, so the order of the others does not matter.
//
// Loops have constant counts and unaliased pointers: g++ vectorizes only such ones at -O2.
#include "model/dequantize.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "lacuna/tensor.h"

namespace lacuna::model {
namespace {

using Byte = std::uint8_t;

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

float load_f16(const Byte* from) { return from_f16(load<std::uint16_t>(from)); }

// --- numbers without scales ----------------------------------------------------------------------

float widen_f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// All bits set where `condition` holds: what a vector's comparison gives.
std::uint32_t mask_where(bool condition) { return 0U - static_cast<std::uint32_t>(condition); }

// from_f16 without branches and without subnormal operands, which are slow.
float widen_f16(std::uint16_t bits) {
  const std::uint32_t magnitude = bits & 0x7FFFU;
  const std::uint32_t is_small = mask_where(magnitude < 0x0400U);
  const std::uint32_t exponent = 127U - 15U + (mask_where(magnitude >= 0x7C00U) & (127U - 15U));
  const std::uint32_t normal = (magnitude << 13) + (exponent << 23);
  const float subnormal = std::bit_cast<float>(0x3F000000U | magnitude) - 0.5F;
  const std::uint32_t wide =
      (normal & ~is_small) | (std::bit_cast<std::uint32_t>(subnormal) & is_small);
  const std::uint32_t quiet = mask_where(magnitude > 0x7C00U) & 0x00400000U;
  return std::bit_cast<float>(wide | quiet | (bits & 0x8000U) << 16);
}

template <typename Bits, float (*kWiden)(Bits)>
void widen(float* __restrict to, const std::byte* __restrict from, std::int64_t count,
           WeightBlock /*one number*/) {
  constexpr std::int64_t kRun = 32;
  std::int64_t done = 0;
  for (; done + kRun <= count; done += kRun) {
    Bits bits[kRun];
    std::memcpy(bits, from + done * std::int64_t{sizeof(Bits)}, sizeof(bits));
    for (std::int64_t i = 0; i < kRun; ++i) to[done + i] = kWiden(bits[i]);
  }
  for (; done < count; ++done) {
    to[done] = kWiden(load<Bits>(from + done * std::int64_t{sizeof(Bits)}));
  }
}

// --- blocks of 32 --------------------------------------------------------------------------------

void dequantize_q8_0(float* __restrict to, const Byte* __restrict from) {
  const float scale = load_f16(from);
  for (int i = 0; i < 32; ++i) {
    to[i] = scale * static_cast<float>(static_cast<std::int8_t>(from[2 + i]));
  }
}

// Byte i has the low four bits of numbers i and i + 16.
void join_halves(Byte* __restrict numbers, const Byte* __restrict nibbles) {
  for (int i = 0; i < 16; ++i) {
    numbers[i] = nibbles[i] & 0xFU;
    numbers[16 + i] = static_cast<Byte>(nibbles[i] >> 4);
  }
}

// Bit i of the 32 is the fifth bit of number i.
void add_fifth_bits(Byte* __restrict numbers, const Byte* __restrict fifth) {
  static constexpr Byte kBit[32] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                                    1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  Byte spread[32];
  for (int i = 0; i < 4; ++i) std::memset(spread + 8 * i, fifth[i], 8);
  for (int i = 0; i < 32; ++i) {
    numbers[i] = static_cast<Byte>(numbers[i] | ((spread[i] & kBit[i]) != 0 ? 16 : 0));
  }
}

template <int kOffset>
void scale_whole(float* __restrict to, const Byte* __restrict numbers, float scale) {
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(int{numbers[i]} - kOffset);
}

void scale_and_add(float* __restrict to, const Byte* __restrict numbers, float scale, float add) {
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(int{numbers[i]}) + add;
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, then perhaps a minimum, then perhaps fifth bits, then the
// others.
template <bool kMinimum, bool kFifth>
void unpack_32(DenseGroup* to, const Byte* from) {
  to->scale = load_f16(from);
  const Byte* const bits = from + (kMinimum ? 4 : 2);
  join_halves(to->numbers, bits + (kFifth ? 4 : 0));
  if constexpr (kFifth) add_fifth_bits(to->numbers, bits);
  to->offset = kMinimum ? load_f16(from + 2) : to->scale * (kFifth ? -16 : -8);
}

template <bool kMinimum, bool kFifth>
void dequantize_32(float* to, const Byte* from) {
  DenseGroup group;
  unpack_32<kMinimum, kFifth>(&group, from);
  if constexpr (kMinimum) {
    scale_and_add(to, group.numbers, group.scale, group.offset);
  } else {
    scale_whole<kFifth ? 16 : 8>(to, group.numbers, group.scale);
  }
}

// --- blocks of 256 -------------------------------------------------------------------------------

// Scales and minimums of the 8 runs of 32 numbers in a block of Q4_K or Q5_K: 6 bits each, those of
// the first four runs in a byte, those of the others with their high two bits above these.
struct RunScales {
  float scale[8];
  float minimum[8];
};

RunScales run_scales(const Byte* from) {
  const float scale = load_f16(from);
  const float minimum = load_f16(from + 2);
  const Byte* const packed = from + 4;
  RunScales runs;
  for (int run = 0; run < 4; ++run) {
    const unsigned low = packed[run];
    const unsigned low_minimum = packed[4 + run];
    const unsigned both = packed[8 + run];
    runs.scale[run] = scale * static_cast<float>(low & 63U);
    runs.minimum[run] = minimum * static_cast<float>(low_minimum & 63U);
    runs.scale[4 + run] = scale * static_cast<float>((both & 15U) | (low >> 6) << 4);
    runs.minimum[4 + run] = minimum * static_cast<float>(both >> 4 | (low_minimum >> 6) << 4);
  }
  return runs;
}

// Q4_K, Q5_K. Byte i of each 32 has the low four bits of number i of two runs, one after the other;
// bit `run` of byte i of the 32 before has the fifth bit of number i of the run.
template <bool kFifth>
void unpack_256(DenseGroup* __restrict to, const Byte* __restrict from) {
  const RunScales runs = run_scales(from);
  const Byte* const fifth = from + 16;
  const Byte* nibbles = from + (kFifth ? 48 : 16);
  for (int run = 0; run < 8; run += 2, nibbles += 32) {
    const auto low_bit = static_cast<Byte>(kFifth ? 1U << run : 0U);
    const auto high_bit = static_cast<Byte>(kFifth ? 2U << run : 0U);
    for (int i = 0; i < 32; ++i) {
      to[run].numbers[i] =
          static_cast<Byte>((nibbles[i] & 0xFU) | ((fifth[i] & low_bit) != 0 ? 16 : 0));
      to[run + 1].numbers[i] =
          static_cast<Byte>(nibbles[i] >> 4 | ((fifth[i] & high_bit) != 0 ? 16 : 0));
    }
  }
  for (int run = 0; run < 8; ++run) {
    to[run].scale = runs.scale[run];
    to[run].offset = -runs.minimum[run];
  }
}

template <bool kFifth>
void dequantize_256(float* to, const Byte* from) {
  DenseGroup groups[8];
  unpack_256<kFifth>(groups, from);
  for (const DenseGroup& group : groups) {
    scale_and_add(to, group.numbers, group.scale, group.offset);
    to += kDenseGroup;
  }
}

// Half a block, 128 numbers in four runs of 32: byte i of 64 has the low four bits of number i and
// of number i + 64, byte i of 32 the high two bits of number i of each run.
void dequantize_q6_k_half(float* __restrict to, const Byte* __restrict low,
                          const Byte* __restrict high, const Byte* scales, float scale) {
  Byte numbers[128];
  for (int i = 0; i < 32; ++i) {
    numbers[i] = static_cast<Byte>((low[i] & 0xFU) | (high[i] & 3U) << 4);
    numbers[32 + i] = static_cast<Byte>((low[32 + i] & 0xFU) | (high[i] & 12U) << 2);
    numbers[64 + i] = static_cast<Byte>(low[i] >> 4 | (high[i] & 48U));
    numbers[96 + i] = static_cast<Byte>(low[32 + i] >> 4 | (high[i] & 192U) >> 2);
  }
  for (int run = 0; run < 8; ++run) {
    const float run_scale = scale * static_cast<float>(static_cast<std::int8_t>(scales[run]));
    for (int i = 0; i < 16; ++i) {
      to[16 * run + i] = run_scale * static_cast<float>(int{numbers[16 * run + i]} - 32);
    }
  }
}

void dequantize_q6_k(float* to, const Byte* from) {
  const float scale = load_f16(from + 208);
  for (int half = 0; half < 2; ++half) {
    dequantize_q6_k_half(to + 128 * half, from + 64 * half, from + 128 + 32 * half,
                         from + 192 + 8 * half, scale);
  }
}

// --- all types -----------------------------------------------------------------------------------

template <auto kBlock, typename Number>
void each_block(Number* to, const std::byte* from, std::int64_t num_blocks, WeightBlock block) {
  constexpr std::int64_t kNumbers = std::is_same_v<Number, DenseGroup> ? kDenseGroup : 1;
  const auto* const bytes = reinterpret_cast<const Byte*>(from);
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    kBlock(to + i * block.size / kNumbers, bytes + i * block.bytes);
  }
}

template <bool kMinimum, bool kFifth>
constexpr BlockReader of_32(WeightType type) {
  return {type, each_block<dequantize_32<kMinimum, kFifth>>, kFifth ? 5 : 4,
          each_block<unpack_32<kMinimum, kFifth>>};
}

template <bool kFifth>
constexpr BlockReader of_256(WeightType type) {
  return {type, each_block<dequantize_256<kFifth>>, kFifth ? 5 : 4, each_block<unpack_256<kFifth>>};
}

constexpr BlockReader kBlockReaders[] = {
    {WeightType::kF32, widen<std::uint32_t, widen_f32>},
    {WeightType::kF16, widen<std::uint16_t, widen_f16>},
    {WeightType::kBf16, widen<std::uint16_t, widen_bf16>},
    {WeightType::kQ8_0, each_block<dequantize_q8_0>},
    of_32<false, false>(WeightType::kQ4_0),
    of_32<true, false>(WeightType::kQ4_1),
    of_32<false, true>(WeightType::kQ5_0),
    of_32<true, true>(WeightType::kQ5_1),
    of_256<false>(WeightType::kQ4K),
    of_256<true>(WeightType::kQ5K),
    {WeightType::kQ6K, each_block<dequantize_q6_k>},
};

}  // namespace

std::span<const BlockReader> block_readers() { return kBlockReaders; }

}  // namespace lacuna::model

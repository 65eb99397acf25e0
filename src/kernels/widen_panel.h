#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/pack_panel.h"
#include "kernels/product.h"
#include "machine/simd.h"

// From packed panels of any type to f32 lanes, exactly. For kernel files.
namespace lacuna {
namespace {

// Rows of 16 pairs to rows of 16 f32: of K a step is a pair of dims, of V a pair of keys.
inline void widen_pairs(void* panel, const PackedPanel& pairs, std::int64_t num_rows) {
  auto* to = static_cast<Lane32*>(panel);
  const auto* from = static_cast<const Lane32*>(pairs.numbers);
  const auto widen = [&](I32 halves) {  // low ones
    return pairs.type == ElementType::kBf16 ? shift_left(halves, 16) : as_i32(widen_f16(halves));
  };
  for (std::int64_t row = 0; row < num_rows; row += 2, to += 2 * kPanelKeys, from += kPanelKeys) {
    for (int vec = 0; vec < kVecs; ++vec) {
      const I32 lanes = load_bits(from + vec * kLanes);
      store_bits(to + vec * kLanes, widen(and_bits(lanes, broadcast_bits(0xffffU))));
      if (row + 1 == num_rows) continue;
      store_bits(to + kPanelKeys + vec * kLanes, widen(shift_right(lanes, 16)));
    }
  }
}

inline F32 widen_scales(const std::uint16_t* scales) {
#if defined(__AVX512F__) && !defined(LACUNA_SIMD_COUNTING)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return reinterpret_cast<F32>(
      _mm512_maskz_cvtph_ps(0xffff, halves));  // GCC warns of the plain one
#else
  return widen_f16(load_u16(scales));
#endif
}

// The integer that `bits` bits at `shift` of each lane stand for; int4 is stored as value + 8.
inline F32 integer_at(I32 lanes, int shift, ElementType type) {
  if (type == ElementType::kInt8) {
    return to_f32(shift_right_signed(shift_left(lanes, 24 - shift), 24));
  }
  const I32 number = and_bits(shift_right(lanes, shift), broadcast_bits(0xfU));
  return to_f32(add_bits(number, broadcast_bits(0U - 8U)));
}

// Of the integers of a lane of K, or of the keys of a row of V, the one at `idx`: its first bit.
inline int k_shift(ElementType type, int idx) {
  return type == ElementType::kInt8 ? idx * 8 : idx % 4 * 8 + idx / 4 * 4;
}
inline int v_shift(ElementType type, int idx) {
  return type == ElementType::kInt8 ? idx * 8 : idx % 2 * 8 + idx / 2 * 4;
}

inline void widen_k(void* panel, const PackedPanel& from, std::int64_t head_dim) noexcept {
  if (!is_quantized(dtype_of(from.type))) return widen_pairs(panel, from, head_dim);
  auto* const to = static_cast<float*>(panel);
  const auto* const lanes = static_cast<const Lane32*>(from.numbers);
  const std::int64_t group_dims = from.type == ElementType::kInt4 ? kInt4Group : head_dim;
  const int lane_dims = from.type == ElementType::kInt4 ? 8 : 4;
  for (std::int64_t first = 0; first < head_dim; first += group_dims) {
    for (int vec = 0; vec < kVecs; ++vec) {
      const std::int64_t key = vec * kLanes;
      const F32 scale = widen_scales(from.scales + first / group_dims * kPanelKeys + key);
      for (std::int64_t dim = first; dim < first + group_dims; ++dim) {
        const int shift = k_shift(from.type, static_cast<int>(dim % lane_dims));
        const I32 bits = load_bits(lanes + dim / lane_dims * kPanelKeys + key);
        store(to + dim * kPanelKeys + key, integer_at(bits, shift, from.type) * scale);
      }
    }
  }
}

inline void widen_v(void* panel, const PackedPanel& from, std::int64_t dim_blocks) noexcept {
  if (!is_quantized(dtype_of(from.type))) return widen_pairs(panel, from, dim_blocks * kPanelKeys);
  const bool is_int4 = from.type == ElementType::kInt4;
  const int row_keys = is_int4 ? 4 : 2;
  const std::int64_t group_blocks = is_int4 ? kInt4Group / kDimBlock : dim_blocks;
  for (std::int64_t block = 0; block < dim_blocks; ++block) {
    float scales[kPanelKeys];
    for (int vec = 0; vec < kVecs; ++vec) {
      const std::int64_t key = vec * kLanes;
      store(scales + key, widen_scales(from.scales + block / group_blocks * kPanelKeys + key));
    }
    for (int key = 0; key < kPanelKeys; ++key) {
      const auto* const row = static_cast<const std::uint16_t*>(from.numbers) +
                              (block * kPanelKeys + key) / row_keys * kDimBlock;
      float* const to = static_cast<float*>(panel) + (block * kPanelKeys + key) * kDimBlock;
      const int shift = v_shift(from.type, key % row_keys);
      for (int vec = 0; vec < kVecs; ++vec) {
        const I32 bits = load_u16(row + vec * kLanes);
        store(to + vec * kLanes, integer_at(bits, shift, from.type) * broadcast(scales[key]));
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

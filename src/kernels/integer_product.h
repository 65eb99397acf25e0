#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/product.h"
#include "machine/simd.h"

// The products of whole numbers: rows of q in int8 with K in int8 or int4, weights in int16 with V.
// Sums are exact in 32 bits: 576·255·127 of a score, 256·32767·127 of a block of values. For kernel
// files.
namespace lacuna {
namespace {

// As bytes without a sign: number + kBias. What that adds to a score, kBias·Σ q, a row knows.
struct Int8Keys {
  using Sum = I32;
  static constexpr int kBias = 128;
  static constexpr int kRowLanes = 16;
  static constexpr int kParts = 1;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    parts[0] = xor_bits(load_shared(row + vec * kLanes), broadcast_bits(0x80808080U));
  }
  static I32 step(I32 acc, std::uint32_t q, I32 k) { return dot_u8_i8(acc, k, broadcast_bits(q)); }
};

struct Int4Keys {
  using Sum = I32;
  static constexpr int kBias = 8;
  static constexpr int kRowLanes = 16;
  static constexpr int kParts = 2;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    const I32 lanes = load_shared(row + vec * kLanes);
    parts[0] = and_bits(lanes, broadcast_bits(0x0f0f0f0fU));
    parts[1] = and_bits(shift_right(lanes, 4), broadcast_bits(0x0f0f0f0fU));
  }
  static I32 step(I32 acc, std::uint32_t q, I32 k) { return dot_u8_i8(acc, k, broadcast_bits(q)); }
};

// Softmax leaves weights in f32: they are rounded with V's scales. kGroupDims: dims that share a
// scale; 0: all.
struct Int8Product {
  using Sum = I32;
  using Keys = Int8Keys;
  static constexpr ElementType kLanesHold = ElementType::kInt8;
  static constexpr int kGroupDims = 0;
  static constexpr int kBias = 0;  // of V
  static constexpr int kPanelSteps = kPanelKeys / 2;
  static constexpr int kRowLanes = 8;
  static constexpr int kParts = 1;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(row);
    parts[0] = load_shared_pairs_i8(bytes + vec * 2 * kLanes);
  }
  static I32 step(I32 acc, std::uint32_t weights, I32 v) {
    return dot_i16(acc, broadcast_bits(weights), v);
  }
};

struct Int4Product {
  using Sum = I32;
  using Keys = Int4Keys;
  static constexpr ElementType kLanesHold = ElementType::kInt4;
  static constexpr int kGroupDims = kInt4Group;
  static constexpr int kBias = 8;
  static constexpr int kPanelSteps = kPanelKeys / 4;
  static constexpr int kRowLanes = 8;
  static constexpr int kParts = 2;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(row);
    const I32 lanes = load_shared_pairs_u8(bytes + vec * 2 * kLanes);
    parts[0] = and_bits(lanes, broadcast_bits(0x000f000fU));
    parts[1] = and_bits(shift_right(lanes, 4), broadcast_bits(0x000f000fU));
  }
  static I32 step(I32 acc, std::uint32_t weights, I32 v) {
    return dot_i16(acc, broadcast_bits(weights), v);
  }
};

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/integer_product.h"
#include "kernels/kernel_table.h"
#include "kernels/product.h"
#include "kernels/put_tokens.h"
#include "kernels/widen_panel.h"
#include "machine/simd.h"

// Products of rows with packed weights (lacuna/dense.h). For kernel files.
//
// A row's sums run over its inputs in order, whatever the other rows are, so that it has the same
// bits in every register block.
namespace lacuna {
namespace {

// ---- f32 ----------------------------------------------------------------------------------------

struct F32Dense {
  static constexpr int kRows = kRegisterRows;
  static constexpr int kPanels = kRegisterPanels;
  static std::int64_t panel_bytes(std::int64_t inputs) { return inputs * kPanelKeys * 4; }

  template <int kRows, int kPanels>
  static void block(float* out, std::int64_t out_stride, const Lane32* x, std::int64_t row_lanes,
                    const std::byte* panels, std::int64_t inputs) {
    F32 acc[kRows][kPanels * kVecs];
    set_zero(acc);
    const Lane32* at[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      at[p] = reinterpret_cast<const Lane32*>(panels + p * panel_bytes(inputs));
    }
    rank_update<F32Product>(acc, x, row_lanes, at, inputs, AskNothing{});
    store_rows(out, out_stride, acc);
  }
};

// ---- Whole numbers ------------------------------------------------------------------------------

// Rows of a block, by two pointers and one distance: with one pointer g++ keeps a distance for each
// row, for which there are not registers enough.
class BlockRows {
 public:
  BlockRows(const Lane32* first, std::int64_t row_lanes)
      : low_(first), high_(first + kHalf * row_lanes), row_lanes_(row_lanes) {}
  const Lane32* operator[](int row) const {
    return row < kHalf ? low_ + row * row_lanes_ : high_ + (row - kHalf) * row_lanes_;
  }
  void skip(std::int64_t lanes) {
    low_ += lanes;
    high_ += lanes;
    asm("" : "+r"(high_));  // no longer known to be low_ + kHalf * row_lanes_
  }

 private:
  static constexpr int kHalf = 3;
  const Lane32* low_;
  const Lane32* high_;
  std::int64_t row_lanes_;
};

// Weights of kBits. Numbers of 8 bits are stored + 128, which a row's group takes off in whole
// numbers; those of 4 and 5 have an offset in f32.
template <int kBits>
struct IntegerDense {
#if defined(__AVX512F__)
  static constexpr int kRows = 6;
#else
  static constexpr int kRows = 2;
#endif
  static constexpr int kPanels = kRegisterPanels;
  static constexpr bool kHasOffsets = kBits < 8;
  static std::int64_t panel_bytes(std::int64_t inputs) {
    return num_dense_groups(inputs) * dense_group_bytes(kBits);
  }

  // Four numbers of each of kLanes outputs: those of a step of a group.
  static I32 numbers_at(const std::byte* group, int step) {
    constexpr int kLineBytes = kPanelKeys * 4;
    if constexpr (kBits == 8) return load_bits(group + step * kLineBytes);
    const I32 line = load_bits(group + step % 4 * kLineBytes);
    const I32 low = and_bits(step < 4 ? line : shift_right(line, 4), broadcast_bits(0x0f0f0f0fU));
    if constexpr (kBits == 4) return low;
    const I32 fifth = load_bits(group + 4 * kLineBytes);  // bit `step` of each byte
    const I32 moved = step < 4 ? shift_left(fifth, 4 - step) : shift_right(fifth, step - 4);
    return or_bits(low, and_bits(moved, broadcast_bits(0x10101010U)));
  }

  template <int kRows, int kPanels>
  static void block(float* out, std::int64_t out_stride, const Lane32* x, std::int64_t row_lanes,
                    const std::byte* panels, std::int64_t inputs) {
    constexpr int kCols = kPanels * kVecs;
    F32 sums[kRows][kCols];
    set_zero(sums);
    const std::int64_t groups = num_dense_groups(inputs);
    const std::byte* at[kCols];
    for (int c = 0; c < kCols; ++c) {
      at[c] = panels + c / kVecs * panel_bytes(inputs) + c % kVecs * kLanes * 4;
    }
    BlockRows rows(x, row_lanes);
    for (std::int64_t group = 0; group < groups; ++group, rows.skip(kDenseRowLanes)) {
      I32 acc[kRows][kCols] = {};
      for (int r = 0; r < kRows && !kHasOffsets; ++r) {
        for (int c = 0; c < kCols; ++c) acc[r][c] = broadcast_bits(rows[r][kDenseGroupLanes]);
      }
#pragma GCC unroll 8
      for (int step = 0; step < kDenseGroupLanes; ++step) {
        I32 numbers[kCols];
#pragma GCC unroll 32
        for (int c = 0; c < kCols; ++c) numbers[c] = numbers_at(at[c], step);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const I32 row = broadcast_bits(rows[r][step]);
#pragma GCC unroll 32
          for (int c = 0; c < kCols; ++c) acc[r][c] = dot_u8_i8(acc[r][c], numbers[c], row);
        }
      }
#pragma GCC unroll 32
      for (int c = 0; c < kCols; ++c) {
        const auto* const scales = reinterpret_cast<const std::uint16_t*>(
            at[c] - c % kVecs * kLanes * 4 + dense_number_bytes(kBits));
        add_group(sums, acc, c, scales + c % kVecs * kLanes, rows);
        at[c] += dense_group_bytes(kBits);
      }
    }
    store_rows(out, out_stride, sums);
  }

  template <int kRows, int kCols>
  static void add_group(F32 (&sums)[kRows][kCols], const I32 (&acc)[kRows][kCols], int c,
                        const std::uint16_t* scales, const BlockRows& rows) {
    const F32 scale = widen_scales(scales);
    const F32 offset = kHasOffsets ? widen_scales(scales + kPanelKeys) : F32{};
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const Lane32* const tail = rows[r] + kDenseGroupLanes + 1;  // its scale, then scale · Σ
      const F32 of_row = as_f32(broadcast_bits(tail[0]));
      sums[r][c] = fused(to_f32(acc[r][c]), scale * of_row, sums[r][c]);
      if constexpr (kHasOffsets) {
        sums[r][c] = fused(offset, as_f32(broadcast_bits(tail[1])), sums[r][c]);
      }
    }
  }
};

// Numbers of a group of activations, what they take off a sum, and their scale.
inline void pack_dense_group(Lane32* to, const float* x) {
  constexpr float kLimit = 127;
  I32 largest = broadcast_bits(0);
  for (int at = 0; at < kDenseGroup; at += kLanes) {
    largest = max_bits(largest, and_bits(load_bits(x + at), broadcast_bits(0x7fffffffU)));
  }
  const auto bits = static_cast<std::uint32_t>(reduce_max_bits(largest));
  float scale = 0;
  std::memcpy(&scale, &bits, 4);
  scale = bits < kInfinityBits ? scale / kLimit : std::numeric_limits<float>::quiet_NaN();
  I32 sums = broadcast_bits(0);
  for (int at = 0; at < kDenseGroup; at += kLanes) {
    const I32 numbers = integers(load(x + at), scale, kLimit);
    sums = add_bits(sums, numbers);
    store_low8(reinterpret_cast<std::uint8_t*>(to) + at, numbers);
  }
  const std::int32_t sum = reduce_add_bits(sums);
  to[kDenseGroupLanes] = static_cast<std::uint32_t>(-128 * sum);
  const float tail[] = {scale, scale * static_cast<float>(sum)};
  std::memcpy(to + kDenseGroupLanes + 1, tail, sizeof(tail));
}

inline void pack_dense_row(void* row, const float* x, std::int64_t inputs) noexcept {
  auto* lanes = static_cast<Lane32*>(row);
  std::int64_t first = 0;
  for (; first + kDenseGroup <= inputs; first += kDenseGroup, lanes += kDenseRowLanes) {
    pack_dense_group(lanes, x + first);
  }
  if (first == inputs) return;
  float rest[kDenseGroup] = {};
  std::memcpy(rest, x + first, static_cast<std::size_t>(inputs - first) * sizeof(float));
  pack_dense_group(lanes, rest);
}

// ---- Blocks -------------------------------------------------------------------------------------

// All rows with kPanels panels from `panels` on, `kRows` at a time and then what is left.
template <typename Dense, int kRows, int kPanels>
void dense_rows(float* out, std::int64_t out_stride, const DenseRowBlock& rows,
                const std::byte* panels, std::int64_t first) {
  const auto* const x = static_cast<const Lane32*>(rows.lanes);
  for (; first + kRows <= rows.num_rows; first += kRows) {
    Dense::template block<kRows, kPanels>(out + first * out_stride, out_stride,
                                          x + first * rows.row_lanes, rows.row_lanes, panels,
                                          rows.inputs);
  }
  if constexpr (kRows > 1) {
    if (first < rows.num_rows) {
      dense_rows<Dense, kRows / 2, kPanels>(out, out_stride, rows, panels, first);
    }
  }
}

// A few rows wait for memory: they read it panel after panel (see kReadsInOrder).
template <typename Dense>
void multiply_panels(float* out, std::int64_t out_stride, const DenseRowBlock& rows,
                     const DensePanelBlock& weights) noexcept {
  const std::byte* at = weights.panels;
  std::int64_t num_panels = weights.num_panels;
  const std::int64_t bytes = Dense::panel_bytes(rows.inputs);
  if (2 * rows.num_rows > Dense::kRows) {
    for (; num_panels >= Dense::kPanels; num_panels -= Dense::kPanels) {
      dense_rows<Dense, Dense::kRows, Dense::kPanels>(out, out_stride, rows, at, 0);
      out += Dense::kPanels * kPanelKeys;
      at += Dense::kPanels * bytes;
    }
  }
  for (; num_panels > 0; --num_panels) {
    dense_rows<Dense, Dense::kRows, 1>(out, out_stride, rows, at, 0);
    out += kPanelKeys;
    at += bytes;
  }
}

inline void multiply_integers(float* out, std::int64_t out_stride, const DenseRowBlock& rows,
                              const DensePanelBlock& weights) noexcept {
  const auto multiply = weights.bits == 8   ? multiply_panels<IntegerDense<8>>
                        : weights.bits == 5 ? multiply_panels<IntegerDense<5>>
                                            : multiply_panels<IntegerDense<4>>;
  multiply(out, out_stride, rows, weights);
}

}  // namespace
}  // namespace lacuna

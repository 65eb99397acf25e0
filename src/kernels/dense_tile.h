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

struct Int8Dense {
#if defined(__AVX512F__)
  static constexpr int kRows = 4;
#else
  static constexpr int kRows = 2;
#endif
  static constexpr int kPanels = kRegisterPanels;
  static std::int64_t panel_bytes(std::int64_t inputs) {
    return num_dense_groups(inputs) * kDenseGroupBytes;
  }

  template <int kRows, int kPanels>
  static void block(float* out, std::int64_t out_stride, const Lane32* x, std::int64_t row_lanes,
                    const std::byte* panels, std::int64_t inputs) {
    constexpr int kCols = kPanels * kVecs;
    F32 sums[kRows][kCols];
    set_zero(sums);
    const std::int64_t panel = panel_bytes(inputs);
    const std::int64_t groups = num_dense_groups(inputs);
    for (std::int64_t group = 0; group < groups; ++group, x += kDenseRowLanes) {
      const std::byte* const from = panels + group * kDenseGroupBytes;
      I32 acc[kRows][kCols];
      set_rows(acc, x + kDenseGroupLanes, row_lanes);
#pragma GCC unroll 8
      for (int step = 0; step < kDenseGroupLanes; ++step) {
        I32 numbers[kCols];
#pragma GCC unroll 32
        for (int c = 0; c < kCols; ++c) {
          numbers[c] = load_bits(from + c / kVecs * panel + step * 64 + c % kVecs * kLanes * 4);
        }
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const I32 row = broadcast_bits(x[r * row_lanes + step]);
#pragma GCC unroll 32
          for (int c = 0; c < kCols; ++c) acc[r][c] = dot_u8_i8(acc[r][c], numbers[c], row);
        }
      }
#pragma GCC unroll 32
      for (int c = 0; c < kCols; ++c) {
        const auto* const scales = reinterpret_cast<const std::uint16_t*>(
            from + c / kVecs * panel + kDenseGroupLanes * kPanelKeys * 4);
        const F32 scale = widen_scales(scales + c % kVecs * kLanes);
#pragma GCC unroll 32
        for (int r = 0; r < kRows; ++r) {
          const F32 of_row = as_f32(broadcast_bits(x[r * row_lanes + kDenseGroupLanes + 1]));
          sums[r][c] = fused(to_f32(acc[r][c]), scale * of_row, sums[r][c]);
        }
      }
    }
    store_rows(out, out_stride, sums);
  }
};

// Scale and numbers of each group of one row of activations.
inline void pack_dense_row(void* row, const float* x, std::int64_t inputs) noexcept {
  constexpr float kLimit = 127;
  auto* lanes = static_cast<Lane32*>(row);
  for (std::int64_t first = 0; first < inputs; first += kDenseGroup, lanes += kDenseRowLanes) {
    float group[kDenseGroup] = {};
    const std::int64_t count = inputs - first < kDenseGroup ? inputs - first : kDenseGroup;
    std::memcpy(group, x + first, static_cast<std::size_t>(count) * sizeof(float));
    I32 largest = broadcast_bits(0);
    for (int at = 0; at < kDenseGroup; at += kLanes) {
      largest = max_bits(largest, and_bits(load_bits(group + at), broadcast_bits(0x7fffffffU)));
    }
    const auto bits = static_cast<std::uint32_t>(reduce_max_bits(largest));
    float scale = 0;
    std::memcpy(&scale, &bits, 4);
    scale = bits < kInfinityBits ? scale / kLimit : std::numeric_limits<float>::quiet_NaN();
    std::int8_t numbers[kDenseGroup];
    for (int at = 0; at < kDenseGroup; at += kLanes) {
      store_low8(reinterpret_cast<std::uint8_t*>(numbers) + at,
                 integers(load(group + at), scale, kLimit));
    }
    std::int32_t sum = 0;
    for (const std::int8_t number : numbers) sum += number;
    std::memcpy(lanes, numbers, sizeof(numbers));
    lanes[kDenseGroupLanes] = static_cast<std::uint32_t>(-128 * sum);
    std::memcpy(lanes + kDenseGroupLanes + 1, &scale, sizeof(scale));
  }
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
                     const void* panels, std::int64_t num_panels) noexcept {
  const auto* at = static_cast<const std::byte*>(panels);
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

}  // namespace
}  // namespace lacuna

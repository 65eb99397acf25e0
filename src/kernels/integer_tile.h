#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/integer_product.h"
#include "kernels/put_tokens.h"
#include "kernels/softmax_rows.h"
#include "kernels/widen_panel.h"

// The tiles over whole numbers. A row of q has one scale, weights of a row and block (and of the
// dims that share V's scale) have one too:
//
//   S[r][j] = q_scale[r] · Σ_g k_scale[g][j] · Σ_{d in g} q[r][d]·k[j][d]
//   o'[r][d] = o[r][d] + unit · Σ_j w[r][j]·v[j][d],  w[r][j] = round(P[r][j]·v_scale[g][j] / unit)
//
// with unit = max_j P·v_scale / 32767. For kernel files.
namespace lacuna {
namespace {

// ---- Rows of q ----------------------------------------------------------------------------------

constexpr std::int64_t integer_q_lanes(std::int64_t dim) { return (dim + 15) / 16 * 4; }

template <typename Product>
std::int64_t num_groups(std::int64_t dim) {
  return Product::kGroupDims == 0 ? 1 : dim / kInt4Group;
}

template <typename Product>
void pack_q_integers(void* row, const void* vector, ElementType type, std::int64_t dim_stride,
                     std::int64_t dim) noexcept {
  end_shared_loads();
  constexpr float kLimit = 127;
  auto* const bytes = static_cast<std::uint8_t*>(row);
  const Vectors one = {&vector, element_bytes(type), dim_stride, dim};
  const std::int64_t padded_dim = (dim + 15) / 16 * 16;
  float scale = 0;
  with_type(type, [&]<ElementType kType>() {
    const std::uint32_t largest = largest_size<kType>(one, 0, dim);
    std::memcpy(&scale, &largest, 4);
    scale = largest < kInfinityBits ? scale / kLimit : std::numeric_limits<float>::quiet_NaN();
    for_pieces<1, kLanes>(one, padded_dim, [&](std::int64_t first, const auto& pieces) {
      store_low8(bytes + first, integers(as_f32(widened<kType>(pieces[0])), scale, kLimit));
    });
  });
  Lane32* const tail = static_cast<Lane32*>(row) + integer_q_lanes(dim);
  const std::int64_t groups = num_groups<Product>(dim);
  const std::int64_t group_dims = groups == 1 ? padded_dim : kInt4Group;
  for (std::int64_t group = 0; group < groups; ++group) {
    std::int32_t sum = 0;
    for (std::int64_t d = 0; d < group_dims; ++d) {
      sum += static_cast<std::int8_t>(bytes[group * group_dims + d]);
    }
    tail[group] = static_cast<std::uint32_t>(-Product::Keys::kBias * sum);
  }
  std::memcpy(tail + groups, &scale, 4);
}

// ---- Score tile ---------------------------------------------------------------------------------

template <typename Product, int kRows, int kPanels>
void score_integer_panels(float* scores, const Lane32* q, const PanelBlock& block, int slot,
                          const BlockShape& shape, const SoonPanels* soon) {
  using Keys = typename Product::Keys;
  const std::int64_t groups =
      Product::kGroupDims == 0 ? 1 : shape.k_steps * 8 / Product::kGroupDims;
  const std::int64_t group_steps = shape.k_steps / groups;
  const std::int64_t tail = shape.q_lanes - groups - 1;
  for (int r = 0; r < kRows && Product::kGroupDims != 0; ++r) {
    for (int c = 0; c < kPanels * kVecs; ++c) store(scores + r * kBlockKeys + c * kLanes, F32{});
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    I32 acc[kRows][kPanels * kVecs];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kPanels * kVecs; ++c) {
        acc[r][c] = broadcast_bits(q[r * shape.q_lanes + tail + group]);
      }
    }
    const Lane32* panels[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      panels[p] = static_cast<const Lane32*>(block.k[slot + p]) + group * group_steps * kPanelKeys;
    }
    const Steps steps = {0, group_steps};
    const Lane32* const rows = q + group * group_steps * Keys::kParts;
    if (Soon<kPanels> lines; soon_of(lines, soon, slot, group * group_steps, group_steps)) {
      rank_update<Keys>(acc, rows, shape.q_lanes, panels, steps, lines);
    } else {
      rank_update<Keys>(acc, rows, shape.q_lanes, panels, steps);
    }
    for (int c = 0; c < kPanels * kVecs; ++c) {
      const std::uint16_t* const scales = block.k_scales[slot + c / kVecs];
      const F32 k_scale = widen_scales(scales + group * kPanelKeys + c % kVecs * kLanes);
      for (int r = 0; r < kRows; ++r) {
        float* const at = scores + r * kBlockKeys + c * kLanes;
        const F32 q_scale = as_f32(broadcast_bits(q[r * shape.q_lanes + tail + groups]));
        const F32 sum = to_f32(acc[r][c]);
        if constexpr (Product::kGroupDims == 0) {
          store(at, sum * (k_scale * q_scale));
        } else {
          store(at, fused(sum, k_scale * q_scale, load(at)));
        }
      }
    }
  }
}

template <typename Product, int kRows>
void score_integer_rows(float* scores, const Lane32* q, const PanelBlock& block,
                        const BlockShape& shape, const SoonPanels* soon) {
  int slot = 0;
  for (; slot + kRegisterPanels <= block.num_panels; slot += kRegisterPanels) {
    score_integer_panels<Product, kRows, kRegisterPanels>(scores + slot * kPanelKeys, q, block,
                                                          slot, shape, soon);
  }
  for (; slot < block.num_panels; ++slot) {
    score_integer_panels<Product, kRows, 1>(scores + slot * kPanelKeys, q, block, slot, shape,
                                            soon);
  }
}

// ---- Weights ------------------------------------------------------------------------------------

constexpr std::int64_t kWeightLanes = kBlockKeys / 2;

// Weights of a group of rows for the dims that share V's scales.
struct IntegerWeights {
  Lane32 lanes[kGroupRows][kWeightLanes];  // pairs of int16
  float units[kGroupRows];
  std::int32_t offsets[kGroupRows];  // −bias·Σ of a row's weights
};

// P·v_scale of the keys that the row reads, and the largest of them as bits.
inline std::uint32_t scale_weights(float* scaled, const float* weights, const float* v_scales,
                                   const PanelBlock& block, std::int64_t token) {
  I32 largest = broadcast_bits(0);
  for (int slot = 0; slot < block.num_panels; ++slot) {
    for (int vec = 0; vec < kVecs; ++vec) {
      const int at = slot * kPanelKeys + vec * kLanes;
      F32 x = load(weights + at) * load(v_scales + at);
      if (block.masks[slot] != nullptr) {
        x = select(mask_bits(block.masks[slot], token, vec), x, F32{});
      }
      store(scaled + at, x);
      largest = max_bits(largest, and_bits(as_i32(x), broadcast_bits(0x7fffffffU)));
    }
  }
  return static_cast<std::uint32_t>(reduce_max_bits(largest));
}

template <typename Product>
void round_weights(IntegerWeights& to, std::int64_t idx, const float* weights,
                   const float* v_scales, const PanelBlock& block, std::int64_t token) {
  constexpr float kLimit = 32767;
  constexpr float kLeast = 0x1p-100F;  // so that its reciprocal is finite
  float scaled[kBlockKeys];
  const std::uint32_t bits = scale_weights(scaled, weights, v_scales, block, token);
  float largest = 0;
  std::memcpy(&largest, &bits, 4);
  to.units[idx] = (largest > kLeast || !(largest == largest) ? largest : kLeast) / kLimit;
  const F32 factor = broadcast(largest > kLeast ? kLimit / largest : kLimit / kLeast);
  auto* const halves = reinterpret_cast<std::uint16_t*>(to.lanes[idx]);
  I32 sum = broadcast_bits(0);
  for (int vec = 0; vec < block.num_panels * kVecs; ++vec) {
    const I32 numbers = round_to_int(load(scaled + vec * kLanes) * factor);
    store_low16(halves + vec * kLanes, numbers);
    if constexpr (Product::kBias != 0) {
      sum = add_bits(sum, and_bits(numbers, broadcast_bits(0xffffU)));
    }
  }
  to.offsets[idx] = Product::kBias == 0 ? 0 : -Product::kBias * reduce_add_bits(sum);
}

// ---- Value tile ---------------------------------------------------------------------------------

template <typename Product, int kRows, int kBlocks>
void integer_value_blocks(float* o, std::int64_t o_stride, const IntegerWeights& weights,
                          std::int64_t first_row, const PanelBlock& block, std::int64_t first_block,
                          const float* factors) {
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * Product::kRowLanes;
  I32 acc[kRows][kBlocks * kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kBlocks * kVecs; ++c) {
      acc[r][c] = broadcast_bits(static_cast<std::uint32_t>(weights.offsets[first_row + r]));
    }
  }
  for (int slot = 0; slot < block.num_panels; ++slot) {
    const Lane32* blocks[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      blocks[b] = static_cast<const Lane32*>(block.v[slot]) + (first_block + b) * kBlockLanes;
    }
    constexpr std::int64_t kLines = kBlockLanes * 4 / kLineBytes;  // of a dim block
    if (Soon<kBlocks> soon; first_row == 0 && soon_of_blocks(soon, block.soon_in_values, slot,
                                                             first_block * kLines, kLines)) {
      for (std::int64_t line = 0; line < kLines; ++line) ask_for(soon, line);
    }
    rank_update<Product>(acc, weights.lanes[first_row] + slot * kPanelKeys / 2, kWeightLanes,
                         blocks, {0, Product::kPanelSteps});
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kBlocks * kVecs; ++c) {
      float* const at = o + r * o_stride + c * kLanes;
      const F32 sum = rounded(to_f32(acc[r][c]) * broadcast(weights.units[first_row + r]));
      store(at, factors == nullptr ? sum : fused(load(at), broadcast(factors[r]), sum));
    }
  }
}

template <typename Product, int kRows>
void integer_value_rows(float* o, std::int64_t o_stride, const IntegerWeights& weights,
                        std::int64_t first_row, const PanelBlock& block, std::int64_t first_block,
                        std::int64_t end_block, const float* factors) {
  std::int64_t at = first_block;
  for (; at + kRegisterPanels <= end_block; at += kRegisterPanels) {
    integer_value_blocks<Product, kRows, kRegisterPanels>(o + at * kDimBlock, o_stride, weights,
                                                          first_row, block, at, factors);
  }
  for (; at < end_block; ++at) {
    integer_value_blocks<Product, kRows, 1>(o + at * kDimBlock, o_stride, weights, first_row, block,
                                            at, factors);
  }
}

}  // namespace
}  // namespace lacuna

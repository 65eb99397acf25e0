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
//   S[r][j] = q_scale[r] · s[r][j],  s[r][j] = Σ_g k_scale[g][j] · Σ_{d in g} q[r][d]·k[j][d]
//   o'[r][d] = o[r][d] + unit · Σ_j w[r][j]·v[j][d],  w[r][j] = round(P[r][j]·v_scale[g][j] / unit)
//
// with unit = max_j P · max_j v_scale / 32767, both over the keys that r reads. The tile computes
// s. For kernel files.
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

inline float packed_q_scale(const Lane32* row, const BlockShape& shape) {
  float scale = 0;
  std::memcpy(&scale, row + shape.q_lanes - 1, 4);
  return scale;
}

// ---- Score tile ---------------------------------------------------------------------------------

template <typename Product, int kRows, int kPanels, typename Ask>
void score_integer_panels(float* scores, const Lane32* q, const PanelBlock& block, int slot,
                          const BlockShape& shape, Ask ask) {
  constexpr int kCols = kPanels * kVecs;
  using Keys = typename Product::Keys;
  const std::int64_t groups =
      Product::kGroupDims == 0 ? 1 : shape.k_steps * 8 / Product::kGroupDims;
  const std::int64_t group_steps = shape.k_steps / groups;
  const Lane32* const tail = q + shape.q_lanes - groups - 1;
  for (int r = 0; r < kRows && Product::kGroupDims != 0; ++r) {
    for (int c = 0; c < kCols; ++c) store(scores + r * kBlockKeys + c * kLanes, F32{});
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    I32 acc[kRows][kCols];
    set_rows(acc, tail + group, shape.q_lanes);
    const Lane32* panels[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      panels[p] = static_cast<const Lane32*>(block.k[slot + p]) + group * group_steps * kPanelKeys;
    }
    rank_update<Keys>(acc, q + group * group_steps * Keys::kParts, shape.q_lanes, panels,
                      group_steps, ask);
    ask.pass(group_steps);
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) {
      const std::uint16_t* const scales = block.k_scales[slot + c / kVecs];
      const F32 k_scale = widen_scales(scales + group * kPanelKeys + c % kVecs * kLanes);
#pragma GCC unroll 32
      for (int r = 0; r < kRows; ++r) {
        float* const at = scores + r * kBlockKeys + c * kLanes;
        const F32 sum = to_f32(acc[r][c]);
        store(at, Product::kGroupDims == 0 ? sum * k_scale : fused(sum, k_scale, load(at)));
      }
    }
  }
}

// Scores of kPanels panels from `slot` on; asks for the soon panels of these slots.
template <typename Product, int kRows, int kPanels>
void score_integer_slots(float* scores, const Lane32* q, const PanelBlock& block, int slot,
                         const BlockShape& shape, const SoonPanels* soon) {
  scores += slot * kPanelKeys;
  if (soon == nullptr || slot + kPanels > soon->num_panels) {
    score_integer_panels<Product, kRows, kPanels>(scores, q, block, slot, shape, AskNothing{});
    return;
  }
  score_integer_panels<Product, kRows, kPanels>(scores, q, block, slot, shape,
                                                ask_in_scores<kPanels>(*soon, block, slot));
}

template <typename Product, int kRows>
void score_integer_rows(float* scores, const Lane32* q, const PanelBlock& block,
                        const BlockShape& shape, const SoonPanels* soon) {
  const bool in_order = soon != nullptr && kReadsInOrder<kRows>;
  int slot = 0;
  for (; !in_order && slot + kRegisterPanels <= block.num_panels; slot += kRegisterPanels) {
    score_integer_slots<Product, kRows, kRegisterPanels>(scores, q, block, slot, shape, soon);
  }
  for (; slot < block.num_panels; ++slot) {
    score_integer_slots<Product, kRows, 1>(scores, q, block, slot, shape, soon);
  }
}

// ---- Weights ------------------------------------------------------------------------------------

constexpr std::int64_t kWeightLanes = kBlockKeys / 2;

// Weights of a group of rows for the dims that share V's scales.
struct IntegerWeights {
  Lane32 lanes[kGroupRows][kWeightLanes];  // pairs of int16
  float units[kGroupRows];
  std::uint32_t offsets[kGroupRows];  // −bias·Σ of a row's weights

  // Those of some rows, from one on.
  struct Rows {
    const Lane32* lanes;
    const float* units;
    const Lane32* offsets;
  };
  Rows from(std::int64_t idx) const { return {lanes[idx], units + idx, offsets + idx}; }
};

// Of the keys that a token reads, the scales of V over the largest of them; 0 of other keys.
struct ScaledValues {
  float factors[kBlockKeys];  // up to kLargestWeight
  float unit;                 // what a factor of 1 stands for
};
constexpr float kLargestWeight = 32767;

inline void scale_values(ScaledValues& to, const PanelBlock& block, std::int64_t group,
                         std::int64_t token) {
  constexpr float kLeast = 0x1p-100F;  // so that its reciprocal is finite
  I32 bits = broadcast_bits(0);
  for (int vec = 0; vec < block.num_panels * kVecs; ++vec) {
    const int slot = vec / kVecs;
    F32 scales = widen_scales(block.v_scales[slot] + group * kPanelKeys + vec % kVecs * kLanes);
    if (block.masks[slot] != nullptr) {
      scales = select(mask_bits(block.masks[slot], token, vec % kVecs), scales, F32{});
    }
    store(to.factors + vec * kLanes, scales);
    bits = max_bits(bits, and_bits(as_i32(scales), broadcast_bits(0x7fffffffU)));
  }
  const std::int32_t largest_bits = reduce_max_bits(bits);
  float largest = 0;
  std::memcpy(&largest, &largest_bits, 4);
  to.unit = (largest > kLeast || !(largest == largest) ? largest : kLeast) / kLargestWeight;
  const F32 factor = broadcast(kLargestWeight / (largest > kLeast ? largest : kLeast));
  for (int vec = 0; vec < block.num_panels * kVecs; ++vec) {
    float* const at = to.factors + vec * kLanes;
    store(at, load(at) * factor);
  }
}

// The same for the rows of a block, one after another: masks hide other keys from each token.
class ValueScales {
 public:
  ValueScales(const PanelBlock& block, std::int64_t num_heads)
      : block_(block), num_heads_(num_heads) {
    for (int slot = 0; slot < block.num_panels; ++slot) masked_ |= block.masks[slot] != nullptr;
  }
  const ScaledValues& of(std::int64_t row, std::int64_t group) {
    const std::int64_t token = masked_ ? row / num_heads_ : 0;
    if (token != token_ || group != group_) scale_values(values_, block_, group, token);
    token_ = token;
    group_ = group;
    return values_;
  }

 private:
  const PanelBlock& block_;
  std::int64_t num_heads_;
  bool masked_ = false;
  std::int64_t token_ = -1;
  std::int64_t group_ = -1;
  ScaledValues values_;
};

// Rounds the weights of a vector of keys, stores them, and returns them in the low halves.
inline I32 round_weights(Lane32* row, std::int64_t vec, F32 weights, const ScaledValues& values) {
  const F32 factors = load(values.factors + vec * kLanes);
  const I32 numbers = as_i32(fused(weights, factors, broadcast(kRoundingSum)));
  store_low16(reinterpret_cast<std::uint16_t*>(row) + vec * kLanes, numbers);
  return and_bits(numbers, broadcast_bits(0xffffU));
}

// ---- Value tile ---------------------------------------------------------------------------------

// Dim blocks of o and V that share scales.
struct ValueBlocks {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t o_stride;
};

// Takes the sums of a block into o, which lies `o_stride` apart.
template <int kRows, int kCols>
inline void add_sums(float* o, std::int64_t o_stride, const I32 (&acc)[kRows][kCols],
                     const IntegerWeights::Rows& weights, const float* factors) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) {
      float* const at = o + r * o_stride + c * kLanes;
      const F32 sum = rounded(to_f32(acc[r][c]) * broadcast(weights.units[r]));
      store(at, factors == nullptr ? sum : fused(load(at), broadcast(factors[r]), sum));
    }
  }
}

template <typename Product>
const Lane32* value_lanes(const PanelBlock& block, int slot, std::int64_t dim_block) {
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * Product::kRowLanes;
  return static_cast<const Lane32*>(block.v[slot]) + dim_block * kBlockLanes;
}

template <typename Product, int kRows, int kBlocks, typename Ask>
void integer_value_blocks(float* o, std::int64_t o_stride, const IntegerWeights::Rows& weights,
                          const PanelBlock& block, std::int64_t first_block, const float* factors,
                          const Ask& ask) {
  I32 acc[kRows][kBlocks * kVecs];
  set_rows(acc, weights.offsets, 1);
  for (int slot = 0; slot < block.num_panels; ++slot) {
    const Lane32* blocks[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      blocks[b] = value_lanes<Product>(block, slot, first_block + b);
    }
    rank_update<Product>(
        acc, weights.lanes + slot * kPanelKeys / 2, kWeightLanes, blocks, Product::kPanelSteps,
        ask.template at<Product, kBlocks>(block.v, block.num_panels, slot, first_block));
  }
  add_sums(o, o_stride, acc, weights, factors);
}

// The same sums in the order of memory: panel after panel, line after line of kInOrderBlocks.
template <typename Product, int kRows>
void integer_value_panels(float* o, std::int64_t o_stride, const IntegerWeights::Rows& weights,
                          const PanelBlock& block, std::int64_t first_block, const float* factors,
                          const AskSoon& ask) {
  I32 acc[kInOrderBlocks][kRows][kVecs];
#pragma GCC unroll 32
  for (int b = 0; b < kInOrderBlocks; ++b) set_rows(acc[b], weights.offsets, 1);
  for (int slot = 0; slot < block.num_panels; ++slot) {
#pragma GCC unroll 32
    for (int b = 0; b < kInOrderBlocks; ++b) {
      const Lane32* const lanes[] = {value_lanes<Product>(block, slot, first_block + b)};
      rank_update<Product>(acc[b], weights.lanes + slot * kPanelKeys / 2, kWeightLanes, lanes,
                           Product::kPanelSteps,
                           ask.at<Product, 1>(block.v, block.num_panels, slot, first_block + b));
    }
  }
#pragma GCC unroll 32
  for (int b = 0; b < kInOrderBlocks; ++b) {
    add_sums(o + b * kDimBlock, o_stride, acc[b], weights, factors);
  }
}

template <typename Product, int kRows, typename Ask>
void integer_value_rows(float* o, const ValueBlocks& blocks, const IntegerWeights::Rows& weights,
                        const PanelBlock& block, const float* factors, const Ask& ask) {
  std::int64_t at = blocks.begin;
  for (; at + kRegisterPanels <= blocks.end; at += kRegisterPanels) {
    integer_value_blocks<Product, kRows, kRegisterPanels>(o + at * kDimBlock, blocks.o_stride,
                                                          weights, block, at, factors, ask);
  }
  for (; at < blocks.end; ++at) {
    integer_value_blocks<Product, kRows, 1>(o + at * kDimBlock, blocks.o_stride, weights, block, at,
                                            factors, ask);
  }
}

template <typename Product, int kRows>
void integer_value_rows_in_order(float* o, const ValueBlocks& blocks,
                                 const IntegerWeights::Rows& weights, const PanelBlock& block,
                                 const float* factors, const AskSoon& ask) {
  ValueBlocks left = blocks;
  for (; left.begin + kInOrderBlocks <= left.end; left.begin += kInOrderBlocks) {
    integer_value_panels<Product, kRows>(o + left.begin * kDimBlock, blocks.o_stride, weights,
                                         block, left.begin, factors, ask);
  }
  integer_value_rows<Product, kRows>(o, left, weights, block, factors, ask);
}

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstdint>
#include <limits>

#include "kernels/exp2.h"
#include "kernels/kernel_table.h"
#include "kernels/product.h"
#include "machine/simd.h"

// From scores to weights, and what becomes of a state. For kernel files.
namespace lacuna {
namespace {

constexpr float kLog2E = 1.44269504F;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// c·tanh(x), x = |s|/c, with the sign of s: (1 − e)/(1 + e) with e = 2^(−2·log₂e·x); below 1/4,
// where 1 − e would cancel, x − x³/3 + 2x⁵/15 − 17x⁷/315 (off by 4e-7 of it at most).
inline F32 capped(F32 s, float cap) {
  const I32 sign = and_bits(as_i32(s), broadcast_bits(0x80000000U));
  const F32 x = as_f32(and_bits(as_i32(s), broadcast_bits(0x7fffffffU))) / broadcast(cap);
  const F32 one = broadcast(1.0F);
  const F32 e = exp2_nonpositive(x * broadcast(-2 * kLog2E));
  const F32 large = (one - e) / (one + e);
  const F32 xx = x * x;
  F32 factor = fused(xx, broadcast(-17.0F / 315), broadcast(2.0F / 15));
  factor = fused(xx, factor, broadcast(-1.0F / 3));
  const F32 small = fused(x * xx, factor, x);
  constexpr std::uint32_t kQuarter =
      0x3e800000U;  // bits of 1/4: below it the difference is negative
  const I32 is_small = shift_right(add_bits(as_i32(x), broadcast_bits(0U - kQuarter)), 31);
  const F32 y = broadcast(cap) * select_if(is_small, small, large);
  return as_f32(or_bits(as_i32(y), sign));
}

// −slope·|q − k| of a panel's keys; distances are exact up to 2^24.
inline void fill_bias(float (&bias)[kPanelKeys], float slope, std::int64_t position,
                      const std::int64_t* keys) {
  for (int idx = 0; idx < kPanelKeys; ++idx) {
    const std::int64_t distance =
        position > keys[idx] ? position - keys[idx] : keys[idx] - position;
    bias[idx] = -slope * static_cast<float>(distance);
  }
}

inline void apply_rule(float* scores, std::int64_t row, const RowBlock& rows,
                       const PanelBlock& block, const ScoreRule& rule, float of_row) {
  const F32 scale = broadcast(rule.sm_scale * of_row);
  for (int slot = 0; slot < block.num_panels; ++slot) {
    float bias[kPanelKeys] = {};
    if (rule.slopes != nullptr) {
      fill_bias(bias, rule.slopes[row % rows.num_heads], rows.positions[row / rows.num_heads],
                block.positions[slot]);
    }
    for (int vec = 0; vec < kVecs; ++vec) {
      float* const at = scores + slot * kPanelKeys + vec * kLanes;
      F32 s = load(at) * scale;
      if (rule.softcap > 0) s = capped(s, rule.softcap);
      if (rule.slopes != nullptr) s = s + load(bias + vec * kLanes);
      store(at, s);
    }
  }
}

// The row's bits of one vector of a masked panel.
inline std::uint32_t mask_bits(const std::uint16_t* mask, std::int64_t token, int vec) {
  return std::uint32_t{mask[token]} >> (vec * kLanes);
}

// Scores as they enter the softmax: scale, softcap and bias where they are not plain, then the
// mask. They were computed without of_row, the scale of a row of q; returns what is still to be
// multiplied by.
inline float score_row(float* scores, std::int64_t row, const RowBlock& rows,
                       const PanelBlock& block, const ScoreRule& rule, float of_row) {
  if (!rule.plain()) apply_rule(scores, row, rows, block, rule, of_row);
  for (int slot = 0; slot < block.num_panels; ++slot) {
    if (block.masks[slot] == nullptr) continue;
    for (int vec = 0; vec < kVecs; ++vec) {
      float* const at = scores + slot * kPanelKeys + vec * kLanes;
      const std::uint32_t bits = mask_bits(block.masks[slot], row / rows.num_heads, vec);
      store(at, select(bits, load(at), broadcast(kMinusInfinity)));
    }
  }
  return rule.plain() ? of_row : 1.0F;
}

inline float exp2_one(float x) { return lane(exp2_nonpositive(broadcast(x)), 0); }

inline float largest_score(const float* scores, std::int64_t num_panels) {
  F32 highest = broadcast(kMinusInfinity);
  for (std::int64_t vec = 0; vec < num_panels * kVecs; ++vec) {
    highest = max_of(highest, load(scores + vec * kLanes));
  }
  return reduce_max(highest);
}

// Of one row, as score_row() leaves them.
struct RowScores {
  float* scores;
  const std::uint16_t* const* masks;  // [num_panels]
  std::int64_t num_panels;
  std::int64_t token;  // of the masks
  float scale;         // what the scores are to be multiplied by
  float largest;       // of them
};

// What a row's sums are multiplied by: those that its state holds, and those of a block.
struct Rescale {
  float kept;
  float added;
};

// Turns scores into weights and takes the row's m and l on; keep(vec, weights) stores them. `unit`
// > 0 turns differences of scores into log₂. Weights are of the row's largest score so far, or of
// the block's where they become whole numbers, so that these are large; that score has a weight of
// exactly 1, a masked one exactly 0. What is less than 2^-126 is 0 as a whole number, else 2^-126:
// an infinite value times 0 would be no number.
template <typename Product, typename Keep>
Rescale softmax_row(const StateBlock& state, std::int64_t row, const RowScores& of, float unit,
                    const Keep& keep) {
  constexpr bool kWhole = is_quantized(dtype_of(Product::kLanesHold));
  constexpr float kLeastUnit = 0x1p-126F;  // 0 times a masked score would be no number
  const float of_score = unit * of.scale;
  const F32 row_unit = broadcast(of_score < kLeastUnit ? kLeastUnit : of_score);
  const float block_max = of.largest * of.scale;
  const float old_max = state.empty ? kMinusInfinity : state.m[row];
  const float new_max = old_max > block_max ? old_max : block_max;
  const float top = kWhole ? of.largest : new_max;
  const F32 base = broadcast(top == kMinusInfinity ? 0.0F : top);  // no −∞ − −∞

  F32 sums[kVecs] = {};
  for (std::int64_t slot = 0; slot < of.num_panels; ++slot) {
    for (int idx = 0; idx < kVecs; ++idx) {
      const std::int64_t vec = slot * kVecs + idx;
      const F32 exponents = (load(of.scores + vec * kLanes) - base) * row_unit;
      F32 weights = kWhole ? exp2_rough(exponents) : exp2_floored(exponents);
      count_exponential();
      if (!kWhole && of.masks[slot] != nullptr) {
        weights = select(mask_bits(of.masks[slot], of.token, idx), weights, F32{});
      }
      sums[idx] = sums[idx] + weights;
      keep(vec, weights);
    }
  }
  const auto factor_of = [&](float m) {
    return m == new_max ? 1.0F : exp2_one((m - new_max) * unit);
  };
  const Rescale rescale = {state.empty ? 1.0F : factor_of(old_max),
                           kWhole ? factor_of(block_max) : 1.0F};
  for (int vec = 0; vec < kVecs; ++vec) {
    float* const l = state.l + row * kPanelKeys + vec * kLanes;
    if constexpr (kWhole) sums[vec] = rounded(sums[vec] * broadcast(rescale.added));
    store(l, state.empty ? sums[vec] : fused(load(l), broadcast(rescale.kept), sums[vec]));
  }
  state.m[row] = new_max;
  return rescale;
}

// Adds the row's share of each key that it reads.
inline void add_mass_row(float* mass, const float* scores, std::int64_t token,
                         const PanelBlock& block, float unit, float lse2) {
  for (int vec = 0; vec < block.num_panels * kVecs; ++vec) {
    const F32 s = load(scores + vec * kLanes);
    F32 weights = exp2_nonpositive(fused(s, broadcast(unit), broadcast(-lse2)));
    count_exponential();
    const std::uint16_t* const mask = block.masks[vec / kVecs];
    if (mask != nullptr) {
      weights = select(mask_bits(mask, token, vec % kVecs), weights, F32{});
    }
    store(mass + vec * kLanes, load(mass + vec * kLanes) + weights);
  }
}

inline float row_sum(const float* l) noexcept {
  F32 sum = load(l);
  for (int vec = 1; vec < kVecs; ++vec) sum = sum + load(l + vec * kLanes);
  return reduce_add(sum);
}

// into ⊕= from. Where one side is empty, its factor is 0 or the other's is exactly 1, and finite
// numbers stay as they are.
inline void merge_states(const StateBlock& into, const StateBlock& from, std::int64_t num_rows,
                         std::int64_t o_stride, float unit) noexcept {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float a = into.m[row];
    const float b = from.m[row];
    const float top = a > b ? a : b;
    const float base = top == kMinusInfinity ? 0.0F : top;
    const F32 keep = broadcast(exp2_one((a - base) * unit));
    const F32 add = broadcast(exp2_one((b - base) * unit));
    const auto merge_lanes = [&](float* x, const float* y, std::int64_t num_lanes) {
      for (std::int64_t idx = 0; idx < num_lanes; idx += kLanes) {
        store(x + idx, fused(load(x + idx), keep, load(y + idx) * add));
      }
    };
    merge_lanes(into.l + row * kPanelKeys, from.l + row * kPanelKeys, kPanelKeys);
    merge_lanes(into.o + row * o_stride, from.o + row * o_stride, o_stride);
    into.m[row] = top;
  }
}

}  // namespace
}  // namespace lacuna

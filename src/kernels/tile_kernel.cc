// Attention of a few rows over one block of keys. For rows r, keys j of the block and dims d:
//
//   S[r][j] = Σ_d q[r][d]·k[j][d]                 score tile
//   t[r][j] = S, or after scale, softcap and bias; −∞ where the mask says no
//   m' = max(m, max_j t[r][j])                    softmax state (docs/math.md, merge of states)
//   P[r][j] = 2^((t[r][j] − m')·unit)             unit: scale·log₂e, or log₂e
//   l' = l·2^((m − m')·unit) + Σ_j P[r][j]
//   o'[r][d] = o[r][d]·2^((m − m')·unit) + Σ_j P[r][j]·v[j][d]   value tile
//
// Cost: rows × keys × (head_dim + v_head_dim) multiply-adds, dims as packed, and one 2^x a pair.
//
// Compiled once for each instruction set. Set by the build:
// LACUNA_KERNEL_TABLE  name of the KernelTable defined here
// LACUNA_KERNEL_ISA    its text
// LACUNA_KERNEL_BF16   defined where the set has a product of bfloat16 pairs
#include <limits>
#include <utility>

#include "kernels/dense_tile.h"
#include "kernels/float_tile.h"
#include "kernels/gate_rows.h"
#include "kernels/integer_product.h"
#include "kernels/integer_tile.h"
#include "kernels/kernel_table.h"
#include "kernels/pack_panel.h"
#include "kernels/product.h"
#include "kernels/put_tokens.h"
#include "kernels/softmax_rows.h"
#include "kernels/widen_panel.h"
#include "kernels/write_row.h"
#include "machine/simd.h"

namespace lacuna {
namespace {

// ---- Rows of a group ----------------------------------------------------------------------------

// Calls work.template operator()<n>(row) for pieces of n <= kRegisterRows rows of first..end-1.
template <int kRows = kRegisterRows, typename Work>
void for_row_pieces(std::int64_t first, std::int64_t end, const Work& work) {
  for (; first + kRows <= end; first += kRows) work.template operator()<kRows>(first);
  if constexpr (kRows > 1) {
    if (first < end) for_row_pieces<kRows - 1>(first, end, work);
  }
}

struct Group {
  std::int64_t first;  // row
  std::int64_t end;
  std::int64_t size() const { return end - first; }
};

// A block, the rows that read it, and what becomes of them.
struct BlockWork {
  const StateBlock& state;
  const RowBlock& rows;
  const PanelBlock& block;
  const BlockShape& shape;
  const ScoreRule& rule;
  float* scratch;
};

// Of a group's rows.
struct Rescales {
  float kept[kGroupRows];
  float added[kGroupRows];
};

template <typename Product>
void score_group(float* scratch, const Group& group, const RowBlock& rows, const PanelBlock& block,
                 const BlockShape& shape, const SoonPanels* soon) {
  const auto* q = static_cast<const Lane32*>(rows.q);
  for_row_pieces(group.first, group.end, [&]<int kRows>(std::int64_t row) {
    float* const scores = scratch + (row - group.first) * kBlockKeys;
    const SoonPanels* const asked = row == 0 ? soon : nullptr;
    if constexpr (is_quantized(dtype_of(Product::kLanesHold))) {
      score_integer_rows<Product, kRows>(scores, q + row * shape.q_lanes, block, shape, asked);
    } else {
      score_rows<Product, kRows>(scores, kBlockKeys, q + row * shape.q_lanes, block, shape.k_steps,
                                 asked);
    }
  });
}

// What a row's scores are still to be multiplied by.
template <typename Product>
float q_scale(const RowBlock& rows, std::int64_t row, const BlockShape& shape) {
  if constexpr (!is_quantized(dtype_of(Product::kLanesHold))) return 1.0F;
  return packed_q_scale(static_cast<const Lane32*>(rows.q) + row * shape.q_lanes, shape);
}

bool any_masked_non_finite(const PanelBlock& block) {
  for (int slot = 0; slot < block.num_panels; ++slot) {
    if (block.masks[slot] != nullptr && block.non_finite[slot] != 0) return true;
  }
  return false;
}

template <typename Product>
void value_group(const BlockWork& work, const Group& group, const float* factors) {
  const PanelBlock& block = work.block;
  const std::int64_t dim_blocks = work.shape.dim_blocks;
  for_row_pieces(group.first, group.end, [&]<int kRows>(std::int64_t row) {
    const std::int64_t idx = row - group.first;
    float* const o = work.state.o + row * dim_blocks * kDimBlock;
    const float* const kept = factors == nullptr ? nullptr : factors + idx;
    const Weights weights = {lanes_of(work.scratch + idx * kBlockKeys), kBlockKeys, block.v,
                             block.num_panels};
    const SoonPanels* const soon = block.soon_in_values;
    if (row == 0 && soon != nullptr && soon->num_panels > 0) {
      if constexpr (kReadsInOrder<kRows>) {
        value_panels<Product, kRows>(o, dim_blocks, weights, kept, AskSoon{soon});
      } else {
        value_rows<Product, kRows>(o, dim_blocks, weights, kept, AskSoon{soon});
      }
    } else {
      value_rows<Product, kRows>(o, dim_blocks, weights, kept, AskNoSoon{});
    }
  });
}

// The exact slow path: 0·∞ is not 0, so a row must not meet the value of a key that it may not
// read. Each row goes alone over one dim block at a time, such values replaced by zeros. The order
// of its sums is that of the fast path.
template <typename Product>
void value_group_exactly(const BlockWork& work, const Group& group, const float* factors) {
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * kDimBlock;
  const PanelBlock& block = work.block;
  const std::int64_t dim_blocks = work.shape.dim_blocks;
  Lane32 cleaned[kBlockPanels][kBlockLanes];
  const void* panels[kBlockPanels];
  for (std::int64_t row = group.first; row < group.end; ++row) {
    const std::int64_t idx = row - group.first;
    float* const o = work.state.o + row * dim_blocks * kDimBlock;
    for (std::int64_t dims = 0; dims < dim_blocks; ++dims) {
      for (int slot = 0; slot < block.num_panels; ++slot) {
        const Lane32* const values = static_cast<const Lane32*>(block.v[slot]) + dims * kBlockLanes;
        panels[slot] = values;
        if (block.masks[slot] == nullptr || block.non_finite[slot] == 0) continue;
        Product::copy_kept_keys(cleaned[slot], values,
                                block.masks[slot][row / work.rows.num_heads]);
        panels[slot] = cleaned[slot];
      }
      const Weights weights = {lanes_of(work.scratch + idx * kBlockKeys), kBlockKeys, panels,
                               block.num_panels};
      value_blocks<Product, 1, 1>(o + dims * kDimBlock, 0, weights, 0,
                                  factors == nullptr ? nullptr : factors + idx, AskNoSoon{});
    }
  }
}

void count(KernelCounts& counts, const RowBlock& rows, const PanelBlock& block) {
  counts.tiles += block.num_panels;
  counts.executed_pairs += rows.num_tokens * rows.num_heads * block.num_panels * kPanelKeys;
  for (int slot = 0; slot < block.num_panels; ++slot) {
    std::int64_t keys = rows.num_tokens * kPanelKeys;
    if (block.masks[slot] != nullptr) {
      keys = 0;
      for (std::int64_t t = 0; t < rows.num_tokens; ++t) {
        keys += __builtin_popcount(block.masks[slot][t]);
      }
    }
    counts.needed_pairs += keys * rows.num_heads;
  }
}

// Weights in whole numbers for the dims of one scale of V, of f32 weights in the scratch.
template <typename Product>
void round_group(IntegerWeights& weights, const BlockWork& work, const Group& group,
                 ValueScales& scales, std::int64_t dim_group) {
  for (std::int64_t row = group.first; row < group.end; ++row) {
    const std::int64_t idx = row - group.first;
    const ScaledValues& values = scales.of(row, dim_group);
    I32 sum = broadcast_bits(0);
    for (int vec = 0; vec < work.block.num_panels * kVecs; ++vec) {
      const F32 of_keys = load(work.scratch + idx * kBlockKeys + vec * kLanes);
      sum = add_bits(sum, round_weights(weights.lanes[idx], vec, of_keys, values));
    }
    weights.units[idx] = values.unit;
    weights.offsets[idx] = static_cast<std::uint32_t>(-Product::kBias * reduce_add_bits(sum));
  }
}

// Weights that are masked are 0 and V's numbers are finite, so that masked keys have no effect.
template <typename Product>
void integer_value_group(const BlockWork& work, const Group& group, const IntegerWeights& weights,
                         const ValueBlocks& blocks, const float* kept) {
  const PanelBlock& block = work.block;
  for_row_pieces(group.first, group.end, [&]<int kRows>(std::int64_t row) {
    const std::int64_t idx = row - group.first;
    float* const o = work.state.o + row * blocks.o_stride;
    const float* const factors = kept == nullptr ? nullptr : kept + idx;
    const SoonPanels* const soon = block.soon_in_values;
    if (row == 0 && soon != nullptr && soon->num_panels > 0) {
      if constexpr (kReadsInOrder<kRows> && Product::kGroupDims == 0) {
        integer_value_rows_in_order<Product, kRows>(o, blocks, weights.from(idx), block, factors,
                                                    AskSoon{soon});
      } else {
        integer_value_rows<Product, kRows>(o, blocks, weights.from(idx), block, factors,
                                           AskSoon{soon});
      }
    } else {
      integer_value_rows<Product, kRows>(o, blocks, weights.from(idx), block, factors, AskNoSoon{});
    }
  });
}

// keep_of(row) stores the row's weights. All maxima first: they do not wait for weights.
template <typename Product, typename KeepOf>
Rescales softmax_group(const BlockWork& work, const Group& group, const KeepOf& keep_of) {
  RowScores scores[kGroupRows];
  for (std::int64_t row = group.first; row < group.end; ++row) {
    const std::int64_t idx = row - group.first;
    float* const of_row = work.scratch + idx * kBlockKeys;
    const float scale = score_row(of_row, row, work.rows, work.block, work.rule,
                                  q_scale<Product>(work.rows, row, work.shape));
    scores[idx] = {of_row,
                   work.block.masks,
                   work.block.num_panels,
                   row / work.rows.num_heads,
                   scale,
                   largest_score(of_row, work.block.num_panels)};
  }
  Rescales rescales;
  for (std::int64_t row = group.first; row < group.end; ++row) {
    const std::int64_t idx = row - group.first;
    const Rescale rescale =
        softmax_row<Product>(work.state, row, scores[idx], work.rule.unit(), keep_of(row));
    rescales.kept[idx] = rescale.kept;
    rescales.added[idx] = rescale.added;
  }
  return rescales;
}

template <typename Product>
void weigh_group(const BlockWork& work, const Group& group, bool exact) {
  const Rescales rescales = softmax_group<Product>(work, group, [&](std::int64_t row) {
    float* const to = work.scratch + (row - group.first) * kBlockKeys;
    return [to](std::int64_t vec, F32 weights) { Product::store_weights(to, vec, weights); };
  });
  const float* const kept = work.state.empty ? nullptr : rescales.kept;
  if (exact) {
    value_group_exactly<Product>(work, group, kept);
  } else {
    value_group<Product>(work, group, kept);
  }
}

template <typename Product>
void weigh_integer_group(const BlockWork& work, const Group& group, ValueScales& scales) {
  constexpr bool kOneScale = Product::kGroupDims == 0;
  IntegerWeights weights;
  const Rescales rescales = softmax_group<Product>(work, group, [&](std::int64_t row) {
    const std::int64_t idx = row - group.first;
    if constexpr (kOneScale) {
      static_assert(Product::kBias == 0);
      const ScaledValues& values = scales.of(row, 0);
      weights.units[idx] = values.unit;
      weights.offsets[idx] = 0;
      return [to = weights.lanes[idx], &values](std::int64_t vec, F32 of_keys) {
        round_weights(to, vec, of_keys, values);
      };
    } else {
      float* const to = work.scratch + idx * kBlockKeys;
      return [to](std::int64_t vec, F32 of_keys) { store(to + vec * kLanes, of_keys); };
    }
  });
  const std::int64_t blocks = kOneScale ? work.shape.dim_blocks : Product::kGroupDims / kDimBlock;
  for (std::int64_t first = 0; first < work.shape.dim_blocks; first += blocks) {
    if constexpr (!kOneScale) round_group<Product>(weights, work, group, scales, first / blocks);
    for (std::int64_t idx = 0; idx < group.size(); ++idx) {
      weights.units[idx] *= rescales.added[idx];
    }
    integer_value_group<Product>(work, group, weights,
                                 {first, first + blocks, work.shape.dim_blocks * kDimBlock},
                                 work.state.empty ? nullptr : rescales.kept);
  }
}

template <typename Product>
void attend(const StateBlock& state, const RowBlock& rows, const PanelBlock& block,
            const BlockShape& shape, const ScoreRule& rule, float* scratch,
            KernelCounts* counts) noexcept {
  count(*counts, rows, block);
  const BlockWork work = {state, rows, block, shape, rule, scratch};
  const std::int64_t num_rows = rows.num_tokens * rows.num_heads;
  // Both in every kernel: chosen by `if constexpr` g++ 12 makes of this loop one that is 2 %
  // slower.
  [[maybe_unused]] const bool exact = any_masked_non_finite(block);
  [[maybe_unused]] ValueScales scales(block, rows.num_heads);
  for (std::int64_t first = 0; first < num_rows; first += kGroupRows) {
    const Group group = {first, first + kGroupRows < num_rows ? first + kGroupRows : num_rows};
    score_group<Product>(scratch, group, rows, block, shape, block.soon_in_scores);
    if constexpr (is_quantized(dtype_of(Product::kLanesHold))) {
      weigh_integer_group<Product>(work, group, scales);
    } else {
      weigh_group<Product>(work, group, exact);
    }
  }
}

template <typename Product>
void mass(float* sums, const float* lse2, const RowBlock& rows, const PanelBlock& block,
          const BlockShape& shape, const ScoreRule& rule, float* scratch,
          KernelCounts* counts) noexcept {
  count(*counts, rows, block);
  const std::int64_t num_rows = rows.num_tokens * rows.num_heads;
  for (std::int64_t first = 0; first < num_rows; first += kGroupRows) {
    const Group group = {first, first + kGroupRows < num_rows ? first + kGroupRows : num_rows};
    score_group<Product>(scratch, group, rows, block, shape, nullptr);
    for (std::int64_t row = group.first; row < group.end; ++row) {
      float* const scores = scratch + (row - group.first) * kBlockKeys;
      const float scale =
          score_row(scores, row, rows, block, rule, q_scale<Product>(rows, row, shape));
      float* const of_head = sums + row % rows.num_heads * block.num_panels * kPanelKeys;
      add_mass_row(of_head, scores, row / rows.num_heads, block, rule.unit() * scale, lse2[row]);
    }
  }
}

// The usual way: all scores of the rows, masked, then one softmax, then the product with V.
template <typename Product>
void attend_dense(const StateBlock& state, const RowBlock& rows, const DensePanels& dense,
                  const BlockShape& shape, const ScoreRule& rule) noexcept {
  const std::int64_t num_rows = rows.num_tokens * rows.num_heads;
  const std::int64_t row_stride = dense.num_blocks * kBlockKeys;
  const auto* q = static_cast<const Lane32*>(rows.q);
  std::int64_t num_panels = 0;
  for (std::int64_t idx = 0; idx < dense.num_blocks; ++idx) {
    const PanelBlock& block = dense.blocks[idx];
    float* const scores = dense.scores + idx * kBlockKeys;
    for_row_pieces(0, num_rows, [&]<int kRows>(std::int64_t row) {
      score_rows<Product, kRows>(scores + row * row_stride, row_stride, q + row * shape.q_lanes,
                                 block, shape.k_steps, nullptr);
    });
    for (std::int64_t row = 0; row < num_rows; ++row) {
      score_row(scores + row * row_stride, row, rows, block, rule, 1.0F);
    }
    num_panels += block.num_panels;
  }
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* const scores = dense.scores + row * row_stride;
    const RowScores of_row = {scores,     dense.masks,
                              num_panels, row / rows.num_heads,
                              1.0F,       largest_score(scores, num_panels)};
    softmax_row<Product>(state, row, of_row, rule.unit(), [scores](std::int64_t vec, F32 weights) {
      Product::store_weights(scores, vec, weights);
    });
  }
  for_row_pieces(0, num_rows, [&]<int kRows>(std::int64_t row) {
    const Weights weights = {lanes_of(dense.scores + row * row_stride), row_stride, dense.v,
                             num_panels};
    value_rows<Product, kRows>(state.o + row * shape.dim_blocks * kDimBlock, shape.dim_blocks,
                               weights, nullptr, AskNoSoon{});
  });
}

// What all kernels have.
template <typename Product>
constexpr TileKernel common_kernel() {
  TileKernel kernel = {};
  kernel.isa = LACUNA_KERNEL_ISA;
  kernel.lanes = Product::kLanesHold;
  kernel.write_row = write_row;
  kernel.row_sum = row_sum;
  kernel.attend = attend<Product>;
  kernel.mass = mass<Product>;
  kernel.merge = merge_states;
  return kernel;
}

template <typename Product>
constexpr TileKernel make_kernel() {
  TileKernel kernel = common_kernel<Product>();
  kernel.pack_q = pack_q<Product>;
  kernel.pack_k = pack_k<Product>;
  kernel.pack_v = pack_v<Product>;
  kernel.widen_k = widen_k;
  kernel.widen_v = widen_v;
  kernel.non_finite_keys = non_finite_keys_of_panel<Product>;
  kernel.attend_dense = attend_dense<Product>;
  return kernel;
}

template <typename Product>
constexpr TileKernel make_integer_kernel() {
  TileKernel kernel = common_kernel<Product>();
  kernel.pack_q = pack_q_integers<Product>;
  kernel.non_finite_keys = [](const void*, std::int64_t) noexcept { return std::uint16_t{0}; };
  return kernel;
}

constexpr TileKernel make_f32_kernel() {
  TileKernel kernel = make_kernel<F32Product>();
  kernel.multiply = multiply_panels<F32Dense>;
  kernel.gate = gate_row;
  return kernel;
}

constexpr TileKernel make_int8_kernel() {
  TileKernel kernel = make_integer_kernel<Int8Product>();
  kernel.multiply = multiply_integers;
  kernel.pack_dense_row = pack_dense_row;
  return kernel;
}

constexpr TileKernel kF32Kernel = make_f32_kernel();
constexpr TileKernel kInt8Kernel = make_int8_kernel();
constexpr TileKernel kInt4Kernel = make_integer_kernel<Int4Product>();
#if defined(LACUNA_KERNEL_BF16)
constexpr TileKernel kBf16Kernel = make_kernel<Bf16Product>();
constexpr const TileKernel* kBf16 = &kBf16Kernel;
#else
constexpr const TileKernel* kBf16 = nullptr;
#endif

}  // namespace

#if defined(LACUNA_SIMD_COUNTING)
KernelWork take_counted_work() {
  end_shared_loads();
  const SimdCounts counts = std::exchange(simd_counts, SimdCounts{});
  return {counts.multiply_adds, counts.exponentials, counts.shared_loads};
}
#endif

constinit const KernelTable LACUNA_KERNEL_TABLE = {LACUNA_KERNEL_ISA, &kF32Kernel,  kBf16,
                                                   &kInt8Kernel,      &kInt4Kernel, {put_k, put_v}};

}  // namespace lacuna

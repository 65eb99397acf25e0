#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/product.h"
#include "machine/simd.h"

// The tiles over f32 and pairs of bfloat16: scores of rows and a block's K, and their weights with
// its V. For kernel files.
namespace lacuna {
namespace {

// ---- Score tile ---------------------------------------------------------------------------------

template <typename Product, int kRows, int kPanels, typename Ask>
void score_panels(float* scores, std::int64_t row_stride, const Lane32* q, const void* const* k,
                  std::int64_t k_steps, const Ask& ask) {
  F32 acc[kRows][kPanels * kVecs];
  set_zero(acc);
  const Lane32* panels[kPanels];
  for (int p = 0; p < kPanels; ++p) panels[p] = static_cast<const Lane32*>(k[p]);
  rank_update<Product>(acc, q, k_steps, panels, k_steps, ask);
  store_rows(scores, row_stride, acc);
}

// Scores of kPanels panels from `slot` on; asks for the soon panels of these slots.
template <typename Product, int kRows, int kPanels>
void score_slots(float* scores, std::int64_t row_stride, const Lane32* q, const PanelBlock& block,
                 std::int64_t k_steps, int slot, const SoonPanels* soon) {
  scores += slot * kPanelKeys;
  const void* const* const k = block.k + slot;
  if (soon == nullptr || slot + kPanels > soon->num_panels) {
    score_panels<Product, kRows, kPanels>(scores, row_stride, q, k, k_steps, AskNothing{});
    return;
  }
  score_panels<Product, kRows, kPanels>(scores, row_stride, q, k, k_steps,
                                        ask_in_scores<kPanels>(*soon, block, slot));
}

template <typename Product, int kRows>
void score_rows(float* scores, std::int64_t row_stride, const Lane32* q, const PanelBlock& block,
                std::int64_t k_steps, const SoonPanels* soon) {
  const bool in_order = soon != nullptr && kReadsInOrder<kRows>;
  int slot = 0;
  for (; !in_order && slot + kRegisterPanels <= block.num_panels; slot += kRegisterPanels) {
    score_slots<Product, kRows, kRegisterPanels>(scores, row_stride, q, block, k_steps, slot, soon);
  }
  for (; slot < block.num_panels; ++slot) {
    score_slots<Product, kRows, 1>(scores, row_stride, q, block, k_steps, slot, soon);
  }
}

// ---- Value tile ---------------------------------------------------------------------------------

// Weights of some rows and the V panels that they belong to.
struct Weights {
  const Lane32* lanes;  // [rows, row_stride] packed
  std::int64_t row_stride;
  const void* const* panels;  // [num_panels]
  std::int64_t num_panels;
};

template <typename Product, int kRows, int kBlocks, typename Ask>
void value_blocks(float* o, std::int64_t o_stride, const Weights& weights, std::int64_t first_block,
                  const float* factors, const Ask& ask) {
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * kDimBlock;
  F32 acc[kRows][kBlocks * kVecs];
  if (factors == nullptr) {
    set_zero(acc);
  } else {
    load_rows(acc, o, o_stride, factors);
  }
  for (std::int64_t slot = 0; slot < weights.num_panels; ++slot) {
    const Lane32* blocks[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      blocks[b] =
          static_cast<const Lane32*>(weights.panels[slot]) + (first_block + b) * kBlockLanes;
    }
    rank_update<Product>(
        acc, weights.lanes + slot * Product::kPanelSteps, weights.row_stride, blocks,
        Product::kPanelSteps,
        ask.template at<Product, kBlocks>(weights.panels, weights.num_panels, slot, first_block));
  }
  store_rows(o, o_stride, acc);
}

template <typename Product, int kRows, typename Ask>
void value_rows(float* o, std::int64_t dim_blocks, const Weights& weights, const float* factors,
                const Ask& ask) {
  const std::int64_t o_stride = dim_blocks * kDimBlock;
  std::int64_t block = 0;
  for (; block + kRegisterPanels <= dim_blocks; block += kRegisterPanels) {
    value_blocks<Product, kRows, kRegisterPanels>(o + block * kDimBlock, o_stride, weights, block,
                                                  factors, ask);
  }
  for (; block < dim_blocks; ++block) {
    value_blocks<Product, kRows, 1>(o + block * kDimBlock, o_stride, weights, block, factors, ask);
  }
}

// The same sums in the order of memory: panel after panel, line after line.
template <typename Product, int kRows>
void value_panels(float* o, std::int64_t dim_blocks, const Weights& weights, const float* factors,
                  const AskSoon& ask) {
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * kDimBlock;
  const std::int64_t o_stride = dim_blocks * kDimBlock;
  for (std::int64_t slot = 0; slot < weights.num_panels; ++slot) {
    for (std::int64_t block = 0; block < dim_blocks; ++block) {
      float* const at = o + block * kDimBlock;
      F32 acc[kRows][kVecs];
      if (slot > 0) {
        load_rows(acc, at, o_stride);
      } else if (factors != nullptr) {
        load_rows(acc, at, o_stride, factors);
      } else {
        set_zero(acc);
      }
      const Lane32* const lines[] = {static_cast<const Lane32*>(weights.panels[slot]) +
                                     block * kBlockLanes};
      rank_update<Product>(acc, weights.lanes + slot * Product::kPanelSteps, weights.row_stride,
                           lines, Product::kPanelSteps,
                           ask.at<Product, 1>(weights.panels, weights.num_panels, slot, block));
      store_rows(at, o_stride, acc);
    }
  }
}

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "machine/simd.h"

// The two products of a tile, and the register block that both tiles are made of. For kernel files.
namespace lacuna {
namespace {

// Packed memory is read as bits, whatever it holds.
typedef std::uint32_t Lane32 __attribute__((may_alias));
inline const Lane32* lanes_of(const float* p) { return reinterpret_cast<const Lane32*>(p); }

constexpr int kVecs = kPanelKeys / kLanes;  // vectors of a panel's 16 keys, or of 16 dims

// Register block: kRegisterRows × kRegisterPanels·kVecs accumulators. Two multiply-adds a cycle
// times 4 cycles latency (or one times 6 for pairs of bfloat16) need 8 chains; a step loads
// kRegisterPanels·kVecs vectors and kRegisterRows broadcasts for their product of multiply-adds.
//   32 registers of 16 lanes: 8 × 2 = 16 accumulators, 10 loads a step (5 cycles of loads for 8..16
//   cycles of products); 16 registers of 8 lanes: 6 × 2 = 12; of 4 lanes: 2 × 4 = 8.
#if defined(LACUNA_SIMD_COUNTING)
constexpr int kRegisterRows = 1;
constexpr int kRegisterPanels = 1;
#elif defined(__AVX512F__)
constexpr int kRegisterRows = 8;
constexpr int kRegisterPanels = 2;
#elif defined(__AVX2__)
constexpr int kRegisterRows = 6;
constexpr int kRegisterPanels = 1;
#else
constexpr int kRegisterRows = 2;
constexpr int kRegisterPanels = 1;
#endif

// Steps of a sum.
struct Steps {
  std::int64_t begin;
  std::int64_t end;
};

// One lane is an f32: a step is one multiply-add.
struct F32Product {
  using Sum = F32;
  using Keys = F32Product;
  static constexpr ElementType kLanesHold = ElementType::kF32;
  static constexpr bool kIsBf16 = false;
  static constexpr int kPanelSteps = kPanelKeys;
  static constexpr int kRowLanes = 16;
  static constexpr int kParts = 1;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    parts[0] = load_shared(row + vec * kLanes);
  }
  static F32 step(F32 acc, std::uint32_t a, I32 b) {
    return multiply_add(as_f32(broadcast_bits(a)), as_f32(b), acc);
  }
  static void store_weights(float* row, std::int64_t vec, F32 weights) {
    store(row + vec * kLanes, weights);
  }
  // Of one dim block of a V panel.
  static void copy_kept_keys(Lane32* to, const Lane32* from, unsigned kept) {
    for (int key = 0; key < kPanelKeys; ++key) {
      for (int d = 0; d < kDimBlock; ++d) {
        to[key * kDimBlock + d] = (kept >> key & 1U) != 0 ? from[key * kDimBlock + d] : 0;
      }
    }
  }
};

// One lane is a pair of bfloat16: a step is two multiply-adds.
struct Bf16Product {
  using Sum = F32;
  using Keys = Bf16Product;
  static constexpr ElementType kLanesHold = ElementType::kBf16;
  static constexpr bool kIsBf16 = true;
  static constexpr int kPanelSteps = kPanelKeys / 2;
  static constexpr int kRowLanes = 16;
  static constexpr int kParts = 1;
  static void load(I32 (&parts)[kParts], const Lane32* row, int vec) {
    F32Product::load(parts, row, vec);
  }
  static F32 step(F32 acc, std::uint32_t a, I32 b) { return dot_bf16(acc, broadcast_bits(a), b); }
  static void store_weights(float* row, std::int64_t vec, F32 weights) {
    store_bf16(reinterpret_cast<std::uint16_t*>(row) + vec * kLanes, weights);
  }
  static void copy_kept_keys(Lane32* to, const Lane32* from, unsigned kept) {
    for (int pair = 0; pair < kPanelSteps; ++pair) {
      const std::uint32_t low = (kept >> (2 * pair) & 1U) != 0 ? 0xffffU : 0U;
      const std::uint32_t high = (kept >> (2 * pair + 1) & 1U) != 0 ? 0xffff0000U : 0U;
      for (int d = 0; d < kDimBlock; ++d) {
        to[pair * kDimBlock + d] = from[pair * kDimBlock + d] & (low | high);
      }
    }
  }
};

// Memory that is read soon: line `step` of each is asked for at a step, so that it comes while the
// step computes.
template <int kPanels>
struct Soon {
  const std::byte* at[kPanels];
};
struct NothingSoon {};
inline void ask_for(NothingSoon, std::int64_t) {}
template <int kPanels>
inline void ask_for(const Soon<kPanels>& soon, std::int64_t step) {
  constexpr int kSecondLevelCache = 2;
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
    __builtin_prefetch(soon.at[p] + step * kLineBytes, 0, kSecondLevelCache);
  }
}

// Lines first_line .. first_line + num_lines - 1 of the panels of `soon` at slots first_slot ..
// first_slot + kPanels - 1: false where they are not all there.
template <int kPanels>
bool soon_of(Soon<kPanels>& at, const SoonPanels* soon, std::int64_t first_slot,
             std::int64_t first_line, std::int64_t num_lines) {
  if (soon == nullptr || first_slot + kPanels > soon->num_panels) return false;
  if (first_line + num_lines > soon->lines) return false;
  for (int p = 0; p < kPanels; ++p) {
    at.at[p] = static_cast<const std::byte*>(soon->at[first_slot + p]) + first_line * kLineBytes;
  }
  return true;
}

// Of the panel at one slot, num_lines from first_line on for each of kBlocks dim blocks.
template <int kBlocks>
bool soon_of_blocks(Soon<kBlocks>& at, const SoonPanels* soon, std::int64_t slot,
                    std::int64_t first_line, std::int64_t num_lines) {
  if (soon == nullptr || slot >= soon->num_panels) return false;
  if (first_line + kBlocks * num_lines > soon->lines) return false;
  for (int b = 0; b < kBlocks; ++b) {
    at.at[b] =
        static_cast<const std::byte*>(soon->at[slot]) + (first_line + b * num_lines) * kLineBytes;
  }
  return true;
}

// acc[r][c] += Σ_step a[r·a_stride + step] ∘ b[c][step·16 …]: a row's sum runs over the steps in
// order, whatever the other rows and columns are, so it has the same bits in every block. A row of
// b may stand for kParts lanes of a.
template <typename Product, int kRows, int kCols, int kPanels, typename SoonRead = NothingSoon>
inline void rank_update(typename Product::Sum (&acc)[kRows][kCols], const Lane32* a,
                        std::int64_t a_stride, const Lane32* const (&b)[kPanels], Steps steps,
                        const SoonRead& soon = {}) {
  static_assert(kCols == kPanels * kVecs);
  constexpr int kParts = Product::kParts;
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
    I32 columns[kCols][kParts];
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) {
      Product::load(columns[c], b[c / kVecs] + step * Product::kRowLanes, c % kVecs);
    }
    ask_for(soon, step);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t weight = a[r * a_stride + step * kParts + part];
#pragma GCC unroll 32
        for (int c = 0; c < kCols; ++c) {
          acc[r][c] = Product::step(acc[r][c], weight, columns[c][part]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

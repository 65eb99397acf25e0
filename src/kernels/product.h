#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "machine/simd.h"

// The two products of a tile, and the register block that both tiles are made of. For kernel files.
namespace lacuna {
namespace {

// Packed memory is read as bits, whatever it holds and wherever it lies.
typedef std::uint32_t Lane32 __attribute__((may_alias, aligned(1)));
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

// While a few rows wait for memory they read it panel after panel, line after line: the processor
// fetches ahead of such a read, not of two panels that take turns. More rows compute long enough to
// get each line in time, and gain more from loading a row of q once for two panels.
template <int kRows>
inline constexpr bool kReadsInOrder = 2 * kRows <= kRegisterRows;
inline constexpr int kInOrderBlocks = 2 * kRegisterPanels;  // half the rows, twice the columns

// Asks for a line of each of some panels at each step, so that they come while the step computes:
// line `first` + step, or the last one again. The processor drops what it is asked while it waits
// for too much, so lines that are read sooner are asked for once more.
template <int kPanels>
struct AskAhead {
  const std::byte* panels[kPanels];
  std::int64_t first[kPanels];
  std::int64_t last;
  const std::byte* sooner[kPanels];  // their line `step`

  void operator()(std::int64_t step) const {
    constexpr int kSecondLevelCache = 2;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const std::int64_t line = first[p] + step < last ? first[p] + step : last;
      __builtin_prefetch(panels[p] + line * kLineBytes, 0, kSecondLevelCache);
      __builtin_prefetch(sooner[p] + step * kLineBytes, 0, kSecondLevelCache);
    }
  }
  void pass(std::int64_t steps) {
    for (std::int64_t& line : first) line += steps;
    for (const std::byte*& line : sooner) line += steps * kLineBytes;
  }
};
// While the scores of kPanels panels from `slot` on are computed: the soon panels of these slots,
// and K of the next ones.
template <int kPanels>
inline AskAhead<kPanels> ask_in_scores(const SoonPanels& soon, const PanelBlock& block, int slot) {
  AskAhead<kPanels> ask = {{}, {}, soon.lines - 1, {}};
  for (int p = 0; p < kPanels; ++p) {
    ask.panels[p] = static_cast<const std::byte*>(soon.at[slot + p]);
    const int next = slot + kPanels + p;
    ask.sooner[p] = static_cast<const std::byte*>(block.k[next < block.num_panels ? next : slot]);
  }
  return ask;
}
constexpr std::int64_t kLineLanes = kLineBytes / 4;
struct AskNothing {
  void operator()(std::int64_t) const {}
  void pass(std::int64_t) {}
};

// Asks at each slot for those lines of the soon panel that stand where the dim blocks do in V's, of
// which `panels` are [num_panels].
struct AskSoon {
  const SoonPanels* soon;
  template <typename Product, int kBlocks>
  AskAhead<kBlocks> at(const void* const* panels, std::int64_t num_panels, std::int64_t slot,
                       std::int64_t first_block) const {
    constexpr std::int64_t kSlotsSooner = 2;
    constexpr std::int64_t kLines = Product::kPanelSteps * Product::kRowLanes / kLineLanes;
    AskAhead<kBlocks> ask = {{}, {}, soon->lines - 1, {}};
    const std::int64_t last = soon->num_panels - 1;
    const std::int64_t next = slot + kSlotsSooner < num_panels ? slot + kSlotsSooner : slot;
    for (int b = 0; b < kBlocks; ++b) {
      ask.panels[b] = static_cast<const std::byte*>(soon->at[slot < last ? slot : last]);
      ask.first[b] = (first_block + b) * kLines;
      ask.sooner[b] = static_cast<const std::byte*>(panels[next]) + ask.first[b] * kLineBytes;
    }
    return ask;
  }
};
struct AskNoSoon {
  template <typename Product, int kBlocks>
  AskNothing at(const void* const*, std::int64_t, std::int64_t, std::int64_t) const {
    return {};
  }
};

// Unrolled, or the accumulators would be an array in memory.
template <int kRows, int kCols>
inline void set_zero(F32 (&acc)[kRows][kCols]) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) acc[r][c] = F32{};
  }
}
template <int kRows, int kCols>
inline void load_rows(F32 (&acc)[kRows][kCols], const float* from, std::int64_t stride) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) acc[r][c] = load(from + r * stride + c * kLanes);
  }
}
template <int kRows, int kCols>
inline void load_rows(F32 (&acc)[kRows][kCols], const float* from, std::int64_t stride,
                      const float* factors) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) {
      acc[r][c] = load(from + r * stride + c * kLanes) * broadcast(factors[r]);
    }
  }
}
template <int kRows, int kCols>
inline void store_rows(float* to, std::int64_t stride, const F32 (&acc)[kRows][kCols]) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) store(to + r * stride + c * kLanes, acc[r][c]);
  }
}

// Every column of a row begins with the row's number.
template <int kRows, int kCols>
inline void set_rows(I32 (&acc)[kRows][kCols], const Lane32* numbers, std::int64_t stride) {
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) acc[r][c] = broadcast_bits(numbers[r * stride]);
  }
}

// acc[r][c] += Σ_step a[r·a_stride + step] ∘ b[c][step·16 …]: a row's sum runs over the steps in
// order, whatever the other rows and columns are, so it has the same bits in every block. A row of
// b may stand for kParts lanes of a. Asks once for each line of b.
template <typename Product, int kRows, int kCols, int kPanels, typename Ask>
inline void rank_update(typename Product::Sum (&acc)[kRows][kCols], const Lane32* a,
                        std::int64_t a_stride, const Lane32* const (&b)[kPanels],
                        std::int64_t num_steps, const Ask& ask) {
  static_assert(kCols == kPanels * kVecs);
  constexpr int kParts = Product::kParts;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    I32 columns[kCols][kParts];
#pragma GCC unroll 32
    for (int c = 0; c < kCols; ++c) {
      Product::load(columns[c], b[c / kVecs] + step * Product::kRowLanes, c % kVecs);
    }
    if (step * Product::kRowLanes % kLineLanes == 0) ask(step * Product::kRowLanes / kLineLanes);
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

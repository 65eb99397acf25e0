#pragma once

#include <cstdint>

#include "lacuna/activation.h"
#include "lacuna/dense.h"
#include "lacuna/kv_view.h"

namespace lacuna {

// What src/attention calls: one table for each instruction set, from the one source
// tile_kernel.cc. Plain data and pointers; nothing here allocates, throws or starts a thread.
//
// Keys come in panels of kPanelKeys. A block is what one running maximum is taken over: the panels
// of kBlockPanels·kPanelKeys keys at absolute multiples. All packed numbers are 32-bit lanes: an
// f32, a pair of bfloat16 with the even one in the low half, or whole numbers of 8 or 4 bits. The
// layout is kv_view.h's kPacked:
//   K panel  [k_steps][16 keys]         step: 1, 2, 4 or 8 dims
//   V panel  [⌈v_head_dim/16⌉][16, 8, 8 or 4][16 dims]   1, 2, 2 or 4 keys
//   Q row    [k_steps], or of whole numbers: int8 of the dims, padded to 16; for each group of dims
//            with a scale −bias·Σ of them, bias being what makes a K number positive; their scale
inline constexpr int kPanelKeys = 16;
inline constexpr int kBlockPanels = 16;
inline constexpr int kBlockKeys = kPanelKeys * kBlockPanels;
inline constexpr int kDimBlock = 16;   // V's dims are padded to it
inline constexpr int kGroupRows = 16;  // rows whose scores are in the scratch at a time
inline constexpr std::int64_t kScratchLanes = std::int64_t{kGroupRows} * kBlockKeys;

enum class ElementType : int { kF32, kBf16, kF16, kInt8, kInt4 };  // in the order of DType
constexpr DType dtype_of(ElementType type) { return static_cast<DType>(type); }

// Vectors of one dim stride, as the caller's tensors hold them; nullptr: zeros, nothing is read.
struct PanelSource {
  const void* vectors[kPanelKeys];
  ElementType type;
  std::int64_t dim_stride;  // elements
  std::int64_t dim;         // how many
};

// A packed panel as memory holds it.
template <typename Void, typename Scale>
struct BasicPackedPanel {
  Void* numbers;
  Scale* scales;  // f16 [groups][16 keys]; quantized only
  ElementType type;
};
using PackedPanel = BasicPackedPanel<const void, const std::uint16_t>;
using MutablePackedPanel = BasicPackedPanel<void, std::uint16_t>;

// What becomes of a dot product before the mask: scale → softcap → bias. Where it is the scale
// alone, and positive, scores stay dot products and the scale is part of their unit.
struct ScoreRule {
  float sm_scale;
  float softcap;        // 0: off
  const float* slopes;  // [num_heads] of the rows' heads; nullptr: off
  bool plain() const { return softcap == 0 && slopes == nullptr && sm_scale > 0; }
  float unit_e() const { return plain() ? sm_scale : 1.0F; }  // one score in units of log e
  float unit() const { return unit_e() * 1.44269504F; }       // in units of log₂
};

// Counted where a tile executes.
struct KernelCounts {
  std::int64_t tiles = 0;           // panels visited
  std::int64_t executed_pairs = 0;  // rows × keys of them
  std::int64_t needed_pairs = 0;    // those the masks let through
};

// Rows token-major: row r is token r / num_heads, head r % num_heads.
struct RowBlock {
  const void* q;  // [num_tokens · num_heads][q_lanes] packed
  std::int64_t num_tokens;
  std::int64_t num_heads;
  const std::int64_t* positions;  // [num_tokens]; used by a bias only
};

// Panels as they lie in memory, to be asked for before they are read.
inline constexpr std::int64_t kLineBytes = 64;
struct SoonPanels {
  int num_panels = 0;
  std::int64_t lines = 1;  // of a panel
  const void* at[kBlockPanels];
};

// Up to kBlockPanels panels of one block, ascending.
struct PanelBlock {
  int num_panels = 0;
  const void* k[kBlockPanels];
  const void* v[kBlockPanels];
  const std::uint16_t* masks[kBlockPanels];     // [num_tokens] bits of keys; nullptr: all of them
  std::uint16_t non_finite[kBlockPanels];       // keys whose V is not finite
  const std::int64_t* positions[kBlockPanels];  // [kPanelKeys]; used by a bias only
  const std::uint16_t* k_scales[kBlockPanels];  // f16 [groups][16 keys]; quantized only
  const std::uint16_t* v_scales[kBlockPanels];
  // What attend() asks for, a line or two at each step, while it computes the scores and the values
  // of the first rows: memory and arithmetic would else take turns. nullptr: nothing.
  const SoonPanels* soon_in_scores = nullptr;
  const SoonPanels* soon_in_values = nullptr;
};

// All panels of a KV head, every one of a block visited.
struct DensePanels {
  const PanelBlock* blocks;  // [num_blocks]
  std::int64_t num_blocks;
  const void* const* v;               // [panels]
  const std::uint16_t* const* masks;  // [panels]
  float* scores;                      // [rows][num_blocks · kBlockKeys]
};

// Attention states of rows: o = Σ P·v, l = Σ P in 16 partial sums, by key mod 16, with
// P = 2^((s − m)·unit) and m the largest score s so far.
struct StateBlock {
  float* m;    // [rows]
  float* l;    // [rows][16]
  float* o;    // [rows][o_stride]
  bool empty;  // nothing is read from it yet
};

struct BlockShape {
  std::int64_t k_steps;     // 32-bit lanes of a packed key
  std::int64_t dim_blocks;  // ⌈v_head_dim/16⌉; o_stride is 16 times that
  std::int64_t q_lanes;     // 32-bit lanes of a packed row
};

// The layout of lacuna/dense.h in whole numbers. Of a group of a row: eight lanes of four numbers,
// then −128 · Σ of them, then its scale, then scale · Σ.
inline constexpr std::int64_t kDenseGroupLanes = kDenseGroup / 4;
inline constexpr std::int64_t kDenseRowLanes = kDenseGroupLanes + 3;
constexpr std::int64_t num_dense_groups(std::int64_t inputs) {
  return (inputs + kDenseGroup - 1) / kDenseGroup;
}
// Of a group of a panel: numbers, then scales, so that one row reads memory in one line.
constexpr std::int64_t dense_number_bytes(int bits) { return bits * kDenseGroup * kPanelKeys / 8; }
constexpr std::int64_t dense_group_bytes(int bits) {
  return dense_number_bytes(bits) + (bits == 8 ? 1 : 2) * kPanelKeys * 2;
}

// Rows of a product with packed weights (lacuna/dense.h).
struct DenseRowBlock {
  const void* lanes;  // [num_rows][row_lanes] f32, or as pack_dense_row() leaves them
  std::int64_t row_lanes;
  std::int64_t num_rows;
  std::int64_t inputs;
};

// Panels of a matrix, one after another. bits: of a weight; 32 in f32.
struct DensePanelBlock {
  const std::byte* panels;
  std::int64_t num_panels;
  int bits;
};

struct TileKernel {
  const char* isa;
  // The packed layout that its panels have: kF32, kBf16 (inputs must be bfloat16), kInt8 or kInt4.
  ElementType lanes;

  void (*pack_q)(void* row, const void* vector, ElementType, std::int64_t dim_stride,
                 std::int64_t dim) noexcept;
  // Not in kernels of whole numbers, whose keys are packed before:
  void (*pack_k)(void* panel, const PanelSource&) noexcept;
  // Returns the keys that hold a number which is not finite.
  std::uint16_t (*pack_v)(void* panel, const PanelSource&) noexcept;

  // From panels of any other type, as memory may hold them, to this kernel's f32 lanes, exactly.
  // F32 kernels only.
  void (*widen_k)(void* panel, const PackedPanel&, std::int64_t head_dim) noexcept;
  void (*widen_v)(void* panel, const PackedPanel&, std::int64_t dim_blocks) noexcept;
  // Keys of a packed V panel that hold a number which is not finite.
  std::uint16_t (*non_finite_keys)(const void* v_panel, std::int64_t dim_blocks) noexcept;

  // vector[d] = o[d]·factor, rounded to the type; factor 0 writes zeros and reads nothing.
  void (*write_row)(void* vector, ElementType, std::int64_t dim_stride, std::int64_t dim,
                    const float* o, float factor) noexcept;

  // Σ of a row's 16 partial sums l.
  float (*row_sum)(const float* l) noexcept;

  // Scores, softmax and values of the rows over one block; the state takes it in.
  void (*attend)(const StateBlock&, const RowBlock&, const PanelBlock&, const BlockShape&,
                 const ScoreRule&, float* scratch, KernelCounts*) noexcept;
  // The same the usual way: all scores first. REQUIRES: an empty state, finite V. Not in kernels of
  // whole numbers.
  void (*attend_dense)(const StateBlock&, const RowBlock&, const DensePanels&, const BlockShape&,
                       const ScoreRule&) noexcept;
  // mass[head][num_panels][16] += Σ over tokens of 2^(s·unit − lse2[row]).
  void (*mass)(float* mass, const float* lse2, const RowBlock&, const PanelBlock&,
               const BlockShape&, const ScoreRule&, float* scratch, KernelCounts*) noexcept;
  // Products with weights in f32 and, in the kernel of int8, in whole numbers: out[row][16·p + c].
  // Others have none.
  void (*multiply)(float* out, std::int64_t out_stride, const DenseRowBlock&,
                   const DensePanelBlock&) noexcept;
  void (*pack_dense_row)(void* row, const float* x, std::int64_t inputs) noexcept;  // int8 only
  // lacuna/activation.h; f32 only.
  void (*gate)(float* to, const float* gate, const float* up, std::int64_t size,
               Activation) noexcept;

  // into ⊕= from: equal bits whatever is empty.
  void (*merge)(const StateBlock& into, const StateBlock& from, std::int64_t rows,
                std::int64_t o_stride, float unit) noexcept;

  std::int64_t k_dims(std::int64_t head_dim) const {
    return packed_k_dims(dtype_of(lanes), head_dim);
  }
  std::int64_t k_steps(std::int64_t head_dim) const {
    return k_dims(head_dim) * size_bits(dtype_of(lanes)) / 32;
  }
  std::int64_t q_lanes(std::int64_t head_dim) const {
    const std::int64_t groups = num_scales(dtype_of(lanes), head_dim);
    return groups == 0 ? k_steps(head_dim) : (head_dim + 15) / 16 * 4 + groups + 1;
  }
  // Lanes of a panel's numbers, and of its scales, which lie behind them in the thread's space.
  std::int64_t k_panel_lanes(std::int64_t head_dim) const { return k_steps(head_dim) * kPanelKeys; }
  std::int64_t v_panel_lanes(std::int64_t v_head_dim) const {
    return packed_v_dims(v_head_dim) * kPanelKeys * size_bits(dtype_of(lanes)) / 32;
  }
  std::int64_t scale_lanes(std::int64_t dim) const {
    return num_scales(dtype_of(lanes), dim) * kPanelKeys / 2;
  }
};

// Writes vectors into packed panels: vectors[0] becomes key `first`, up to `count` keys. Other
// keys' bits stay. The same bits with every instruction set.
struct PanelPacker {
  void (*put_k)(const MutablePackedPanel&, int first, int count, const PanelSource&) noexcept;
  void (*put_v)(const MutablePackedPanel&, int first, int count, const PanelSource&) noexcept;
};

// The tables of one instruction set; bf16 is nullptr where it has no product of its own.
struct KernelTable {
  const char* isa;
  const TileKernel* f32;
  const TileKernel* bf16;
  const TileKernel* int8;
  const TileKernel* int4;
  PanelPacker packer;
};

extern const KernelTable kKernelTablePortable;
// x86-64 only:
extern const KernelTable kKernelTableAvx2;
extern const KernelTable kKernelTableAvx512;
extern const KernelTable kKernelTableAvx512Vnni;
extern const KernelTable kKernelTableAvx512Bf16;

// The counting build, for tests: what its kernels did since the last call. Not thread-safe.
struct KernelWork {
  std::int64_t multiply_adds = 0;
  std::int64_t exponentials = 0;
  std::int64_t loaded_lanes = 0;  // of packed K and V: different ones between two packings
};
extern const KernelTable kKernelTableCounting;
KernelWork take_counted_work();

// Adds a table at the end of the list, to be asked for by name. For tests, before any thread.
void add_kernel_table(const KernelTable& table);

// The packer of a table; "": the best one.
const PanelPacker& panel_packer(const char* isa = "");

// The kernel that serves these inputs; `isa` "" is kernel_isa(q, kv). Throws as kernel_isa().
const TileKernel& tile_kernel(const char* isa, ElementType q, ElementType kv);

}  // namespace lacuna

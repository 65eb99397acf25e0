#pragma once

#include <cstdint>
#include <span>

#include "lacuna/tensor.h"

namespace lacuna {

// How the numbers of a head lie.
//
// kPacked is what kernels read without packing it first: panels of 16 keys, little-endian. Of K,
// panel[step][key], a step being one dim of f32, or two dims of 16 bits side by side, the last one
// padded; of V, panel[dim / 16][key or pair of keys][dim % 16], pairs of 16-bit numbers of an even
// key and the next one side by side, dims padded to 16. Padding holds finite numbers.
enum class KvLayout { kStrided, kPacked };
inline constexpr std::int64_t kPanelTokens = 16;

// Distances in elements.
struct KvStrides {
  std::int64_t page = 0;  // paged only: from a page to the next one of the pool
  // Packed: the padded dims, so that panels lie 16 · token apart. `dim` means nothing then.
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;
};

// Padded dims of the packed layout.
constexpr std::int64_t packed_k_dims(DType dtype, std::int64_t head_dim) {
  return dtype == DType::kF32 ? head_dim : (head_dim + 1) / 2 * 2;
}
constexpr std::int64_t packed_v_dims(std::int64_t v_head_dim) {
  return (v_head_dim + 15) / 16 * 16;
}

// Where the keys and values of one layer lie, for every sequence of a call. It owns nothing; what
// it points to must stay as it is while a call reads it.
//
// Contiguous (page_size 0): key p of sequence s is token starts[s] + p of k and v.
// Paged: it is slot p % page_size of page block_table[s · table_columns + p / page_size]; kNullPage
// stands where no key is held, and no call may need a key there.
// Packed, starts and page_size are multiples of 16.
struct KvView {
  static constexpr std::int64_t kNullPage = -1;

  const void* k = nullptr;
  const void* v = nullptr;
  DType dtype = DType::kF32;
  KvLayout layout = KvLayout::kStrided;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;    // of k
  std::int64_t v_head_dim = 0;  // of v
  KvStrides k_strides;
  KvStrides v_strides;
  std::span<const std::int64_t> lengths;      // [num_sequences] keys 0..lengths[s]-1 exist
  std::span<const std::int64_t> starts;       // [num_sequences] contiguous only
  std::int64_t page_size = 0;                 // tokens; 0: contiguous
  std::span<const std::int64_t> block_table;  // [num_sequences, table_columns] paged only
  std::int64_t table_columns = 0;
  std::int64_t num_pages = 0;  // pages of the pool; paged only

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(lengths.size()); }
};

// One contiguous sequence, or several packed one after another: k and v are [tokens, num_kv_heads,
// dims] with any strides; sequence s holds tokens starts[s] .. starts[s] + lengths[s] - 1.
KvView kv_view(const TensorView& k, const TensorView& v, std::span<const std::int64_t> starts,
               std::span<const std::int64_t> lengths);

// Throws Error naming the member, its value and what was allowed: sizes out of range, fewer starts
// than lengths, a table with fewer columns than a sequence has pages, a page outside the pool.
// Null pages are allowed here; a call that needs one refuses.
void check(const KvView& kv);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <span>

#include "lacuna/tensor.h"

namespace lacuna {

// Distances in elements.
struct KvStrides {
  std::int64_t page = 0;  // paged only: from a page to the next one of the pool
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;
};

// Where the keys and values of one layer lie, for every sequence of a call. It owns nothing; what
// it points to must stay as it is while a call reads it.
//
// Contiguous (page_size 0): key p of sequence s is token starts[s] + p of k and v.
// Paged: it is slot p % page_size of page block_table[s · table_columns + p / page_size]; kNullPage
// stands where no key is held, and no call may need a key there.
struct KvView {
  static constexpr std::int64_t kNullPage = -1;

  const void* k = nullptr;
  const void* v = nullptr;
  DType dtype = DType::kF32;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;    // of k
  std::int64_t v_head_dim = 0;  // of v
  KvStrides k_strides;
  KvStrides v_strides;
  std::span<const std::int64_t> lengths;  // [num_sequences] keys 0..lengths[s]-1 exist
  std::span<const std::int64_t> starts;   // [num_sequences] contiguous only
  std::int64_t page_size = 0;             // tokens; 0: contiguous
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

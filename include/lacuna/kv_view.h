#pragma once

#include <cstdint>
#include <span>

#include "lacuna/tensor.h"

namespace lacuna {

// How the numbers of a head lie.
//
// kPacked is what kernels read without packing it first: panels of 16 keys, little-endian, in lanes
// of 32 bits. Padding holds finite numbers.
//   K panel [step][16 keys], a lane being
//     f32         one dim
//     bf16, f16   two dims side by side, the even one in the low half; padded to a pair
//     int8        four dims, the first in the lowest byte; padded to four
//     int4        eight dims: byte b holds dim b in its low and dim b + 4 in its high half
//   V panel [dim / 16][rows][dim % 16], dims padded to 16, a row being
//     f32         a key
//     bf16, f16   two keys side by side, the even one in the low half of the lane
//     int8        two keys side by side, in 16 bits a dim
//     int4        four keys: byte 0 of the 16 bits holds keys 0 (low half) and 2, byte 1 keys 1, 3
// An int4 is stored as value + 8. Scales are f16: [16 keys] a panel of int8, and of int4, whose
// groups are kInt4Group dims, [head_dim / kInt4Group][16 keys]; a number is its integer · scale.
enum class KvLayout { kStrided, kPacked };
inline constexpr std::int64_t kPanelTokens = 16;
inline constexpr std::int64_t kInt4Group = 32;

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
  constexpr std::int64_t kLaneDims[] = {1, 2, 2, 4, 8};
  const std::int64_t lane = kLaneDims[static_cast<int>(dtype)];
  return (head_dim + lane - 1) / lane * lane;
}
constexpr std::int64_t packed_v_dims(std::int64_t v_head_dim) {
  return (v_head_dim + 15) / 16 * 16;
}
// Scales of one key or value vector.
constexpr std::int64_t num_scales(DType dtype, std::int64_t dim) {
  return dtype == DType::kInt8 ? 1 : dtype == DType::kInt4 ? dim / kInt4Group : 0;
}

// The block table and the place in its pages of one KV head.
struct KvHeadPlace {
  std::int64_t table = 0;
  std::int64_t slot = 0;  // its pages hold the head at slot · strides.head
  friend bool operator==(const KvHeadPlace&, const KvHeadPlace&) = default;
};

// Where the keys and values of one layer lie, for every sequence of a call. It owns nothing; what
// it points to must stay as it is while a call reads it.
//
// Contiguous (page_size 0): key p of sequence s is token starts[s] + p of k and v.
// Paged: it is slot p % page_size of page block_table[(s · num_tables + t) · table_columns +
// p / page_size], t being the head's table; kNullPage stands where no key is held, and no call may
// need a key there.
// Packed, starts and page_size are multiples of 16. Quantized keys and values are always packed.
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
  std::span<const std::int64_t> block_table;  // [num_sequences, num_tables, table_columns] paged
  std::int64_t table_columns = 0;
  std::int64_t num_pages = 0;  // pages of the pool; paged only
  // Paged only: heads that do not all lie in one table. Empty: head h is slot h of table 0.
  std::span<const KvHeadPlace> head_places = {};  // [num_kv_heads]
  std::int64_t num_tables = 1;
  // Quantized only: f16, with strides in f16 (token: num_scales of a vector; dim: nothing).
  const void* k_scales = nullptr;
  const void* v_scales = nullptr;
  KvStrides k_scale_strides = {};
  KvStrides v_scale_strides = {};

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  KvHeadPlace head_place(std::int64_t kv_head) const {
    if (head_places.empty()) return {0, kv_head};
    return head_places[static_cast<std::size_t>(kv_head)];
  }
};

// One contiguous sequence, or several packed one after another: k and v are [tokens, num_kv_heads,
// dims] with any strides; sequence s holds tokens starts[s] .. starts[s] + lengths[s] - 1.
KvView kv_view(const TensorView& k, const TensorView& v, std::span<const std::int64_t> starts,
               std::span<const std::int64_t> lengths);

// Throws Error naming the member, its value and what was allowed: sizes out of range, fewer starts
// than lengths, a table with fewer columns than a sequence has pages, a page outside the pool, a
// head in no table, quantized numbers that are not packed or have no scales.
// Null pages are allowed here; a call that needs one refuses.
void check(const KvView& kv);

}  // namespace lacuna

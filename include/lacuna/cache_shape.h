#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lacuna/tensor.h"

namespace lacuna {

// What the cache keeps for one layer of a model.
struct CacheLayer {
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 64;    // of k
  std::int64_t v_head_dim = 64;  // of v
  // KV heads that keep the same positions and so share a block table; each head in exactly one
  // group. Empty: one group of all heads.
  std::vector<std::vector<int>> head_groups = {};
  std::optional<int> kv_from = {};  // reads that earlier layer's tables and stores nothing
  friend bool operator==(const CacheLayer&, const CacheLayer&) = default;
};

struct CacheShape {
  std::vector<CacheLayer> layers;
  std::int64_t page_size = 64;  // tokens: 16, 32, … 256
  DType dtype = DType::kBf16;
  bool summaries = false;  // each page carries minimum, maximum and sum of its keys
  friend bool operator==(const CacheShape&, const CacheShape&) = default;
};

// Where the numbers of one KV head lie in a page, in bytes from the head's first: K panels, V
// panels, K scales, V scales, as kv_view.h describes them. All are multiples of 32.
struct HeadLayout {
  std::int64_t v = 0;
  std::int64_t k_scales = 0;
  std::int64_t v_scales = 0;
  std::int64_t size_bytes = 0;
};
HeadLayout head_layout(const CacheShape& shape, const CacheLayer& layer);

// One block table: the KV heads of one layer that keep the same positions. A page of it holds
// page_size tokens of these heads one after another, and then, with summaries, a summary of each.
struct CacheTable {
  int layer_idx = 0;
  std::vector<int> kv_heads;    // slot i of a page is head kv_heads[i]
  std::int64_t kv_bytes = 0;    // of a page: keys, values and scales
  std::int64_t page_bytes = 0;  // with its summaries
  std::int64_t size_class = 0;  // tables with equal page_bytes share one
};

// The tables of every layer that stores, in order; of a layer, in the order of its groups. Throws
// Error naming the layer and the value where a size is out of range, groups do not name each head
// once, kv_from is no earlier layer that stores or has other sizes, or int4 meets a width that is
// no multiple of its group.
std::vector<CacheTable> cache_tables(const CacheShape& shape);

// Bytes that one token adds: keys, values and scales of all layers that store, dims as packed.
std::int64_t token_bytes(const CacheShape& shape);

}  // namespace lacuna

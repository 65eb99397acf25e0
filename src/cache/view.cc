// Views over the pages of a layer.
#include <fmt/format.h>

#include <algorithm>

#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

// Sizes and strides of a layer's pages; lengths and tables are still to come.
KvView layer_view(const KvCache::State& state, std::size_t layer_idx) {
  const CacheShape& shape = state.shape;
  const CacheLayer& layer = shape.layers[layer_idx];
  const HeadLayout layout = head_layout(shape, layer);
  KvView kv;
  kv.dtype = shape.dtype;
  kv.layout = KvLayout::kPacked;
  kv.num_kv_heads = layer.num_kv_heads;
  kv.head_dim = layer.head_dim;
  kv.v_head_dim = layer.v_head_dim;
  kv.page_size = shape.page_size;
  kv.num_pages = state.pool.num_units();
  const std::byte* const base = state.pool.base();
  kv.k = base;
  kv.v = base + layout.v;
  const auto strides = [&](std::int64_t bits, std::int64_t token) {
    return KvStrides{kPageUnitBytes * 8 / bits, token, layout.size_bytes * 8 / bits, 1};
  };
  const std::int64_t bits = size_bits(shape.dtype);
  kv.k_strides = strides(bits, packed_k_dims(shape.dtype, layer.head_dim));
  kv.v_strides = strides(bits, packed_v_dims(layer.v_head_dim));
  if (is_quantized(shape.dtype)) {
    kv.k_scales = base + layout.k_scales;
    kv.v_scales = base + layout.v_scales;
    kv.k_scale_strides = strides(16, num_scales(shape.dtype, layer.head_dim));
    kv.v_scale_strides = strides(16, num_scales(shape.dtype, layer.v_head_dim));
  }
  return kv;
}

}  // namespace

CacheView KvCache::view(int layer_idx, std::span<const SequenceId> sequences) const {
  const auto num_layers = std::ssize(state_->shape.layers);
  const auto layer = static_cast<std::size_t>(layer_idx);
  if (layer_idx < 0 || layer_idx >= num_layers || state_->tables_of_layer[layer].empty()) {
    throw Error(fmt::format("layer_idx is {}; allowed: layers below {} that have KV", layer_idx,
                            num_layers));
  }
  CacheView view;
  view.kv_ = layer_view(*state_, layer);
  std::int64_t columns = 0;
  for (const SequenceId id : sequences) {
    const std::int64_t num_tokens = state_->awake_sequence(id).num_tokens();
    view.lengths_.push_back(num_tokens);
    columns = std::max(columns, ceil_div(num_tokens, state_->shape.page_size));
  }
  const std::vector<std::size_t>& tables = state_->tables_of_layer[layer];
  view.block_table_.assign(
      static_cast<std::size_t>(std::ssize(sequences) * std::ssize(tables) * columns),
      KvView::kNullPage);
  auto to = view.block_table_.begin();
  for (const SequenceId id : sequences) {
    for (const std::size_t table : tables) {
      const std::vector<PageId>& pages = state_->sequence(id).tables[table];
      std::copy(pages.begin(), pages.end(), to);
      to += columns;
    }
  }
  view.head_places_ = state_->head_places[layer];
  view.kv_.lengths = view.lengths_;
  view.kv_.block_table = view.block_table_;
  view.kv_.table_columns = columns;
  view.kv_.num_tables = std::ssize(tables);
  view.kv_.head_places = view.head_places_;
  return view;
}

}  // namespace lacuna

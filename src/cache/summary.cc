// Minimum, maximum and sum of the keys of each head on a page: data for selectors.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache/state.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// The first head's numbers; the next head's are 3 · head_dim further on.
void clear(float* summary, std::int64_t head_dim) {
  std::fill_n(summary, head_dim, std::numeric_limits<float>::infinity());
  std::fill_n(summary + head_dim, head_dim, -std::numeric_limits<float>::infinity());
  std::fill_n(summary + 2 * head_dim, head_dim, 0.0F);
}

void take_in(float* summary, std::span<const float> key) {
  const std::size_t dims = key.size();
  for (std::size_t d = 0; d < dims; ++d) {
    summary[d] = std::min(summary[d], key[d]);
    summary[dims + d] = std::max(summary[dims + d], key[d]);
    summary[2 * dims + d] += key[d];
  }
}

}  // namespace

PackedHead KvCache::State::packed_head(std::size_t table, std::byte* page,
                                       std::int64_t slot) const {
  const CacheLayer& sizes = layer(table);
  const HeadLayout layout = head_layout(shape, sizes);
  std::byte* const head = page + slot * layout.size_bytes;
  return {head,        head + layout.v, head + layout.k_scales, head + layout.v_scales,
          shape.dtype, sizes.head_dim,  sizes.v_head_dim};
}

SummaryHeader& KvCache::State::summary_header(std::size_t table, PageId page) {
  return *reinterpret_cast<SummaryHeader*>(pool.bytes(page) + tables[table].kv_bytes);
}

float* KvCache::State::summary(std::size_t table, PageId page, std::size_t slot) {
  auto* const floats = reinterpret_cast<float*>(&summary_header(table, page) + 1);
  return floats + static_cast<std::int64_t>(slot) * 3 * layer(table).head_dim;
}

void KvCache::State::start_summary(std::size_t table, PageId page, std::int64_t first_slot) {
  if (!shape.summaries) return;
  summary_header(table, page) = {
      static_cast<std::int32_t>(first_slot), static_cast<std::int32_t>(first_slot), {}};
  for (std::size_t slot = 0; slot < tables[table].kv_heads.size(); ++slot) {
    clear(summary(table, page, slot), layer(table).head_dim);
  }
}

void KvCache::State::extend_summary(std::size_t table, PageId page, std::int64_t end_slot) {
  if (!shape.summaries) return;
  SummaryHeader& header = summary_header(table, page);
  std::vector<float> key(static_cast<std::size_t>(layer(table).head_dim));
  for (std::size_t slot = 0; slot < tables[table].kv_heads.size(); ++slot) {
    const PackedHead head = packed_head(table, page, static_cast<std::int64_t>(slot));
    for (std::int64_t token = header.end_slot; token < end_slot; ++token) {
      read_k(key, head, token);
      take_in(summary(table, page, slot), key);
    }
  }
  header.end_slot = std::max(header.end_slot, static_cast<std::int32_t>(end_slot));
}

void KvCache::State::cut_summary(std::size_t table, PageId page, std::int64_t end_slot) {
  if (!shape.summaries) return;
  const SummaryHeader header = summary_header(table, page);
  if (header.end_slot <= end_slot) return;
  start_summary(table, page, std::min<std::int64_t>(header.first_slot, end_slot));
  extend_summary(table, page, end_slot);
}

void KvCache::State::cut_last_summaries(const Sequence& sequence) {
  const std::int64_t end_slot = sequence.length % shape.page_size;
  if (!shape.summaries || end_slot == 0) return;
  const auto column = static_cast<std::size_t>(sequence.length / shape.page_size);
  for (std::size_t table = 0; table < sequence.tables.size(); ++table) {
    const PageId page = sequence.tables[table][column];
    if (page != KvView::kNullPage && pool.references(page) == 1) {
      cut_summary(table, page, end_slot);
    }
  }
}

PageSummary KvCache::summary(SequenceId sequence, int layer_idx, int kv_head,
                             std::int64_t column) const {
  if (!state_->shape.summaries) throw Error("summaries is false; allowed: a shape with summaries");
  const auto layer = static_cast<std::size_t>(layer_idx);
  if (layer_idx < 0 || layer_idx >= std::ssize(state_->shape.layers) || kv_head < 0 ||
      kv_head >= std::ssize(state_->head_places[layer])) {
    throw Error(fmt::format("KV head {} of layer {} is not in the cache", kv_head, layer_idx));
  }
  const KvHeadPlace place = state_->head_places[layer][static_cast<std::size_t>(kv_head)];
  const std::size_t table = state_->tables_of_layer[layer][static_cast<std::size_t>(place.table)];
  const std::vector<PageId>& pages = state_->awake_sequence(sequence).tables[table];
  if (column < 0 || column >= std::ssize(pages) ||
      pages[static_cast<std::size_t>(column)] == KvView::kNullPage) {
    throw Error(fmt::format("column is {}; allowed: pages that sequence {} holds in layer {}",
                            column, sequence, layer_idx));
  }
  const PageId page = pages[static_cast<std::size_t>(column)];
  const SummaryHeader& header = state_->summary_header(table, page);
  const auto dims = static_cast<std::size_t>(state_->layer(table).head_dim);
  const float* const numbers = state_->summary(table, page, static_cast<std::size_t>(place.slot));
  const std::int64_t first = column * state_->shape.page_size;
  return {{numbers, dims},
          {numbers + dims, dims},
          {numbers + 2 * dims, dims},
          {first + header.first_slot, first + header.end_slot}};
}

}  // namespace lacuna

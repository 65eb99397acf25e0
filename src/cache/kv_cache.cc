#include "lacuna/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

constexpr PageId kNull = KvView::kNullPage;

std::vector<std::int64_t> class_bytes(const std::vector<CacheTable>& tables) {
  std::vector<std::int64_t> bytes;
  for (const CacheTable& table : tables) {
    if (table.size_class == std::ssize(bytes)) bytes.push_back(table.page_bytes);
  }
  return bytes;
}

std::size_t storing_layer(const CacheShape& shape, std::size_t layer_idx) {
  const auto& from = shape.layers[layer_idx].kv_from;
  return from ? static_cast<std::size_t>(*from) : layer_idx;
}

}  // namespace

KvCache::State::State(const CacheShape& cache_shape, const PoolOptions& options)
    : shape(cache_shape),
      tables(cache_tables(shape)),
      pool(class_bytes(tables), options),
      prefixes(pool) {
  for (std::size_t layer_idx = 0; layer_idx < shape.layers.size(); ++layer_idx) {
    const std::size_t source = storing_layer(shape, layer_idx);
    std::vector<std::size_t>& of_layer = tables_of_layer.emplace_back();
    std::vector<KvHeadPlace>& places = head_places.emplace_back();
    places.resize(static_cast<std::size_t>(shape.layers[layer_idx].num_kv_heads));
    for (std::size_t table = 0; table < tables.size(); ++table) {
      if (static_cast<std::size_t>(tables[table].layer_idx) != source) continue;
      const std::vector<int>& heads = tables[table].kv_heads;
      for (std::size_t slot = 0; slot < heads.size(); ++slot) {
        places[static_cast<std::size_t>(heads[slot])] = {std::ssize(of_layer),
                                                         static_cast<std::int64_t>(slot)};
      }
      of_layer.push_back(table);
    }
  }
}

Sequence& KvCache::State::sequence(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).sequence(id));
}

const Sequence& KvCache::State::sequence(SequenceId id) const {
  const auto found = sequences.find(id);
  if (found == sequences.end()) {
    throw Error(
        fmt::format("sequence is {}; allowed: one of the cache's {}", id, sequences.size()));
  }
  return found->second;
}

Sequence& KvCache::State::idle_sequence(SequenceId id) {
  Sequence& found = sequence(id);
  if (found.pending_rows > 0) {
    throw Error(fmt::format("sequence {} is in a step of {} rows; allowed: outside steps", id,
                            found.pending_rows));
  }
  return found;
}

SequenceId KvCache::State::add(Sequence sequence) {
  sequence.tables.resize(tables.size());
  sequence.first_slots.resize(tables.size());
  sequences.emplace(next_id, std::move(sequence));
  return next_id++;
}

void KvCache::State::check_ranges(std::span<const Ranges> ranges, const char* name) const {
  if (ranges.size() == tables.size()) return;
  throw Error(fmt::format("{} has ranges for {} tables; allowed: one for each of {}", name,
                          ranges.size(), tables.size()));
}

std::optional<PageId> KvCache::State::take(std::size_t table) {
  const int size_class = static_cast<int>(tables[table].size_class);
  if (std::optional<PageId> page = pool.take(size_class)) return page;
  if (!prefixes.make_room(size_class)) return std::nullopt;
  return pool.take(size_class);
}

void KvCache::State::drop_page(Sequence& sequence, std::size_t table, std::int64_t column) {
  PageId& page = sequence.tables[table][static_cast<std::size_t>(column)];
  if (page != kNull) pool.drop(std::exchange(page, kNull));
  sequence.first_slots[table].erase(column);
}

void KvCache::State::drop_columns(Sequence& sequence, std::size_t table,
                                  std::int64_t first_column) {
  std::vector<PageId>& columns = sequence.tables[table];
  while (std::ssize(columns) > first_column) {
    drop_page(sequence, table, std::ssize(columns) - 1);
    columns.pop_back();
  }
}

KvCache::KvCache(const CacheShape& shape, const PoolOptions& options)
    : state_(std::make_unique<State>(shape, options)) {}
KvCache::~KvCache() = default;

const CacheShape& KvCache::shape() const { return state_->shape; }
const std::vector<CacheTable>& KvCache::tables() const { return state_->tables; }
PagePool& KvCache::pool() { return state_->pool; }
const PagePool& KvCache::pool() const { return state_->pool; }

SequenceId KvCache::create() { return state_->add({}); }

SequenceId KvCache::fork(SequenceId parent) {
  const Sequence& source = state_->idle_sequence(parent);
  for (const std::vector<PageId>& columns : source.tables) {
    for (const PageId page : columns) {
      if (page != kNull) state_->pool.share(page);
    }
  }
  return state_->add(source);
}

void KvCache::free(SequenceId sequence) {
  Sequence& freed = state_->idle_sequence(sequence);
  for (std::size_t table = 0; table < freed.tables.size(); ++table) {
    state_->drop_columns(freed, table, 0);
  }
  state_->sequences.erase(sequence);
}

std::int64_t KvCache::length(SequenceId sequence) const {
  return state_->sequence(sequence).length;
}

std::vector<SequenceId> KvCache::sequences() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : state_->sequences) ids.push_back(id);
  return ids;
}

void KvCache::retain(SequenceId sequence, std::span<const Ranges> kept) {
  state_->check_ranges(kept, "kept");
  Sequence& of = state_->idle_sequence(sequence);
  const std::int64_t page_size = state_->shape.page_size;
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    const std::int64_t num_columns = std::ssize(of.tables[table]);
    std::int64_t column = 0;  // the first one that was not looked at
    const auto drop_until = [&](std::int64_t end) {
      for (; column < std::min(end, num_columns); ++column) state_->drop_page(of, table, column);
    };
    for (const Range& part : kept[table]) {
      drop_until(part.begin / page_size);
      column = std::max(column, ceil_div(part.end, page_size));
    }
    drop_until(num_columns);
  }
}

void KvCache::truncate(SequenceId sequence, std::int64_t length, std::span<const Ranges> needed) {
  Sequence& cut = state_->idle_sequence(sequence);
  if (length < 0 || length > cut.length) {
    throw Error(fmt::format("length is {}; allowed: 0..{}, the tokens of sequence {}", length,
                            cut.length, sequence));
  }
  state_->check_ranges(needed, "needed");
  const std::vector<Ranges> there = held(sequence);
  for (std::size_t table = 0; table < needed.size(); ++table) {
    const Ranges missing = subtract(clip(needed[table], {0, length}), there[table]);
    if (missing.empty()) continue;
    throw Error(
        fmt::format("sequence {} cannot be cut to {} tokens: layer {} no longer holds position {}",
                    sequence, length, state_->tables[table].layer_idx, missing.front()));
  }
  cut.length = length;
  const std::int64_t page_size = state_->shape.page_size;
  for (std::size_t table = 0; table < needed.size(); ++table) {
    state_->drop_columns(cut, table, ceil_div(length, page_size));
    for (auto& [column, slot] : cut.first_slots[table]) {
      slot = std::min(slot, length - column * page_size);
    }
  }
  state_->cut_last_summaries(cut);
}

std::span<const PageId> KvCache::block_table(SequenceId sequence, std::size_t table) const {
  const std::vector<std::vector<PageId>>& tables = state_->sequence(sequence).tables;
  if (table >= tables.size()) {
    throw Error(fmt::format("table is {}; allowed: below {}", table, tables.size()));
  }
  return tables[table];
}

std::vector<Ranges> KvCache::held(SequenceId sequence) const {
  const Sequence& of = state_->sequence(sequence);
  const std::int64_t page_size = state_->shape.page_size;
  std::vector<Ranges> result;
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    const std::vector<PageId>& columns = of.tables[table];
    const std::map<std::int64_t, std::int64_t>& first_slots = of.first_slots[table];
    std::vector<Range> parts;
    for (std::int64_t column = 0; column < std::ssize(columns); ++column) {
      if (columns[static_cast<std::size_t>(column)] == kNull) continue;
      const auto late = first_slots.find(column);
      const std::int64_t first =
          column * page_size + (late == first_slots.end() ? 0 : late->second);
      parts.push_back({first, std::min((column + 1) * page_size, of.num_tokens())});
    }
    result.emplace_back(std::move(parts));
  }
  return result;
}

std::vector<std::int64_t> KvCache::held_bytes(SequenceId sequence) const {
  const Sequence& of = state_->sequence(sequence);
  std::vector<std::int64_t> bytes(state_->shape.layers.size(), 0);
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    const CacheTable& kind = state_->tables[table];
    const std::int64_t summaries = kind.page_bytes - kind.kv_bytes;
    for (const PageId page : of.tables[table]) {
      if (page == kNull) continue;
      bytes[static_cast<std::size_t>(kind.layer_idx)] +=
          state_->pool.page_bytes(state_->pool.size_class(page)) - summaries;
    }
  }
  return bytes;
}

std::int64_t KvCache::live_bytes() const {
  std::int64_t bytes = 0;
  state_->pool.for_each_live(
      [&](PageId, int size_class) { bytes += state_->pool.page_bytes(size_class); });
  return bytes;
}

}  // namespace lacuna

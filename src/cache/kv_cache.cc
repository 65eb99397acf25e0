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

std::vector<int> classes_of(const std::vector<CacheTable>& tables) {
  std::vector<int> classes;
  for (const CacheTable& table : tables) classes.push_back(static_cast<int>(table.size_class));
  return classes;
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
      prefixes(pool, shape.page_size, classes_of(tables)) {
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

const Sequence& KvCache::State::awake_sequence(SequenceId id) const {
  const Sequence& found = sequence(id);
  if (found.asleep == nullptr) return found;
  throw Error(fmt::format("sequence {} is asleep; allowed: awake ones", id));
}

Sequence& KvCache::State::idle_sequence(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).idle_sequence(id));
}

const Sequence& KvCache::State::idle_sequence(SequenceId id) const {
  const Sequence& found = awake_sequence(id);
  if (found.pending_rows == 0) return found;
  throw Error(fmt::format("sequence {} is in a step of {} rows; allowed: outside steps", id,
                          found.pending_rows));
}

SequenceId KvCache::State::add(Sequence sequence) {
  sequence.tables.resize(tables.size());
  sequences.emplace(next_id, std::move(sequence));
  return next_id++;
}

void KvCache::State::check_ranges(std::span<const Ranges> ranges, const char* name) const {
  if (ranges.size() == tables.size()) return;
  throw Error(fmt::format("{} has ranges for {} tables; allowed: one for each of {}", name,
                          ranges.size(), tables.size()));
}

std::optional<std::vector<PageId>> KvCache::State::take(std::span<const std::size_t> of_tables) {
  std::vector<std::int64_t> num_pages(static_cast<std::size_t>(pool.num_classes()), 0);
  for (const std::size_t table : of_tables) {
    ++num_pages[static_cast<std::size_t>(tables[table].size_class)];
  }
  if (!prefixes.make_room(num_pages)) return std::nullopt;
  std::vector<PageId> pages;
  for (const std::size_t table : of_tables) {
    pages.push_back(pool.take(static_cast<int>(tables[table].size_class)).value());
  }
  return pages;
}

void KvCache::State::drop_pages(std::vector<PageId>& columns, std::int64_t first_column) {
  for (std::int64_t column = std::ssize(columns) - 1; column >= first_column; --column) {
    const PageId page = columns[static_cast<std::size_t>(column)];
    if (page != kNull) pool.drop(page);
    columns.pop_back();
  }
}

std::int64_t KvCache::State::first_slot(PageId page) const {
  const auto found = first_slots.find(page);
  return found == first_slots.end() ? 0 : found->second;
}

void KvCache::State::set_first_slot(PageId page, std::int64_t slot) {
  if (slot > 0) {
    first_slots[page] = slot;
  } else {
    first_slots.erase(page);
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
  Sequence& freed = state_->sequence(sequence);
  if (freed.asleep == nullptr) state_->idle_sequence(sequence);
  for (std::vector<PageId>& columns : freed.tables) state_->drop_pages(columns, 0);
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
  std::vector<std::vector<PageId>>& tables = state_->idle_sequence(sequence).tables;
  const std::int64_t page_size = state_->shape.page_size;
  for (std::size_t table = 0; table < tables.size(); ++table) {
    std::int64_t column = 0;  // the first one that was not looked at
    const auto drop_until = [&](std::int64_t end) {
      for (; column < std::min(end, std::ssize(tables[table])); ++column) {
        PageId& page = tables[table][static_cast<std::size_t>(column)];
        if (page != kNull) state_->pool.drop(std::exchange(page, kNull));
      }
    };
    for (const Range& part : kept[table]) {
      drop_until(part.begin / page_size);
      column = std::max(column, ceil_div(part.end, page_size));
    }
    drop_until(std::ssize(tables[table]));
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
    std::vector<PageId>& columns = cut.tables[table];
    state_->drop_pages(columns, ceil_div(length, page_size));
    // A page that only holds what is taken back must not stay: its first slots would look empty
    // after they have been written.
    if (length % page_size != 0 && columns.back() != kNull &&
        state_->first_slot(columns.back()) >= length % page_size) {
      state_->pool.drop(std::exchange(columns.back(), kNull));
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
  for (const std::vector<PageId>& columns : of.tables) {
    std::vector<Range> parts;
    for (std::int64_t column = 0; column < std::ssize(columns); ++column) {
      const PageId page = columns[static_cast<std::size_t>(column)];
      if (page == kNull) continue;
      parts.push_back({column * page_size + state_->first_slot(page),
                       std::min((column + 1) * page_size, of.num_tokens())});
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

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "cache/page_layout.h"
#include "cache/prefix_index.h"
#include "lacuna/kv_cache.h"
#include "lacuna/kv_pack.h"

namespace lacuna {

struct Sequence {
  std::int64_t length = 0;
  std::int64_t pending_rows = 0;            // of the step it is in; 0: in none
  std::vector<std::vector<PageId>> tables;  // [tables][columns] kNullPage: not held
  // [tables] by column: the first written slot of a page that took the place of one that was
  // dropped when it was half full. All other pages are written from slot 0.
  std::vector<std::map<std::int64_t, std::int64_t>> first_slots;
  std::int64_t num_tokens() const { return length + pending_rows; }
};

struct KvCache::State {
  State(const CacheShape& cache_shape, const PoolOptions& options);

  CacheShape shape;
  std::vector<CacheTable> tables;
  std::vector<std::vector<std::size_t>> tables_of_layer;  // those it reads
  std::vector<std::vector<KvHeadPlace>> head_places;      // [layers] `table` among the layer's
  PagePool pool;
  PrefixIndex prefixes;
  std::map<SequenceId, Sequence> sequences;
  SequenceId next_id = 0;

  // Throw Error where there is no such sequence, or it is in a step.
  Sequence& sequence(SequenceId id);
  const Sequence& sequence(SequenceId id) const;
  Sequence& idle_sequence(SequenceId id);
  SequenceId add(Sequence sequence);
  const CacheLayer& layer(std::size_t table) const {
    return shape.layers[static_cast<std::size_t>(tables[table].layer_idx)];
  }
  void check_ranges(std::span<const Ranges> ranges, const char* name) const;

  // A page of a table with one reference; evicts what only the prefix index refers to.
  std::optional<PageId> take(std::size_t table);
  // Drops the page, where there is one: the column is null. Columns from one on, and they are gone.
  void drop_page(Sequence& sequence, std::size_t table, std::int64_t column);
  void drop_columns(Sequence& sequence, std::size_t table, std::int64_t first_column);

  // One head of one page.
  PackedHead packed_head(std::size_t table, PageId page, std::int64_t slot);

  // Summaries; nothing where the shape has none. `start` is of a page without keys.
  SummaryHeader& summary_header(std::size_t table, PageId page);
  float* summary(std::size_t table, PageId page, std::size_t slot);  // [3][head_dim]
  void start_summary(std::size_t table, PageId page, std::int64_t first_slot);
  // Takes in the keys of slots up to end_slot - 1.
  void extend_summary(std::size_t table, PageId page, std::int64_t end_slot);
  // As if only slots below end_slot had been taken in.
  void cut_summary(std::size_t table, PageId page, std::int64_t end_slot);
  // Of the last pages, to the sequence's length. A page that others refer to, too, keeps its
  // summary; so this is done again before rows are added, when the page may be the sequence's own.
  void cut_last_summaries(const Sequence& sequence);
};

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/page_layout.h"
#include "cache/prefix_index.h"
#include "lacuna/kv_cache.h"
#include "lacuna/kv_pack.h"

namespace lacuna {

// Pages of a sleeping sequence, in the file of a KvOffload. Its end gives their room there back.
struct SleepingPages;

struct Sequence {
  std::int64_t length = 0;
  std::int64_t pending_rows = 0;            // of the step it is in; 0: in none
  std::vector<std::vector<PageId>> tables;  // [tables][columns] kNullPage: not held, or asleep
  std::shared_ptr<SleepingPages> asleep;    // null: awake
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
  // Of pages that were taken for a row inside them, because nothing older was held: the slots
  // before it hold nothing. A page in use that is not listed holds its slots from 0 on.
  std::unordered_map<PageId, std::int64_t> first_slots;

  // Throw Error where there is no such sequence, it is asleep, or it is asleep or in a step.
  Sequence& sequence(SequenceId id);
  const Sequence& sequence(SequenceId id) const;
  const Sequence& awake_sequence(SequenceId id) const;
  Sequence& idle_sequence(SequenceId id);
  const Sequence& idle_sequence(SequenceId id) const;
  SequenceId add(Sequence sequence);
  const CacheLayer& layer(std::size_t table) const {
    return shape.layers[static_cast<std::size_t>(tables[table].layer_idx)];
  }
  void check_ranges(std::span<const Ranges> ranges, const char* name) const;

  // A page for each entry of `of_tables`, with one reference; none where memory is short even
  // without what only the prefix index refers to, which is evicted as needed.
  std::optional<std::vector<PageId>> take(std::span<const std::size_t> of_tables);
  void drop_pages(std::vector<PageId>& columns, std::int64_t first_column);
  std::int64_t first_slot(PageId page) const;
  void set_first_slot(PageId page, std::int64_t slot);

  // One head of one page, in the pool or of a copy.
  PackedHead packed_head(std::size_t table, PageId page, std::int64_t slot) {
    return packed_head(table, pool.bytes(page), slot);
  }
  PackedHead packed_head(std::size_t table, std::byte* page, std::int64_t slot) const;

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

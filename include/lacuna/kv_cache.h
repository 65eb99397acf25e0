#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lacuna/cache_shape.h"
#include "lacuna/kv_view.h"
#include "lacuna/page_pool.h"
#include "lacuna/prefix.h"
#include "lacuna/ranges.h"
#include "lacuna/tensor.h"
#include "lacuna/thread_pool.h"

namespace lacuna {

using SequenceId = std::int64_t;

// New tokens of one sequence in a step, at least 1: a chunk of its prompt, the token to decode, or
// a committed token and the drafts to verify.
struct StepRows {
  SequenceId sequence = 0;
  std::int64_t num_rows = 0;
};

// A view over pages of the cache for one layer, with what its spans point to. Valid until the next
// call that changes the cache. Move-only.
class CacheView {
 public:
  CacheView(CacheView&&) = default;
  CacheView& operator=(CacheView&&) = default;
  const KvView& kv() const { return kv_; }

 private:
  friend class KvCache;
  CacheView() = default;
  KvView kv_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> block_table_;
  std::vector<KvHeadPlace> head_places_;
};

// Minimum, maximum and sum over the keys of one head on one page, as stored: [head_dim] each.
struct PageSummary {
  std::span<const float> minimum;
  std::span<const float> maximum;
  std::span<const float> sum;
  Range positions;  // the tokens they cover; empty: none yet, and the numbers mean nothing
};

// Keys and values of many sequences in pages of one pool, each key rotated to its absolute
// position. Every (layer, group of KV heads) has a block table of absolute pages with null entries
// where nothing is held. The cache knows no policy: what to keep is handed in as ranges, by
// Retention or by a selector. A page is written only while one sequence alone refers to it; others
// are copied first. One mutator at a time; const members may be called together.
//
//   step = cache.begin(rows)        all pages of the step, or none
//   step.append(layer, k, v)        then attention over view(layer, …), layer by layer
//   step.commit(accepted)           tokens become the sequence's; or the step is dropped
//   cache.retain(sequence, ranges)  what no later query reads is freed
class KvCache {
 public:
  KvCache(const CacheShape& shape, const PoolOptions& options);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const CacheShape& shape() const;
  const std::vector<CacheTable>& tables() const;

  SequenceId create();
  // A sequence with the same tokens, which shares every page.
  SequenceId fork(SequenceId parent);
  void free(SequenceId sequence);
  std::int64_t length(SequenceId sequence) const;  // committed tokens
  std::vector<SequenceId> sequences() const;       // ascending

  // A step in progress. Dropped without commit, or with 0 tokens committed, it leaves the cache as
  // it was before. Move-only; must not outlive the cache.
  class Step {
   public:
    Step(Step&& other) noexcept;
    Step& operator=(Step&&) = delete;
    ~Step();

    // k and v [rows of all sequences one after another, num_kv_heads, dims], any strides, of the
    // layer that stores: packed, rounded or quantized into the pages. Once for each such layer.
    void append(int layer_idx, const TensorView& k, const TensorView& v,
                ThreadPool* pool = nullptr);
    // The first num_committed[i] rows of each sequence, 0..num_rows, become its tokens; pages that
    // only later rows needed are free again. Throws Error, and changes nothing, where a layer was
    // not appended or a number is out of range.
    void commit(std::span<const std::int64_t> num_committed);
    void commit();  // all rows

   private:
    friend class KvCache;
    struct State;
    explicit Step(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  // Takes every page that the step needs, copies of shared ones among them, and evicts published
  // pages for them as needed; nullopt, and nothing taken or evicted, where evicting all that no
  // sequence refers to would not do. step_bytes is what it takes. Throws Error for an unknown
  // sequence, one that is in a step, twice or asleep.
  std::optional<Step> begin(std::span<const StepRows> rows);
  std::int64_t step_bytes(std::span<const StepRows> rows) const;

  // Frees the pages without any position of `kept`, which has ranges for each table. Throws Error
  // inside a step.
  void retain(SequenceId sequence, std::span<const Ranges> kept);

  // Takes the last tokens back. `needed` is, for each table, what a sequence of that length must
  // hold. Throws Error, and changes nothing, naming the layer and the position, where a table no
  // longer holds it: then no layer is cut.
  void truncate(SequenceId sequence, std::int64_t length, std::span<const Ranges> needed);

  // Prefix sharing. Published pages stay after their sequences are freed; other sequences whose
  // tokens begin alike adopt them. Token ids are compared, and the identity, a text that tells
  // apart what else the keys depend on: model, dtype, topology, adapter, salt, each field tagged by
  // the caller. Pages are evicted only for want of memory, one by one, and never while a sequence
  // refers to them: those published, adopted or found in use longest ago first, of equal ones those
  // further back in their tokens, of other sizes than needed only where those of that size do not
  // do.
  //
  // Shares the sequence's pages as those of its `tokens`, as many as its length. Of pages with the
  // same tokens the first one stays; one with more tokens than a partial page replaces it; a page
  // is published once, so not under a second identity. A window's table serves hits as far back as
  // it was kept, so retain some tokens more to serve prompts that part before the end. A sequence
  // that goes on writes a copy of its last page. `seconds` is what computing took, for the
  // statistics. Throws Error where the number of tokens differs, or inside a step.
  void publish(SequenceId sequence, std::string_view identity, std::span<const std::int32_t> tokens,
               double seconds = 0);
  // What there is of these tokens, which counts as a lookup; ends at any token, in a page, too.
  PrefixMatch match(std::string_view identity, std::span<const std::int32_t> tokens);
  // A sequence of these tokens, a hit's, that shares the pages with positions of `needed`, which
  // has ranges for each table: Retention::kept(length, length). Throws Error naming the layer and
  // the position where one is not there.
  SequenceId adopt(std::string_view identity, std::span<const std::int32_t> tokens,
                   std::span<const Ranges> needed);
  // Forgets all that was published; only pages of sequences stay.
  void clear_prefixes();
  PrefixStatistics prefix_statistics() const;
  // Walks the pages that were published, those that only the index refers to among them.
  void for_each_published(const std::function<void(PageId)>& visit) const;

  // The layer's pages of these sequences; inside a step the step's rows count.
  CacheView view(int layer_idx, std::span<const SequenceId> sequences) const;

  // The pages of one table, as the sequence holds them: [ceil(length / page_size)], in a step with
  // its rows. Of a sleeping sequence those that others share; so for what is held, too.
  std::span<const PageId> block_table(SequenceId sequence, std::size_t table) const;
  // Positions whose keys and values are on pages that are held, for each table.
  std::vector<Ranges> held(SequenceId sequence) const;
  PageSummary summary(SequenceId sequence, int layer_idx, int kv_head, std::int64_t column) const;

  // Bytes of keys, values and scales that lie on the sequence's pages, for each layer: summed from
  // its tables, each page at the size its class has in the pool.
  std::vector<std::int64_t> held_bytes(SequenceId sequence) const;
  // Bytes of all pages in use, each once, summed from the pool's own list.
  std::int64_t live_bytes() const;

  PagePool& pool();
  const PagePool& pool() const;

  struct State;  // private to src/cache
  State& state() { return *state_; }
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lacuna

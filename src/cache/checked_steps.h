#pragma once

// Steps of a cache and of its model, which must ask for the same pages and get them exactly where
// there is room.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cache/checked_cache.h"
#include "lacuna/error.h"

namespace lacuna::rig {

// How often what is worth testing happened.
struct Effects {
  std::int64_t steps = 0;
  std::int64_t refused = 0;  // steps, for lack of memory
  std::int64_t hits = 0;
  std::int64_t evicted_pages = 0;
  std::int64_t loads = 0;
  std::int64_t wakes = 0;
};

// A checked cache that takes steps. Functions throw Mismatch.
class CheckedSteps : protected CheckedCache {
 protected:
  using CheckedCache::CheckedCache;

  template <typename Call>
  void refuse(const char* what, Call call) {
    try {
      call();
    } catch (const Error&) {
      return;
    }
    throw Mismatch(fmt::format("{} was not refused", what));
  }

  // Forgets pages that have left the index; their bytes.
  std::int64_t forget_evicted(bool may_be_owned = false) {
    std::set<PageId> there;
    cache_.for_each_published([&](PageId page) { there.insert(page); });
    std::int64_t bytes = 0;
    const auto owners = published_.empty() ? decltype(mirror_.owners()){} : mirror_.owners();
    for (auto at = published_.begin(); at != published_.end();) {
      if (there.count(at->first) != 0) {
        ++at;
        continue;
      }
      const bool owned = owners.count(at->second.content) != 0;
      same(owned && !may_be_owned, false, "eviction of page {}, which is in use,", at->first);
      if (!owned && !may_be_owned) ++effects_.evicted_pages;
      if (!owned) bytes += cache_.tables()[at->second.table].page_bytes;
      mirror_.published.erase(at->second.content);
      at = published_.erase(at);
    }
    return bytes;
  }

  std::vector<StepRows> rows_of(std::span<const ModelRows> parts) {
    std::vector<StepRows> rows;
    for (const ModelRows& part : parts) rows.push_back({part.sequence, std::ssize(part.tokens)});
    return rows;
  }

  // Asks for the step's pages, which must come exactly where there is room for them.
  std::optional<KvCache::Step> begin(std::span<const ModelRows> parts) {
    std::vector<std::int64_t> pages_of_class(cache_.tables().size(), 0);
    std::int64_t bytes = 0;
    for (const ModelRows& part : parts) {
      const auto needs = mirror_.needs(part);
      for (std::size_t t = 0; t < needs.size(); ++t) {
        const CacheTable& table = cache_.tables()[t];
        pages_of_class[static_cast<std::size_t>(table.size_class)] += std::ssize(needs[t]);
        bytes += std::ssize(needs[t]) * table.page_bytes;
      }
    }
    const std::vector<StepRows> rows = rows_of(parts);
    same(cache_.step_bytes(rows), bytes, "step_bytes");
    const bool fits = has_room(pages_of_class);
    const std::int64_t before = cache_.live_bytes();
    std::optional<KvCache::Step> step = cache_.begin(rows);
    same(step.has_value(), fits, "a step's being given");
    const std::int64_t evicted = forget_evicted();
    same(evicted == 0 || fits, true, "nothing being evicted for a step that is refused");
    same(cache_.live_bytes(), before + (fits ? bytes : 0) - evicted, "live bytes in a step");
    ++(fits ? effects_.steps : effects_.refused);
    return step;
  }

  std::vector<std::int64_t> classes(std::span<const ModelTable> tables) const {
    std::vector<std::int64_t> pages_of_class(cache_.tables().size(), 0);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto& pages = tables[t].pages;
      pages_of_class[static_cast<std::size_t>(cache_.tables()[t].size_class)] +=
          std::ssize(pages) - std::count(pages.begin(), pages.end(), kNoContent);
    }
    return pages_of_class;
  }

  // Is there room where everything is evicted that no sequence refers to?
  bool has_room(std::span<const std::int64_t> pages_of_class) {
    std::set<PageId> owned;
    for (const auto& [id, sequence] : mirror_.sequences) {
      for (std::size_t t = 0; t < sequence.tables.size(); ++t) {
        const std::span<const PageId> pages = cache_.block_table(id, t);
        owned.insert(pages.begin(), pages.end());
      }
    }
    const PagePool& pool = cache_.pool();
    std::map<std::int64_t, std::pair<int, std::int64_t>> used;  // slabs: class, pages
    pool.for_each_live([&](PageId page, int size_class) {
      if (owned.count(page) == 0) return;
      auto& slab = used[page * kPageUnitBytes / pool_options_.slab_bytes];
      slab = {size_class, slab.second + 1};
    });
    std::vector<std::int64_t> open(pages_of_class.size(), 0);
    for (const auto& [slab, use] : used) {
      open[static_cast<std::size_t>(use.first)] += pool.pages_per_slab(use.first) - use.second;
    }
    std::int64_t slabs = pool.num_slabs() - std::ssize(used);
    for (std::size_t c = 0; c < pages_of_class.size(); ++c) {
      if (pages_of_class[c] == 0) continue;
      const std::int64_t per_slab = pool.pages_per_slab(static_cast<int>(c));
      slabs -= std::max<std::int64_t>(0, pages_of_class[c] - open[c] + per_slab - 1) / per_slab;
    }
    return slabs >= 0;
  }

  void append_layer(KvCache::Step& step, int layer, std::span<const ModelRows> parts) {
    const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
    if (sizes.kv_from) return;
    Rows k = {{}, {0, sizes.num_kv_heads, sizes.head_dim}};
    Rows v = {{}, {0, sizes.num_kv_heads, sizes.v_head_dim}};
    for (const ModelRows& part : parts) {
      const std::int64_t first = cache_.length(part.sequence);
      append(k, kK, part.tokens, first, layer);
      append(v, kV, part.tokens, first, layer);
    }
    step.append(layer, k.view(), v.view());
  }

  bool step(std::span<const ModelRows> parts) {
    std::optional<KvCache::Step> step = begin(parts);
    if (!step) return false;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      append_layer(*step, layer, parts);
    }
    std::vector<std::int64_t> committed;
    for (const ModelRows& part : parts) {
      check_prediction(part.sequence, std::ssize(part.tokens));
      committed.push_back(part.num_committed);
    }
    refuse("fork inside a step", [&] { cache_.fork(parts.front().sequence); });
    refuse("free inside a step", [&] { cache_.free(parts.front().sequence); });
    step->commit(committed);
    mirror_.commit(parts);
    for (const ModelRows& part : parts) retain(part.sequence);
    return true;
  }

  ModelRows all_of(SequenceId id, Tokens tokens) {
    const std::int64_t count = std::ssize(tokens);
    return {id, std::move(tokens), count};
  }
  bool step_one(SequenceId id, Tokens tokens) {
    const ModelRows rows = all_of(id, std::move(tokens));
    return step({&rows, 1});
  }

  void retain(SequenceId id) {
    ModelSequence& sequence = mirror_.sequences.at(id);
    const std::int64_t frontier = std::max<std::int64_t>(0, sequence.length() - rollback_);
    const std::vector<Ranges> kept = retention_.kept(frontier, sequence.length());
    cache_.retain(id, kept);
    mirror_.retain(id, kept);
    sequence.earliest_query = std::max(frontier, sequence.latest_frontier);
    sequence.keeps_policy = !sequence.evicted && frontier >= sequence.latest_frontier;
    sequence.latest_frontier = std::max(frontier, sequence.latest_frontier);
    check_prediction(id, 0);
  }

  Effects effects_;
};

}  // namespace lacuna::rig

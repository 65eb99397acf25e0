#pragma once

#include <cstdint>
#include <vector>

#include "lacuna/cache_shape.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/shape.h"
#include "lacuna/topology.h"

namespace lacuna {

// What each block table of a cache must keep so that every query that may still run finds its keys:
// a layer table's answer as the ranges that KvCache::retain takes. Per KV head it is the union over
// the query heads that read it, those of layers that share it (kv_from) among them. Immutable and
// shareable between threads.
class Retention {
 public:
  // Throws Error where table and shape do not fit, the table is bidirectional, or a layer keeps
  // what is no key and value of a head (mla).
  Retention(const LayerTable& table, const ModelShape& shape);

  // For CacheShape::layers: heads, widths, and groups of KV heads that keep the same positions. A
  // layer that keeps no KV (no attention, a finite state) is one without heads' tables.
  const std::vector<CacheLayer>& layers() const { return layers_; }

  // For each table, in the order of cache_tables: the keys below `length` that query `first_query`
  // or any later one can read. Between steps first_query is length − rollback, where so many of the
  // last tokens may still be taken back.
  std::vector<Ranges> kept(std::int64_t first_query, std::int64_t length) const;

  // Hit lengths are chosen so: the longest prefix of `present` (for each table, positions that are
  // held; all below `length`) from which a sequence can go on, at most `length`. `short_pages` has,
  // for each table or none, parts of `present` that serve only prefixes which end no later.
  std::int64_t longest_prefix(const std::vector<Ranges>& present, std::int64_t length,
                              const std::vector<std::vector<Range>>& short_pages = {}) const;

 private:
  std::vector<CacheLayer> layers_;
  std::vector<Topology> topologies_;  // different ones
  std::vector<std::size_t> topology_of_table_;
};

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/integer.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"

namespace lacuna {

// Which keys the queries of one head of one layer read, inside one segment of `length` tokens.
// Positions are 0-based inside the segment. The source of every answer is the set N(i) of
// docs/math.md.
//
// A dynamic term (topk, topk_blocks) chooses its keys only at run time. row(), rows(), edges() and
// visible() stand the most recent keys in for the choice, so that counts are exact; may_read() and
// retained() answer for every key that could be chosen.
//
// Immutable and shareable between threads. All members throw Error for positions outside 0..length,
// and where a global(token=…) has not been resolved.
class Topology {
 public:
  // `layer` and `head` key random draws and per-head offsets. Throws Error where a term does not
  // exist in this direction.
  Topology(const Union& attend, bool causal, int layer = 0, int head = 0);
  // The union of several heads' topologies: what a KV head is read for.
  static Topology merged(std::span<const Topology> parts);

  bool causal() const { return causal_; }
  bool dynamic() const;
  // Random or explicit: rows must be counted one by one.
  bool irregular() const;

  // N(query).
  Ranges row(std::int64_t query, std::int64_t length) const;
  bool visible(std::int64_t query, std::int64_t key, std::int64_t length) const;
  // Keys that any query of q_begin..q_end-1 reads.
  Ranges rows(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const;
  // The same, with every key that a dynamic term could choose.
  Ranges may_read(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const;
  KeyRanges key_ranges(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const;

  // Edges of rows q_begin..q_end-1: the number of pairs (i, j) with j in N(i). Closed form for
  // unions of regular terms, counted row by row for irregular ones. Throws Error where neither is
  // feasible.
  Int128 edges(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const;
  Int128 edges(std::int64_t length) const { return edges(0, length, length); }
  // The longest row of the segment.
  std::int64_t largest_row(std::int64_t length) const;

  // Keys below `length` that query `first_query` or any later one, in however long a continuation,
  // can still read. retained(L-1, L) is what a one-token step at length L needs, its own token
  // included. Causal only.
  Ranges retained(std::int64_t first_query, std::int64_t length) const;

  // Rows repeat with this period once they are `regular_from` rows past the start (bidirectional:
  // and before the end): row i+period holds row i shifted, plus a fixed number of keys. nullopt:
  // irregular.
  struct Rhythm {
    std::int64_t period = 1;
    std::int64_t regular_from = 0;
  };
  std::optional<Rhythm> rhythm() const;

  // Scattered globals: listed ones whose neighbours their term does not list, and those of every=k
  // for k > 1, whatever the length. A kernel gathers them once a KV head. Those inside `within`,
  // and how many a segment of `length` tokens has.
  Ranges scattered_globals(Range within, std::int64_t length) const;
  std::int64_t num_scattered_globals(std::int64_t length) const;
  // Rows of q_begin..q_end-1 that are global: they read all they may.
  Ranges global_rows(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const;
  // This topology without its scattered globals' columns and without any global's row; may read
  // nothing.
  Topology without_globals() const;

  // The same direction and the same terms with the same keys of their draws.
  friend bool operator==(const Topology& a, const Topology& b);

  struct PlacedTerm;  // a term with what keys its draws; private to src/topology
  std::span<const PlacedTerm> terms() const;

 private:
  Topology(bool causal, std::vector<PlacedTerm> terms);
  bool causal_ = true;
  std::shared_ptr<const std::vector<PlacedTerm>> terms_;
};

// Legal pairs of rows q_begin..q_end-1: causal i+1 a row, bidirectional `length` a row.
Int128 legal_pairs(bool causal, std::int64_t q_begin, std::int64_t q_end, std::int64_t length);

// The heads of one layer: which topologies there are, and how many heads share each. Immutable.
class LayerTopology {
 public:
  struct Class {
    Topology topology;
    int count = 0;  // heads with exactly this topology
  };
  // REQUIRES: num_kv_heads divides num_q_heads. A layer without attention has no class.
  LayerTopology(const Layer& layer, bool causal, int layer_idx, int num_q_heads, int num_kv_heads);

  // Distinct topologies of query heads, and of KV heads (the union over a KV head's query heads).
  std::span<const Class> q_heads() const { return q_heads_; }
  std::span<const Class> kv_heads() const { return kv_heads_; }
  // All query heads share one topology.
  bool uniform() const { return q_heads_.size() <= 1; }

 private:
  std::vector<Class> q_heads_;
  std::vector<Class> kv_heads_;
};

// The topologies of a layer's query heads as make_plan takes them: one where all are equal, else
// one for each.
std::vector<Topology> topologies_of_heads(const Layer& layer, bool causal, int layer_idx,
                                          int num_q_heads);

}  // namespace lacuna

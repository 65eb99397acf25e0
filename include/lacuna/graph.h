#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// Where, by distance, a piece of evidence lies for a query, as a layer table sees it.
enum class DistanceBucket {
  kInsideWindow,      // inside the smallest window of the table
  kWithinTwoWindows,  // within two of them
  kReachable,         // over several layers
  kThroughFull,       // directly, through a full layer
  kUnreachable,
};
std::string_view to_string(DistanceBucket bucket);

// The layered graph of a table over `length` positions: an edge (j -> i) in layer l where some
// query head of i reads j there; a layer may be passed by its residual. A linear or ssm layer may
// carry anything earlier; a dynamic layer may choose any key; a layer with kv_from reads the states
// that went into the layer whose KV it shares. Immutable and shareable.
class Graph {
 public:
  // `num_q_heads` of each layer. Throws Error where check(table, num_q_heads) does.
  Graph(const LayerTable& table, const std::vector<int>& num_q_heads, std::int64_t length);

  std::int64_t length() const { return length_; }

  // Fewest edges on any path from token `evidence` to the last state of `query`; 0 for itself;
  // nullopt: unreachable.
  std::optional<int> hops(std::int64_t evidence, std::int64_t query) const;
  // Smallest layer l such that the state of `query` after layer l can depend on token `evidence`;
  // -1 for itself (the embedding).
  std::optional<int> first_layer(std::int64_t evidence, std::int64_t query) const;
  // Positions whose token can influence the last state of `query`, itself included.
  Ranges sources(std::int64_t query) const;
  // |sources(query)| over the query's legal history (query+1 causal, length bidirectional).
  double coverage(std::int64_t query) const;
  // Largest hops(j, query) over all reachable j.
  int eccentricity(std::int64_t query) const;
  // Largest |i - j| over reachable pairs of the segment. Throws Error where that takes too many
  // sets of too many ranges.
  std::int64_t reach_tokens() const;
  // Largest hops(j, i) over reachable pairs of the segment.
  int diameter() const;
  DistanceBucket bucket(std::int64_t evidence, std::int64_t query) const;

 private:
  class LastRead;
  // Keys that `rows` may read in `layer` through any head.
  Ranges read_by(int layer, const Ranges& rows) const;
  bool same_edges(int layer, int other) const;
  Ranges sources_below(std::int64_t query, int num_layers) const;
  std::vector<Ranges> one_more_edge(const std::vector<Ranges>& fewer) const;
  std::int64_t rows_that_decide() const;

  struct LayerEdges {
    std::vector<Topology> heads;  // distinct ones
    bool carries_all = false;     // linear, ssm
    int reads_states_of = 0;      // the layer whose input states its keys are made from
  };
  bool causal_ = true;
  std::int64_t length_ = 0;
  std::vector<LayerEdges> layers_;
};

// The spread of a figure over several seeds of a table's random terms.
struct Spread {
  std::int64_t min = 0;
  std::int64_t median = 0;
  std::int64_t max = 0;
  int unreachable = 0;  // seeds for which there was no answer
  int seeds = 0;
};
struct RandomSpread {
  Spread hops;  // of (evidence, query)
  Spread reach_tokens;
  Spread eccentricity;  // of query
};
// The figures with each random term's seed replaced by seed, seed+1, … (`num_seeds` >= 1 of them).
RandomSpread over_seeds(const LayerTable& table, const std::vector<int>& num_q_heads,
                        std::int64_t length, std::int64_t evidence, std::int64_t query,
                        int num_seeds);

}  // namespace lacuna

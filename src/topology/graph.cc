#include "lacuna/graph.h"

#include <algorithm>

#include "lacuna/error.h"
#include "topology/periodic.h"
#include "topology/row_sets.h"
#include "topology/terms.h"

namespace lacuna {
namespace {

void require_position(std::int64_t position, std::string_view name, std::int64_t length) {
  if (position < 0 || position >= length) {
    throw Error(std::string(name) + " is " + std::to_string(position) + "; allowed: 0.." +
                std::to_string(length - 1));
  }
}

Ranges only(std::int64_t position) { return {{position, position + 1}}; }

bool is_full(const Topology& topology) {
  return std::ranges::any_of(topology.terms(), [](const Topology::PlacedTerm& placed) {
    const auto* every = std::get_if<GlobalEvery>(&placed.term);
    return std::holds_alternative<Full>(placed.term) || (every != nullptr && every->k == 1);
  });
}

void replace_seeds(Union& attend, std::uint64_t step) {
  for (Term& term : attend) {
    if (auto* random = std::get_if<Random>(&term)) random->seed += step;
    if (auto* blocks = std::get_if<RandomBlocks>(&term)) blocks->seed += step;
  }
}

Spread spread_of(std::vector<std::int64_t> values, int num_seeds) {
  Spread spread;
  spread.seeds = num_seeds;
  spread.unreachable = num_seeds - static_cast<int>(values.size());
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  spread.min = values.front();
  spread.median = values[(values.size() - 1) / 2];
  spread.max = values.back();
  return spread;
}

// Sets of very many single positions make a walk over many queries endless; it is refused instead.
class WorkLimit {
 public:
  WorkLimit(const char* what, std::size_t num_layers) : what_(what), num_layers_(num_layers) {}
  void add(const Ranges& set) {
    constexpr std::size_t kMost = std::size_t{1} << 27;
    work_ += (set.parts().size() + 1) * num_layers_;
    if (work_ > kMost) {
      throw Error(std::string(what_) +
                  " would look at too many separate ranges; allowed: shorter lengths");
    }
  }

 private:
  const char* what_;
  std::size_t num_layers_;
  std::size_t work_ = 0;
};

}  // namespace

// Layers in a row often have the same topology and are asked for the same rows: the last answer is
// kept.
class Graph::LastRead {
 public:
  explicit LastRead(const Graph& graph) : graph_(graph) {}

  const Ranges& read_by(int layer, const Ranges& rows) {
    if (layer_ < 0 || !graph_.same_edges(layer_, layer) || rows != rows_) {
      keys_ = graph_.read_by(layer, rows);
      rows_ = rows;
    }
    layer_ = layer;
    return keys_;
  }

 private:
  const Graph& graph_;
  int layer_ = -1;
  Ranges rows_;
  Ranges keys_;
};

std::string_view to_string(DistanceBucket bucket) {
  switch (bucket) {
    case DistanceBucket::kInsideWindow:
      return "inside the window";
    case DistanceBucket::kWithinTwoWindows:
      return "within two windows";
    case DistanceBucket::kReachable:
      return "reachable over layers";
    case DistanceBucket::kThroughFull:
      return "through a full layer";
    case DistanceBucket::kUnreachable:
      break;
  }
  return "unreachable";
}

Graph::Graph(const LayerTable& table, const std::vector<int>& num_q_heads, std::int64_t length)
    : causal_(table.causal), length_(length) {
  check(table, num_q_heads);
  if (length < 1 || length >= kForever) {
    throw Error("length is " + std::to_string(length) + "; allowed: 1..2^60-1");
  }
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    const Layer& layer = table.layers[l];
    LayerEdges edges;
    edges.carries_all = layer.mixer == Mixer::kLinear || layer.mixer == Mixer::kSsm;
    edges.reads_states_of = layer.kv_from.value_or(static_cast<int>(l));
    const LayerTopology heads(layer, causal_, static_cast<int>(l), num_q_heads[l], 1);
    for (const LayerTopology::Class& one : heads.q_heads()) edges.heads.push_back(one.topology);
    layers_.push_back(std::move(edges));
  }
}

Ranges Graph::read_by(int layer, const Ranges& rows) const {
  const LayerEdges& edges = layers_[static_cast<std::size_t>(layer)];
  if (rows.empty()) return {};
  const std::int64_t last = causal_ ? rows.back() + 1 : length_;
  if (edges.carries_all) return {{0, last}};
  const Scope scope{causal_, length_, true};
  std::vector<Range> keys;
  for (const Topology& topology : edges.heads) {
    for (const Topology::PlacedTerm& placed : topology.terms()) {
      append_read_by(placed, scope, rows, keys);
    }
  }
  Ranges read(std::move(keys));
  // Each layer keeps such a set; together they must fit a small machine's memory.
  constexpr std::size_t kMostRanges = std::size_t{1} << 22;
  if (read.parts().size() > kMostRanges / layers_.size()) {
    throw Error("the paths run over " + std::to_string(read.parts().size()) +
                " separate ranges in each of " + std::to_string(layers_.size()) +
                " layers; allowed: " + std::to_string(kMostRanges) + " together");
  }
  return read;
}

bool Graph::same_edges(int layer, int other) const {
  const LayerEdges& a = layers_[static_cast<std::size_t>(layer)];
  const LayerEdges& b = layers_[static_cast<std::size_t>(other)];
  return a.carries_all == b.carries_all && a.heads == b.heads;
}

Ranges Graph::sources_below(std::int64_t query, int num_layers) const {
  std::vector<Ranges> arriving(layers_.size());  // at the states that go into each layer
  Ranges states = only(query);
  LastRead last(*this);
  for (int l = num_layers - 1; l >= 0; --l) {
    const auto from =
        static_cast<std::size_t>(layers_[static_cast<std::size_t>(l)].reads_states_of);
    arriving[from] = unite(arriving[from], last.read_by(l, states));
    states = unite(states, arriving[static_cast<std::size_t>(l)]);
  }
  return states;
}

Ranges Graph::sources(std::int64_t query) const {
  require_position(query, "query", length_);
  return sources_below(query, static_cast<int>(layers_.size()));
}

// One more edge allowed: reached[l] is the set of states going into layer l that reach the query's
// last state over at most as many edges as `fewer` was made with, plus one.
std::vector<Ranges> Graph::one_more_edge(const std::vector<Ranges>& fewer) const {
  const std::size_t num_layers = layers_.size();
  std::vector<Ranges> reached(num_layers + 1);
  std::vector<Ranges> arriving(num_layers);
  reached[num_layers] = fewer[num_layers];
  LastRead last(*this);
  for (std::size_t l = num_layers; l-- > 0;) {
    const auto from = static_cast<std::size_t>(layers_[l].reads_states_of);
    arriving[from] = unite(arriving[from], last.read_by(static_cast<int>(l), fewer[l + 1]));
    reached[l] = unite(reached[l + 1], arriving[l]);
  }
  return reached;
}

std::optional<int> Graph::hops(std::int64_t evidence, std::int64_t query) const {
  require_position(evidence, "evidence", length_);
  require_position(query, "query", length_);
  std::vector<Ranges> reached(layers_.size() + 1, only(query));
  for (int edges = 0;; ++edges) {
    if (reached.front().contains(evidence)) return edges;
    std::vector<Ranges> next = one_more_edge(reached);
    if (next == reached) return std::nullopt;
    reached = std::move(next);
  }
}

std::optional<int> Graph::first_layer(std::int64_t evidence, std::int64_t query) const {
  require_position(evidence, "evidence", length_);
  require_position(query, "query", length_);
  if (evidence == query) return -1;
  const int num_layers = static_cast<int>(layers_.size());
  if (!sources_below(query, num_layers).contains(evidence)) return std::nullopt;
  // What a state depends on only grows with the layers (the residual), so the first is found by
  // halves.
  int without = 0;
  int with = num_layers;
  while (with - without > 1) {
    const int middle = without + (with - without) / 2;
    (sources_below(query, middle).contains(evidence) ? with : without) = middle;
  }
  return with - 1;
}

double Graph::coverage(std::int64_t query) const {
  const std::int64_t legal = causal_ ? query + 1 : length_;
  return static_cast<double>(sources(query).size()) / static_cast<double>(legal);
}

int Graph::eccentricity(std::int64_t query) const {
  require_position(query, "query", length_);
  std::vector<Ranges> reached(layers_.size() + 1, only(query));
  int farthest = 0;
  for (int edges = 1;; ++edges) {
    std::vector<Ranges> next = one_more_edge(reached);
    if (next == reached) return farthest;
    if (next.front() != reached.front()) farthest = edges;
    reached = std::move(next);
  }
}

std::int64_t Graph::rows_that_decide() const {
  // Rows repeat with the common period of all layers, and with more history a row's paths only
  // grow, so the last period decides, but for what hangs on a fixed place: a listed global's row.
  std::optional<std::int64_t> period = 1;
  for (const LayerEdges& edges : layers_) {
    for (const Topology& topology : edges.heads) {
      const std::optional<Topology::Rhythm> beat = topology.rhythm();
      const bool anchored =
          std::ranges::any_of(topology.terms(), [](const Topology::PlacedTerm& placed) {
            return is_global(placed.term) && !std::holds_alternative<GlobalEvery>(placed.term);
          });
      if (!beat || anchored || !causal_) return length_;
      period = common_period(period, beat->period);
      if (!period) return length_;
    }
  }
  return std::min(*period, length_);
}

std::int64_t Graph::reach_tokens() const {
  const std::int64_t last = length_ - rows_that_decide();
  std::int64_t reach = 0;
  WorkLimit limit("reach_tokens", layers_.size());
  for (std::int64_t query = length_ - 1; query >= last; --query) {
    // No row reaches further than the segment's ends; where none left can do better, all is said.
    if (reach >= (causal_ ? query : length_ - 1)) break;
    const Ranges from = sources(query);
    reach = std::max({reach, query - from.front(), from.back() - query});
    limit.add(from);
  }
  return reach;
}

int Graph::diameter() const {
  const std::int64_t last = length_ - rows_that_decide();
  int diameter = 0;
  for (std::int64_t query = length_ - 1; query >= last; --query) {
    diameter = std::max(diameter, eccentricity(query));
  }
  return diameter;
}

DistanceBucket Graph::bucket(std::int64_t evidence, std::int64_t query) const {
  require_position(evidence, "evidence", length_);
  if (!sources(query).contains(evidence)) return DistanceBucket::kUnreachable;
  std::int64_t window = kForever;
  bool has_full = false;
  for (const LayerEdges& edges : layers_) {
    for (const Topology& topology : edges.heads) {
      has_full = has_full || is_full(topology);
      for (const Topology::PlacedTerm& placed : topology.terms()) {
        const auto* term = std::get_if<Window>(&placed.term);
        if (term != nullptr) window = std::min(window, std::max(term->left, term->right) + 1);
      }
    }
  }
  const std::int64_t distance = evidence < query ? query - evidence : evidence - query;
  if (window < kForever && distance < window) return DistanceBucket::kInsideWindow;
  if (window < kForever && distance < 2 * window) return DistanceBucket::kWithinTwoWindows;
  return has_full ? DistanceBucket::kThroughFull : DistanceBucket::kReachable;
}

RandomSpread over_seeds(const LayerTable& table, const std::vector<int>& num_q_heads,
                        std::int64_t length, std::int64_t evidence, std::int64_t query,
                        int num_seeds) {
  if (num_seeds < 1) {
    throw Error("num_seeds is " + std::to_string(num_seeds) + "; allowed: 1 and more");
  }
  std::vector<std::int64_t> hops, reach, eccentricity;
  for (int step = 0; step < num_seeds; ++step) {
    LayerTable seeded = table;
    for (Layer& layer : seeded.layers) {
      for (HeadGroup& group : layer.attend.groups) {
        replace_seeds(group.attend, static_cast<std::uint64_t>(step));
      }
    }
    const Graph graph(seeded, num_q_heads, length);
    if (const auto found = graph.hops(evidence, query)) hops.push_back(*found);
    reach.push_back(graph.reach_tokens());
    eccentricity.push_back(graph.eccentricity(query));
  }
  return {spread_of(hops, num_seeds), spread_of(reach, num_seeds),
          spread_of(eccentricity, num_seeds)};
}

}  // namespace lacuna

#include "lacuna/cost.h"

#include <algorithm>

#include <fmt/format.h>

#include "cost/layer_cost.h"
#include "cost/workload.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

using FigureMember = Figure128 LayerCost::*;

struct NamedFigure {
  std::string_view name;
  FigureMember member;
};

constexpr NamedFigure kFigures[] = {
    {"edges", &LayerCost::edges},
    {"pairs", &LayerCost::pairs},
    {"executed_pairs", &LayerCost::executed_pairs},
    {"legal_pairs", &LayerCost::legal_pairs},
    {"pair_flops", &LayerCost::pair_flops},
    {"recompute_flops", &LayerCost::recompute_flops},
    {"exponentials", &LayerCost::exponentials},
    {"executed_exponentials", &LayerCost::executed_exponentials},
    {"index_flops", &LayerCost::index_flops},
    {"projection_flops", &LayerCost::projection_flops},
    {"mlp_flops", &LayerCost::mlp_flops},
    {"logits_flops", &LayerCost::logits_flops},
    {"kv_bytes_per_token", &LayerCost::kv_bytes_per_token},
    {"kv_held_bytes", &LayerCost::kv_held_bytes},
    {"kv_peak_bytes", &LayerCost::kv_peak_bytes},
    {"state_held_bytes", &LayerCost::state_held_bytes},
    {"index_held_bytes", &LayerCost::index_held_bytes},
    {"kv_written_bytes_per_step", &LayerCost::kv_written_bytes_per_step},
    {"kv_read_bytes_per_step", &LayerCost::kv_read_bytes_per_step},
    {"index_read_bytes_per_step", &LayerCost::index_read_bytes_per_step},
    {"kv_loaded_bytes", &LayerCost::kv_loaded_bytes},
    {"compulsory_bytes", &LayerCost::compulsory_bytes},
};

bool is_random(const Term& term) {
  return std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term);
}

// Random draws differ from layer to layer although the layers' data are the same.
bool draws(const Layer& layer) {
  return std::ranges::any_of(layer.attend.groups, [](const HeadGroup& group) {
    return std::ranges::any_of(group.attend, is_random);
  });
}

// Decides which layers have the same figures by what those depend on.
class LayerGroups {
 public:
  LayerGroups(const LayerTable& table, const ModelShape& shape) : table_(table), shape_(shape) {
    readers_.resize(table.layers.size());
    for (std::size_t layer_idx = 0; layer_idx < table.layers.size(); ++layer_idx) {
      const std::optional<int> from = table.layers[layer_idx].kv_from;
      if (from) readers_[static_cast<std::size_t>(*from)].push_back(layer_idx);
    }
  }

  // An earlier layer with the same figures, or the layer itself.
  std::size_t first_like(std::size_t layer_idx, const std::vector<std::size_t>& earlier) const {
    for (const std::size_t other : earlier) {
      if (same_figures(layer_idx, other)) return other;
    }
    return layer_idx;
  }

 private:
  bool same_layer(std::size_t a, std::size_t b) const {
    const Layer& left = table_.layers[a];
    const Layer& right = table_.layers[b];
    return left.mixer == right.mixer && left.kv_from.has_value() == right.kv_from.has_value() &&
           left.index_from.has_value() == right.index_from.has_value() &&
           shape_.layers[a] == shape_.layers[b] && left.attend == right.attend && !draws(left);
  }
  bool same_figures(std::size_t a, std::size_t b) const {
    if (!same_layer(a, b)) return false;
    const std::optional<int> from_a = table_.layers[a].kv_from;
    const std::optional<int> from_b = table_.layers[b].kv_from;
    if (from_a && !(shape_.layers[static_cast<std::size_t>(*from_a)] ==
                    shape_.layers[static_cast<std::size_t>(*from_b)])) {
      return false;
    }
    // What is kept of an owner's KV depends on all layers that read it.
    return std::ranges::equal(readers_[a], readers_[b],
                              [&](std::size_t x, std::size_t y) { return same_layer(x, y); });
  }

  const LayerTable& table_;
  const ModelShape& shape_;
  std::vector<std::vector<std::size_t>> readers_;
};

LayerCost layer_cost(const LayerTable& table, const ModelShape& shape, const Workload& work,
                     std::size_t layer_idx) {
  const LayerContext at(table, shape, work, layer_idx);
  LayerCost cost;
  add_pair_figures(cost, at);
  add_projection_figures(cost, at);
  add_cache_figures(cost, at);
  add_executed_figures(cost, at);
  return cost;
}

// The sum over layers, written by its distinct values: "15·layer_0 + 3·layer_5".
Figure128 total_of(const std::vector<LayerCost>& layers, FigureMember member) {
  constexpr std::size_t kMostWritten = 4;
  struct Value {
    Int128 value;
    std::size_t first_layer;
    std::int64_t count;
  };
  std::vector<Value> values;
  Int128 sum = 0;
  for (std::size_t layer_idx = 0; layer_idx < layers.size(); ++layer_idx) {
    const Figure128& figure = layers[layer_idx].*member;
    if (!figure.has_value()) return unknown(fmt::format("layer {}: {}", layer_idx, figure.why));
    sum = checked_add(sum, figure.value());
    if (figure.value() == 0) continue;
    const auto same = std::ranges::find(values, figure.value(), &Value::value);
    if (same != values.end()) {
      ++same->count;
    } else if (values.size() <= kMostWritten) {
      values.push_back({figure.value(), layer_idx, 1});
    }
  }
  if (values.size() > kMostWritten) {
    return known(Equation(fmt::format("Σ over {} layers", layers.size()), sum));
  }
  Equation written;
  for (const Value& value : values) {
    written = written + Equation(value.count) *
                            Equation(fmt::format("layer_{}", value.first_layer), value.value);
  }
  return known(written);
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kTrain:
      return "train";
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
  }
  throw Error(fmt::format("phase is {}; allowed: train, prefill, decode", static_cast<int>(phase)));
}

std::vector<std::pair<std::string_view, const Figure128*>> figures(const LayerCost& cost) {
  std::vector<std::pair<std::string_view, const Figure128*>> named;
  for (const NamedFigure& figure : kFigures)
    named.emplace_back(figure.name, &(cost.*figure.member));
  return named;
}

PhaseCost cost(const LayerTable& table, const ModelShape& shape, const CostQuery& query) {
  check(shape, table);
  check(table, num_q_heads(shape));
  if (query.phase == Phase::kDecode && !table.causal) {
    throw Error("phase is decode with a bidirectional table; allowed: train, prefill");
  }
  const Workload work(query);
  PhaseCost result{.phase = query.phase, .layers = {}, .total = {}};
  const LayerGroups groups(table, shape);
  std::vector<std::size_t> computed;
  for (std::size_t layer_idx = 0; layer_idx < table.layers.size(); ++layer_idx) {
    const std::size_t like = groups.first_like(layer_idx, computed);
    if (like == layer_idx) {
      computed.push_back(layer_idx);
      result.layers.push_back(layer_cost(table, shape, work, layer_idx));
    } else {
      result.layers.push_back(LayerCost(result.layers[like]));
    }
  }
  for (const NamedFigure& figure : kFigures) {
    result.total.*figure.member = total_of(result.layers, figure.member);
  }
  result.total.logits_flops = logits_figure(shape, work);
  return result;
}

CostQuery padded(const CostQuery& query) {
  CostQuery result = query;
  if (query.lengths.empty()) return result;
  const std::int64_t longest = *std::ranges::max_element(query.lengths);
  std::ranges::fill(result.lengths, longest);
  return result;
}

}  // namespace lacuna

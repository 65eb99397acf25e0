#include "cost/layer_cost.h"

#include <algorithm>

#include <fmt/format.h>

namespace lacuna {
namespace {

int num_kept_heads(const Layer& layer, const LayerShape& shape) {
  return layer.mixer == Mixer::kMla ? 1 : shape.num_kv_heads;  // one latent serves all heads
}

const Union& attend_of(const Layer& layer, int q_head) {
  for (const HeadGroup& group : layer.attend.groups) {
    if (group.heads.empty() || std::ranges::binary_search(group.heads, std::int64_t{q_head})) {
      return group.attend;
    }
  }
  return layer.attend.groups.back().attend;  // check() has seen every head
}

// One layer's query heads of one KV head.
void append_readers(std::vector<Topology>& readers, const LayerTable& table,
                    const ModelShape& shape, std::size_t layer_idx, int kv_head) {
  const Layer& layer = table.layers[layer_idx];
  const LayerShape& sizes = shape.layers[layer_idx];
  const int group_size = sizes.num_q_heads / num_kept_heads(layer, sizes);
  for (int q_head = kv_head * group_size; q_head < (kv_head + 1) * group_size; ++q_head) {
    readers.emplace_back(attend_of(layer, q_head), table.causal, static_cast<int>(layer_idx),
                         q_head);
  }
}

LayerTopology topology_of(const LayerTable& table, const ModelShape& shape, std::size_t layer_idx) {
  const Layer& layer = table.layers[layer_idx];
  const LayerShape& sizes = shape.layers[layer_idx];
  return LayerTopology(layer, table.causal, static_cast<int>(layer_idx), sizes.num_q_heads,
                       num_kept_heads(layer, sizes));
}

}  // namespace

LayerContext::LayerContext(const LayerTable& its_table, const ModelShape& its_model,
                           const Workload& its_work, std::size_t its_idx)
    : table(its_table),
      model(its_model),
      work(its_work),
      layer_idx(its_idx),
      layer(its_table.layers[its_idx]),
      shape(its_model.layers[its_idx]),
      topology(topology_of(its_table, its_model, its_idx)) {}

bool LayerContext::owns_index() const {
  // Where a table without a choice replaces the model's own, nothing asks the selector.
  return shape.index && !layer.index_from &&
         std::ranges::any_of(topology.q_heads(), [](const LayerTopology::Class& heads) {
           return heads.topology.dynamic();
         });
}

std::vector<LayerTopology::Class> LayerContext::kept_for() const {
  if (layer.kv_from) return {};
  std::vector<std::size_t> readers = {layer_idx};
  for (std::size_t other = layer_idx + 1; other < table.layers.size(); ++other) {
    if (table.layers[other].kv_from == static_cast<int>(layer_idx)) readers.push_back(other);
  }
  if (readers.size() == 1) return {topology.kv_heads().begin(), topology.kv_heads().end()};

  std::vector<Topology> alike;
  for (const std::size_t reader : readers) {
    const LayerTopology its_topology = topology_of(table, model, reader);
    if (its_topology.kv_heads().size() == 1) {
      alike.push_back(its_topology.kv_heads().front().topology);
    }
  }
  const int num_heads = num_kept_heads(layer, shape);
  if (alike.size() == readers.size()) return {{Topology::merged(alike), num_heads}};

  std::vector<LayerTopology::Class> heads;
  for (int kv_head = 0; kv_head < num_heads; ++kv_head) {
    std::vector<Topology> read_for;
    for (const std::size_t reader : readers) {
      append_readers(read_for, table, model, reader, kv_head);
    }
    heads.push_back({Topology::merged(read_for), 1});
  }
  return heads;
}

const LayerShape& LayerContext::kv_shape() const {
  return layer.kv_from ? model.layers[static_cast<std::size_t>(*layer.kv_from)] : shape;
}

Equation over_heads(const HeadSums& sums, const std::string& symbol, const char* count_symbol) {
  constexpr std::size_t kMostWritten = 16;
  if (sums.size() == 1) {
    return Equation(symbol, sums[0].first) * Equation(count_symbol, sums[0].second);
  }
  Equation total;
  for (std::size_t c = 0; c < sums.size(); ++c) {
    total =
        total + Equation(sums[c].second) * Equation(fmt::format("{}_{}", symbol, c), sums[c].first);
  }
  if (sums.size() <= kMostWritten) return total;
  return total.named(fmt::format("Σ over heads of {}", symbol));
}

}  // namespace lacuna

#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cost/workload.h"
#include "lacuna/cost.h"
#include "lacuna/topology.h"

namespace lacuna {

// Everything that decides the figures of one layer. The references outlive it.
class LayerContext {
 public:
  LayerContext(const LayerTable& table, const ModelShape& shape, const Workload& workload,
               std::size_t layer_idx);

  const LayerTable& table;
  const ModelShape& model;
  const Workload& work;
  const std::size_t layer_idx;
  const Layer& layer;
  const LayerShape& shape;
  const LayerTopology topology;

  bool attends() const { return !topology.q_heads().empty(); }
  // Tokens leave something behind for later steps.
  bool caches() const { return table.causal && model.has_cache; }
  // A selector chooses keys here, by an index of its own.
  bool owns_index() const;
  // Topologies for which the KV heads of this layer are kept: this layer's, united with those of
  // every layer that shares its KV. Empty where the layer stores none.
  std::vector<LayerTopology::Class> kept_for() const;
  // The shape of the layer whose KV this one reads.
  const LayerShape& kv_shape() const;
};

inline Figure128 known(Equation equation) { return {std::move(equation), ""}; }
inline Figure128 unknown(std::string why) { return {std::nullopt, std::move(why)}; }

// A sum of one head, and how many heads have it.
using HeadSums = std::vector<std::pair<Int128, int>>;
// Over all of them: "E·H", or "3·E_0 + 29·E_1" where they differ.
Equation over_heads(const HeadSums& sums, const std::string& symbol, const char* count_symbol);

// The figures by their subject, each file its own.
void add_pair_figures(LayerCost& cost, const LayerContext& at);        // pairs.cc
void add_projection_figures(LayerCost& cost, const LayerContext& at);  // projections.cc
void add_cache_figures(LayerCost& cost, const LayerContext& at);       // cached.cc
void add_executed_figures(LayerCost& cost, const LayerContext& at);    // executed_cost.cc

// 2·n·d·V for the whole model.
Figure128 logits_figure(const ModelShape& shape, const Workload& work);

// Two FLOPs a multiply-add, or one where `mac` was asked for.
inline Equation per_multiply_add(const Workload& work) { return work.query().mac ? 1 : 2; }
// Forward, or forward and the backward of twice as much.
inline Equation passes(const Workload& work) { return work.trains() ? 3 : 1; }

}  // namespace lacuna

#include "lacuna/training.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

Figure128 known(Equation equation) { return {std::move(equation), ""}; }
Figure128 unknown(std::string why) { return {std::nullopt, std::move(why)}; }

Figure128 sum(const Figure128& a, const Figure128& b) {
  if (!a.has_value()) return a;
  if (!b.has_value()) return b;
  return known(*a.known + *b.known);
}

void check_query(const TrainingQuery& query) {
  const std::initializer_list<std::pair<const char*, std::int64_t>> sizes = {
      {"batch", query.batch},
      {"length", query.length},
      {"activation_bytes", query.activation_bytes},
      {"weight_bytes", query.weight_bytes},
      {"gradient_bytes", query.gradient_bytes},
      {"optimizer_bytes", query.optimizer_bytes}};
  for (const auto& [name, value] : sizes) {
    if (value < 0) throw Error(fmt::format("{} is {}; allowed: 0 and above", name, value));
  }
}

std::int64_t value_dim(const LayerShape& shape, Mixer mixer) {
  return mixer == Mixer::kMla ? shape.latent->v_head_dim : shape.v_head_dim;
}

// Widths of the MLP's inner vectors that its backward pass reads: the two branches and their
// product, or what stands before and after the activation.
Figure128 mlp_elements(const LayerShape& shape) {
  if (!shape.mlp) return unknown("the MLP's sizes are not known");
  const MlpShape& mlp = *shape.mlp;
  switch (mlp.kind) {
    case MlpKind::kNone:
      return known(0);
    case MlpKind::kGated:
      return known(Equation(3) * Equation("d_ff", mlp.intermediate_size));
    case MlpKind::kPlain:
      return known(Equation(2) * Equation("d_ff", mlp.intermediate_size));
    case MlpKind::kMixture:
      break;
  }
  const Equation vectors(mlp.gated_experts ? 3 : 2);
  Equation elements =
      vectors * Equation("k", mlp.experts_per_token) * Equation("d_e", mlp.intermediate_size);
  if (mlp.num_shared_experts > 0) {
    elements = elements + vectors * Equation("shared", mlp.num_shared_experts) *
                              Equation("d_s", mlp.shared_intermediate_size);
  }
  return known(elements + Equation("E_x", mlp.num_experts));
}

// Elements a token, without the attention's own output, scores and log-sum-exp.
Figure128 layer_elements(const Layer& layer, const LayerShape& shape, std::int64_t hidden_size) {
  if (layer.mixer == Mixer::kLinear || layer.mixer == Mixer::kSsm) {
    return unknown(
        fmt::format("activations of a {} layer are not in the cost model", to_string(layer.mixer)));
  }
  Equation elements = Equation(4) * Equation("d", hidden_size);
  if (attends(layer.mixer)) {
    const bool latent = layer.mixer == Mixer::kMla;
    const Equation heads("H", shape.num_q_heads);
    const Equation key("d_h", latent
                                  ? shape.latent->qk_nope_head_dim + shape.latent->qk_rope_head_dim
                                  : shape.head_dim);
    const Equation value("d_v", value_dim(shape, layer.mixer));
    // Expanded, mla has keys and values for every head.
    const Equation kv_heads = latent ? heads : Equation("H_kv", shape.num_kv_heads);
    elements = elements + heads * key;
    if (!layer.kv_from) elements = elements + kv_heads * (key + value);
  }
  return sum(known(elements), mlp_elements(shape));
}

// Scores and weights, or output and log-sum-exp; where they are materialised the output as well,
// which the output projection's backward pass reads.
Equation attention_bytes(const Layer& layer, const LayerShape& shape, const TrainingQuery& query) {
  if (!attends(layer.mixer)) return 0;
  const Equation tiled =
      tiled_attention_bytes(query.batch, shape.num_q_heads, query.length,
                            value_dim(shape, layer.mixer), query.activation_bytes);
  if (!query.materialised_scores) return tiled;
  const Equation output =
      Equation("B", query.batch) * Equation("n", query.length) * Equation("H", shape.num_q_heads) *
      Equation("d_v", value_dim(shape, layer.mixer)) * Equation("b", query.activation_bytes);
  return Equation(2) * materialised_bytes(query.batch, shape.num_q_heads, query.length,
                                          query.activation_bytes) +
         output;
}

Figure128 activation_bytes(const LayerTable& table, const ModelShape& shape,
                           const TrainingQuery& query) {
  if (!shape.hidden_size) return unknown("hidden_size is not known");
  const Equation token_bytes = Equation("B", query.batch) * Equation("n", query.length) *
                               Equation("b", query.activation_bytes);
  Int128 all = 0;
  Int128 largest = 0;
  for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
    const Layer& layer = table.layers[idx];
    const Figure128 elements = layer_elements(layer, shape.layers[idx], *shape.hidden_size);
    if (!elements.has_value()) return unknown(fmt::format("layer {}: {}", idx, elements.why));
    const Equation bytes =
        token_bytes * *elements.known + attention_bytes(layer, shape.layers[idx], query);
    all = checked_add(all, bytes.value());
    largest = std::max(largest, bytes.value());
  }
  if (!query.checkpointing) return known(Equation("activations of all layers", all));
  const Equation inputs = Equation("N", static_cast<std::int64_t>(table.layers.size())) *
                          token_bytes * Equation("d", *shape.hidden_size);
  return known(inputs + Equation("activations of the largest layer", largest));
}

Figure128 expert_parameters(const MlpShape& mlp, std::int64_t hidden_size) {
  const Equation hidden("d", hidden_size);
  const Equation matrices(mlp.gated_experts ? 3 : 2);
  const Equation experts("E_x", mlp.num_experts);
  Equation all = matrices * hidden * Equation("d_e", mlp.intermediate_size) * experts;
  if (mlp.num_shared_experts > 0) {
    all = all + matrices * hidden * Equation("d_s", mlp.shared_intermediate_size) *
                    Equation("shared", mlp.num_shared_experts);
  }
  return known(all + hidden * experts);
}

}  // namespace

Equation materialised_bytes(std::int64_t batch, std::int64_t num_q_heads, std::int64_t length,
                            std::int64_t element_bytes) {
  const Equation n("n", length);
  return Equation("B", batch) * Equation("H", num_q_heads) * n * n * Equation("b", element_bytes);
}

Equation tiled_attention_bytes(std::int64_t batch, std::int64_t num_q_heads, std::int64_t length,
                               std::int64_t v_head_dim, std::int64_t element_bytes) {
  const Equation sequences("B", batch);
  const Equation n("n", length);
  const Equation heads("H", num_q_heads);
  return sequences * n * heads * Equation("d_v", v_head_dim) * Equation("b", element_bytes) +
         Equation(4) * sequences * heads * n;
}

Figure128 layer_parameters(const LayerTable& table, const ModelShape& shape) {
  CostQuery one_token;
  one_token.phase = Phase::kPrefill;
  one_token.lengths = {1};
  one_token.kv_dtype = kv_dtype("bf16");
  one_token.mac = true;
  const PhaseCost counted = cost(table, shape, one_token);
  Int128 all = 0;
  for (std::size_t idx = 0; idx < counted.layers.size(); ++idx) {
    const LayerShape& layer = shape.layers[idx];
    const bool mixture = layer.mlp && layer.mlp->kind == MlpKind::kMixture;
    const Figure128 mlp = mixture && shape.hidden_size
                              ? expert_parameters(*layer.mlp, *shape.hidden_size)
                              : counted.layers[idx].mlp_flops;
    const Figure128 both = sum(counted.layers[idx].projection_flops, mlp);
    if (!both.has_value()) return unknown(fmt::format("layer {}: {}", idx, both.why));
    all = checked_add(all, both.value());
  }
  return known(Equation("matrices of all layers", all));
}

TrainingMemory training_memory(const LayerTable& table, const ModelShape& shape,
                               const TrainingQuery& query) {
  check(shape, table);
  check_query(query);
  TrainingMemory memory;
  Int128 scores = 0;
  Int128 tiled = 0;
  for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
    const Layer& layer = table.layers[idx];
    const LayerShape& sizes = shape.layers[idx];
    if (!attends(layer.mixer)) continue;
    const Int128 one =
        materialised_bytes(query.batch, sizes.num_q_heads, query.length, query.activation_bytes)
            .value();
    scores = checked_add(scores, checked_mul(2, one));
    tiled = checked_add(tiled,
                        tiled_attention_bytes(query.batch, sizes.num_q_heads, query.length,
                                              value_dim(sizes, layer.mixer), query.activation_bytes)
                            .value());
  }
  memory.score_bytes = known(Equation("S and P of all layers", scores));
  memory.tiled_attention_bytes = known(Equation("O and lse of all layers", tiled));
  memory.activation_bytes = activation_bytes(table, shape, query);
  Figure128 embedding = unknown("vocab_size or hidden_size is not known");
  if (shape.vocab_size && shape.hidden_size) {
    embedding = known(Equation("V", *shape.vocab_size) * Equation("d", *shape.hidden_size));
  }
  memory.parameters = sum(layer_parameters(table, shape), embedding);
  memory.state_bytes = memory.parameters;
  if (memory.parameters.has_value()) {
    const Equation each = Equation("weight", query.weight_bytes) +
                          Equation("gradient", query.gradient_bytes) +
                          Equation("optimizer", query.optimizer_bytes);
    memory.state_bytes = known(memory.parameters.known->named("parameters") * each);
  }
  memory.total_bytes = sum(memory.activation_bytes, memory.state_bytes);
  return memory;
}

}  // namespace lacuna

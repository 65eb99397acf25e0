// The dense products around attention: projections, MLP, logits.

#include "cost/layer_cost.h"

#include <fmt/format.h>

namespace lacuna {
namespace {

constexpr const char* kNoHidden = "hidden_size is not known";

// K and V of a layer with kv_from are another layer's: it projects none.
Equation softmax_projections(const LayerContext& at, const Equation& n_d) {
  const LayerShape& shape = at.shape;
  const Equation heads("H", shape.num_q_heads);
  const Equation key("d_h", shape.head_dim);
  const Equation value("d_v", shape.v_head_dim);
  const Equation query = n_d * heads * key;
  const Equation out = n_d * heads * value;
  if (at.layer.kv_from) return query + out;
  return query + n_d * Equation("H_kv", shape.num_kv_heads) * (key + value) + out;
}

// Expanded and absorbed projections cost the same: the up-projection acts on keys and values, or on
// queries and outputs.
Equation mla_projections(const LayerContext& at, const Equation& hidden) {
  const LatentShape& latent = *at.shape.latent;
  const Equation heads("H", at.shape.num_q_heads);
  const Equation rank("c", latent.kv_lora_rank);
  const Equation nope("d_n", latent.qk_nope_head_dim);
  const Equation rope("d_r", latent.qk_rope_head_dim);
  const Equation value("d_v", latent.v_head_dim);
  Equation sum = hidden * heads * (nope + rope);
  if (latent.q_lora_rank > 0) {
    const Equation q_rank("q_r", latent.q_lora_rank);
    sum = hidden * q_rank + q_rank * heads * (nope + rope);
  }
  if (!at.layer.kv_from) sum = sum + hidden * (rank + rope);
  return sum + rank * heads * (nope + value) + heads * value * hidden;
}

Figure128 projection_flops(const LayerContext& at) {
  const Mixer mixer = at.layer.mixer;
  if (mixer == Mixer::kNone) return known(0);
  if (mixer == Mixer::kLinear || mixer == Mixer::kSsm) {
    return unknown(
        fmt::format("projections of a {} layer are not in the cost model", to_string(mixer)));
  }
  if (!at.model.hidden_size) return unknown(kNoHidden);
  const Equation each_row = per_multiply_add(at.work) * at.work.rows();
  const Equation hidden("d", *at.model.hidden_size);
  const Equation forward = mixer == Mixer::kMla ? each_row * mla_projections(at, hidden)
                                                : softmax_projections(at, each_row * hidden);
  return known(passes(at.work) * forward);
}

Figure128 mlp_flops(const LayerContext& at) {
  if (!at.shape.mlp) return unknown("the MLP's sizes are not known");
  const MlpShape& mlp = *at.shape.mlp;
  if (mlp.kind == MlpKind::kNone) return known(0);
  if (!at.model.hidden_size) return unknown(kNoHidden);
  const Equation each = per_multiply_add(at.work);
  const bool gated =
      mlp.kind == MlpKind::kGated || (mlp.kind == MlpKind::kMixture && mlp.gated_experts);
  const Equation matrices = gated ? 3 : 2;  // a gate beside the way up and the way down
  const Equation n_d = at.work.rows() * Equation("d", *at.model.hidden_size);
  const Equation matrices_n_d = each * matrices * n_d;
  if (mlp.kind != MlpKind::kMixture) {
    return known(passes(at.work) * (matrices_n_d * Equation("d_ff", mlp.intermediate_size)));
  }
  Equation forward =
      matrices_n_d * Equation("d_e", mlp.intermediate_size) * Equation("k", mlp.experts_per_token);
  if (mlp.num_shared_experts > 0) {
    forward = forward + matrices_n_d * Equation("d_s", mlp.shared_intermediate_size) *
                            Equation("shared", mlp.num_shared_experts);
  }
  const Equation router = each * n_d * Equation("E_x", mlp.num_experts);
  return known(passes(at.work) * (forward + router));
}

}  // namespace

void add_projection_figures(LayerCost& cost, const LayerContext& at) {
  cost.projection_flops = projection_flops(at);
  cost.mlp_flops = mlp_flops(at);
  cost.logits_flops = unknown("counted once, in the total");
}

Figure128 logits_figure(const ModelShape& shape, const Workload& work) {
  if (!shape.hidden_size) return unknown(kNoHidden);
  if (!shape.vocab_size) return unknown("vocab_size is not known");
  // A prefill needs the last position of each sequence.
  const bool last_only = !work.trains() && !work.decodes();
  const Equation positions = last_only ? Equation("B", work.num_sequences()) : work.rows();
  return known(passes(work) *
               (per_multiply_add(work) * positions * Equation("d", *shape.hidden_size) *
                Equation("V", *shape.vocab_size)));
}

}  // namespace lacuna

// Pair work: which pairs a layer computes, and what they cost.

#include "cost/closed_form.h"
#include "cost/layer_cost.h"

namespace lacuna {
namespace {

// Widths of the vectors that a pair multiplies: one for the score, one for the value.
struct PairWidths {
  Equation score;
  Equation value;
};

PairWidths pair_widths(const LayerContext& at) {
  if (at.layer.mixer != Mixer::kMla) {
    return {Equation("d_h", at.shape.head_dim), Equation("d_v", at.shape.v_head_dim)};
  }
  const LatentShape& latent = *at.shape.latent;
  const Equation rope("d_r", latent.qk_rope_head_dim);
  if (at.work.decodes()) {  // absorbed: scores and values are taken on the latent itself
    const Equation c("c", latent.kv_lora_rank);
    return {c + rope, c};
  }
  return {Equation("d_n", latent.qk_nope_head_dim) + rope, Equation("d_v", latent.v_head_dim)};
}

Equation pair_flops(const LayerContext& at, const Equation& pairs, const PairWidths& widths) {
  const Equation each = per_multiply_add(at.work);
  // Equal plain widths are written once, as the papers do; an mla width is a sum of its own.
  const bool equal = at.layer.mixer != Mixer::kMla && widths.score.value() == widths.value.value();
  if (equal) return passes(at.work) * (2 * each * pairs * widths.score);
  return passes(at.work) * (each * pairs * widths.score + each * pairs * widths.value);
}

// The edges of one head over all sequences, as written for the only length there is.
Equation explained(const LayerContext& at, const Union& attend, Int128 sum) {
  const auto& sequences = at.work.sequences();
  if (sequences.size() != 1) return at.work.explain(sum, std::nullopt);
  const Workload::Sequence& only = sequences.front();
  return at.work.explain(sum,
                         edges_equation(attend, at.table.causal, at.work, only, sum / only.count));
}

Equation legal_pairs_of_head(const LayerContext& at) {
  const Int128 sum =
      at.work.sum_rows([&](std::int64_t begin, std::int64_t end, std::int64_t length) {
        return legal_pairs(at.table.causal, begin, end, length);
      });
  return explained(at, {Full{}}, sum);
}

void add_no_pairs(LayerCost& cost) {
  for (Figure128* figure : {&cost.edges, &cost.pairs, &cost.legal_pairs, &cost.pair_flops,
                            &cost.recompute_flops, &cost.exponentials, &cost.index_flops}) {
    *figure = known(0);
  }
}

Equation index_flops(const LayerContext& at, const Equation& legal) {
  if (!at.owns_index()) return 0;
  return passes(at.work) *
         (per_multiply_add(at.work) * legal.named("E_dense") *
          Equation("H_I", at.shape.index->num_heads) * Equation("d_I", at.shape.index->head_dim));
}

}  // namespace

void add_pair_figures(LayerCost& cost, const LayerContext& at) {
  add_no_pairs(cost);
  const Workload& work = at.work;
  if (at.attends()) {
    HeadSums edges;
    for (const LayerTopology::Class& heads : at.topology.q_heads()) {
      const auto edges_of = [&](std::int64_t begin, std::int64_t end, std::int64_t length) {
        return heads.topology.edges(begin, end, length);
      };
      edges.emplace_back(work.sum_rows(edges_of), heads.count);
    }
    const bool uniform = at.topology.uniform();
    cost.edges =
        uniform ? known(explained(at, at.layer.attend.groups.front().attend, edges.front().first))
                : unknown("query heads differ");
    const Equation pairs = over_heads(edges, "E", "H");
    const Equation factor = uniform ? pairs : pairs.named("P");
    const PairWidths widths = pair_widths(at);
    const Equation legal = legal_pairs_of_head(at);
    cost.pairs = known(pairs);
    cost.legal_pairs = known(legal * Equation("H", at.shape.num_q_heads));
    cost.pair_flops = known(pair_flops(at, factor, widths));
    cost.recompute_flops = known(per_multiply_add(work) * factor * widths.score);
    cost.exponentials = known(pairs);
    cost.index_flops = known(index_flops(at, legal));
  }
  if (!work.trains()) cost.recompute_flops = unknown("scores are computed again only in training");
}

}  // namespace lacuna

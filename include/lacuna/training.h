#pragma once

#include <cstdint>

#include "lacuna/cost.h"
#include "lacuna/equation.h"
#include "lacuna/figure.h"
#include "lacuna/layer_table.h"
#include "lacuna/shape.h"

// Memory of a training step. Attention's own part is exact; activations and parameters are
// estimates by the formulas below.
namespace lacuna {

// One layer's scores S, or its weights P, for every pair: B H n² b.
Equation materialised_bytes(std::int64_t batch, std::int64_t num_q_heads, std::int64_t length,
                            std::int64_t element_bytes);
// What tiled attention keeps of one layer instead: output B n H d_v b and log-sum-exp 4 B H n.
Equation tiled_attention_bytes(std::int64_t batch, std::int64_t num_q_heads, std::int64_t length,
                               std::int64_t v_head_dim, std::int64_t element_bytes);

struct TrainingQuery {
  std::int64_t batch = 1;
  std::int64_t length = 0;
  std::int64_t activation_bytes = 2;  // an element
  // Bytes a parameter. Mixed-precision Adam: 2 and 2, and f32 master, momentum and variance.
  std::int64_t weight_bytes = 2;
  std::int64_t gradient_bytes = 2;
  std::int64_t optimizer_bytes = 12;
  bool materialised_scores = false;  // keep S and P instead of output and log-sum-exp
  bool checkpointing = false;        // keep the layers' inputs, recompute one layer at a time
};

// Absent sizes make figures unknown, never 0.
struct TrainingMemory {
  // exact, all layers that attend by softmax (mla: expanded)
  Figure128 score_bytes;  // S and P
  Figure128 tiled_attention_bytes;
  // estimates
  Figure128 activation_bytes;  // as asked: of the query's attention and checkpointing
  Figure128 parameters;
  Figure128 state_bytes;  // weights, gradients, optimiser
  Figure128 total_bytes;  // activations and state
  FigureKind kind = FigureKind::kEstimate;
};

// Activations that a layer keeps for its backward pass, elements a token: the two normalised inputs
// and the two residual inputs 4 d, q H d_h, k and v H_kv (d_h + d_v), the attention's output H d_v,
// and of the MLP 3 d_ff gated or 2 d_ff plain (mixture: of the experts that ran, and the router's
// logits); beside them the attention's own part above, whose output is counted once. With
// checkpointing: d a token and layer, and the largest layer once. Dropout masks, norms' statistics,
// communication buffers and the loss's logits are not in it.
//
// Parameters: matrices only, from the multiply-adds of one token (each weight of a dense matrix
// takes part in exactly one), all experts of a mixture, and the embedding V d once; an untied
// output matrix would be V d more. Norms and biases are left out.
TrainingMemory training_memory(const LayerTable& table, const ModelShape& shape,
                               const TrainingQuery& query);

// The matrices of all layers, without the embedding.
Figure128 layer_parameters(const LayerTable& table, const ModelShape& shape);

}  // namespace lacuna

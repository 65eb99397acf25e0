#pragma once

#include <optional>
#include <vector>

#include "lacuna/model.h"
#include "lacuna/weights.h"
#include "model/architecture.h"

namespace lacuna {

using Vector = std::vector<float>;

// Weights of one layer. Matrices that read the same rows are one, their outputs one after another.
struct LayerWeights {
  Vector attention_norm;
  DenseWeights q_k_v;
  Vector q_norm;  // [head_dim]; where heads are normed, as k_norm
  Vector k_norm;
  DenseWeights attention_output;
  Vector after_attention_norm;  // where norms come after, too
  Vector mlp_norm;
  DenseWeights gate_up;
  DenseWeights down;
  Vector after_mlp_norm;
};

struct Model::State {
  State(const std::string& path, const ModelOptions& options, ThreadPool* pool);

  WeightFile file;
  ModelConfig config;
  Architecture architecture;
  std::optional<Tokenizer> tokenizer;
  WeightMatrix embedding;  // [vocab_size, hidden_size], read row by row from the file
  std::vector<LayerWeights> layers;
  Vector output_norm;
  DenseWeights output;
  std::int64_t file_weight_bytes = 0;
};

}  // namespace lacuna

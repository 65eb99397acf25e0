#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/activation.h"
#include "lacuna/config.h"
#include "lacuna/weights.h"

namespace lacuna {

// Rotary angles of a layer: position / factor · base^(−2i / dims).
struct Rotary {
  double base = 10000;
  double factor = 1;
  friend bool operator==(const Rotary&, const Rotary&) = default;
};

// What a forward pass needs beside the sizes and the layer table.
struct Architecture {
  std::string name;  // llama, gemma2, gemma3
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  float norm_epsilon = 0;
  Activation activation = Activation::kSilu;
  std::vector<Rotary> rotary;  // [layers]
  // Pairs of dims that turn together: 2i and 2i + 1, as "llama" files have their rows; else i and
  // i + dims/2.
  bool rotates_neighbours = false;
  std::vector<float> rotary_divisors;  // [head_dim / 2] of each angle; empty: 1
  float sm_scale = 0;
  float attention_softcap = 0;  // 0: off
  float logit_softcap = 0;
  float embedding_scale = 1;
  bool norms_heads = false;  // q and k of each head, before they are rotated
  bool norms_after = false;  // what attention and MLP give, before it is added
};

// Throws Error naming the file, the key, its value and what is known: an architecture that this
// program does not run, a kind of layer, MLP or rotary scaling that it does not know.
Architecture read_architecture(const WeightFile& file, const ModelConfig& config);

}  // namespace lacuna

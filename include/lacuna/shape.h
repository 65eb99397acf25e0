#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lacuna/layer_table.h"

namespace lacuna {

// Multi-head latent attention (DeepSeek-V2): one latent of kv_lora_rank + qk_rope_head_dim elements
// a token is cached for all heads.
struct LatentShape {
  std::int64_t kv_lora_rank = 0;
  std::int64_t q_lora_rank = 0;  // 0: queries are projected directly
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  friend bool operator==(const LatentShape&, const LatentShape&) = default;
};

// A finite-state mixer (linear attention, state space): what it holds does not grow with the
// history.
struct StateShape {
  std::int64_t num_key_heads = 0;
  std::int64_t num_value_heads = 0;
  std::int64_t key_dim = 0;        // of one head; ssm: the state size
  std::int64_t value_dim = 0;      // of one head
  std::int64_t conv_kernel = 0;    // taps of the short causal convolution; 0: none
  std::int64_t conv_channels = 0;  // channels whose last conv_kernel - 1 inputs are kept
  friend bool operator==(const StateShape&, const StateShape&) = default;
};

// A selector's own key cache: DSA's lightning indexer, block-sparse index heads.
struct IndexShape {
  std::int64_t num_heads = 0;  // index query heads
  std::int64_t head_dim = 0;   // of one index key
  std::int64_t num_keys = 1;   // index keys a token (heads of the index cache)
  // Bytes of a token in the index cache; fp8 with its scale: head_dim + 4.
  std::int64_t bytes_per_token = 0;
  friend bool operator==(const IndexShape&, const IndexShape&) = default;
};

enum class MlpKind { kNone, kGated, kPlain, kMixture };

struct MlpShape {
  MlpKind kind = MlpKind::kGated;
  std::int64_t intermediate_size = 0;  // dense width; mixture: width of one expert
  std::int64_t num_experts = 0;        // mixture only, as all below
  std::int64_t experts_per_token = 0;
  std::int64_t num_shared_experts = 0;
  std::int64_t shared_intermediate_size = 0;  // width of one shared expert
  bool gated_experts = true;
  friend bool operator==(const MlpShape&, const MlpShape&) = default;
};

struct LayerShape {
  int num_q_heads = 1;
  int num_kv_heads = 1;
  std::int64_t head_dim = 64;           // of q and k
  std::int64_t v_head_dim = 64;         // of v
  bool learned_sink = false;            // one logit a query head in the softmax, no KV
  std::optional<LatentShape> latent{};  // kMla layers
  std::optional<StateShape> state{};    // kLinear, kSsm layers
  std::optional<IndexShape> index{};    // layers with a selector
  std::optional<MlpShape> mlp{};        // nullopt: not known, figures are null
  friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

// The sizes of a model, layer by layer, beside its LayerTable. What a config does not say is
// nullopt and makes the figures that need it null, never 0. A plain value.
struct ModelShape {
  std::string name;  // model_type or architecture, for people
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> context_length;
  bool has_cache = true;  // false: an encoder, which keeps no KV
  std::vector<LayerShape> layers;
};

// num_q_heads of every layer, as check() and Graph take them.
std::vector<int> num_q_heads(const ModelShape& shape);

// The same layer `num_layers` times.
ModelShape uniform_shape(int num_layers, const LayerShape& layer);

// Throws Error naming the layer and the value where a size is out of range: heads and dims >= 1, KV
// heads divide query heads, table and shape of one length, a mixer with the shape it needs.
void check(const ModelShape& shape, const LayerTable& table);

}  // namespace lacuna

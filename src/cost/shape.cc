#include "lacuna/shape.h"

#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// Sizes of real models lie far below; their products stay far below 128 bits.
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;

// The sizes of one layer, each named in the error.
class LayerChecker {
 public:
  LayerChecker(const LayerShape& shape, const Layer& layer, std::size_t layer_idx)
      : shape_(shape), layer_(layer), layer_idx_(layer_idx) {}

  void check() const {
    positive("num_q_heads", shape_.num_q_heads);
    positive("num_kv_heads", shape_.num_kv_heads);
    positive("head_dim", shape_.head_dim);
    positive("v_head_dim", shape_.v_head_dim);
    if (shape_.num_q_heads % shape_.num_kv_heads != 0) {
      fail(fmt::format("num_kv_heads is {} with {} query heads; allowed: a divisor",
                       shape_.num_kv_heads, shape_.num_q_heads));
    }
    check_mixer();
    if (shape_.latent) check_latent(*shape_.latent);
    if (shape_.state) check_state(*shape_.state);
    if (shape_.index) check_index(*shape_.index);
    if (shape_.mlp) check_mlp(*shape_.mlp);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(fmt::format("layer {}: {}", layer_idx_, message));
  }
  void in_range(const char* name, std::int64_t value, std::int64_t least) const {
    if (value >= least && value <= kMostSize) return;
    fail(fmt::format("{} is {}; allowed: {}..{}", name, value, least, kMostSize));
  }
  void positive(const char* name, std::int64_t value) const { in_range(name, value, 1); }
  void not_negative(const char* name, std::int64_t value) const { in_range(name, value, 0); }

  void check_mixer() const {
    if (layer_.mixer == Mixer::kMla && !shape_.latent) {
      fail("mixer is mla without latent sizes; allowed: with kv_lora_rank and head dims");
    }
    const bool finite = layer_.mixer == Mixer::kLinear || layer_.mixer == Mixer::kSsm;
    if (finite && !shape_.state) {
      fail(fmt::format("mixer is {} without state sizes; allowed: with heads and dims of its state",
                       to_string(layer_.mixer)));
    }
  }
  void check_latent(const LatentShape& latent) const {
    positive("kv_lora_rank", latent.kv_lora_rank);
    not_negative("q_lora_rank", latent.q_lora_rank);
    positive("qk_nope_head_dim", latent.qk_nope_head_dim);
    not_negative("qk_rope_head_dim", latent.qk_rope_head_dim);
    positive("latent v_head_dim", latent.v_head_dim);
  }
  void check_state(const StateShape& state) const {
    not_negative("state num_key_heads", state.num_key_heads);
    positive("state num_value_heads", state.num_value_heads);
    positive("state key_dim", state.key_dim);
    positive("state value_dim", state.value_dim);
    not_negative("conv_kernel", state.conv_kernel);
    not_negative("conv_channels", state.conv_channels);
  }
  void check_index(const IndexShape& index) const {
    positive("index num_heads", index.num_heads);
    positive("index head_dim", index.head_dim);
    positive("index num_keys", index.num_keys);
    not_negative("index bytes_per_token", index.bytes_per_token);
  }
  void check_mlp(const MlpShape& mlp) const {
    if (mlp.kind == MlpKind::kNone) return;
    positive("intermediate_size", mlp.intermediate_size);
    if (mlp.kind != MlpKind::kMixture) return;
    positive("num_experts", mlp.num_experts);
    positive("experts_per_token", mlp.experts_per_token);
    not_negative("num_shared_experts", mlp.num_shared_experts);
    not_negative("shared_intermediate_size", mlp.shared_intermediate_size);
    if (mlp.experts_per_token > mlp.num_experts) {
      fail(fmt::format("experts_per_token is {}; allowed: 1..{}, the number of experts",
                       mlp.experts_per_token, mlp.num_experts));
    }
    if (mlp.num_shared_experts > 0) {
      positive("shared_intermediate_size", mlp.shared_intermediate_size);
    }
  }

  const LayerShape& shape_;
  const Layer& layer_;
  std::size_t layer_idx_;
};

void check_model_size(const char* name, const std::optional<std::int64_t>& value) {
  if (!value || (*value >= 1 && *value <= kMostSize)) return;
  throw Error(fmt::format("{} is {}; allowed: 1..{}", name, *value, kMostSize));
}

// A layer that reads another's KV finds there what it would have stored itself.
void check_shared(const ModelShape& shape, std::size_t layer_idx, int kv_from) {
  if (kv_from < 0 || std::cmp_greater_equal(kv_from, layer_idx)) return;  // the table's own check
  const LayerShape& reader = shape.layers[layer_idx];
  const LayerShape& owner = shape.layers[static_cast<std::size_t>(kv_from)];
  if (reader.num_kv_heads == owner.num_kv_heads && reader.head_dim == owner.head_dim &&
      reader.v_head_dim == owner.v_head_dim && reader.latent == owner.latent) {
    return;
  }
  throw Error(fmt::format(
      "layer {}: {} KV heads of {}+{} elements with kv_from {}; allowed: {} of {}+{}, as there",
      layer_idx, reader.num_kv_heads, reader.head_dim, reader.v_head_dim, kv_from,
      owner.num_kv_heads, owner.head_dim, owner.v_head_dim));
}

}  // namespace

std::vector<int> num_q_heads(const ModelShape& shape) {
  std::vector<int> heads;
  heads.reserve(shape.layers.size());
  for (const LayerShape& layer : shape.layers) heads.push_back(layer.num_q_heads);
  return heads;
}

ModelShape uniform_shape(int num_layers, const LayerShape& layer) {
  if (num_layers < 1)
    throw Error(fmt::format("num_layers is {}; allowed: 1 and above", num_layers));
  ModelShape shape;
  shape.layers.assign(static_cast<std::size_t>(num_layers), layer);
  return shape;
}

void check(const ModelShape& shape, const LayerTable& table) {
  if (shape.layers.size() != table.layers.size()) {
    throw Error(fmt::format("the shape has {} layers; allowed: {}, as the layer table",
                            shape.layers.size(), table.layers.size()));
  }
  check_model_size("hidden_size", shape.hidden_size);
  check_model_size("vocab_size", shape.vocab_size);
  check_model_size("context_length", shape.context_length);
  for (std::size_t layer_idx = 0; layer_idx < shape.layers.size(); ++layer_idx) {
    const Layer& layer = table.layers[layer_idx];
    LayerChecker(shape.layers[layer_idx], layer, layer_idx).check();
    if (layer.kv_from) check_shared(shape, layer_idx, *layer.kv_from);
  }
}

}  // namespace lacuna

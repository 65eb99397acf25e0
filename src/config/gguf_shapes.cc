// Heads, widths, latents, states and selectors of a GGUF file's layers.
#include <fmt/format.h>

#include <algorithm>

#include "config/gguf_model.h"
#include "lacuna/integer.h"

namespace lacuna::config {
namespace {

constexpr std::int64_t kMaxDim = 1 << 24;

std::optional<LatentShape> read_latent(const GgufModel& model) {
  const auto rank = model.integer("attention.kv_lora_rank", 1, kMaxDim);
  if (!rank) return std::nullopt;
  LatentShape latent;
  latent.kv_lora_rank = *rank;
  latent.q_lora_rank = model.integer("attention.q_lora_rank", 0, kMaxDim).value_or(0);
  latent.qk_rope_head_dim = model.keys.need(model.key("rope.dimension_count"), 1, kMaxDim);
  // Files from before the compressed cache have the expanded widths under the plain keys.
  const bool compressed = model.keys.present(model.key("attention.key_length_mla"));
  const std::string k = model.key(compressed ? "attention.key_length_mla" : "attention.key_length");
  const std::string v =
      model.key(compressed ? "attention.value_length_mla" : "attention.value_length");
  const std::int64_t width = model.keys.need(k, 1, kMaxDim);
  latent.v_head_dim = model.keys.need(v, 1, kMaxDim);
  if (width <= latent.qk_rope_head_dim) {
    model.keys.fail(
        k, fmt::format("it holds {} RoPE dimensions and must be longer", latent.qk_rope_head_dim));
  }
  latent.qk_nope_head_dim = width - latent.qk_rope_head_dim;
  for (std::string_view suffix : {"attention.key_length", "attention.value_length"}) {
    if (!compressed) break;
    model.keys.understood(model.key(suffix),
                          "the latent's own widths: kv_lora_rank and RoPE decide");
  }
  return latent;
}

StateShape read_state(const GgufModel& model, std::int64_t heads, Mixer* mixer) {
  Keys& keys = model.keys;
  StateShape state;
  *mixer = Mixer::kLinear;
  if (const auto dim = model.integer("kda.head_dim", 1, kMaxDim)) {
    state.num_key_heads = state.num_value_heads = heads;
    state.key_dim = state.value_dim = *dim;
    state.conv_kernel = keys.need(model.key("ssm.conv_kernel"), 1, 1 << 16);
    state.conv_channels = checked_mul64(3 * heads, *dim);
    return state;
  }
  state.key_dim = keys.need(model.key("ssm.state_size"), 1, kMaxDim);
  const std::int64_t inner = keys.need(model.key("ssm.inner_size"), 1, kMaxDim);
  state.conv_kernel = keys.need(model.key("ssm.conv_kernel"), 1, 1 << 16);
  const auto groups = model.integer("ssm.group_count", 0, kMaxHeads);
  const std::int64_t rank = keys.need(model.key("ssm.time_step_rank"), 1, kMaxDim);
  if (!keys.present(model.key("full_attention_interval"))) *mixer = Mixer::kSsm;
  if (groups.value_or(0) == 0) {  // Mamba-1: the rank is a projection's, not a number of heads
    state.num_key_heads = state.num_value_heads = 1;
    state.value_dim = state.conv_channels = inner;
    return state;
  }
  if (inner % rank != 0)
    keys.fail(model.key("ssm.inner_size"), fmt::format("{} heads must divide it", rank));
  state.num_key_heads = *groups;
  state.num_value_heads = rank;
  state.value_dim = inner / rank;
  state.conv_channels = checked_add64(inner, checked_mul64(2 * *groups, state.key_dim));
  return state;
}

bool has_state_keys(const GgufModel& model) {
  return model.keys.present(model.key("kda.head_dim")) ||
         model.keys.present(model.key("ssm.state_size"));
}

// Layers without KV: a state, an MLP alone (Nemotron-H), or nothing (Deci).
void mark_layers_without_kv(const GgufModel& model, const std::vector<std::int64_t>& q,
                            const std::vector<std::int64_t>& kv, std::vector<GgufKind>& kinds) {
  if (const auto interval = model.integer("full_attention_interval", 1, kMaxLayers)) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if ((static_cast<std::int64_t>(i) + 1) % *interval != 0) kinds[i] = GgufKind::kState;
    }
  }
  const bool states = has_state_keys(model);
  const auto widths = model.per_layer("feed_forward_length", kMaxWidth);
  const bool split = widths && model.is_list("feed_forward_length") &&
                     std::find(widths->begin(), widths->end(), 0) != widths->end();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kv[i] != 0) continue;
    if (states && kinds[i] != GgufKind::kWindow) {
      kinds[i] = split && (*widths)[i] != 0 ? GgufKind::kNone : GgufKind::kState;
    } else if (q[i] == 0) {
      kinds[i] = GgufKind::kNone;
    } else {
      model.keys.fail(model.key("attention.head_count_kv"),
                      fmt::format("layer {} has {} query heads and no KV head", i, q[i]));
    }
  }
}

struct Dims {
  std::int64_t k = 1, v = 1;
};

Dims read_dims(const GgufModel& model, std::int64_t embedding, std::int64_t q) {
  Dims dims;
  const auto k = model.integer("attention.key_length", 1, kMaxDim);
  const auto v = model.integer("attention.value_length", 1, kMaxDim);
  if (!k || !v) {
    if (embedding % q != 0) {
      model.keys.fail(
          model.key("attention.key_length"),
          fmt::format("embedding_length {} is no multiple of {} heads: it cannot be derived",
                      embedding, q));
    }
    model.note("attention.key_length", fmt::format("{}", embedding / q),
               "derived: embedding_length / head_count");
  }
  dims.k = k ? *k : embedding / q;
  dims.v = v ? *v : embedding / q;
  return dims;
}

Term term_of(const GgufModel& model, GgufKind kind, std::int64_t window, bool causal) {
  if (kind == GgufKind::kFull) return Full{};
  if (model.facts != nullptr && model.facts->window == GgufWindow::kChunks) return Chunk{window};
  if (!causal) return Window{window / 2, window / 2};
  return Window{window - 1, 0};
}

void fill_layers(const GgufModel& model, const std::vector<GgufKind>& kinds, std::int64_t window,
                 ModelConfig& config) {
  const std::int64_t embedding = *config.shape.hidden_size;
  const auto q = model.per_layer("attention.head_count", kMaxHeads);
  if (!q) model.keys.fail(model.key("attention.head_count"), "a whole number is needed");
  const auto given_kv = model.per_layer("attention.head_count_kv", kMaxHeads);
  if (!given_kv)
    model.note("attention.head_count_kv", "head_count", "derived: one KV head a query head");
  const std::vector<std::int64_t>& kv = given_kv ? *given_kv : *q;
  const std::int64_t most_q = *std::max_element(q->begin(), q->end());
  if (most_q < 1) model.keys.fail(model.key("attention.head_count"), "no layer has a query head");
  std::vector<GgufKind> all = kinds;
  mark_layers_without_kv(model, *q, kv, all);
  const auto latent = read_latent(model);
  const Dims dims =
      latent ? Dims{latent->qk_nope_head_dim + latent->qk_rope_head_dim, latent->v_head_dim}
             : read_dims(model, embedding, most_q);
  Dims sliding = dims;
  if (const auto k = model.integer("attention.key_length_swa", 1, kMaxDim)) sliding.k = *k;
  if (const auto v = model.integer("attention.value_length_swa", 1, kMaxDim)) sliding.v = *v;
  Mixer state_mixer = Mixer::kLinear;
  StateShape state;
  if (std::find(all.begin(), all.end(), GgufKind::kState) != all.end()) {
    state = read_state(model, most_q, &state_mixer);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool attends = all[i] == GgufKind::kFull || all[i] == GgufKind::kWindow;
    Layer layer;
    layer.mixer = all[i] == GgufKind::kNone    ? Mixer::kNone
                  : all[i] == GgufKind::kState ? state_mixer
                  : latent                     ? Mixer::kMla
                                               : Mixer::kSoftmax;
    if (attends)
      layer.attend.groups.push_back({{}, {term_of(model, all[i], window, config.table.causal)}});
    const Dims& own = all[i] == GgufKind::kWindow ? sliding : dims;
    LayerShape shape;
    shape.num_q_heads = static_cast<int>(attends ? (*q)[i] : most_q);
    shape.num_kv_heads = static_cast<int>(!attends ? most_q : latent ? 1 : kv[i]);
    shape.head_dim = own.k;
    shape.v_head_dim = own.v;
    shape.learned_sink = attends && model.facts != nullptr && model.facts->learned_sinks;
    if (layer.mixer == Mixer::kMla) shape.latent = latent;
    if (all[i] == GgufKind::kState) shape.state = state;
    if (shape.num_q_heads < 1 || shape.num_q_heads % shape.num_kv_heads != 0) {
      model.keys.fail(model.key("attention.head_count_kv"),
                      fmt::format("layer {}: {} KV heads must divide {} query heads", i,
                                  shape.num_kv_heads, shape.num_q_heads));
    }
    config.table.layers.push_back(std::move(layer));
    config.shape.layers.push_back(std::move(shape));
  }
}

void read_indexer(const GgufModel& model, ModelConfig& config) {
  const auto topk = model.integer("attention.indexer.top_k", 1, kMaxSize);
  if (!topk) return;
  IndexShape index;
  index.num_heads = model.keys.need(model.key("attention.indexer.head_count"), 1, kMaxHeads);
  index.head_dim = model.keys.need(model.key("attention.indexer.key_length"), 1, kMaxDim);
  index.bytes_per_token = index.head_dim + 4;
  model.note(
      "attention.indexer.key_length", fmt::format("{}", index.head_dim),
      fmt::format("index keys are counted as fp8 with a 4-byte scale: {} bytes a token and layer",
                  index.bytes_per_token));
  for (std::size_t i = 0; i < config.table.layers.size(); ++i) {
    Layer& layer = config.table.layers[i];
    if (layer.attend.groups.empty()) continue;
    layer.attend.groups.front().attend = {Term{TopK{*topk}}};
    config.shape.layers[i].index = index;
  }
}

void read_kv_sharing(const GgufModel& model, const std::vector<GgufKind>& kinds,
                     ModelConfig& config) {
  const auto layers = static_cast<std::int64_t>(model.num_layers);
  const auto shared = model.integer("attention.shared_kv_layers", 0, layers - 1);
  std::int64_t first = layers - shared.value_or(0);
  if (!shared && model.facts != nullptr && model.facts->layers_with_kv > 0 &&
      layers > model.facts->layers_with_kv) {
    first = model.facts->layers_with_kv;
    model.note(
        "attention.shared_kv_layers", fmt::format("{}", layers - first),
        fmt::format("llama.cpp: only the first {} layers of {} store KV", first, model.arch));
  }
  for (std::int64_t i = first; i < layers; ++i) {
    std::int64_t owner = first - 1;
    while (owner >= 0 &&
           kinds[static_cast<std::size_t>(owner)] != kinds[static_cast<std::size_t>(i)]) {
      --owner;
    }
    if (owner < 0) {
      model.keys.fail(model.key("attention.shared_kv_layers"),
                      fmt::format("layer {} has no earlier layer of its kind to read from", i));
    }
    config.table.layers[static_cast<std::size_t>(i)].kv_from = static_cast<int>(owner);
  }
}

}  // namespace

void read_gguf_layers(const GgufModel& model, const std::vector<GgufKind>& kinds,
                      std::int64_t window, ModelConfig& config) {
  fill_layers(model, kinds, window, config);
  read_indexer(model, config);
  read_kv_sharing(model, kinds, config);
}

}  // namespace lacuna::config

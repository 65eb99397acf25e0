// Heads and widths of every layer, latents, states, selectors; whose KV and whose choice is used
// again.
#include <fmt/format.h>

#include <algorithm>

#include "config/reader.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna::config {
namespace {

constexpr std::int64_t kMaxDim = 1 << 24;  // of one head

struct Heads {
  int q = 1, kv = 1;
  std::int64_t k_dim = 1, v_dim = 1;
};

int kv_heads_of(Keys& keys, std::int64_t q) {
  // Falcon, StarCoder: one KV head unless the newer form says how many.
  const bool newer = keys.boolean("new_decoder_architecture").value_or(false);
  if (keys.boolean("multi_query").value_or(false) && !newer) {
    keys.understood("num_kv_heads", "multi_query: one KV head");
    return 1;
  }
  const auto kv = keys.any({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, 1, kMaxHeads);
  if (kv) return static_cast<int>(*kv);
  keys.note("num_key_value_heads", fmt::format("{}", q),
            "derived: every query head has its own KV head");
  return static_cast<int>(q);
}

std::int64_t head_dim_of(Keys& keys, std::int64_t q) {
  if (const auto dim = keys.any({"head_dim", "attention_head_dim"}, 1, kMaxDim)) return *dim;
  const std::int64_t hidden = *keys.any({"hidden_size", "n_embd", "d_model"}, 1, kMaxWidth);
  if (hidden % q != 0) {
    keys.fail(
        "head_dim",
        fmt::format("hidden_size {} is no multiple of {} heads: it cannot be derived", hidden, q));
  }
  keys.note("head_dim", fmt::format("{}", hidden / q),
            "derived: hidden_size / num_attention_heads");
  return hidden / q;
}

void check_divides(Keys& keys, std::string_view key, const Heads& heads) {
  if (heads.q % heads.kv != 0) {
    keys.fail(key, fmt::format("{} KV heads must divide {} query heads", heads.kv, heads.q));
  }
}

// One kind of layer has sizes of its own and does not say this one.
void note_same_kv_heads(Keys& keys, std::string_view key, const Heads& heads) {
  keys.note(std::string(key), fmt::format("{}", heads.kv), "absent: as num_key_value_heads");
}

// The heads of windowed layers where they have their own (MiMo).
Heads window_heads(Keys& keys, Heads heads) {
  if (const auto q = keys.integer("swa_num_attention_heads", 1, kMaxHeads))
    heads.q = static_cast<int>(*q);
  if (const auto kv = keys.integer("swa_num_key_value_heads", 1, kMaxHeads)) {
    heads.kv = static_cast<int>(*kv);
  } else if (keys.present("swa_num_attention_heads") || keys.present("swa_head_dim")) {
    note_same_kv_heads(keys, "swa_num_key_value_heads", heads);
  }
  if (const auto dim = keys.integer("swa_head_dim", 1, kMaxDim)) heads.k_dim = *dim;
  if (const auto dim = keys.integer("swa_v_head_dim", 1, kMaxDim)) heads.v_dim = *dim;
  check_divides(keys, "swa_num_key_value_heads", heads);
  return heads;
}

// The heads of full layers where they have their own (Gemma 4).
Heads global_heads(Keys& keys, Heads heads) {
  if (const auto dim = keys.integer("global_head_dim", 1, kMaxDim))
    heads.k_dim = heads.v_dim = *dim;
  const auto k_is_v = keys.boolean("attention_k_eq_v");
  if (k_is_v.value_or(false)) {
    keys.note("attention_k_eq_v", "true", "K and V are one projection, but runtimes store both");
  }
  const auto kv = keys.integer("num_global_key_value_heads", 1, kMaxHeads);
  if (!kv) {
    if (keys.present("global_head_dim")) {
      note_same_kv_heads(keys, "num_global_key_value_heads", heads);
    }
    return heads;
  }
  if (k_is_v && !*k_is_v) {
    keys.note("num_global_key_value_heads", fmt::format("{}", *kv),
              "not used: the class reads it only where attention_k_eq_v is true");
    return heads;
  }
  heads.kv = static_cast<int>(*kv);
  check_divides(keys, "num_global_key_value_heads", heads);
  return heads;
}

std::optional<LatentShape> read_latent(Keys& keys) {
  if (!keys.boolean("use_mla").value_or(true)) {
    for (std::string_view key :
         {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"}) {
      keys.understood(key, "use_mla is false");
    }
    return std::nullopt;
  }
  const auto rank = keys.integer("kv_lora_rank", 1, kMaxDim);
  if (!rank) return std::nullopt;
  LatentShape latent;
  latent.kv_lora_rank = *rank;
  latent.q_lora_rank = keys.integer("q_lora_rank", 0, kMaxDim).value_or(0);
  latent.qk_nope_head_dim = keys.need("qk_nope_head_dim", 1, kMaxDim);
  latent.qk_rope_head_dim = keys.need("qk_rope_head_dim", 0, kMaxDim);
  latent.v_head_dim = keys.need("v_head_dim", 1, kMaxDim);
  const auto qk = keys.integer("qk_head_dim", 1, kMaxDim);
  if (qk && *qk != latent.qk_nope_head_dim + latent.qk_rope_head_dim) {
    keys.fail("qk_head_dim", fmt::format("qk_nope_head_dim {} and qk_rope_head_dim {} add up to {}",
                                         latent.qk_nope_head_dim, latent.qk_rope_head_dim,
                                         latent.qk_nope_head_dim + latent.qk_rope_head_dim));
  }
  for (std::string_view key : {"head_dim", "num_key_value_heads"}) {
    keys.understood(key,
                    "not the cache: an MLA layer keeps kv_lora_rank + qk_rope_head_dim a token");
  }
  keys.boolean("mla_use_nope");  // positions only
  return latent;
}

// --- selectors
// -------------------------------------------------------------------------------------

// Which layers run their own indexer: "full" or, with the choice of an earlier one, "shared".
std::vector<bool> own_indexer(Source& source) {
  Keys& keys = source.keys;
  const auto layers = static_cast<std::size_t>(source.num_layers);
  std::vector<bool> own(layers, true);
  std::string_view key = "indexer_types";
  if (keys.present(key)) {
    const auto words = keys.texts(key);
    check_length(source, key, words->size());
    for (std::size_t i = 0; i < layers; ++i) {
      if ((*words)[i] != "full" && (*words)[i] != "shared") {
        unknown_word(keys, key, (*words)[i], {"full", "shared"});
      }
      own[i] = (*words)[i] == "full";
    }
    for (std::string_view other :
         {"index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"}) {
      keys.understood(other, "indexer_types wins");
    }
  } else if (const auto letters = keys.text("index_topk_pattern")) {
    key = "index_topk_pattern";
    check_length(source, key, letters->size());
    for (std::size_t i = 0; i < layers; ++i) {
      const char letter = (*letters)[i];
      if (letter != 'F' && letter != 'S') keys.fail(key, "allowed are the letters F and S");
      own[i] = letter == 'F';
    }
  } else if (const auto freq = keys.integer("index_topk_freq", 1, kMaxLayers)) {
    key = "index_topk_freq";
    const auto given_offset = keys.integer("index_skip_topk_offset", 0, kMaxLayers);
    const std::int64_t offset = given_offset.value_or(2);
    if (!given_offset) keys.note("index_skip_topk_offset", "2", "class default of glm_moe_dsa");
    for (std::size_t i = 0; i < layers; ++i) {
      own[i] = std::max<std::int64_t>(static_cast<std::int64_t>(i) - offset + 1, 0) % *freq == 0;
    }
  }
  if (!own.front()) keys.fail(key, "the first layer has no earlier choice to share");
  return own;
}

// DeepSeek sparse attention: each query reads the index_topk keys that the indexer scores highest.
void read_indexer(Source& source, ModelConfig& config) {
  Keys& keys = source.keys;
  const auto topk = keys.integer("index_topk");
  if (!topk) return;
  IndexShape index;
  index.num_heads = keys.need("index_n_heads", 1, kMaxHeads);
  index.head_dim = keys.need("index_head_dim", 1, kMaxDim);
  index.bytes_per_token = index.head_dim + 4;
  keys.note(
      "index_head_dim", fmt::format("{}", index.head_dim),
      fmt::format("index keys are counted as fp8 with a 4-byte scale: {} bytes a token and layer",
                  index.bytes_per_token));
  config.window_convention = fmt::format(
      "no sliding window: a selector chooses min({}, q+1) of keys 0 .. q, the query's own among "
      "them",
      *topk);
  const std::vector<bool> own = own_indexer(source);
  int owner = 0;
  for (int i = 0; i < source.num_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Layer& layer = config.table.layers[at];
    if (layer.mixer != Mixer::kMla && layer.mixer != Mixer::kSoftmax) continue;
    Union& attend = layer.attend.groups.front().attend;
    if (attend.size() != 1 || !std::holds_alternative<Full>(attend.front())) {
      keys.fail("index_topk",
                fmt::format("layer {} is no full layer: what the selector chooses from is "
                            "not said",
                            i));
    }
    attend = {Term{TopK{*topk}}};
    if (own[at]) {
      owner = i;
      config.shape.layers[at].index = index;
    } else {
      layer.index_from = owner;
    }
  }
}

// Block selectors keep one index key a token for all index heads (MiniMax-M3), in bf16.
void read_block_selector(Source& source, const Pattern& pattern, ModelConfig& config) {
  if (pattern.decided_by != "sparse_attention_config") return;
  Keys& keys = source.keys;
  IndexShape index;
  index.num_heads = keys.need("sparse_attention_config.sparse_num_index_heads", 1, kMaxHeads);
  index.head_dim = keys.need("sparse_attention_config.sparse_index_dim", 1, kMaxDim);
  index.bytes_per_token = 2 * index.head_dim;
  keys.note("sparse_index_dim", fmt::format("{}", index.head_dim),
            "one index key a token for all index heads, counted as bf16");
  for (std::size_t i = 0; i < pattern.layers.size(); ++i) {
    if (pattern.layers[i].kind == Kind::kSelected) config.shape.layers[i].index = index;
  }
}

// Gemma 3n: the last layers read the KV of the last earlier layer of their kind.
void read_kv_sharing(Source& source, const Pattern& pattern, ModelConfig& config) {
  const std::int64_t shared =
      source.keys.integer("num_kv_shared_layers", 0, source.num_layers - 1).value_or(0);
  const int first = source.num_layers - static_cast<int>(shared);
  for (int i = first; i < source.num_layers; ++i) {
    const Kind kind = pattern.layers[static_cast<std::size_t>(i)].kind;
    int owner = first - 1;
    while (owner >= 0 && pattern.layers[static_cast<std::size_t>(owner)].kind != kind) --owner;
    if (owner < 0) {
      source.keys.fail("num_kv_shared_layers",
                       fmt::format("layer {} has no earlier layer of its kind to read from", i));
    }
    config.table.layers[static_cast<std::size_t>(i)].kv_from = owner;
  }
}

Mixer mixer_of(const Plan& plan, bool latent, Mixer state) {
  if (plan.kind == Kind::kNone) return Mixer::kNone;
  if (plan.kind == Kind::kState) return state;
  return latent ? Mixer::kMla : Mixer::kSoftmax;
}

struct Sinks {
  bool full = false, window = false;
};

Sinks read_sinks(Source& source) {
  Keys& keys = source.keys;
  Sinks sinks;
  if (source.facts != nullptr && source.facts->learned_sinks) {
    sinks = {true, true};
    keys.note("sinks", "1 logit a head",
              fmt::format("class rule of {} ({}): a softmax column, no KV", source.facts->name,
                          source.facts->source));
  }
  if (const auto window = keys.boolean("add_swa_attention_sink_bias")) sinks.window = *window;
  if (const auto full = keys.boolean("add_full_attention_sink_bias")) sinks.full = *full;
  return sinks;
}

void note_output_gate(Keys& keys) {
  for (std::string_view key : {"attn_output_gate", "attention_output_gate"}) {
    if (keys.boolean(key).value_or(false)) {
      keys.note(std::string(key), "true", "the gate's projection is not counted");
    }
  }
}

}  // namespace

void read_shapes(Source& source, const Pattern& pattern, ModelConfig& config) {
  Keys& keys = source.keys;
  const auto q = keys.any({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1, kMaxHeads);
  if (!q) keys.fail("num_attention_heads", "a whole number is needed");
  const auto latent = read_latent(keys);
  Heads heads;
  heads.q = static_cast<int>(*q);
  if (latent) {
    // One latent a token serves all heads.
    heads.kv = 1;
    heads.k_dim = latent->qk_nope_head_dim + latent->qk_rope_head_dim;
    heads.v_dim = latent->v_head_dim;
  } else {
    const bool own_kv = pattern.decided_by == "block_configs";  // NAS: every block says
    heads.kv = own_kv ? heads.q : kv_heads_of(keys, *q);
    heads.k_dim = head_dim_of(keys, *q);
    heads.v_dim = keys.integer("v_head_dim", 1, kMaxDim).value_or(heads.k_dim);
  }
  check_divides(keys, "num_key_value_heads", heads);
  const Heads windowed = window_heads(keys, heads);
  const Heads global = global_heads(keys, heads);
  const Sinks sinks = read_sinks(source);
  note_output_gate(keys);
  Mixer state_mixer = Mixer::kLinear;
  const StateShape state = read_state(source, pattern, &state_mixer);

  for (const Plan& plan : pattern.layers) {
    const Heads& own = plan.kind == Kind::kWindow ? windowed
                       : plan.kind == Kind::kFull ? global
                                                  : heads;
    Layer layer;
    layer.mixer = mixer_of(plan, latent.has_value(), state_mixer);
    layer.rope = plan.rope;
    if (!plan.attend.empty()) layer.attend.groups.push_back({{}, plan.attend});
    LayerShape shape;
    shape.num_q_heads = own.q;
    shape.num_kv_heads = plan.num_kv_heads.value_or(own.kv);
    shape.head_dim = own.k_dim;
    shape.v_head_dim = own.v_dim;
    shape.learned_sink =
        plan.kind == Kind::kWindow ? sinks.window : plan.kind == Kind::kFull && sinks.full;
    if (layer.mixer == Mixer::kMla) shape.latent = latent;
    if (plan.kind == Kind::kState) shape.state = state;
    config.table.layers.push_back(std::move(layer));
    config.shape.layers.push_back(std::move(shape));
  }
  read_indexer(source, config);
  read_block_selector(source, pattern, config);
  read_kv_sharing(source, pattern, config);
}

}  // namespace lacuna::config

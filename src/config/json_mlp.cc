// Dense and mixture MLPs. Where a file does not say what a layer's MLP is, it stays unknown:
// nullopt.
#include <fmt/format.h>

#include <algorithm>

#include "config/reader.h"

namespace lacuna::config {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 20;

std::optional<bool> is_gated(Source& source) {
  Keys& keys = source.keys;
  if (keys.assumed("mlp")) {
    const std::string word = keys.text("mlp").value_or("");
    if (word != "gated" && word != "plain") unknown_word(keys, "mlp", word, {"gated", "plain"});
    return word == "gated";
  }
  if (const auto type = keys.text("mlp_type")) {
    if (*type != "default" && *type != "gated")
      unknown_word(keys, "mlp_type", *type, {"default", "gated"});
    return *type == "gated";
  }
  if (const auto gated = keys.boolean("use_gated_activation")) return *gated;
  if (source.facts != nullptr && source.facts->mlp != Mlp::kUnknown) {
    const bool gated = source.facts->mlp == Mlp::kGated;
    keys.note("mlp", gated ? "gated" : "plain",
              fmt::format("class rule of {} ({})", source.facts->name, source.facts->source));
    return gated;
  }
  const std::string act = keys.text("hidden_act").value_or("");
  if (act == "silu" || act == "swiglu") {
    keys.note("mlp", "gated", fmt::format("hidden_act {} of a class that is not known", act));
    return true;
  }
  keys.note("mlp", "unknown",
            "whether the MLP is gated is not said: its figures are null; --assume "
            "mlp=gated or mlp=plain");
  return std::nullopt;
}

// --- which layers are mixtures
// ---------------------------------------------------------------------

using Flags = std::vector<bool>;

std::optional<Flags> listed_mixtures(Source& source) {
  Keys& keys = source.keys;
  const auto layers = static_cast<std::size_t>(source.num_layers);
  Flags flags(layers, false);
  if (keys.present("mlp_layer_types")) {
    const auto words = keys.texts("mlp_layer_types");
    check_length(source, "mlp_layer_types", words->size());
    for (std::size_t i = 0; i < layers; ++i) {
      if ((*words)[i] != "sparse" && (*words)[i] != "dense") {
        unknown_word(keys, "mlp_layer_types", (*words)[i], {"dense", "sparse"});
      }
      flags[i] = (*words)[i] == "sparse";
    }
    return flags;
  }
  if (keys.length("moe_layer_freq")) {
    const auto list = keys.integers("moe_layer_freq", 0, 1);
    check_length(source, "moe_layer_freq", list->size());
    for (std::size_t i = 0; i < layers; ++i) flags[i] = (*list)[i] == 1;
    return flags;
  }
  if (keys.present("moe_layers")) {
    const auto list = keys.integers("moe_layers", 0, source.num_layers - 1);
    for (const std::int64_t layer : *list) {
      flags[static_cast<std::size_t>(layer)] = true;
    }
    return flags;
  }
  return std::nullopt;
}

Flags mixtures(Source& source) {
  Keys& keys = source.keys;
  if (auto listed = listed_mixtures(source)) {
    for (std::string_view key : {"first_k_dense_replace", "interleave_moe_layer_step",
                                 "decoder_sparse_step", "mlp_only_layers"}) {
      keys.understood(key, "a list names the mixture layers");
    }
    return *listed;
  }
  const auto layers = static_cast<std::size_t>(source.num_layers);
  Flags flags(layers, true);
  const std::int64_t first = keys.integer("first_k_dense_replace", 0, kMaxLayers).value_or(0);
  const std::int64_t every = keys.integer("moe_layer_freq", 1, kMaxLayers).value_or(1);
  const std::int64_t step = keys.integer("interleave_moe_layer_step", 0, kMaxLayers).value_or(1);
  const std::int64_t sparse = keys.integer("decoder_sparse_step", 0, kMaxLayers).value_or(1);
  const auto period = keys.integer("expert_layer_period", 1, kMaxLayers);
  const std::int64_t offset = keys.integer("expert_layer_offset", 0, kMaxLayers).value_or(0);
  std::vector<std::int64_t> only;
  if (keys.present("mlp_only_layers")) only = *keys.integers("mlp_only_layers", 0, kMaxLayers);
  std::sort(only.begin(), only.end());
  for (std::size_t at = 0; at < layers; ++at) {
    const auto i = static_cast<std::int64_t>(at);
    flags[at] = i >= first && i % every == 0 && step > 0 && (i + 1) % step == 0 && sparse > 0 &&
                (i + 1) % sparse == 0 && (!period || i % *period == offset) &&
                !std::binary_search(only.begin(), only.end(), i);
  }
  return flags;
}

// --- widths
// ----------------------------------------------------------------------------------------

std::optional<std::int64_t> dense_width(Source& source, std::size_t layer) {
  Keys& keys = source.keys;
  if (keys.length("intermediate_size")) {
    const auto widths = keys.integers("intermediate_size", 1, kMaxWidth);
    check_length(source, "intermediate_size", widths->size());
    return (*widths)[layer];
  }
  if (const auto width = keys.any({"intermediate_size", "ff_intermediate_size", "ffn_hidden_size",
                                   "n_inner", "ffn_dim", "mlp_hidden_size"},
                                  1, kMaxWidth)) {
    return width;
  }
  const std::string_view name = source.facts == nullptr ? "" : source.facts->name;
  for (std::string_view fourfold : {"gpt2", "gpt_neo", "gptj", "bloom", "gpt_bigcode", "falcon"}) {
    const auto hidden = keys.any({"hidden_size", "n_embd", "d_model"}, 1, kMaxWidth);
    if (name == fourfold && hidden) return 4 * *hidden;
  }
  return std::nullopt;
}

// The mixture of all mixture layers, or nullopt where the file does not say enough.
std::optional<MlpShape> read_mixture(Source& source, std::int64_t num_experts, bool gated) {
  Keys& keys = source.keys;
  const std::string_view name = source.facts == nullptr ? "" : source.facts->name;
  MlpShape mlp;
  mlp.kind = MlpKind::kMixture;
  mlp.gated_experts = gated;
  mlp.num_experts = num_experts;
  const auto active = keys.any({"num_experts_per_tok", "num_experts_per_token", "top_k_experts",
                                "experts_per_token", "moe_topk", "moe_top_k"},
                               1, num_experts);
  const auto own = keys.any({"moe_intermediate_size", "expert_ffn_hidden_size"}, 1, kMaxWidth);
  const auto width = own ? own : dense_width(source, 0);
  if (!active || !width) {
    keys.note("num_experts_per_tok", "unknown", "the mixture's figures are null");
    return std::nullopt;
  }
  mlp.experts_per_token = *active;
  mlp.intermediate_size = *width;
  const auto shared = keys.any({"n_shared_experts", "num_shared_experts"}, 0, kMaxExperts);
  const auto shared_width = keys.any({"shared_expert_intermediate_size", "shared_intermediate_size",
                                      "moe_shared_expert_intermediate_size"},
                                     0, kMaxWidth);
  if (shared_width) {
    mlp.num_shared_experts = *shared_width == 0 ? 0 : shared.value_or(1);
    mlp.shared_intermediate_size = *shared_width;
  } else if (name == "nemotron_h" && shared.value_or(0) > 0) {
    keys.note("moe_shared_expert_intermediate_size", "unknown",
              "the shared expert has a width of its own that the file does not say: MLP figures of "
              "mixture layers are null");
    return std::nullopt;
  } else if (name.substr(0, 6) == "llama4") {
    mlp.num_shared_experts = 1;
    mlp.shared_intermediate_size = *width;
    keys.note("num_shared_experts", "1", "class rule of llama4 (HF llama4): as wide as an expert");
  } else if (name.substr(0, 6) == "gemma4") {
    mlp.num_shared_experts = 1;
    mlp.shared_intermediate_size = dense_width(source, 0).value_or(0);
    keys.note("num_shared_experts", "1",
              "class rule of gemma4 (HF gemma4): the dense MLP runs beside");
  } else {
    mlp.num_shared_experts = shared.value_or(0);
    mlp.shared_intermediate_size = *width;
  }
  return mlp;
}

std::optional<MlpShape> read_dense(Source& source, std::size_t layer, bool gated,
                                   bool beside_mixture) {
  Keys& keys = source.keys;
  std::optional<std::int64_t> width;
  if (beside_mixture)
    width = keys.any({"intermediate_size_mlp", "dense_intermediate_size"}, 1, kMaxWidth);
  if (!width) width = dense_width(source, layer);
  if (!width) return std::nullopt;
  MlpShape mlp;
  mlp.kind = gated ? MlpKind::kGated : MlpKind::kPlain;
  mlp.intermediate_size = *width;
  if (source.facts != nullptr && source.facts->name == "recurrent_gemma")
    mlp.intermediate_size /= 2;
  return mlp;
}

}  // namespace

void read_mlps(Source& source, const Pattern& pattern, ModelConfig& config) {
  Keys& keys = source.keys;
  const auto gated = is_gated(source);
  const bool on = keys.boolean("enable_moe_block").value_or(true);
  const std::int64_t experts =
      keys.any({"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"}, 0,
               kMaxExperts)
          .value_or(0);
  const Flags by_index = mixtures(source);
  const bool mixed = on && experts > 1;
  std::optional<MlpShape> mixture;
  if (mixed && gated) mixture = read_mixture(source, experts, *gated);
  const bool wide = keys.boolean("use_double_wide_mlp").value_or(false);
  if (wide)
    keys.note("use_double_wide_mlp", "true", "layers that share KV have twice the MLP width");
  if (source.facts != nullptr && source.facts->name == "recurrent_gemma") {
    keys.note("intermediate_size", "halved", "class rule of recurrent_gemma: gate and up together");
  }
  bool unknown = false;
  std::optional<MlpShape> dense;  // of all layers, where they are alike
  const bool alike = !keys.length("intermediate_size");
  for (std::size_t i = 0; i < pattern.layers.size(); ++i) {
    const Plan& plan = pattern.layers[i];
    LayerShape& shape = config.shape.layers[i];
    if (plan.mlp || plan.ffn == Ffn::kNone) {
      shape.mlp = plan.mlp ? *plan.mlp : MlpShape{MlpKind::kNone};
      continue;
    }
    if (!gated) continue;
    if (plan.ffn == Ffn::kMixture || (plan.ffn == Ffn::kByIndex && mixed && by_index[i])) {
      shape.mlp = mixture;
      continue;
    }
    if (!alike || !dense) dense = read_dense(source, i, *gated, mixed);
    shape.mlp = dense;
    if (wide && shape.mlp && config.table.layers[i].kv_from) shape.mlp->intermediate_size *= 2;
    unknown = unknown || !shape.mlp;
  }
  if (unknown) keys.note("intermediate_size", "unknown", "figures of the MLP are null");
}

}  // namespace lacuna::config

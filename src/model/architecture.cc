#include "model/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// The entry, which is one text or one number; nullptr where it is absent.
const GgufEntry* find_one(const WeightFile& file, const std::string& key, bool is_text) {
  const GgufEntry* const entry = file.header().find(key);
  if (entry == nullptr) return nullptr;
  if (entry->is_array || (entry->type == GgufType::kString) != is_text) {
    throw Error(fmt::format("{}: {} is a {}{}; allowed: one {}", file.path(), key,
                            entry->is_array ? "list of " : "", to_string(entry->type),
                            is_text ? "text" : "number"));
  }
  return entry;
}

// Metadata of one file under its architecture's prefix.
class Metadata {
 public:
  Metadata(const WeightFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::optional<double> number(std::string_view key) const {
    const GgufEntry* const entry = find_one(file_, full(key), false);
    if (entry == nullptr) return std::nullopt;
    return gguf_real(file_.bytes(), *entry);
  }
  double positive(std::string_view key, std::optional<double> otherwise = std::nullopt) const {
    std::optional<double> value = number(key);
    if (!value) value = otherwise;
    if (!value) throw Error(fmt::format("{}: {} is absent", file_.path(), full(key)));
    if (!(*value > 0) || !std::isfinite(*value)) {
      throw Error(
          fmt::format("{}: {} is {}; allowed: positive numbers", file_.path(), full(key), *value));
    }
    return *value;
  }
  std::string text(std::string_view key, std::string otherwise) const {
    const GgufEntry* const entry = find_one(file_, full(key), true);
    if (entry == nullptr) return otherwise;
    return std::string(gguf_texts(file_.bytes(), *entry).front());
  }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

 private:
  const WeightFile& file_;
  std::string architecture_;
};

std::string architecture_name(const WeightFile& file) {
  constexpr std::array<std::string_view, 3> kKnown = {"llama", "gemma2", "gemma3"};
  const GgufEntry* const entry = find_one(file, "general.architecture", true);
  if (entry == nullptr) throw Error(file.path() + ": general.architecture is absent");
  std::string name(gguf_texts(file.bytes(), *entry).front());
  if (std::ranges::find(kKnown, name) == kKnown.end()) {
    throw Error(
        fmt::format("{}: general.architecture is '{}'; this program runs llama, gemma2 and "
                    "gemma3",
                    file.path(), name));
  }
  return name;
}

// Keys of an architecture that are read here or by the config's reader, or that change no result.
bool is_known(std::string_view architecture, std::string_view key) {
  constexpr std::string_view kAll[] = {"context_length",
                                       "embedding_length",
                                       "block_count",
                                       "feed_forward_length",
                                       "vocab_size",
                                       "attention.head_count",
                                       "attention.head_count_kv",
                                       "attention.layer_norm_rms_epsilon",
                                       "attention.key_length",
                                       "attention.value_length",
                                       "attention.sliding_window",
                                       "attention.sliding_window_pattern",
                                       "rope.freq_base",
                                       "rope.dimension_count",
                                       "rope.scaling.type",
                                       "rope.scaling.factor",
                                       "rope.scaling.original_context_length",
                                       "rope.scaling.finetuned",
                                       "tensor_data_layout"};
  if (std::ranges::find(kAll, key) != std::end(kAll)) return true;
  if (architecture == "gemma2") {
    return key == "attn_logit_softcapping" || key == "final_logit_softcapping";
  }
  return architecture == "gemma3" &&
         (key == "final_logit_softcapping" || key == "rope.freq_base_swa");
}

// What no figure of cost depends on may well change what a model answers.
void refuse_unknown_keys(const WeightFile& file, std::string_view architecture) {
  const std::string prefix = fmt::format("{}.", architecture);
  for (const GgufEntry& entry : file.header().entries) {
    const bool is_part = entry.key.starts_with("split.") || entry.key.starts_with("adapter.");
    const bool is_its_own = entry.key.starts_with(prefix);
    if (!is_part && (!is_its_own || is_known(architecture, entry.key.substr(prefix.size())))) {
      continue;
    }
    throw Error(
        fmt::format("{}: {} is not understood by the forward pass, so its results would be "
                    "wrong",
                    file.path(), entry.key));
  }
}

// One width of heads for all layers, softmax, a gated MLP.
void check_layers(const WeightFile& file, const ModelConfig& config) {
  const std::vector<LayerShape>& shapes = config.shape.layers;
  for (std::size_t idx = 0; idx < shapes.size(); ++idx) {
    const LayerShape& shape = shapes[idx];
    const auto refuse = [&](std::string_view what) {
      throw Error(
          fmt::format("{}: layer {} has {}; this program runs softmax attention with one "
                      "width of heads and a gated MLP in every layer",
                      file.path(), idx, what));
    };
    const Layer& layer = config.table.layers[idx];
    if (layer.mixer != Mixer::kSoftmax) refuse(to_string(layer.mixer));
    if (layer.kv_from) refuse("the keys of another layer");
    if (shape.learned_sink) refuse("learned sinks");
    if (!shape.mlp || shape.mlp->kind != MlpKind::kGated) refuse("an MLP that is not gated");
    if (shape.head_dim != shape.v_head_dim || shape.head_dim != shapes.front().head_dim) {
      refuse("heads of another width");
    }
  }
}

Rotary rotary_of(const Metadata& metadata, const WeightFile& file) {
  Rotary rotary = {metadata.positive("rope.freq_base", 10000), 1};
  // As llama.cpp reads it: a factor without a type is linear.
  const std::string scaling = metadata.text("rope.scaling.type", "linear");
  if (scaling == "linear") {
    rotary.factor = metadata.positive("rope.scaling.factor", 1);
  } else if (scaling != "none") {
    throw Error(fmt::format("{}: {} is '{}'; allowed: none, linear", file.path(),
                            metadata.full("rope.scaling.type"), scaling));
  }
  return rotary;
}

void set_gemma(Architecture& to, const Metadata& metadata, const ModelConfig& config) {
  to.activation = Activation::kGeluTanh;
  to.embedding_scale = std::sqrt(static_cast<float>(to.hidden_size));
  to.norms_after = true;
  to.rotates_neighbours = false;
  // The models of 27B scale by another width than their heads', which no key says.
  const std::size_t layers_of_27b = to.name == "gemma2" ? 46 : 62;
  if (config.shape.layers.size() == layers_of_27b) {
    to.sm_scale = 1 / std::sqrt(static_cast<float>(to.hidden_size) /
                                static_cast<float>(config.shape.layers.front().num_q_heads));
  }
  if (to.name == "gemma2") {
    to.attention_softcap = static_cast<float>(metadata.positive("attn_logit_softcapping", 50));
    to.logit_softcap = static_cast<float>(metadata.positive("final_logit_softcapping", 30));
    return;
  }
  to.norms_heads = true;
  if (metadata.number("final_logit_softcapping").value_or(0) != 0) {
    to.logit_softcap = static_cast<float>(metadata.positive("final_logit_softcapping"));
  }
  // Layers with a window have a base of their own, a constant of the architecture in most files.
  const double local_base = metadata.positive("rope.freq_base_swa", 10000);
  const Attend full = parse_layers("full", 1, true).layers.front().attend;
  for (std::size_t layer = 0; layer < to.rotary.size(); ++layer) {
    if (config.table.layers[layer].attend != full) to.rotary[layer] = {local_base, 1};
  }
}

}  // namespace

Architecture read_architecture(const WeightFile& file, const ModelConfig& config) {
  check_layers(file, config);
  Architecture result;
  result.name = architecture_name(file);
  refuse_unknown_keys(file, result.name);
  const Metadata metadata(file, result.name);
  const std::int64_t head_dim = config.shape.layers.front().head_dim;
  result.hidden_size = config.shape.hidden_size.value_or(0);
  result.vocab_size = config.shape.vocab_size.value_or(0);
  result.norm_epsilon = static_cast<float>(metadata.positive("attention.layer_norm_rms_epsilon"));
  result.rotary.assign(config.table.layers.size(), rotary_of(metadata, file));
  const double turned = metadata.positive("rope.dimension_count", static_cast<double>(head_dim));
  if (turned != static_cast<double>(head_dim) || head_dim % 2 != 0) {
    throw Error(fmt::format("{}: {} is {}; allowed: the width of a head, {}, which is even",
                            file.path(), metadata.full("rope.dimension_count"), turned, head_dim));
  }
  result.sm_scale = 1 / std::sqrt(static_cast<float>(head_dim));
  result.rotates_neighbours = true;
  if (file.has("rope_freqs.weight")) {
    result.rotary_divisors = file.vector("rope_freqs.weight", head_dim / 2);
    for (const float divisor : result.rotary_divisors) {
      if (divisor > 0 && std::isfinite(divisor)) continue;
      throw Error(fmt::format("{}: rope_freqs.weight has {}; allowed: positive numbers",
                              file.path(), divisor));
    }
  }
  if (result.name != "llama") set_gemma(result, metadata, config);
  return result;
}

}  // namespace lacuna

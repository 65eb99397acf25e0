#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <variant>

#include "lacuna/config.h"
#include "lacuna/error.h"

// For the tests of this folder: the real configs, and the specification's arithmetic written out
// anew.
namespace lacuna::config_test {

inline const nlohmann::json& models() {
  static const nlohmann::json kModels = [] {
    std::ifstream file(std::string(LACUNA_TEST_DATA) + "/configs/model-configs.json");
    std::stringstream text;
    text << file.rdbuf();
    return nlohmann::json::parse(text.str());
  }();
  return kModels;
}

inline const nlohmann::json& config_of(const std::string& name) {
  return models().at(name).at("config");
}

inline ModelConfig read(const nlohmann::json& config, const Assumptions& assume = {}) {
  return read_config_json(config.dump(), "config.json", assume);
}
inline ModelConfig read_named(const std::string& name, const Assumptions& assume = {}) {
  return read(config_of(name), assume);
}

// The message of the Error that reading ends in, or "" where it is read.
inline std::string error_of(const nlohmann::json& config, const Assumptions& assume = {}) {
  try {
    read(config, assume);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The only term of a layer's only head group, or nullptr where the layer holds another.
template <typename T>
const T* only_term(const ModelConfig& model, std::size_t layer) {
  const Attend& attend = model.table.layers.at(layer).attend;
  if (attend.groups.size() != 1 || attend.groups[0].attend.size() != 1) return nullptr;
  return std::get_if<T>(&attend.groups[0].attend[0]);
}

// How a layer keeps KV, in the golden file's words.
inline std::string kind_of(const ModelConfig& model, std::size_t layer) {
  switch (model.table.layers[layer].mixer) {
    case Mixer::kMla:
      return "mla";
    case Mixer::kLinear:
      return "linear";
    case Mixer::kSsm:
      return "ssm";
    case Mixer::kNone:
      return "ffn";
    case Mixer::kSoftmax:
      break;
  }
  if (only_term<Window>(model, layer) != nullptr) return "window";
  if (only_term<Chunk>(model, layer) != nullptr) return "chunk";
  if (only_term<VerticalBlocks>(model, layer) != nullptr) return "blocksparse";
  return "full";
}

inline std::map<std::string, int> kinds(const ModelConfig& model) {
  std::map<std::string, int> count;
  for (std::size_t i = 0; i < model.table.layers.size(); ++i) {
    if (!model.table.layers[i].kv_from) ++count[kind_of(model, i)];
  }
  return count;
}

// bf16 bytes of one token in one layer: K and V of each KV head, or one latent.
inline std::int64_t token_bytes(const ModelConfig& model, std::size_t layer) {
  const Layer& row = model.table.layers[layer];
  const LayerShape& shape = model.shape.layers[layer];
  if (row.kv_from) return 0;
  if (row.mixer == Mixer::kSoftmax)
    return 2 * shape.num_kv_heads * (shape.head_dim + shape.v_head_dim);
  if (row.mixer == Mixer::kMla)
    return 2 * (shape.latent->kv_lora_rank + shape.latent->qk_rope_head_dim);
  return 0;
}

// Tokens that a one-token step at this length still needs, its own included.
inline std::int64_t kept_tokens(const ModelConfig& model, std::size_t layer, std::int64_t length) {
  if (const auto* window = only_term<Window>(model, layer))
    return std::min(length, window->left + 1);
  if (const auto* chunk = only_term<Chunk>(model, layer)) return (length - 1) % chunk->c + 1;
  return length;
}

inline std::int64_t all_token_bytes(const ModelConfig& model) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < model.table.layers.size(); ++i) sum += token_bytes(model, i);
  return sum;
}

inline std::int64_t held_bytes(const ModelConfig& model, std::int64_t length) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < model.table.layers.size(); ++i) {
    sum += token_bytes(model, i) * kept_tokens(model, i, length);
  }
  return sum;
}

// A small model of some class, for what real ones do not show.
inline nlohmann::json tiny(const std::string& model_type) {
  return {{"model_type", model_type}, {"num_hidden_layers", 8},         {"hidden_size", 64},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},       {"intermediate_size", 128},
          {"vocab_size", 1000},       {"max_position_embeddings", 4096}};
}

// F full, W window, C chunk, S state, - none.
inline std::string letters(const ModelConfig& model) {
  std::string out;
  for (std::size_t i = 0; i < model.table.layers.size(); ++i) {
    const std::string kind = kind_of(model, i);
    out += kind == "window"                    ? 'W'
           : kind == "chunk"                   ? 'C'
           : kind == "linear" || kind == "ssm" ? 'S'
           : kind == "ffn"                     ? '-'
                                               : 'F';
  }
  return out;
}

inline std::string note_of(const ModelConfig& model, const std::string& key) {
  for (const ConfigNote& note : model.notes) {
    if (note.key == key) return note.value + " | " + note.reason;
  }
  return "";
}

inline bool ignores(const ModelConfig& model, const std::string& key) {
  for (const std::string& ignored : model.ignored_keys) {
    if (ignored == key) return true;
  }
  return false;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lacuna::config_test

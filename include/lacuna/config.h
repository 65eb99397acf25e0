#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/layer_table.h"
#include "lacuna/shape.h"

namespace lacuna {

// What a reader did that the file did not say: shown to the user, never silent.
struct ConfigNote {
  std::string key;     // the key, as the dialect spells it
  std::string value;   // what was used
  std::string reason;  // "class default of gemma3_text (source …)", "assumed by the user", …
};

// A model's own topology and sizes, read from its config.
struct ModelConfig {
  LayerTable table;
  ModelShape shape;
  std::string source;             // "config.json" or "gguf"
  std::string window_convention;  // which keys a window names in this dialect, for every table
  std::vector<ConfigNote> notes;  // defaults, assumptions, derived values
  std::vector<std::string> ignored_keys;  // keys that no figure depends on
};

// Values that stand in for keys which are absent or not understood: --assume key=value, the value
// as JSON or as a bare text. A key given here wins over the file; one that the reader never asks
// for, or that another key overrules, is an Error. `ignore` reads the file as if it had no such
// key, understood or not; `null` switches the key off. In a GGUF file a key has its architecture's
// prefix. Two keys no file has: `mlp` (gated or plain) and `window_each_side` (keys on each side of
// the query where use_bidirectional_attention is true).
using Assumptions = std::map<std::string, std::string>;

// Reads a model's config: a config.json, a folder that holds one (or one .gguf), or a .gguf file.
// Throws Error naming the file, the key, its value and what was understood.
ModelConfig read_model(const std::string& path, const Assumptions& assume = {});

// The two readers on bytes; `name` stands in error messages. Input is hostile: checked arithmetic,
// counts capped by the bytes that are left, no allocation from an unchecked size.
ModelConfig read_config_json(std::string_view json, const std::string& name,
                             const Assumptions& assume = {});
ModelConfig read_gguf_config(std::span<const std::uint8_t> bytes, const std::string& name,
                             const Assumptions& assume = {});

}  // namespace lacuna

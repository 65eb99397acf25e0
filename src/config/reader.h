#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/class_facts.h"
#include "config/keys.h"
#include "lacuna/config.h"

// The stations of the config.json reader. Each asks Keys for what it needs; nothing else is shared.
namespace lacuna::config {

// What the pattern of a config says of one layer.
enum class Kind {
  kFull,
  kWindow,
  kChunk,
  kSelected,  // keys chosen at run time, or a block pattern: `attend` says which
  kState,     // a finite state: linear attention, state space, recurrence
  kNone,      // no attention
};
enum class Ffn { kByIndex, kNone, kDense, kMixture };  // kByIndex: the mixture's own keys decide

struct Plan {
  Kind kind = Kind::kFull;
  Union attend;  // empty for kState and kNone
  Ffn ffn = Ffn::kByIndex;
  std::string rope;
  std::optional<int> num_kv_heads;  // where the layer has its own (NAS)
  std::optional<MlpShape> mlp;      // likewise
};

struct Pattern {
  std::vector<Plan> layers;
  bool causal = true;
  std::string decided_by;  // the key that decided, or "class"
  std::string convention;  // which keys a window or chunk names
};

// What every station reads from.
struct Source {
  Keys& keys;
  const ClassFacts* facts;  // nullptr: a class that is not known
  int num_layers = 0;
  bool bidirectional = false;
};

// json_layers.cc: the kinds of all layers, from whichever spelling the file has.
Pattern read_pattern(Source& source);
// The window that is in force, or nullopt; what a switch turns off is noted.
std::optional<std::int64_t> active_window(Source& source);
// Throws Error where a list for all layers has another length than they and their prediction
// layers.
void check_length(Source& source, std::string_view key, std::size_t length);
// Rejects a value that is no known word, with a near miss.
[[noreturn]] void unknown_word(const Keys& keys, std::string_view key, const std::string& word,
                               const std::vector<std::string>& words);

// json_spellings.cc: the readers of single spellings.
struct Spelling {
  std::string_view key;
  std::vector<Plan> (*read)(Source&, std::string_view key);
  bool names_windows;  // its full layers are full even where a window is in force
};
const std::vector<Spelling>& spellings();

// json_blocks.cc: patterns that fill in whole layers: block sparsity, NAS blocks, encoders.
std::vector<Plan> read_vertical_blocks(Source& source, std::string_view key);
std::vector<Plan> read_selected_blocks(Source& source, std::string_view key);
std::vector<Plan> read_block_configs(Source& source, std::string_view key);
std::optional<Pattern> read_encoder(Source& source);

// json_shapes.cc: heads, widths, latents, states, selectors; and who shares whose KV or choice of
// keys.
void read_shapes(Source& source, const Pattern& pattern, ModelConfig& config);
StateShape read_state(Source& source, const Pattern& pattern, Mixer* mixer);

// json_mlp.cc: dense and mixture MLPs of all layers.
void read_mlps(Source& source, const Pattern& pattern, ModelConfig& config);

inline Union full_union() { return {Term{Full{}}}; }
inline Plan full_plan() { return Plan{Kind::kFull, full_union(), Ffn::kByIndex, "", {}, {}}; }
inline Plan plan_of(Kind kind, Union attend = {}) {
  return Plan{kind, std::move(attend), Ffn::kByIndex, "", {}, {}};
}

}  // namespace lacuna::config

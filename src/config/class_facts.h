#pragma once

#include <span>
#include <string_view>

#include "config/keys.h"

namespace lacuna::config {

// Which layers slide where the file has a window and no pattern.
enum class Slides {
  kUnknown,      // the class does not say: refused
  kAll,          // every layer
  kNotLast,      // every layer but the last of each group of `period`
  kFromLayer,    // layers i >= max_window_layers, where use_sliding_window is true
  kChunks,       // Llama 4: chunks where no_rope_layers says RoPE
  kInterval,     // no windows: finite-state layers but the last of each group of `period`
  kBlockTypes,   // RecurrentGemma: recurrent, recurrent, attention
  kGlobalLocal,  // GPT-Neo: global, local
};

enum class Mlp { kUnknown, kGated, kPlain };

// What a model class decides beside the file, with the source of it. Consulted only where the file
// is silent; every use becomes a note.
struct ClassFacts {
  std::string_view name;    // model_type
  std::string_view source;  // where the facts were read
  Mlp mlp = Mlp::kUnknown;
  Slides slides = Slides::kUnknown;
  int period = 0;
  bool last_layer_full = false;  // whatever the pattern says
  bool encoder = false;          // both directions, no cache
  bool learned_sinks = false;    // one softmax logit a query head in every layer
  std::span<const ClassDefault> defaults = {};
  // A key without which the class's layers cannot be told apart; "": the file may leave it out.
  std::string_view needs = {};
};

// The facts of a model_type, or nullptr. Variants with the same rules (`_moe`, `_text`) share a
// row.
const ClassFacts* find_class(std::string_view model_type);
// The same from a class name such as MistralForCausalLM.
const ClassFacts* find_class_of_architecture(std::string_view architecture);

}  // namespace lacuna::config

// One reader for each way in which configs spell what their layers attend to. A reader looks at no
// model name; json_layers.cc decides which spelling counts where a file has several.
#include <fmt/format.h>

#include "config/reader.h"
#include "lacuna/error.h"

namespace lacuna::config {
namespace {

using Plans = std::vector<Plan>;

Plan plan_of_word(Source& source, std::string_view key, const std::string& word) {
  struct Word {
    std::string_view word;
    Kind kind;
    Ffn ffn;
  };
  static constexpr Word kWords[] = {
      {"full_attention", Kind::kFull, Ffn::kByIndex},
      {"attention", Kind::kFull, Ffn::kByIndex},
      {"global", Kind::kFull, Ffn::kByIndex},
      {"global_attention", Kind::kFull, Ffn::kByIndex},
      {"deepseek_sparse_attention", Kind::kFull, Ffn::kByIndex},
      {"sliding_attention", Kind::kWindow, Ffn::kByIndex},
      {"local", Kind::kWindow, Ffn::kByIndex},
      {"chunked_attention", Kind::kChunk, Ffn::kByIndex},
      {"linear_attention", Kind::kState, Ffn::kByIndex},
      {"mamba", Kind::kState, Ffn::kByIndex},
      {"mamba2", Kind::kState, Ffn::kByIndex},
      {"recurrent", Kind::kState, Ffn::kByIndex},
      {"moe", Kind::kNone, Ffn::kMixture},
      {"mlp", Kind::kNone, Ffn::kDense},
  };
  for (const Word& known : kWords) {
    if (known.word != word) continue;
    Plan plan = plan_of(known.kind);
    plan.ffn = known.ffn;
    if (word == "deepseek_sparse_attention" && !source.keys.present("index_topk")) {
      source.keys.fail(key, "deepseek_sparse_attention needs index_topk");
    }
    return plan;
  }
  std::vector<std::string> words;
  for (const Word& known : kWords) words.emplace_back(known.word);
  unknown_word(source.keys, key, word, words);
}

Plans read_words(Source& source, std::string_view key) {
  const auto layers = static_cast<std::size_t>(source.num_layers);
  // An assumption may be one word for every layer.
  if (const Value* value = source.keys.find(key); value != nullptr && value->text() != nullptr) {
    return Plans(layers, plan_of_word(source, key, *value->text()));
  }
  const auto words = source.keys.texts(key);
  check_length(source, key, words->size());
  Plans plans;
  for (std::size_t i = 0; i < layers; ++i) plans.push_back(plan_of_word(source, key, (*words)[i]));
  return plans;
}

// Nemotron-H's layers are a mixer or an MLP, never both.
void keep_one_part(Plans& plans) {
  bool split = false;
  for (const Plan& plan : plans) split = split || plan.kind == Kind::kNone;
  if (!split) return;
  for (Plan& plan : plans) {
    if (plan.kind != Kind::kNone) plan.ffn = Ffn::kNone;
  }
}

Plans read_block_words(Source& source, std::string_view key) {
  Plans plans = read_words(source, key);
  keep_one_part(plans);
  return plans;
}

Plans read_letters(Source& source, std::string_view key) {
  const Value* value = source.keys.find(key);
  std::string letters;
  if (const std::string* text = value->text()) {
    letters = *text;
  } else {
    const auto items = source.keys.texts(key);
    for (const std::string& item : *items) {
      if (item.size() != 1) source.keys.fail(key, "allowed are the letters M, *, E and -");
      letters += item;
    }
  }
  check_length(source, key, letters.size());
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    switch (letters[static_cast<std::size_t>(layer)]) {
      case 'M':
        plans.push_back(plan_of(Kind::kState));
        break;
      case '*':
        plans.push_back(plan_of(Kind::kFull));
        break;
      case 'E':
        plans.push_back(plan_of(Kind::kNone));
        plans.back().ffn = Ffn::kMixture;
        break;
      case '-':
        plans.push_back(plan_of(Kind::kNone));
        plans.back().ffn = Ffn::kDense;
        break;
      default:
        source.keys.fail(key, "allowed are the letters M, *, E and -");
    }
    if (plans.back().kind != Kind::kNone) plans.back().ffn = Ffn::kNone;
  }
  return plans;
}

// A list with 0 and 1 for each layer.
Plans read_flags(Source& source, std::string_view key, Kind zero, Kind one) {
  const auto flags = source.keys.integers(key, 0, 1);
  check_length(source, key, flags->size());
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back(plan_of((*flags)[static_cast<std::size_t>(layer)] == 1 ? one : zero));
  }
  return plans;
}

Plans read_sliding_flags(Source& source, std::string_view key) {
  return read_flags(source, key, Kind::kFull, Kind::kWindow);
}
Plans read_softmax_flags(Source& source, std::string_view key) {
  return read_flags(source, key, Kind::kState, Kind::kFull);
}

// Every layer is `most` but the last of each group of `period`.
Plans read_period(Source& source, std::int64_t period, Kind most) {
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back(plan_of((layer + 1) % period == 0 ? Kind::kFull : most));
  }
  return plans;
}

Plans read_sliding_pattern(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const Value* value = keys.find(key);
  if (const std::string* text = value->text()) {
    if (text->empty()) keys.fail(key, "allowed are a period, and a text of the letters L and G");
    Plans plans;
    for (int layer = 0; layer < source.num_layers; ++layer) {
      const char letter = (*text)[static_cast<std::size_t>(layer) % text->size()];
      if (letter != 'L' && letter != 'G') keys.fail(key, "allowed are the letters L and G");
      plans.push_back(plan_of(letter == 'L' ? Kind::kWindow : Kind::kFull));
    }
    if (plans.back().kind == Kind::kWindow) {
      plans.back().kind = Kind::kFull;
      keys.note(std::string(key), to_text(*value),
                "the last layer is global whatever the letters say");
    }
    return plans;
  }
  if (value->list() != nullptr) return read_sliding_flags(source, key);
  return read_period(source, keys.need(key, 1, kMaxLayers), Kind::kWindow);
}

Plans read_interval(Source& source, std::string_view key) {
  return read_period(source, source.keys.need(key, 1, kMaxLayers), Kind::kState);
}

Plans read_tile(Source& source, std::string_view key) {
  const auto words = source.keys.texts(key);
  if (words->empty()) source.keys.fail(key, "an empty list of block types");
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    const std::string& word = (*words)[static_cast<std::size_t>(layer) % words->size()];
    if (word != "recurrent" && word != "attention") {
      unknown_word(source.keys, key, word, {"recurrent", "attention"});
    }
    // Griffin's attention blocks are local: attention_window_size.
    plans.push_back(plan_of(word == "recurrent" ? Kind::kState : Kind::kWindow));
  }
  return plans;
}

// [[["global", "local"], 12], …]
Plans read_nested_types(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const std::string allowed = "allowed is [[[\"global\" or \"local\", …], count], …]";
  const Value::List* groups = keys.find(key)->list();
  if (groups == nullptr) keys.fail(key, allowed);
  Plans plans;
  for (const Value& group : *groups) {
    const Value::List* pair = group.list();
    if (pair == nullptr || pair->size() != 2) keys.fail(key, allowed);
    const Value::List* words = (*pair)[0].list();
    const std::int64_t* count = (*pair)[1].integer();
    if (words == nullptr || words->empty() || count == nullptr || *count < 1 ||
        *count > kMaxLayers) {
      keys.fail(key, allowed);
    }
    for (std::int64_t i = 0; i < *count; ++i) {
      for (const Value& word : *words) {
        if (word.text() == nullptr) keys.fail(key, allowed);
        if (plans.size() > static_cast<std::size_t>(kMaxLayers)) keys.fail(key, allowed);
        plans.push_back(plan_of_word(source, key, *word.text()));
      }
    }
  }
  if (plans.size() != static_cast<std::size_t>(source.num_layers)) {
    keys.fail(key, fmt::format("it names {} layers of {}", plans.size(), source.num_layers));
  }
  return plans;
}

// Kimi: two lists, counted from 1, that share out all layers.
Plans read_linear_lists(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const std::string full_key = std::string(key) + ".full_attn_layers";
  const std::string linear_key = std::string(key) + ".kda_layers";
  const auto full = keys.integers(full_key, 1, source.num_layers);
  const auto linear = keys.integers(linear_key, 1, source.num_layers);
  if (!full) keys.fail(full_key, "a list of layers, counted from 1, is needed");
  if (!linear) keys.fail(linear_key, "a list of layers, counted from 1, is needed");
  std::vector<int> named(static_cast<std::size_t>(source.num_layers), 0);
  Plans plans(named.size(), plan_of(Kind::kState));
  for (const std::int64_t layer : *full) {
    ++named[static_cast<std::size_t>(layer - 1)];
    plans[static_cast<std::size_t>(layer - 1)] = plan_of(Kind::kFull);
  }
  for (const std::int64_t layer : *linear) ++named[static_cast<std::size_t>(layer - 1)];
  for (std::size_t layer = 0; layer < named.size(); ++layer) {
    if (named[layer] == 1) continue;
    keys.fail(full_key,
              fmt::format("layer {} (counted from 1) stands {} times in full_attn_layers and "
                          "kda_layers together: each layer once",
                          layer + 1, named[layer]));
  }
  keys.note(std::string(key), fmt::format("{} of {} layers", full->size(), source.num_layers),
            "the lists are counted from 1");
  return plans;
}

// Jamba: attention where i mod period = offset, the rest a state.
Plans read_attention_period(Source& source, std::string_view key) {
  const std::int64_t period = source.keys.need(key, 1, kMaxLayers);
  const std::int64_t offset = source.keys.need("attn_layer_offset", 0, period - 1);
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back(plan_of(layer % period == offset ? Kind::kFull : Kind::kState));
  }
  return plans;
}

// Bamba: the attention layers, counted from 0; the rest a state.
Plans read_attention_indices(Source& source, std::string_view key) {
  Plans plans(static_cast<std::size_t>(source.num_layers), plan_of(Kind::kState));
  const auto indices = source.keys.integers(key, 0, source.num_layers - 1);
  for (const std::int64_t layer : *indices) {
    plans[static_cast<std::size_t>(layer)] = plan_of(Kind::kFull);
  }
  return plans;
}

}  // namespace

const std::vector<Spelling>& spellings() {
  // layer_types is canonical and wins over any stray spelling, so it stands first.
  static const std::vector<Spelling> kSpellings = {
      {"layer_types", read_block_words, true},
      {"layers_block_type", read_block_words, false},
      {"sliding_window_pattern", read_sliding_pattern, true},
      {"_sliding_window_pattern", read_sliding_pattern, true},
      {"hybrid_layer_pattern", read_sliding_flags, true},   // MiMo: 1 slides
      {"sliding_window_layout", read_sliding_flags, true},  // SmallThinker: 1 slides
      {"attention_layers", read_words, true},               // GPT-Neo, expanded
      {"attention_types", read_nested_types, true},         // GPT-Neo
      {"_block_types", read_tile, true},                    // RecurrentGemma
      {"block_types", read_tile, true},
      {"attn_type_list", read_softmax_flags, false},          // MiniMax: 0 linear, 1 softmax
      {"hybrid_override_pattern", read_letters, false},       // Nemotron-H
      {"full_attention_interval", read_interval, false},      // Qwen3-Next
      {"linear_attn_config", read_linear_lists, false},       // Kimi
      {"attn_layer_period", read_attention_period, false},    // Jamba
      {"attn_layer_indices", read_attention_indices, false},  // Bamba
      {"dense_attention_every_n_layers", read_vertical_blocks, false},  // Phi-3-small
      {"sparse_attention_config", read_selected_blocks, false},         // MiniMax-M3
      {"block_configs", read_block_configs, false},                     // NAS
  };
  return kSpellings;
}

}  // namespace lacuna::config

// Which spelling decides the kinds of all layers, and what windows and chunks they name.
#include <fmt/format.h>

#include "config/reader.h"
#include "lacuna/error.h"

namespace lacuna::config {
namespace {

using Plans = std::vector<Plan>;

bool has(const Plans& plans, Kind kind) {
  for (const Plan& plan : plans) {
    if (plan.kind == kind) return true;
  }
  return false;
}

// A windowed layer whose spelling does not bring the window with it.
bool needs_window(const Plans& plans) {
  for (const Plan& plan : plans) {
    if (plan.kind == Kind::kWindow && plan.attend.empty()) return true;
  }
  return false;
}

bool same_kinds(const Plans& a, const Plans& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind) return false;
  }
  return a.size() == b.size();
}

// The spelling that decides, its plans, and a check of every other spelling that the file has.
struct Decision {
  const Spelling* spelling = nullptr;
  Plans plans;
};

Decision decide(Source& source) {
  Decision decision;
  for (const Spelling& spelling : spellings()) {
    if (!source.keys.present(spelling.key)) continue;
    if (decision.spelling == nullptr) {
      decision.spelling = &spelling;
      decision.plans = spelling.read(source, spelling.key);
    } else if (decision.spelling->key == "layer_types") {
      // The states' sizes may stand in the same object: only the pattern in it is superseded.
      if (spelling.key != "linear_attn_config") {
        source.keys.understood(spelling.key, "layer_types wins over other spellings");
      }
    } else if (!same_kinds(decision.plans, spelling.read(source, spelling.key))) {
      source.keys.fail(spelling.key,
                       fmt::format("it disagrees with {}: which layers are which is in "
                                   "doubt; --assume {}=ignore drops it",
                                   decision.spelling->key, spelling.key));
    }
  }
  return decision;
}

Plans period_plans(Source& source, int period, Kind most) {
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back(plan_of((layer + 1) % period == 0 ? Kind::kFull : most));
  }
  return plans;
}

void note_class(Source& source, std::string_view key, const std::string& value) {
  source.keys.note(
      std::string(key), value,
      fmt::format("class default of {} ({})", source.facts->name, source.facts->source));
}

// Qwen2: layers from max_window_layers on slide. The switch use_sliding_window is on.
Plans plans_from_layer(Source& source) {
  const std::int64_t first = source.keys.need("max_window_layers", 0, kMaxSize);
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back(plan_of(layer >= first ? Kind::kWindow : Kind::kFull));
  }
  source.keys.note(
      "max_window_layers", fmt::format("{}", first),
      fmt::format("layers {} and above slide, {} of {}", first,
                  std::max<std::int64_t>(0, source.num_layers - first), source.num_layers));
  return plans;
}

// Llama 4: the layers with RoPE are chunked. An empty list is as good as none.
Plans plans_of_chunks(Source& source) {
  if (source.keys.length("no_rope_layers").value_or(0) > 0) {
    const auto flags = source.keys.integers("no_rope_layers", 0, 1);
    check_length(source, "no_rope_layers", flags->size());
    Plans plans;
    for (int layer = 0; layer < source.num_layers; ++layer) {
      const bool rope = (*flags)[static_cast<std::size_t>(layer)] == 1;
      plans.push_back(plan_of(rope ? Kind::kChunk : Kind::kFull));
    }
    return plans;
  }
  const auto interval = static_cast<int>(source.keys.need("no_rope_layer_interval", 1, kMaxLayers));
  return period_plans(source, interval, Kind::kChunk);
}

Plans class_plans(Source& source, const std::optional<std::int64_t>& window) {
  const auto layers = static_cast<std::size_t>(source.num_layers);
  const Plans all_full(layers, full_plan());
  const Slides slides = source.facts == nullptr ? Slides::kUnknown : source.facts->slides;
  switch (slides) {
    case Slides::kChunks:
      return source.keys.find("attention_chunk_size") == nullptr ? all_full
                                                                 : plans_of_chunks(source);
    case Slides::kInterval:
      note_class(source, "full_attention_interval", fmt::format("{}", source.facts->period));
      return period_plans(source, source.facts->period, Kind::kState);
    case Slides::kBlockTypes:
      note_class(source, "block_types", "recurrent, recurrent, attention");
      {
        Plans plans = period_plans(source, 3, Kind::kState);
        for (Plan& plan : plans) {
          if (plan.kind == Kind::kFull) plan.kind = Kind::kWindow;
        }
        return plans;
      }
    case Slides::kGlobalLocal:
      note_class(source, "attention_types", "global, local");
      {
        Plans plans;
        for (int layer = 0; layer < source.num_layers; ++layer) {
          plans.push_back(plan_of(layer % 2 == 0 ? Kind::kFull : Kind::kWindow));
        }
        return plans;
      }
    default:
      break;
  }
  if (!window) return all_full;
  if (slides == Slides::kNotLast) {
    note_class(source, "sliding_window_pattern", fmt::format("{}", source.facts->period));
    return period_plans(source, source.facts->period, Kind::kWindow);
  }
  if (slides == Slides::kAll) return Plans(layers, plan_of(Kind::kWindow));
  if (slides == Slides::kFromLayer || source.keys.present("max_window_layers")) {
    return plans_from_layer(source);
  }
  source.keys.fail(
      "sliding_window",
      "which layers slide is said by no key (layer_types, sliding_window_pattern, …) and "
      "by no known class; --assume layer_types=sliding_attention lets all of them slide, "
      "--assume sliding_window_pattern=N all but every N-th, --assume "
      "sliding_window=null none");
}

// attention_chunk_size where no layer is chunked: MiMo repeats its window there.
void check_stray_chunk(Source& source, const Plans& plans,
                       const std::optional<std::int64_t>& window) {
  constexpr std::string_view kKey = "attention_chunk_size";
  if (has(plans, Kind::kChunk) || !source.keys.present(kKey)) return;
  const auto chunk = source.keys.integer(kKey);
  if (has(plans, Kind::kWindow) && chunk == window) {
    source.keys.note(std::string(kKey), fmt::format("{}", *chunk),
                     "no layer is chunked: it repeats the window");
    return;
  }
  source.keys.fail(kKey,
                   "which layers are chunked is not said; allowed are layer_types with "
                   "chunked_attention, the Llama 4 classes, and --assume "
                   "attention_chunk_size=null");
}

std::optional<std::int64_t> window_of_kind(Source& source, const Decision& decision) {
  // GPT-Neo and RecurrentGemma have the window under keys of their own.
  const std::string_view by = decision.spelling != nullptr ? decision.spelling->key : "";
  const Slides slides = source.facts == nullptr ? Slides::kUnknown : source.facts->slides;
  if (by == "attention_types" || by == "attention_layers" || slides == Slides::kGlobalLocal) {
    return source.keys.need("window_size");
  }
  if (by == "_block_types" || by == "block_types" || slides == Slides::kBlockTypes) {
    return source.keys.need("attention_window_size");
  }
  return active_window(source);
}

void fill_window(Source& source, Plan& plan, std::int64_t window) {
  if (!source.bidirectional) {
    plan.attend = {Term{Window{window - 1, 0}}};
    return;
  }
  const auto half = source.keys.integer("window_each_side", 0, kMaxSize);
  if (!half) {
    source.keys.fail(
        "use_bidirectional_attention",
        "implementations differ in how many keys a window then has on each side; "
        "--assume window_each_side=N decides, --assume use_bidirectional_attention=false "
        "reads the causal model");
  }
  plan.attend = {Term{Window{*half, *half}}};
}

void fill(Source& source, Pattern& pattern, const std::optional<std::int64_t>& window) {
  for (Plan& plan : pattern.layers) {
    if (!plan.attend.empty()) continue;
    if (plan.kind == Kind::kFull) plan.attend = full_union();
    if (plan.kind == Kind::kWindow) fill_window(source, plan, *window);
    if (plan.kind == Kind::kChunk) {
      plan.attend = {Term{Chunk{source.keys.need("attention_chunk_size")}}};
    }
  }
}

// Where no window is in force a pattern of windows says nothing: EXAONE-4 1.2B keeps "LLLG".
void drop_windows(Source& source, const Decision& decision, Plans& plans) {
  const std::string_view by = decision.spelling != nullptr ? decision.spelling->key : "class";
  if (by == "layer_types" || by == "layers_block_type") {
    source.keys.fail("sliding_window",
                     fmt::format("{} has sliding_attention layers: they need a window", by));
  }
  source.keys.note(std::string(by), "no windows",
                   "no sliding_window is in force: all layers are full");
  for (Plan& plan : plans) {
    if (plan.kind == Kind::kWindow) plan = full_plan();
  }
}

void force_last_full(Source& source, const Decision& decision, Plans& plans) {
  if (source.facts == nullptr || !source.facts->last_layer_full) return;
  // Gemma 4's class does so even where layer_types says otherwise; for others the list is the
  // truth.
  const bool always = source.facts->name.substr(0, 6) == "gemma4";
  if (decision.spelling != nullptr && decision.spelling->key == "layer_types" && !always) return;
  if (plans.back().kind != Kind::kWindow) return;
  plans.back() = full_plan();
  source.keys.note(
      "layer_types", "full_attention",
      fmt::format("{} makes the last layer full ({})", source.facts->name, source.facts->source));
}

// no_rope_layers: 1 = RoPE. Where it selects no chunks it changes positions only.
void read_rope(Source& source, Plans& plans) {
  constexpr std::string_view kKey = "no_rope_layers";
  const std::int64_t length = source.keys.length(kKey).value_or(0);
  if (length > 0) {
    const auto flags = source.keys.integers(kKey, 0, 1);
    check_length(source, kKey, flags->size());
    for (std::size_t i = 0; i < plans.size(); ++i) plans[i].rope = (*flags)[i] == 1 ? "" : "none";
    return;
  }
  source.keys.understood(kKey, "an empty list: the interval decides");
  const bool class_says = source.facts != nullptr && (source.facts->slides == Slides::kChunks ||
                                                      source.facts->name == "smollm3");
  if (!class_says && !source.keys.present("no_rope_layer_interval")) return;
  const std::int64_t interval = source.keys.need("no_rope_layer_interval", 1, kMaxLayers);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if ((static_cast<std::int64_t>(i) + 1) % interval == 0) plans[i].rope = "none";
  }
}

std::string convention_of(const Plans& plans, bool bidirectional,
                          const std::optional<std::int64_t>& window) {
  std::string text;
  if (has(plans, Kind::kWindow) && bidirectional) {
    text = "the window counts keys on each side of the query, as assumed";
  } else if (has(plans, Kind::kWindow)) {
    text = "the window counts the query itself: query q reads keys q-W+1 .. q";
    if (window) text += fmt::format(", W = {} keys", *window);
    text += " (the Hugging Face mask, llama.cpp, vLLM)";
  }
  if (has(plans, Kind::kChunk)) {
    text =
        "attention_chunk_size c is a chunk, no sliding window: query q reads keys floor(q/c)*c .. "
        "q";
  }
  if (has(plans, Kind::kSelected)) {
    text = "no sliding window; chosen keys and blocks count the query's own";
  }
  if (text.empty()) text = "no window: query q reads keys 0 .. q";
  return text;
}

}  // namespace

[[noreturn]] void unknown_word(const Keys& keys, std::string_view key, const std::string& word,
                               const std::vector<std::string>& words) {
  std::string allowed;
  for (const std::string& known : words) allowed += (allowed.empty() ? "" : ", ") + known;
  keys.fail(key, fmt::format("it holds '{}'; allowed are {}{}", word.substr(0, 60), allowed,
                             word.size() > 60 ? "" : did_you_mean(word, words)));
}

void check_length(Source& source, std::string_view key, std::size_t length) {
  const auto layers = static_cast<std::size_t>(source.num_layers);
  if (length == layers) return;
  // Lists of some families go on over the prediction (MTP) layers.
  for (std::string_view mtp :
       {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}) {
    const auto extra = source.keys.integer(mtp, 0, kMaxLayers);
    if (extra && length == layers + static_cast<std::size_t>(*extra)) {
      source.keys.note(std::string(key), fmt::format("{} items", length),
                       fmt::format("the last {} belong to prediction layers ({})", *extra, mtp));
      return;
    }
  }
  source.keys.fail(key, fmt::format("it has {} items for {} layers", length, layers));
}

std::optional<std::int64_t> active_window(Source& source) {
  const auto use = source.keys.boolean("use_sliding_window");
  if (use && !*use) {
    for (std::string_view key : {"sliding_window", "sliding_window_size", "max_window_layers"}) {
      source.keys.understood(key, "use_sliding_window is false");
    }
    return std::nullopt;
  }
  return source.keys.any({"sliding_window", "sliding_window_size"});
}

Pattern read_pattern(Source& source) {
  if (auto encoder = read_encoder(source)) return std::move(*encoder);
  Pattern pattern;
  pattern.causal = !source.bidirectional;
  Decision decision = decide(source);
  const auto window = window_of_kind(source, decision);
  pattern.layers =
      decision.spelling != nullptr ? std::move(decision.plans) : class_plans(source, window);
  pattern.decided_by = decision.spelling != nullptr ? decision.spelling->key : "class";
  if (window && decision.spelling != nullptr && !decision.spelling->names_windows) {
    source.keys.fail("sliding_window",
                     fmt::format("{} does not say whether its attention layers slide; "
                                 "--assume sliding_window=null: they do not",
                                 decision.spelling->key));
  }
  if (needs_window(pattern.layers) && !window) drop_windows(source, decision, pattern.layers);
  force_last_full(source, decision, pattern.layers);
  if (!has(pattern.layers, Kind::kWindow) && window) {
    source.keys.note("sliding_window", fmt::format("{}", *window), "no layer slides");
  }
  if (decision.spelling != nullptr) {
    source.keys.understood("max_window_layers",
                           fmt::format("{} says which layers slide", decision.spelling->key));
  } else if (!window) {
    source.keys.understood("max_window_layers", "no window is in force");
  }
  fill(source, pattern, window);
  check_stray_chunk(source, pattern.layers, window);
  read_rope(source, pattern.layers);
  pattern.convention = convention_of(pattern.layers, source.bidirectional, window);
  return pattern;
}

}  // namespace lacuna::config

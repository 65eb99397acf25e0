// GGUF metadata → layer table and sizes. Keys and rules: specification, model-configs.md 2.3.
#include <fmt/format.h>

#include <algorithm>

#include "config/check_model.h"
#include "config/gguf_model.h"
#include "lacuna/error.h"
#include "lacuna/gguf.h"

namespace lacuna {
namespace config {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 20;
constexpr std::int64_t kMostItems = 1 << 20;  // of all lists together: a model has few, one a layer
constexpr std::size_t kLongestText = 4096;

// An array of texts, or one that no layer can want, is kept as its length alone.
Value value_of(std::span<const std::uint8_t> bytes, const GgufEntry& entry, bool as_list) {
  const auto item = [&](std::int64_t index) {
    switch (entry.type) {
      case GgufType::kFloat32:
      case GgufType::kFloat64:
        return Value{gguf_real(bytes, entry, index)};
      case GgufType::kBool:
        return Value{gguf_integer(bytes, entry, index) == 1};
      case GgufType::kUint64: {
        // Beyond 64 bits signed no figure wants it: it is refused where a whole number is asked
        // for.
        std::uint64_t raw = 0;
        std::copy_n(bytes.data() + entry.offset + 8 * index, 8,
                    reinterpret_cast<std::uint8_t*>(&raw));
        if (raw > static_cast<std::uint64_t>(INT64_MAX)) return Value{static_cast<double>(raw)};
        return Value{static_cast<std::int64_t>(raw)};
      }
      default:
        return Value{gguf_integer(bytes, entry, index)};
    }
  };
  const bool texts = entry.type == GgufType::kString;
  if (entry.is_array && (texts || !as_list))
    return Value{Value::Object{{"count", Value{entry.count}}}};
  if (texts) {
    return Value{std::string(gguf_texts(bytes, entry).front().substr(0, kLongestText))};
  }
  if (!entry.is_array) return item(0);
  Value::List list;
  for (std::int64_t i = 0; i < entry.count; ++i) list.push_back(item(i));
  return Value{std::move(list)};
}

Value metadata(std::span<const std::uint8_t> bytes, const GgufHeader& header) {
  Value::Object object;
  std::int64_t items = 0;
  for (const GgufEntry& entry : header.entries) {
    const bool as_list = entry.count <= kMaxLayers && items + entry.count <= kMostItems;
    if (as_list) items += entry.count;
    object.push_back({entry.key, value_of(bytes, entry, as_list)});
  }
  return Value{std::move(object)};
}

// --- windows
// ---------------------------------------------------------------------------------------

std::vector<GgufKind> by_period(const GgufModel& model, std::int64_t period, bool dense_first) {
  std::vector<GgufKind> kinds(model.num_layers, GgufKind::kWindow);
  if (period == 0) return kinds;  // every layer slides
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::int64_t place = static_cast<std::int64_t>(i) % period;
    if (place == (dense_first ? 0 : period - 1)) kinds[i] = GgufKind::kFull;
  }
  return kinds;
}

std::int64_t read_window(const GgufModel& model) {
  const auto window = model.integer("attention.sliding_window", 0, kMaxSize);
  if (window || model.facts == nullptr || model.facts->default_window == 0)
    return window.value_or(0);
  model.note("attention.sliding_window", fmt::format("{}", model.facts->default_window),
             fmt::format("llama.cpp's value for {}", model.arch));
  return model.facts->default_window;
}

std::vector<GgufKind> window_kinds(const GgufModel& model, std::int64_t window) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const std::string pattern = model.key(kPattern);
  const ArchitectureFacts* facts = model.facts;
  const std::vector<GgufKind> full(model.num_layers, GgufKind::kFull);
  if (window == 0) {
    model.keys.understood(pattern, "there is no window");
    return full;
  }
  const bool dense_first = facts != nullptr && facts->window == GgufWindow::kDenseFirst;
  if (model.is_list(kPattern)) {
    const auto flags = model.per_layer(kPattern, 1);
    std::vector<GgufKind> kinds;
    for (const std::int64_t flag : *flags)
      kinds.push_back(flag == 1 ? GgufKind::kWindow : GgufKind::kFull);
    return kinds;
  }
  if (const auto period = model.integer(kPattern, 0, kMaxLayers)) {
    return by_period(model, *period, dense_first);
  }
  if (facts != nullptr && facts->window == GgufWindow::kIgnored) {
    model.note(
        "attention.sliding_window", fmt::format("{}", window),
        fmt::format("llama.cpp ignores the window of {} (PR 13676), so all layers are full here; "
                    "--assume {}=0 lets every layer slide",
                    model.arch, pattern));
    return full;
  }
  if (facts == nullptr || facts->period < 0) {
    model.keys.fail(
        model.key("attention.sliding_window"),
        fmt::format("which layers slide is said neither by the file nor by the architecture; "
                    "--assume {}=N: all but every N-th, 0: all",
                    pattern));
  }
  model.note(kPattern, fmt::format("{}", facts->period),
             fmt::format("llama.cpp's period for {}: {}", model.arch,
                         dense_first ? "the first of each group is full"
                                     : "the last of each group is full"));
  return by_period(model, facts->period, dense_first);
}

// --- MLP
// -------------------------------------------------------------------------------------------

std::optional<bool> is_gated(const GgufModel& model) {
  if (model.keys.assumed("mlp")) {
    const std::string word = model.keys.text("mlp").value_or("");
    if (word != "gated" && word != "plain") {
      model.keys.fail("mlp", "allowed are gated and plain");
    }
    return word == "gated";
  }
  if (model.facts != nullptr) {
    model.keys.note("mlp", model.facts->mlp == Mlp::kGated ? "gated" : "plain",
                    fmt::format("llama.cpp's graph of {}", model.arch));
    return model.facts->mlp == Mlp::kGated;
  }
  model.keys.note("mlp", "unknown",
                  "whether the MLP is gated is not said: its figures are null; --assume "
                  "mlp=gated or mlp=plain");
  return std::nullopt;
}

std::optional<MlpShape> read_mixture(const GgufModel& model, bool gated) {
  const auto experts = model.integer("expert_count", 0, kMaxExperts);
  if (experts.value_or(0) < 2) return std::nullopt;
  MlpShape mlp;
  mlp.kind = MlpKind::kMixture;
  mlp.gated_experts = gated;
  mlp.num_experts = *experts;
  mlp.experts_per_token = model.keys.need(model.key("expert_used_count"), 1, *experts);
  const auto width = model.integer("expert_feed_forward_length", 1, kMaxWidth);
  const auto widths = model.per_layer("feed_forward_length", kMaxWidth);
  mlp.intermediate_size = width    ? *width
                          : widths ? *std::max_element(widths->begin(), widths->end())
                                   : 0;
  if (mlp.intermediate_size == 0) {
    model.keys.fail(model.key("expert_feed_forward_length"), "the width of an expert is needed");
  }
  mlp.num_shared_experts = model.integer("expert_shared_count", 0, kMaxExperts).value_or(0);
  const auto shared = model.integer("expert_shared_feed_forward_length", 0, kMaxWidth);
  mlp.shared_intermediate_size = shared ? *shared : mlp.intermediate_size;
  if (shared.value_or(0) > 0 && mlp.num_shared_experts == 0) mlp.num_shared_experts = 1;
  return mlp;
}

void read_mlps(const GgufModel& model, ModelConfig& config) {
  const auto gated = is_gated(model);
  const auto widths = model.per_layer("feed_forward_length", kMaxWidth);
  const std::int64_t dense = model.integer("leading_dense_block_count", 0, kMaxLayers).value_or(0);
  const std::int64_t step = model.integer("interleave_moe_layer_step", 0, kMaxLayers).value_or(1);
  if (!gated) return;
  const auto mixture = read_mixture(model, *gated);
  const bool one_part = widths && model.is_list("feed_forward_length") &&
                        std::find(widths->begin(), widths->end(), 0) != widths->end();
  for (std::size_t i = 0; i < config.shape.layers.size(); ++i) {
    MlpShape mlp;
    const auto at = static_cast<std::int64_t>(i);
    if (one_part && (*widths)[i] == 0) {
      mlp.kind = MlpKind::kNone;
    } else if (mixture && at >= dense && step > 0 && (at + 1) % step == 0) {
      mlp = *mixture;
    } else if (widths && (*widths)[i] > 0) {
      mlp.kind = *gated ? MlpKind::kGated : MlpKind::kPlain;
      mlp.intermediate_size = (*widths)[i];
    } else {
      continue;
    }
    config.shape.layers[i].mlp = mlp;
  }
}

// --- the whole
// -------------------------------------------------------------------------------------

std::string convention(const GgufModel& model, const std::vector<GgufKind>& kinds,
                       std::int64_t window, bool both) {
  if (const auto topk = model.integer("attention.indexer.top_k", 1, kMaxSize)) {
    return fmt::format(
        "no sliding window: a selector chooses min({}, q+1) of keys 0 .. q, the query's own "
        "among them",
        *topk);
  }
  if (std::find(kinds.begin(), kinds.end(), GgufKind::kWindow) == kinds.end()) {
    return both ? "no window: every query reads every key" : "no window: query q reads keys 0 .. q";
  }
  if (model.facts != nullptr && model.facts->window == GgufWindow::kChunks) {
    return fmt::format("chunks of {} (llama.cpp CHUNKED): query q reads keys floor(q/{})*{} .. q",
                       window, window, window);
  }
  if (both) {
    return fmt::format(
        "llama.cpp SYMMETRIC: query q reads keys q-{} .. q+{}, half of the window of {} on "
        "each side",
        window / 2, window / 2, window);
  }
  return fmt::format(
      "the window counts the query itself (llama.cpp STANDARD: masked where p1 - p0 >= W): "
      "query q reads keys q-W+1 .. q, W = {}",
      window);
}

void read_direction(const GgufModel& model, const std::vector<GgufKind>& kinds,
                    ModelConfig& config) {
  const bool causal = model.keys.boolean(model.key("attention.causal")).value_or(true);
  const bool both = model.facts != nullptr && (model.facts->both_sides || model.arch == "bert");
  const bool windows = std::find(kinds.begin(), kinds.end(), GgufKind::kWindow) != kinds.end();
  if (!causal && !both && windows) {
    model.keys.fail(model.key("attention.causal"),
                    "how a window then lies on both sides is not said for this architecture");
  }
  config.table.causal = causal && !both;
  config.shape.has_cache = config.table.causal;
}

void note_prediction_layers(const GgufModel& model) {
  const auto extra = model.integer("nextn_predict_layers", 0, kMaxLayers);
  if (extra.value_or(0) == 0) return;
  model.note("nextn_predict_layers", fmt::format("{}", *extra),
             "prediction (MTP) layers: block_count counts them, and they hold KV");
}

}  // namespace
}  // namespace config

ModelConfig read_gguf_config(std::span<const std::uint8_t> bytes, const std::string& name,
                             const Assumptions& assume) {
  using namespace config;
  const GgufHeader header = read_gguf_header(bytes, name);
  Keys keys(metadata(bytes, header), name, assume);
  const auto arch = keys.text("general.architecture");
  if (!arch) keys.fail("general.architecture", "a text is needed");
  if (arch->empty() || arch->size() > 64)
    keys.fail("general.architecture", "allowed are 1..64 characters");
  keys.set_prefix(*arch + ".");
  GgufModel model{keys, *arch, find_architecture(*arch)};
  ModelConfig config;
  config.source = "gguf";
  config.shape.name = *arch;
  config.table.trained = Trained::kTrue;
  model.num_layers = static_cast<std::size_t>(keys.need(model.key("block_count"), 1, kMaxLayers));
  config.shape.hidden_size = keys.need(model.key("embedding_length"), 1, kMaxWidth);
  config.shape.context_length = model.integer("context_length", 1, kMaxSize);
  config.shape.vocab_size = model.integer("vocab_size", 1, kMaxSize);
  if (!config.shape.vocab_size) {
    config.shape.vocab_size = keys.integer("tokenizer.ggml.tokens.count", 1, kMaxSize);
    if (config.shape.vocab_size) {
      model.note("vocab_size", fmt::format("{}", *config.shape.vocab_size),
                 "derived: the length of tokenizer.ggml.tokens");
    }
  }
  const std::int64_t window = read_window(model);
  const std::vector<GgufKind> kinds = window_kinds(model, window);
  read_direction(model, kinds, config);
  read_gguf_layers(model, kinds, window, config);
  read_mlps(model, config);
  note_prediction_layers(model);
  config.window_convention = convention(model, kinds, window, !config.table.causal);
  keys.finish();
  check_model(config, name);
  config.notes = keys.take_notes();
  config.ignored_keys = keys.take_ignored();
  return config;
}

}  // namespace lacuna

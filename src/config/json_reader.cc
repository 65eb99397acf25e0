// config.json: the stations in order. What each key means stands with its station.
#include <fmt/format.h>

#include "config/check_model.h"
#include "config/reader.h"
#include "lacuna/error.h"

namespace lacuna {
namespace config {
namespace {

const ClassFacts* class_of(Keys& keys, std::string* name) {
  const auto model_type = keys.text("model_type");
  if (model_type) *name = *model_type;
  if (model_type) {
    if (const ClassFacts* facts = find_class(*model_type)) return facts;
  }
  // Both levels may name a class; the outer one knows the family.
  const Value* outer = keys.outer("model_type");
  if (outer != nullptr && outer->text() != nullptr) {
    if (const ClassFacts* facts = find_class(*outer->text())) return facts;
  }
  if (const auto architectures = keys.texts("architectures")) {
    for (const std::string& architecture : *architectures) {
      if (const ClassFacts* facts = find_class_of_architecture(architecture)) {
        keys.note("architectures", architecture,
                  fmt::format("its class is read as {}", facts->name));
        return facts;
      }
    }
  }
  return nullptr;
}

// What no table can say is refused before anything is derived from it.
void refuse(Keys& keys) {
  if (keys.present("compress_ratios")) {
    keys.find("compress_ratios");
    keys.fail(
        "compress_ratios",
        "layers that keep compressed entries beside a window are not understood: neither what is "
        "attended to nor what is kept can be counted");
  }
  if (keys.boolean("is_encoder_decoder").value_or(false)) {
    keys.fail("is_encoder_decoder", "a model with two stacks is not understood");
  }
  if (keys.boolean("add_cross_attention").value_or(false)) {
    keys.fail("add_cross_attention", "cross-attention is not understood");
  }
  if (keys.boolean("use_cla").value_or(false)) {
    keys.fail("use_cla", "cross-layer attention: which layers share KV is not understood");
  }
  const Value* pruned = keys.find("pruned_heads");
  if (pruned != nullptr && (pruned->object() == nullptr || !pruned->object()->empty())) {
    keys.fail("pruned_heads", "layers with heads cut out are not understood");
  }
  const auto order = keys.text("order_of_interleaved_layers");
  if (order && *order != "local_attn_first") {
    keys.fail("order_of_interleaved_layers", "allowed is local_attn_first");
  }
  keys.find("cross_attention_hidden_size");
}

bool is_bidirectional(Keys& keys, const ClassFacts* facts) {
  bool both = false;
  if (const Value* value = keys.find("use_bidirectional_attention")) {
    if (const bool* flag = value->boolean()) {
      both = *flag;
    } else if (value->text() != nullptr && *value->text() == "vision") {
      keys.note("use_bidirectional_attention", "\"vision\"",
                "text is causal; only the tokens of an image read each other");
    } else if (value->text() != nullptr && *value->text() == "all") {
      both = true;
    } else {
      keys.fail("use_bidirectional_attention", "allowed are true, false, \"all\" and \"vision\"");
    }
  }
  if (const auto causal = keys.boolean("is_causal")) both = both || !*causal;
  const bool windows =
      keys.present("sliding_window") || (facts != nullptr && facts->slides != Slides::kUnknown);
  if (both && windows && !keys.assumed("window_each_side")) {
    keys.fail(
        "use_bidirectional_attention",
        "implementations differ in how many keys a window then has on each side (W/2 or W/2+1); "
        "--assume window_each_side=N decides, --assume use_bidirectional_attention=false reads "
        "the causal model");
  }
  return both;
}

void note_sizes(Keys& keys, const ModelConfig& config) {
  for (std::string_view key :
       {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}) {
    const auto count = keys.integer(key, 0, kMaxLayers);
    if (count.value_or(0) > 0) {
      keys.note(std::string(key), fmt::format("{}", *count),
                "prediction (MTP) layers: not in num_hidden_layers and not counted");
    }
  }
  if (!config.shape.context_length) return;
  for (const Layer& layer : config.table.layers) {
    if (layer.attend.groups.empty()) continue;
    const auto* window = std::get_if<Window>(&layer.attend.groups.front().attend.front());
    if (window == nullptr || window->left + 1 < *config.shape.context_length) continue;
    keys.note(
        "sliding_window", fmt::format("{}", window->left + 1),
        fmt::format("as long as the context of {}: it never binds", *config.shape.context_length));
    return;
  }
}

}  // namespace
}  // namespace config

ModelConfig read_config_json(std::string_view json, const std::string& name,
                             const Assumptions& assume) {
  using namespace config;
  Keys keys(parse_json(json, name), name, assume);
  ModelConfig model;
  model.source = "config.json";
  const ClassFacts* facts = class_of(keys, &model.shape.name);
  keys.set_class(facts);
  if (facts == nullptr) {
    keys.note("model_type", model.shape.name.empty() ? "absent" : model.shape.name,
              "a class that is not known: it is read by its keys alone");
  }
  refuse(keys);
  if (facts != nullptr && !facts->needs.empty() && !keys.given(facts->needs) &&
      !keys.present("layer_types")) {
    keys.fail(facts->needs, fmt::format("without it {} does not say which layers attend; "
                                        "--assume {}=null makes all of them full",
                                        facts->name, facts->needs));
  }
  Source source{keys, facts};
  source.bidirectional = is_bidirectional(keys, facts);
  const auto layers =
      keys.any({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, 1, kMaxLayers);
  if (!layers)
    keys.fail("num_hidden_layers", fmt::format("a whole number in 1..{} is needed", kMaxLayers));
  source.num_layers = static_cast<int>(*layers);
  model.shape.hidden_size = keys.any({"hidden_size", "n_embd", "d_model"}, 1, kMaxWidth);
  if (!model.shape.hidden_size) keys.fail("hidden_size", "a whole number is needed");
  model.shape.vocab_size = keys.any({"vocab_size", "padded_vocab_size"});
  model.shape.context_length = keys.any({"max_position_embeddings", "n_positions", "seq_length"});

  Pattern pattern = read_pattern(source);
  model.table.causal = pattern.causal;
  model.table.trained = Trained::kTrue;
  model.shape.has_cache = pattern.causal;
  model.window_convention = pattern.convention;
  read_shapes(source, pattern, model);
  read_mlps(source, pattern, model);
  note_sizes(keys, model);
  keys.finish();
  check_model(model, name);
  model.notes = keys.take_notes();
  model.ignored_keys = keys.take_ignored();
  return model;
}

}  // namespace lacuna

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lacuna/error.h"
#include "lacuna/layer_table.h"
#include "topology/attend_parser.h"
#include "topology/attend_terms.h"

namespace lacuna {
namespace {

using attend_text::Context;
using attend_text::kMaxHeads;
using attend_text::kMaxLayers;
using attend_text::kMaxNumber;
using attend_text::kMaxTextBytes;
using attend_text::Parser;
using attend_text::shown;
using nlohmann::json;

constexpr std::int64_t kMaxJsonBytes = std::int64_t{16} << 20;
constexpr int kMaxDepth = 8;  // a valid table needs 5
constexpr const char* kFormat = "lacuna-layer-table";
constexpr std::int64_t kFormatVersion = 1;

std::string child(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + '.' + key;
}
std::string child(const std::string& path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}
std::string named(const std::string& path) { return path.empty() ? "the layer table" : path; }

// Watches the parser: the nlohmann library keeps the last of two equal keys in silence, and builds
// any depth.
class ShapeGuard {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      begin_value();
      if (depth >= kMaxDepth) {
        throw Error(
            fmt::format("{} is nested too deeply; allowed: {} levels", named(path()), kMaxDepth));
      }
      open_.push_back({event == Event::array_start, {}, {}, 0});
    } else if (event == Event::object_end || event == Event::array_end) {
      open_.pop_back();
    } else if (event == Event::key) {
      open_.back().key = parsed.get<std::string>();
      if (!open_.back().keys.insert(open_.back().key).second) {
        throw Error(fmt::format("{} stands twice; allowed: once", shown(path())));
      }
    } else {
      begin_value();
    }
    return true;
  }

 private:
  struct Container {
    bool is_array = false;
    std::string key;
    std::set<std::string> keys;
    std::size_t num_items = 0;
  };

  void begin_value() {
    if (!open_.empty() && open_.back().is_array) ++open_.back().num_items;
  }
  std::string path() const {
    std::string path;
    for (const Container& each : open_) {
      path = each.is_array ? child(path, each.num_items - 1) : child(path, each.key);
    }
    return path;
  }

  std::vector<Container> open_;
};

json parse_json(std::string_view text) {
  if (std::ssize(text) > kMaxJsonBytes) {
    throw Error(
        fmt::format("the layer table has {} bytes; allowed: up to {}", text.size(), kMaxJsonBytes));
  }
  try {
    ShapeGuard guard;
    return json::parse(text, std::ref(guard));
  } catch (const json::parse_error& error) {
    throw Error(fmt::format("the layer table is not JSON: byte {} does not fit there", error.byte));
  } catch (const json::exception&) {  // a number beyond the range of double
    throw Error("the layer table is not JSON: a number in it is out of range");
  }
}

const char* kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "true or false";
    case json::value_t::null:
      return "null";
    default:
      return "a number";
  }
}

[[noreturn]] void fail_type(const json& value, const std::string& path, const char* allowed) {
  throw Error(fmt::format("{} is {}; allowed: {}", named(path), kind_of(value), allowed));
}

const std::string& string_of(const json& value, const std::string& path) {
  if (!value.is_string()) fail_type(value, path, "a string");
  return value.get_ref<const std::string&>();
}

bool bool_of(const json& value, const std::string& path) {
  if (!value.is_boolean()) fail_type(value, path, "true or false");
  return value.get<bool>();
}

std::int64_t whole_of(const json& value, const std::string& path, std::int64_t min,
                      std::int64_t max) {
  if (!value.is_number()) fail_type(value, path, "a whole number");
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxNumber));
  const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
  if (!fits || number < min || number > max) {
    throw Error(
        fmt::format("{} is {}; allowed: whole numbers {}..{}", path, value.dump(), min, max));
  }
  return number;
}

void check_keys(const json& value, const std::string& path, const std::vector<std::string>& known) {
  if (!value.is_object()) fail_type(value, path, "an object");
  for (const auto& [key, unused] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Error(fmt::format("{} is not a known key; allowed: {}{}", shown(child(path, key)),
                            fmt::join(known, ", "), did_you_mean(key, known)));
  }
}

const json& required(const json& object, const std::string& path, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(fmt::format("{} is missing", child(path, key)));
  return *found;
}

void check_format(const json& root) {
  const std::string& format = string_of(required(root, "", "format"), "format");
  if (format != kFormat) {
    throw Error(fmt::format("format is {}; allowed: '{}'", shown(format), kFormat));
  }
  whole_of(required(root, "", "format_version"), "format_version", kFormatVersion, kFormatVersion);
}

Trained trained_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? Trained::kTrue : Trained::kFalse;
  if (value.is_string() && value.get_ref<const std::string&>() == "unknown") {
    return Trained::kUnknown;
  }
  if (!value.is_string()) fail_type(value, "trained", "true, false or \"unknown\"");
  throw Error(fmt::format("trained is {}; allowed: true, false or \"unknown\"",
                          shown(value.get_ref<const std::string&>())));
}

Tile tile_of(const json& value) {
  check_keys(value, "tile", {"q", "k"});
  Tile tile;
  tile.q = whole_of(required(value, "tile", "q"), "tile.q", 1, kMaxNumber);
  tile.k = whole_of(required(value, "tile", "k"), "tile.k", 1, kMaxNumber);
  return tile;
}

Mixer mixer_of(const json& value, const std::string& path) {
  const std::string& name = string_of(value, path);
  std::vector<std::string> names;
  for (const Mixer mixer :
       {Mixer::kSoftmax, Mixer::kMla, Mixer::kLinear, Mixer::kSsm, Mixer::kNone}) {
    if (to_string(mixer) == name) return mixer;
    names.emplace_back(to_string(mixer));
  }
  throw Error(fmt::format("{} is {}; allowed: {}{}", path, shown(name), fmt::join(names, ", "),
                          did_you_mean(name, names)));
}

Attend attend_of(const json& value, const std::string& path, Context& context) {
  Parser parser(string_of(value, path), context, path);
  Attend attend = parser.attend();
  parser.expect_end("'+' or the end");
  return attend;
}

HeadGroup group_of(const json& value, const std::string& path, Context& context) {
  check_keys(value, path, {"heads", "attend"});
  const std::string heads_path = child(path, "heads");
  Parser heads(string_of(required(value, path, "heads"), heads_path), context, heads_path);
  HeadGroup group;
  group.heads = heads.list("head", kMaxHeads - 1);
  heads.expect_end("',', '-' or the end");
  heads.charge(std::ssize(group.heads));
  std::sort(group.heads.begin(), group.heads.end());
  const std::string attend_path = child(path, "attend");
  Parser attend(string_of(required(value, path, "attend"), attend_path), context, attend_path);
  group.attend = attend.terms();
  attend.expect_end("'+' or the end");
  return group;
}

Attend groups_of(const json& value, const std::string& path, Context& context) {
  if (!value.is_array()) fail_type(value, path, "a list");
  Attend attend;
  for (std::size_t i = 0; i < value.size(); ++i) {
    attend.groups.push_back(group_of(value[i], child(path, i), context));
  }
  if (const std::string problem = attend_text::heads_problem(attend, std::nullopt);
      !problem.empty()) {
    throw Error(fmt::format("{}: {}", path, problem));
  }
  return attend;
}

Layer layer_of(const json& value, const std::string& path, Context& context) {
  check_keys(value, path, {"count", "attend", "heads", "kv_from", "index_from", "rope", "mixer"});
  Layer layer;
  const auto with = [&](const char* key, const auto& use) {
    const auto found = value.find(key);
    if (found != value.end()) use(*found, child(path, key));
  };
  with("mixer", [&](const json& v, const std::string& at) { layer.mixer = mixer_of(v, at); });
  with("attend",
       [&](const json& v, const std::string& at) { layer.attend = attend_of(v, at, context); });
  with("heads", [&](const json& v, const std::string& at) {
    if (value.contains("attend")) {
      throw Error(fmt::format("{} stands beside attend; allowed: one of them", at));
    }
    layer.attend = groups_of(v, at, context);
  });
  with("kv_from", [&](const json& v, const std::string& at) {
    layer.kv_from = static_cast<int>(whole_of(v, at, 0, kMaxLayers - 1));
  });
  with("index_from", [&](const json& v, const std::string& at) {
    layer.index_from = static_cast<int>(whole_of(v, at, 0, kMaxLayers - 1));
  });
  with("rope", [&](const json& v, const std::string& at) {
    layer.rope = string_of(v, at);
    if (std::ssize(layer.rope) > kMaxTextBytes) {
      throw Error(
          fmt::format("{} has {} bytes; allowed: up to {}", at, layer.rope.size(), kMaxTextBytes));
    }
  });
  return layer;
}

std::vector<Layer> layers_of(const json& value, Context& context) {
  if (!value.is_array()) fail_type(value, "layers", "a list");
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string path = child("layers", i);
    const Layer layer = layer_of(value[i], path, context);
    const auto count = value[i].find("count");
    const std::int64_t num_equal =
        count == value[i].end() ? 1 : whole_of(*count, child(path, "count"), 1, kMaxLayers);
    if (std::ssize(layers) + num_equal > kMaxLayers) {
      throw Error(fmt::format("{}: the table has more than {} layers", path, kMaxLayers));
    }
    context.numbers_left -=
        num_equal * (attend_text::weight(layer.attend) + std::ssize(layer.rope) / 8);
    if (context.numbers_left < 0) {
      throw Error(fmt::format("{}: the table holds more than {} numbers", path,
                              attend_text::kMaxTableNumbers));
    }
    layers.insert(layers.end(), static_cast<std::size_t>(num_equal), layer);
  }
  return layers;
}

// Keys in the order in which a person reads them.
nlohmann::ordered_json json_of(const Layer& layer, std::size_t count, bool causal) {
  nlohmann::ordered_json run;
  run["count"] = count;
  if (layer.attend.groups.size() == 1 && layer.attend.groups.front().heads.empty()) {
    run["attend"] = attend_text::union_text(layer.attend.groups.front().attend, causal);
  } else if (!layer.attend.groups.empty()) {
    nlohmann::ordered_json groups = nlohmann::ordered_json::array();
    for (const HeadGroup& group : layer.attend.groups) {
      nlohmann::ordered_json each;
      each["heads"] = attend_text::list_text(group.heads);
      each["attend"] = attend_text::union_text(group.attend, causal);
      groups.push_back(std::move(each));
    }
    run["heads"] = std::move(groups);
  }
  if (layer.kv_from) run["kv_from"] = *layer.kv_from;
  if (layer.index_from) run["index_from"] = *layer.index_from;
  if (!layer.rope.empty()) run["rope"] = layer.rope;
  if (layer.mixer != Mixer::kSoftmax) run["mixer"] = to_string(layer.mixer);
  return run;
}

}  // namespace

LayerTable layers_from_json(std::string_view text, const std::string& base_dir) {
  const json root = parse_json(text);
  check_keys(root, "", {"format", "format_version", "causal", "trained", "tile", "layers"});
  check_format(root);
  LayerTable table;
  table.causal = bool_of(required(root, "", "causal"), "causal");
  if (root.contains("trained")) table.trained = trained_of(root["trained"]);
  if (root.contains("tile")) table.tile = tile_of(root["tile"]);
  Context context(table.causal, base_dir);
  table.layers = layers_of(required(root, "", "layers"), context);
  check(table, {});
  return table;
}

std::string to_json(const LayerTable& table) {
  check(table, {});
  nlohmann::ordered_json root;
  root["format"] = kFormat;
  root["format_version"] = kFormatVersion;
  root["causal"] = table.causal;
  if (table.trained == Trained::kUnknown) {
    root["trained"] = "unknown";
  } else {
    root["trained"] = table.trained == Trained::kTrue;
  }
  if (table.tile) {
    root["tile"]["q"] = table.tile->q;
    root["tile"]["k"] = table.tile->k;
  }
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < table.layers.size();) {
    std::size_t end = i + 1;
    while (end < table.layers.size() && table.layers[end] == table.layers[i]) ++end;
    layers.push_back(json_of(table.layers[i], end - i, table.causal));
    i = end;
  }
  root["layers"] = std::move(layers);
  try {
    return root.dump(2) + '\n';
  } catch (const nlohmann::ordered_json::exception&) {
    throw Error("a file name or rope is not UTF-8; allowed in JSON: UTF-8");
  }
}

}  // namespace lacuna

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "lacuna/layer_table.h"
#include "topology/attend_parser.h"
#include "topology/attend_terms.h"

namespace lacuna {
namespace {

using attend_text::Context;
using attend_text::kMaxLayers;
using attend_text::kMaxListItems;
using attend_text::kMaxNumber;
using attend_text::Parser;

struct Run {
  Attend attend;
  std::int64_t count = 1;
};

std::vector<Run> parse_pattern(Parser& parser) {
  std::vector<Run> pattern;
  do {
    if (std::ssize(pattern) == kMaxListItems) {
      parser.fail(parser.place(), fmt::format("a pattern has more than {} runs", kMaxListItems));
    }
    Run run{parser.attend(), 1};
    if (parser.accept('*')) run.count = parser.number("count", 1, kMaxNumber);
    pattern.push_back(std::move(run));
  } while (parser.accept(','));
  return pattern;
}

// Repeats the pattern over the layers; what is longer than the model is cut.
void fill(std::vector<Layer>& layers, const std::vector<Run>& pattern, Parser& parser) {
  std::size_t layer_idx = 0;
  while (layer_idx < layers.size()) {
    for (const Run& run : pattern) {
      const std::int64_t weight = attend_text::weight(run.attend);
      for (std::int64_t i = 0; i < run.count && layer_idx < layers.size(); ++i, ++layer_idx) {
        parser.charge(weight);
        layers[layer_idx].attend = run.attend;
      }
    }
  }
}

void parse_override(std::vector<Layer>& layers, Parser& parser) {
  const std::vector<std::string> kinds = {"first", "last", "layers"};
  const std::int64_t last = std::ssize(layers) - 1;
  const std::size_t begin = parser.place();
  const std::string_view kind = parser.word();
  if (kind.empty()) parser.fail_found("an override: first, last, layers");
  std::vector<std::int64_t> chosen;
  if (kind == "layers") {
    chosen = parser.list("layer", last);
  } else if (kind == "first" || kind == "last") {
    chosen.push_back(kind == "first" ? 0 : last);
  } else {
    parser.fail(begin, fmt::format("{} is not an override; allowed: first, last, layers{}",
                                   attend_text::shown(kind), did_you_mean(kind, kinds)));
  }
  parser.expect(':', kind == "layers" ? "',', '-' or ':' and a union" : "':' and a union");
  const Attend attend = parser.attend();
  const std::int64_t weight = attend_text::weight(attend);
  for (const std::int64_t layer_idx : chosen) {
    parser.charge(weight);
    layers[static_cast<std::size_t>(layer_idx)].attend = attend;
  }
}

// The layers as numbers: equal ones have the same, and `texts` says them.
struct Classes {
  std::vector<std::size_t> of_layer;
  std::vector<std::string> texts;
};

Classes classes_of(const LayerTable& table) {
  Classes classes;
  std::map<std::string, std::size_t> known;
  for (const Layer& layer : table.layers) {
    std::string text = to_text(layer.attend, table.causal);
    const auto [found, is_new] = known.try_emplace(text, classes.texts.size());
    if (is_new) classes.texts.push_back(std::move(text));
    classes.of_layer.push_back(found->second);
  }
  return classes;
}

// Smallest p with of_layer[i] == of_layer[i - p] for all i >= p: the failure function of Knuth,
// Morris and Pratt gives the longest border.
std::size_t smallest_period(const std::vector<std::size_t>& of_layer) {
  std::vector<std::size_t> border(of_layer.size(), 0);
  for (std::size_t i = 1; i < of_layer.size(); ++i) {
    std::size_t length = border[i - 1];
    while (length > 0 && of_layer[i] != of_layer[length]) length = border[length - 1];
    border[i] = of_layer[i] == of_layer[length] ? length + 1 : 0;
  }
  return of_layer.size() - border.back();
}

std::string pattern_text(const Classes& classes, const std::vector<std::size_t>& pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size();) {
    std::size_t end = i + 1;
    while (end < pattern.size() && pattern[end] == pattern[i]) ++end;
    if (!text.empty()) text += ", ";
    text += classes.texts[pattern[i]];
    if (end - i > 1) text += fmt::format("*{}", end - i);
    i = end;
  }
  return text;
}

// The class that most layers of each residue have.
std::vector<std::size_t> majority_pattern(const Classes& classes, std::size_t period) {
  std::vector<std::size_t> pattern;
  std::vector<std::size_t> votes(classes.texts.size());
  for (std::size_t residue = 0; residue < period; ++residue) {
    std::fill(votes.begin(), votes.end(), 0);
    for (std::size_t i = residue; i < classes.of_layer.size(); i += period) {
      ++votes[classes.of_layer[i]];
    }
    const auto most = std::max_element(votes.begin(), votes.end());
    pattern.push_back(static_cast<std::size_t>(most - votes.begin()));
  }
  return pattern;
}

// A pattern that most layers follow, and overrides for the others; "" where they are too many.
std::string overridden_text(const Classes& classes, std::size_t period) {
  constexpr std::size_t kMostExceptions = 16;  // more is no longer simple to read
  const std::vector<std::size_t> pattern = majority_pattern(classes, period);
  const std::size_t num_layers = classes.of_layer.size();
  std::map<std::size_t, std::vector<std::int64_t>> exceptions;
  std::size_t num_exceptions = 0;
  for (std::size_t i = 0; i < num_layers; ++i) {
    if (classes.of_layer[i] == pattern[i % period]) continue;
    if (++num_exceptions > kMostExceptions) return "";
    exceptions[classes.of_layer[i]].push_back(static_cast<std::int64_t>(i));
  }
  std::string text = pattern_text(classes, pattern);
  for (const auto& [each_class, layers] : exceptions) {
    const bool is_first = layers.size() == 1 && layers.front() == 0;
    const bool is_last = layers.size() == 1 && std::cmp_equal(layers.front(), num_layers - 1);
    text += fmt::format("; {}: {}",
                        is_first  ? "first"
                        : is_last ? "last"
                                  : "layers " + attend_text::list_text(layers),
                        classes.texts[each_class]);
  }
  return text;
}

void refuse_what_only_json_says(const LayerTable& table) {
  for (std::size_t i = 0; i < table.layers.size(); ++i) {
    const Layer& layer = table.layers[i];
    const char* key = layer.mixer != Mixer::kSoftmax ? "mixer"
                      : layer.kv_from                ? "kv_from"
                      : layer.index_from             ? "index_from"
                      : !layer.rope.empty()          ? "rope"
                                                     : nullptr;
    if (key == nullptr) continue;
    throw Error(
        fmt::format("layer {} has {}, which text cannot say; allowed: the JSON form", i, key));
  }
}

}  // namespace

LayerTable parse_layers(std::string_view text, int num_layers, bool causal,
                        const std::string& base_dir) {
  if (num_layers < 1 || num_layers > kMaxLayers) {
    throw Error(fmt::format("num_layers is {}; allowed: 1..{}", num_layers, kMaxLayers));
  }
  Context context(causal, base_dir);
  Parser parser(text, context, "layers");
  LayerTable table;
  table.causal = causal;
  table.layers.resize(static_cast<std::size_t>(num_layers));
  fill(table.layers, parse_pattern(parser), parser);
  std::string allowed = "'+', '*', ',', ';' or the end";
  while (parser.accept(';')) {
    parse_override(table.layers, parser);
    allowed = "'+', ';' or the end";
  }
  parser.expect_end(allowed);
  return table;
}

std::string to_text(const LayerTable& table) {
  check(table, {});
  refuse_what_only_json_says(table);
  const Classes classes = classes_of(table);
  const std::size_t period = smallest_period(classes.of_layer);
  std::vector<std::size_t> pattern(classes.of_layer.begin(),
                                   classes.of_layer.begin() + static_cast<std::ptrdiff_t>(period));
  std::string shortest = pattern_text(classes, pattern);
  constexpr std::size_t kLongestPattern = 64;
  // A vote costs one pass over the classes for each residue.
  constexpr std::size_t kMostClasses = 256;
  for (std::size_t p = 1; p < std::min(period, kLongestPattern); ++p) {
    if (classes.texts.size() > kMostClasses) break;
    const std::string text = overridden_text(classes, p);
    if (!text.empty() && text.size() < shortest.size()) shortest = text;
  }
  if (std::ssize(shortest) > attend_text::kMaxTextBytes) {
    throw Error(fmt::format("the text has {} bytes; allowed: up to {}", shortest.size(),
                            attend_text::kMaxTextBytes));
  }
  return shortest;
}

}  // namespace lacuna

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lacuna/capacity.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// A term that is a causal window of one width.
std::optional<std::int64_t> window_of(const Term& term) {
  const auto* window = std::get_if<Window>(&term);
  if (window == nullptr || window->right != 0) return std::nullopt;
  return window->left + 1;
}

// Calls `change` with every window of the table; returns how many there are.
template <class Change>
int for_each_window(LayerTable& table, const Change& change) {
  int found = 0;
  for (Layer& layer : table.layers) {
    for (HeadGroup& group : layer.attend.groups) {
      for (Term& term : group.attend) {
        if (const auto width = window_of(term)) {
          term = Window{change(*width) - 1, 0};
          ++found;
        }
      }
    }
  }
  return found;
}

using Fit = std::pair<std::optional<Capacity>, std::string>;

Fit solve(const LayerTable& table, const ModelShape& shape, const CapacityQuery& query) {
  try {
    return {capacity(table, shape, query), ""};
  } catch (const Error& error) {  // e.g. int4 with a head_dim that its group does not divide
    return {std::nullopt, error.what()};
  }
}

Fit with_half_windows(LayerTable table, const ModelShape& shape, const CapacityQuery& query) {
  const int windows = for_each_window(
      table, [](std::int64_t width) { return std::max<std::int64_t>(1, width / 2); });
  if (windows == 0) return {std::nullopt, "no layer has a window"};
  return solve(table, shape, query);
}

Fit with_dtype(const LayerTable& table, const ModelShape& shape, CapacityQuery query,
               std::string_view dtype) {
  query.kv_dtype = kv_dtype(dtype);
  return solve(table, shape, query);
}

Fit with_fewer_heads(const LayerTable& table, ModelShape shape, const CapacityQuery& query,
                     int divisor) {
  bool any = false;
  for (std::size_t idx = 0; idx < shape.layers.size(); ++idx) {
    LayerShape& layer = shape.layers[idx];
    if (table.layers[idx].mixer == Mixer::kMla) {
      return {std::nullopt, fmt::format("layer {} keeps one latent for all heads", idx)};
    }
    if (table.layers[idx].mixer != Mixer::kSoftmax) continue;
    if (layer.num_kv_heads % divisor != 0) {
      return {std::nullopt, fmt::format("layer {} has {} KV heads, not a multiple of {}", idx,
                                        layer.num_kv_heads, divisor)};
    }
    layer.num_kv_heads /= divisor;
    any = true;
  }
  if (!any) return {std::nullopt, "no layer has KV heads"};
  return solve(table, shape, query);
}

}  // namespace

LayerTable with_window(const LayerTable& table, std::int64_t window) {
  if (window < 1) throw Error(fmt::format("window is {}; allowed: 1 and above", window));
  LayerTable changed = table;
  for_each_window(changed, [&](std::int64_t) { return window; });
  return changed;
}

std::vector<Lever> levers(const LayerTable& table, const ModelShape& shape,
                          const CapacityQuery& query) {
  const char* const error = "numerical error: the same history, stored more coarsely";
  const char* const architecture = "architecture: the model must be trained with fewer KV heads";
  std::vector<Lever> all;
  const auto add = [&](const char* name, const char* changes, Fit fit) {
    all.push_back({name, changes, std::move(fit.first), std::move(fit.second)});
  };
  add("as it is", "nothing", {capacity(table, shape, query), ""});
  add("window / 2", "history: window layers see half as far back",
      with_half_windows(table, shape, query));
  add("int8 KV", error, with_dtype(table, shape, query, "int8"));
  add("int4 KV", error, with_dtype(table, shape, query, "int4"));
  add("KV heads / 2", architecture, with_fewer_heads(table, shape, query, 2));
  add("KV heads / 4", architecture, with_fewer_heads(table, shape, query, 4));
  return all;
}

}  // namespace lacuna

#include "audit/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "lacuna/audit.h"
#include "lacuna/topology.h"

namespace lacuna::audit {
namespace {

LayerTable claimed(const ModelRow& row) { return row.problem.claim.value_or(row.problem.table); }

bool all_layers(const ModelRow& row, const std::function<bool(const ModelLayer&)>& test) {
  return std::ranges::all_of(row.layers, test);
}

bool pairs_differ(const ModelLayer& layer) {
  return layer.pairs != layer.predicted_pairs || layer.step_pairs != layer.predicted_step_pairs;
}
bool needed_differ(const ModelLayer& layer) {
  return layer.needed_pairs != layer.predicted_needed_pairs ||
         layer.step_needed_pairs != layer.predicted_step_needed_pairs;
}
bool held_differs(const ModelLayer& layer) {
  return layer.held_bytes != layer.predicted_held_bytes;
}

std::optional<Cause> masked_dense(const ModelRow& row) {
  const bool fits = all_layers(row, [](const ModelLayer& layer) {
    return layer.pairs == layer.dense_pairs && layer.step_pairs == layer.dense_step_pairs &&
           !needed_differ(layer);
  });
  if (!fits || !std::ranges::any_of(row.layers, pairs_differ)) return {};
  return Cause{
      "masked-dense",
      "every layer executes each row with every key of the cache, and masks what the table "
      "does not read",
      "run the tiles of a plan in place of a mask"};
}

std::optional<Cause> counted_twice(const ModelRow& row) {
  const bool fits = all_layers(row, [&](const ModelLayer& layer) {
    const std::int64_t once = layer.num_q_heads * layer.prompt_rows;
    const std::int64_t step = layer.num_q_heads * row.problem.num_steps();
    return layer.needed_pairs == layer.predicted_needed_pairs + once &&
           layer.pairs == layer.predicted_pairs + once &&
           layer.step_needed_pairs == layer.predicted_step_needed_pairs + step &&
           layer.step_pairs == layer.predicted_step_pairs + step;
  });
  if (!fits) return {};
  return Cause{"count-twice",
               fmt::format("just one pair more for each of {} rows and each head, in every layer, "
                           "executed and needed alike, where no tile has one key",
                           row.problem.prompt_tokens),
               "look at the count of pairs, not at the kernels"};
}

// Whether a layer that reads as `other` needs just the measured pairs.
bool reads_as(const ModelRow& row, std::size_t layer, const Layer& other) {
  const ModelLayer& figures = row.layers[layer];
  const std::int64_t prompt = row.problem.prompt_tokens;
  const std::int64_t end = prompt + row.problem.num_steps();
  const std::vector<Topology> topologies =
      topologies_of_heads(other, true, static_cast<int>(layer), figures.num_q_heads);
  const int times = topologies.size() == 1 ? figures.num_q_heads : 1;
  Int128 needed = 0;
  Int128 in_steps = 0;
  for (const Topology& topology : topologies) {
    needed += topology.edges(prompt - figures.prompt_rows, prompt, prompt) * times;
    in_steps += topology.edges(prompt, end, end) * times;
  }
  return needed == figures.needed_pairs && in_steps == figures.step_needed_pairs;
}

std::vector<std::size_t> layers_that_read_otherwise(const ModelRow& row) {
  std::vector<std::size_t> layers;
  for (std::size_t idx = 0; idx < row.layers.size(); ++idx) {
    if (needed_differ(row.layers[idx])) layers.push_back(idx);
  }
  return layers;
}

std::optional<Cause> window_off_by_one(const ModelRow& row) {
  const std::vector<std::size_t> layers = layers_that_read_otherwise(row);
  if (layers.empty()) return {};
  for (const int more : {1, -1}) {
    const LayerTable other = with_wider_windows(claimed(row), more);
    const bool fits = std::ranges::all_of(
        layers, [&](std::size_t layer) { return reads_as(row, layer, other.layers[layer]); });
    if (!fits) continue;
    return Cause{"window-off-by-one",
                 fmt::format("{} layer(s), {} the first, need just the pairs of {} in place of {}",
                             layers.size(), layers.front(),
                             to_text(other.layers[layers.front()].attend, true),
                             to_text(claimed(row).layers[layers.front()].attend, true)),
                 "see whether the window counts the query itself, as window(w) does"};
  }
  return {};
}

// Each layer that differs reads as another layer is said to, or everything.
std::optional<Cause> wrong_layer(const ModelRow& row) {
  const LayerTable table = claimed(row);
  std::vector<Layer> others = parse_layers("full", 1, true).layers;
  for (const Layer& layer : table.layers) {
    if (std::ranges::find(others, layer) == others.end()) others.push_back(layer);
  }
  std::string text;
  for (const std::size_t layer : layers_that_read_otherwise(row)) {
    const auto other = std::ranges::find_if(
        others, [&](const Layer& candidate) { return reads_as(row, layer, candidate); });
    if (other == others.end()) return {};
    text +=
        fmt::format("{}layer {} needs just the pairs of {}, not of {}", text.empty() ? "" : "; ",
                    layer, to_text(other->attend, true), to_text(table.layers[layer].attend, true));
  }
  if (text.empty()) return {};
  return Cause{"wrong-layer", text, "compare the pattern of layers with the model's config"};
}

std::optional<Cause> keep_all(const ModelRow& row) {
  const bool fits = all_layers(
      row, [](const ModelLayer& layer) { return layer.held_bytes == layer.whole_held_bytes; });
  if (!fits || !std::ranges::any_of(row.layers, held_differs)) return {};
  return Cause{"keep-all",
               fmt::format("every layer holds just what full layers would: {} bytes in all",
                           row.sum().held_bytes.back()),
               "free after each step what no later query reads (retain)"};
}

// Of what lives in the pool beyond the sequence's keys and values.
std::optional<Cause> of_more_live_bytes(const ModelRow& row) {
  std::vector<std::int64_t> more = row.live_bytes;
  const std::vector<std::int64_t> held = row.sum().held_bytes;
  for (std::size_t step = 0; step < more.size(); ++step) more[step] -= held[step];
  if (more.front() == 0) return {};
  if (more == row.summary_bytes) {
    return Cause{
        "summaries",
        fmt::format("the pages carry just their summaries beside keys and values: {} bytes "
                    "after the prompt, {} at the end",
                    more.front(), more.back()),
        "count the summaries, or do not ask for them"};
  }
  if (more.front() < 0 || std::ranges::any_of(more, [&](auto m) { return m != more.front(); })) {
    return {};
  }
  return Cause{"leak",
               fmt::format("{} bytes live in the pool that are not the sequence's, as many after "
                           "every step",
                           more.front()),
               "find the sequence that was not freed"};
}

}  // namespace

std::optional<Cause> cause_of_pairs(const ModelRow& row) {
  for (const auto& cause : {masked_dense, counted_twice, window_off_by_one, wrong_layer}) {
    if (std::optional<Cause> found = cause(row)) return found;
  }
  return {};
}

std::optional<Cause> cause_of_state(const ModelRow& row) {
  if (std::ranges::none_of(row.layers, held_differs)) return of_more_live_bytes(row);
  if (std::optional<Cause> found = keep_all(row)) return found;
  return cause_of_pairs(row);
}

}  // namespace lacuna::audit

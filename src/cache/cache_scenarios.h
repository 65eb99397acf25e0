#pragma once

// Small models whose caches differ in what can go wrong: head groups, shared layers, chunks that
// end inside a page, pages of several sizes.

#include <optional>
#include <vector>

#include "cache/cache_rig.h"

namespace lacuna::rig {

struct Scenario {
  const char* layers;
  std::vector<LayerShape> shapes;           // repeated
  std::vector<std::optional<int>> kv_from;  // of the first layers
  int num_layers;
};

inline const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kAll = {
      {"window(40), full, window(24)+sink(4)", {sizes(2, 1, 4, 16)}, {}, 3},
      {"heads(0-1: full; 2-3: window(20)), window(17)", {sizes(4, 2, 4, 16)}, {}, 2},
      {"chunk(24), window(1), chunk(8)", {sizes(2, 2, 4, 16), sizes(1, 1, 4, 16)}, {}, 3},
      {"window(30), full", {sizes(1, 1, 8, 16), sizes(3, 3, 4, 32)}, {}, 2},
      {"window(16), full, window(40), full", {sizes(2, 1, 4, 16)}, {{}, {}, 0, 1}, 4},
      {"dilated(4,8), global(first=3)+window(9)", {sizes(1, 1, 4, 16)}, {}, 2},
      {"heads(0: window(5); 1: strided(16); 2: sink(20))", {sizes(3, 3, 4, 16)}, {}, 1},
      {"vertical_blocks(8,2,3), random(3,7), window(70)", {sizes(2, 1, 4, 16)}, {}, 3},
      {"window(2), window(3), global(5,40)+window(4)", {sizes(1, 1, 4, 16)}, {}, 3},
  };
  return kAll;
}

inline Model model_of(const Scenario& scenario) {
  Model model;
  model.table = parse_layers(scenario.layers, scenario.num_layers, true);
  for (int layer = 0; layer < scenario.num_layers; ++layer) {
    const auto idx = static_cast<std::size_t>(layer);
    model.shape.layers.push_back(scenario.shapes[idx % scenario.shapes.size()]);
    if (idx < scenario.kv_from.size()) model.table.layers[idx].kv_from = scenario.kv_from[idx];
  }
  return model;
}

}  // namespace lacuna::rig

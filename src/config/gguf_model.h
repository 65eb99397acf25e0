#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/gguf_facts.h"
#include "config/keys.h"
#include "lacuna/config.h"

// The stations of the GGUF reader, as reader.h has those of config.json.
namespace lacuna::config {

// One model's keys, with the architecture's prefix.
struct GgufModel {
  Keys& keys;
  std::string arch;
  const ArchitectureFacts* facts;
  std::size_t num_layers = 0;

  std::string key(std::string_view suffix) const { return fmt::format("{}.{}", arch, suffix); }
  std::optional<std::int64_t> integer(std::string_view suffix, std::int64_t min,
                                      std::int64_t max) const {
    return keys.integer(key(suffix), min, max);
  }
  // A number for each layer, where the file has one for all or a list.
  std::optional<std::vector<std::int64_t>> per_layer(std::string_view suffix,
                                                     std::int64_t max) const {
    const std::string name = key(suffix);
    if (const auto length = keys.length(name)) {
      if (static_cast<std::size_t>(*length) != num_layers) {
        keys.fail(name, fmt::format("it has {} items for {} layers", *length, num_layers));
      }
      return keys.integers(name, 0, max);
    }
    const auto number = keys.integer(name, 0, max);
    if (!number) return std::nullopt;
    return std::vector<std::int64_t>(num_layers, *number);
  }
  bool is_list(std::string_view suffix) const { return keys.length(key(suffix)).has_value(); }
  void note(std::string_view suffix, const std::string& value, const std::string& reason) const {
    keys.note(key(suffix), value, reason);
  }
};

enum class GgufKind { kFull, kWindow, kState, kNone };

// gguf_shapes.cc: one table row and one shape for each layer, its selector, and whose KV it reads.
// `kinds` are the windows' alone; layers without KV are found here.
void read_gguf_layers(const GgufModel& model, const std::vector<GgufKind>& kinds,
                      std::int64_t window, ModelConfig& config);

}  // namespace lacuna::config

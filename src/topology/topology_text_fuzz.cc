#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lacuna/error.h"
#include "lacuna/layer_table.h"

// What parses must print, and what was printed must parse to the same table. The first byte picks
// the form, the second the number of layers.

namespace {

// Absolute names would open files of the machine that fuzzes; relative ones start in a missing
// folder.
constexpr const char* kNoFolder = "/nonexistent";

void check_text(std::string_view text, int num_layers, bool causal) {
  const lacuna::LayerTable table = lacuna::parse_layers(text, num_layers, causal, kNoFolder);
  const lacuna::LayerTable again =
      lacuna::parse_layers(lacuna::to_text(table), num_layers, causal, kNoFolder);
  if (again != table) std::abort();
  if (lacuna::layers_from_json(lacuna::to_json(table), kNoFolder) != table) std::abort();
}

void check_json(std::string_view text) {
  const lacuna::LayerTable table = lacuna::layers_from_json(text, kNoFolder);
  if (lacuna::layers_from_json(lacuna::to_json(table), kNoFolder) != table) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (text.find('/') != std::string_view::npos) return 0;
  try {
    if (data[0] % 3 == 2) {
      check_json(text);
    } else {
      check_text(text, 1 + data[1] % 64, data[0] % 3 == 0);
    }
  } catch (const lacuna::Error&) {
    // Most inputs are refused.
  }
  return 0;
}

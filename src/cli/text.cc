#include "cli/text.h"

#include <fmt/format.h>

#include "lacuna/table.h"

namespace lacuna::cli {

std::string list_text(const std::vector<std::int64_t>& layers) {
  std::string text;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(layers[first]);
    if (last > first) text += "-" + std::to_string(layers[last]);
    first = last + 1;
  }
  return layers.size() > 1 ? text + fmt::format(" ({})", layers.size()) : text;
}

std::string layer_text(const Layer& layer, bool causal) {
  std::string text = layer.attend.groups.empty() ? fmt::format("({})", to_string(layer.mixer))
                                                 : to_text(layer.attend, causal);
  if (layer.mixer == Mixer::kMla) text += " (mla)";
  if (layer.kv_from) text += fmt::format(", KV of layer {}", *layer.kv_from);
  if (layer.index_from) text += fmt::format(", choice of layer {}", *layer.index_from);
  return text;
}

std::string subject_text(const Subject& subject) {
  std::string text = fmt::format(
      "{}: {}, {} layers, {}, trained with this table: {}\n", printable(subject.source),
      printable(subject.shape.name), subject.table.layers.size(),
      subject.table.causal ? "causal" : "bidirectional", to_string(subject.table.trained));
  text += "window: " + printable(subject.window_convention) + "\n";
  for (const ConfigNote& note : subject.notes) {
    text += fmt::format("note: {} = {} ({})\n", printable(note.key), printable(note.value),
                        printable(note.reason));
  }
  return text;
}

}  // namespace lacuna::cli

#pragma once

#include <string_view>

#include "config/class_facts.h"

namespace lacuna::config {

enum class GgufWindow {
  kPeriod,      // the last layer of each group of `period` is full; 0: every layer slides
  kDenseFirst,  // the first of each group is full
  kChunks,      // as kPeriod, with chunks for windows
  kIgnored,     // llama.cpp reads no window for this architecture
};

// What llama.cpp decides by architecture where the file is silent (its src/models, as the
// specification quotes them). Every use becomes a note.
struct ArchitectureFacts {
  std::string_view name;
  Mlp mlp = Mlp::kGated;
  GgufWindow window = GgufWindow::kPeriod;
  int period = -1;          // -1: no pattern is known, a window is refused
  bool both_sides = false;  // ± half the window, no cache
  bool learned_sinks = false;
  std::int64_t default_window = 0;
  int layers_with_kv = 0;  // later layers read earlier KV; 0: every layer has its own
};

// nullptr: an architecture that is not known; what its keys say is still read.
const ArchitectureFacts* find_architecture(std::string_view name);

}  // namespace lacuna::config

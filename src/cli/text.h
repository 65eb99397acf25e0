#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"

namespace lacuna::cli {

// Layer numbers as people write them: "0-4, 6-10 (10)".
std::string list_text(const std::vector<std::int64_t>& layers);
// What a layer reads, in a cell: its topology, or its mixer, and whose KV or choice it uses.
std::string layer_text(const Layer& layer, bool causal);
// The lines that head every report: model, window convention, notes.
std::string subject_text(const Subject& subject);

}  // namespace lacuna::cli

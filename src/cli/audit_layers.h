#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
#include "lacuna/layer_table.h"

namespace lacuna::cli {

// Figures of a checked document's layers once more, from what they read alone.

// A layer of a document that anyone may have written. Throws Error saying why nothing is computed
// of it: its text is none, opens a file, or has rows that are looked at one by one.
LayerTable layer_of(const std::string& attend, bool causal);

// A figure of the first table that stands in a document and is a sum over layers: the equations of
// its layers with the numbers put in, as the cost model has them, where they give just what the
// document says; then the sum.
std::vector<std::string> equations_of(const Json& document, const Json& table,
                                      const std::string& kv_dtype, const std::string& key);

}  // namespace lacuna::cli

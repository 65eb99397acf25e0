#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
#include "lacuna/layer_table.h"

namespace lacuna::cli {

// Figures of a checked document's layers once more, from what they read alone.

// A layer of a document that anyone may have written, for a prompt of `length`. Throws Error saying
// why nothing is computed of it: its text is none, opens a file, or would take long to count.
LayerTable layer_of(const std::string& attend, bool causal, std::int64_t length);

// A figure of a table that is a sum over its layers: the equations of the layers with the numbers
// put in, as the cost model has them, where they give just what the document says; then the sum.
std::vector<std::string> equations_of(const Json& document, const Json& table,
                                      const std::string& kv_dtype, const std::string& key);

}  // namespace lacuna::cli

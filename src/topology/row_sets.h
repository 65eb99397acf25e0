#pragma once

#include <vector>

#include "lacuna/ranges.h"
#include "topology/terms.h"

namespace lacuna {

// Appends the keys that any row of the set `rows` reads through this term: append_rows for each
// part, but without evaluating what a later row's keys cover anyway. Sets of millions of single
// rows, as strides and globals make them, stay linear.
void append_read_by(const Topology::PlacedTerm& placed, const Scope& scope, const Ranges& rows,
                    std::vector<Range>& out);

}  // namespace lacuna

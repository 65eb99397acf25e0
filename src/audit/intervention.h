#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/audit.h"

namespace lacuna::audit {

// Positions of evidence whose prediction is worth a try for a query: the nearest, those on both
// sides of each border of the table's distance buckets, and the farthest.
std::vector<std::int64_t> telling_evidence(const Graph& graph, std::int64_t query);

// Changes each of the positions of `evidence` alone and looks at the last position of `tokens`. The
// transformer has the table that runs and f32 products and keys; `claimed` has as many positions
// as there are tokens. Throws Stopped (bench/timed_row.h).
std::vector<Intervention> intervene(Transformer& transformer, const Graph& claimed,
                                    std::span<const TokenId> tokens,
                                    std::span<const std::int64_t> evidence, std::int64_t vocab_size,
                                    const AuditOptions& options);

}  // namespace lacuna::audit

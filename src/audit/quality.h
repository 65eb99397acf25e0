#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lacuna/audit.h"

namespace lacuna::audit {

// For each of the last `positions` positions of tokens but the last one: where the pair that ends
// with the next token last stood before, as the graph sees that place.
std::vector<std::string> pair_buckets(const Graph& graph, std::span<const TokenId> tokens,
                                      std::int64_t positions);

// NLL of each token after the last `positions` positions, the last token being only foretold.
// `buckets` as of pair_buckets(). Throws Stopped (bench/timed_row.h).
Quality quality_of(Transformer& transformer, std::span<const TokenId> tokens,
                   const std::vector<std::string>& buckets, ThreadPool& pool,
                   const AuditOptions& options);

}  // namespace lacuna::audit

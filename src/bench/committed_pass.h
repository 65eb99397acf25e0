#pragma once

#include <span>
#include <stop_token>

#include "lacuna/transformer.h"

namespace lacuna::bench {

// A pass over new tokens of one sequence, committed. Throws Stopped (timed_row.h) once stop is
// requested, and Error where the cache has no room.
Transformer::Pass committed_pass(Transformer& transformer, SequenceId sequence,
                                 std::span<const TokenId> tokens, LogitRows rows,
                                 const std::stop_token& stop);

}  // namespace lacuna::bench

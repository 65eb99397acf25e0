#pragma once

#include <cstdint>
#include <vector>

#include "lacuna/decode_bench.h"
#include "lacuna/kernel_speed.h"

namespace lacuna {

// The table of decode speeds, 32 query heads on 8 KV heads of width 128: one row of a long cache in
// bf16 and int8, a window far behind which nothing is held beside a cache of as many tokens, rows
// of a verification, and a ragged batch. Layers are repeated until a step reads at least four times
// the last-level cache, one of int4 half of that.
std::vector<DecodeProblem> decode_speed_problems(std::int64_t max_threads);

// A prompt whose first 16384 tokens were published, over 32 full layers in pages of 64: from the
// lookup to a sequence that shares the pages. The width of heads plays no part.
struct PrefixHitFigure {
  std::int64_t tokens = 0;  // of the hit
  std::int64_t num_tables = 0;
  std::int64_t shared_pages = 0;
  Statistics seconds;
};
PrefixHitFigure time_prefix_hit(std::int64_t repetitions);

// What is wanted of that table and what was measured, ratios taken round by round. Shown, never
// asserted.
std::vector<KernelGoal> decode_goals(const DecodeBenchResult& result, const PrefixHitFigure& hit);

}  // namespace lacuna

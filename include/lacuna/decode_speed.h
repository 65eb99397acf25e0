#pragma once

#include <cstdint>
#include <vector>

#include "lacuna/decode_bench.h"
#include "lacuna/kernel_speed.h"

namespace lacuna {

// The table of decode speeds, 32 query heads on 8 KV heads of width 128: one row of a long cache in
// bf16 and int8, a window far behind which nothing is held beside a cache of as many tokens, rows
// of a verification, and a ragged batch. Layers are repeated until a step reads at least four times
// the last-level cache.
std::vector<DecodeProblem> decode_speed_problems(std::int64_t max_threads);

// What is wanted of that table and what was measured, ratios taken round by round. Shown, never
// asserted.
std::vector<KernelGoal> decode_goals(const DecodeBenchResult& result);

}  // namespace lacuna

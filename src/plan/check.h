#pragma once

#include <cstddef>
#include <span>

#include "lacuna/plan.h"

namespace lacuna {

// Throws Error naming what is out of range, its value and what is allowed.
void check_call(std::span<const SequenceRows> sequences, HeadCounts heads,
                const PlanOptions& options);
void check_num_topologies(std::size_t num_topologies, HeadCounts heads);
void check_key_ranges(std::span<const KeyRanges> key_ranges,
                      std::span<const SequenceRows> sequences, HeadCounts heads);

}  // namespace lacuna

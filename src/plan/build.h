#pragma once

#include <span>

#include "lacuna/plan.h"
#include "plan/strip.h"

namespace lacuna {

// make_plan(), which derives repeated tiles; with Repetition::kBuilt what they are checked against.
Plan build_plan(std::span<const Topology> topologies, std::span<const SequenceRows> sequences,
                HeadCounts heads, const PlanOptions& options, Repetition repetition);

}  // namespace lacuna

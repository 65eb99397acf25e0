#pragma once

#include "lacuna/integer.h"
#include "lacuna/plan.h"

namespace lacuna {

// Executed pairs of a tile, over its query heads.
Int128 tile_pairs(const Plan& plan, const PlanTile& tile);

}  // namespace lacuna

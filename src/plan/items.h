#pragma once

#include <cstdint>
#include <span>

#include "plan/draft.h"
#include "plan/head_tiles.h"

namespace lacuna {

// Cuts the tiles of each sequence and KV head into items and those into pieces, heaviest first, and
// names each one's gathered sets. `tiles` is [num_sequences, num_kv_heads].
void append_items(Draft& draft, std::span<const HeadTiles> tiles, const PlanOptions& options);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <vector>

#include "lacuna/plan.h"
#include "plan/mask_pool.h"
#include "plan/row_ranges.h"

namespace lacuna {

constexpr std::int64_t kMostTileRows = 64;
constexpr std::int64_t kMostTileKeys = 16;
constexpr std::int64_t kMostThreads = 4096;  // bits of a mask's word

// Appends the tiles of tile_k keys that the rows visit, ascending: runs of whole tiles, and edge
// tiles with their masks. Takes a few steps a run, whatever the length of a range. REQUIRES: at
// most kMostTileRows rows, 1 <= tile_k <= kMostTileKeys.
void append_runs(const RowRanges& rows, std::int64_t tile_k, MaskPool& masks,
                 std::vector<TileRun>& out);

}  // namespace lacuna

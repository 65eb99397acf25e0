#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/draft.h"
#include "plan/head_classes.h"
#include "plan/strip.h"

namespace lacuna {

// The tiles of one KV head in one sequence; others with the same classes of heads use them too.
struct HeadTiles {
  std::int64_t begin = 0;
  std::int64_t global_begin = 0;  // from here on tiles of global rows
  std::int64_t end = 0;
  std::vector<std::int64_t> gathered;  // sets that its parts use, ascending
};

// Appends parts and tiles to the draft.
HeadTiles append_tiles(Draft& draft, const SequenceStrips& strips,
                       std::span<const HeadClass> classes);

}  // namespace lacuna

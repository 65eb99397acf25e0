#pragma once

#include <cstdint>

#include "lacuna/integer.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// What a kernel of the smallest unit `tile` executes for one query head. Query tiles start at the
// first row asked for and hold the rows there are; key tiles lie at absolute multiples of tile.k
// and count whole. Scattered globals are gathered into panels of tile.k by their ordinal among the
// topology's scattered globals; a panel is visited where a row of the tile reads one of its keys
// that the tile's other ranges do not already give that row. Global rows are taken out and grouped,
// tile.q at a time, into tiles of their own. This is the one function that plan and report both
// count with.
struct Executed {
  Int128 pairs = 0;        // Σ rows × visited keys
  Int128 loaded_keys = 0;  // Σ visited keys: K/V vectors loaded

  friend Executed operator+(const Executed& a, const Executed& b) {
    return {a.pairs + b.pairs, a.loaded_keys + b.loaded_keys};
  }
  friend Executed operator-(const Executed& a, const Executed& b) {
    return {a.pairs - b.pairs, a.loaded_keys - b.loaded_keys};
  }
  // Both sums times `factor`; throws Error where one exceeds 128 bits.
  friend Executed checked_scale(const Executed& sum, Int128 factor) {
    return {checked_mul(sum.pairs, factor), checked_mul(sum.loaded_keys, factor)};
  }
};
Executed executed(const Topology& topology, Range rows, std::int64_t length, Tile tile);

}  // namespace lacuna

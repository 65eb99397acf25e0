#pragma once

#include <cstdint>
#include <functional>

#include "lacuna/integer.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// One query tile: rows q_begin..q_end-1 (up to tile.q of them, from the first row asked for), and
// which key tiles of tile.k keys, at absolute multiples, they touch.
struct QueryTile {
  std::int64_t q_begin = 0;
  std::int64_t q_end = 0;
  Ranges visited;  // indices of key tiles that hold a key of any row
  Ranges whole;    // those among them in which every row reads every key; the others need a mask
};

// Calls `visit` for each query tile of rows q_begin..q_end-1 in order. Memory: one tile's ranges.
void for_each_query_tile(const Topology& topology, Range rows, std::int64_t length, Tile tile,
                         const std::function<void(const QueryTile&)>& visit);

// Sums over query tiles.
struct TileCount {
  Int128 visited = 0;  // (query tile, key tile) pairs
  Int128 whole = 0;
  Int128 edge = 0;  // visited - whole
  // Σ rows of the query tile × tile.k over visited tiles: what a kernel of this unit computes when
  // it skips nothing inside a tile.
  Int128 executed_pairs = 0;

  friend TileCount operator+(const TileCount& a, const TileCount& b) {
    return {a.visited + b.visited, a.whole + b.whole, a.edge + b.edge,
            a.executed_pairs + b.executed_pairs};
  }
  friend TileCount operator-(const TileCount& a, const TileCount& b) {
    return {a.visited - b.visited, a.whole - b.whole, a.edge - b.edge,
            a.executed_pairs - b.executed_pairs};
  }
  // Every sum times `factor`; throws Error where one exceeds 128 bits.
  friend TileCount checked_scale(const TileCount& count, Int128 factor) {
    return {checked_mul(count.visited, factor), checked_mul(count.whole, factor),
            checked_mul(count.edge, factor), checked_mul(count.executed_pairs, factor)};
  }
};
TileCount count_tiles(const Topology& topology, Range rows, std::int64_t length, Tile tile);

}  // namespace lacuna

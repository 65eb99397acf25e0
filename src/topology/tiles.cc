#include "lacuna/tiles.h"

#include <algorithm>

#include "lacuna/error.h"
#include "topology/periodic.h"

namespace lacuna {
namespace {

// Keys that every row of [begin, end) reads.
Ranges common_keys(const Topology& topology, std::int64_t begin, std::int64_t end,
                   std::int64_t length) {
  Ranges common = topology.row(begin, length);
  for (std::int64_t row = begin + 1; row < end && !common.empty(); ++row) {
    common = intersect(common, topology.row(row, length));
  }
  return common;
}

// Tiles that lie wholly inside `keys`.
Ranges tiles_inside(const Ranges& keys, std::int64_t tile) {
  std::vector<Range> tiles;
  for (const Range& part : keys) {
    tiles.push_back({ceil_div(part.begin, tile), part.end / tile});
  }
  return Ranges(std::move(tiles));
}

TileCount count_directly(const Topology& topology, Range rows, std::int64_t length, Tile tile) {
  TileCount count;
  for_each_query_tile(topology, rows, length, tile, [&](const QueryTile& q_tile) {
    const std::int64_t visited = q_tile.visited.size();
    const std::int64_t whole = q_tile.whole.size();
    count.visited += visited;
    count.whole += whole;
    count.edge += visited - whole;
    count.executed_pairs += Int128{visited} * tile.k * (q_tile.q_end - q_tile.q_begin);
  });
  return count;
}

}  // namespace

void require_tiles(Range rows, std::int64_t length, Tile tile) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  if (tile.q < 1 || tile.k < 1 || tile.q > kLargest || tile.k > kLargest) {
    throw Error("tile is " + std::to_string(tile.q) + "," + std::to_string(tile.k) +
                "; allowed: two numbers 1..2^30");
  }
  if (rows.begin < 0 || rows.begin > rows.end || rows.end > length) {
    throw Error("rows are " + std::to_string(rows.begin) + ".." + std::to_string(rows.end) +
                "; allowed: an ascending pair inside 0.." + std::to_string(length));
  }
}

std::optional<RegularZone> regular_zone(const Topology& topology, std::int64_t length, Tile tile) {
  std::optional<RegularZone> zone = regular_zone(topology, length);
  if (!zone) return std::nullopt;
  const auto period = common_period(common_period(zone->period, tile.q), tile.k);
  if (!period) return std::nullopt;
  zone->period = *period;
  // Ends of ranges round to tiles, and a tile holds rows on both sides of a border.
  const std::int64_t margin = tile.q + 2 * tile.k;
  zone->rows.begin += margin;
  zone->rows.end -= margin;
  return zone;
}

void for_each_query_tile(const Topology& topology, Range rows, std::int64_t length, Tile tile,
                         const std::function<void(const QueryTile&)>& visit) {
  require_tiles(rows, length, tile);
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += tile.q) {
    const std::int64_t end = std::min(begin + tile.q, rows.end);
    const Ranges visited = tiles_touched(topology.rows(begin, end, length), tile.k);
    const Ranges whole = tiles_inside(common_keys(topology, begin, end, length), tile.k);
    visit({begin, end, visited, whole});
  }
}

TileCount count_tiles(const Topology& topology, Range rows, std::int64_t length, Tile tile) {
  require_tiles(rows, length, tile);
  // A causal row does not depend on what follows it; the base periods may lie past the segment.
  const std::int64_t horizon = topology.causal() ? kForever - 1 : length;
  return periodic_sum<TileCount>(rows, regular_zone(topology, length, tile),
                                 [&](std::int64_t begin, std::int64_t end) {
                                   return count_directly(topology, {begin, end}, horizon, tile);
                                 });
}

}  // namespace lacuna

#include "plan/run_cycle.h"

#include <algorithm>

#include "lacuna/integer.h"

namespace lacuna {

std::optional<RunCycle> RunCycle::find(const RegularZone& zone, Range rows, Tile tile,
                                       const TileSource& build) {
  const Range regular = {std::max(rows.begin, zone.rows.begin), std::min(rows.end, zone.rows.end)};
  constexpr std::int64_t kFewestCycles = 4;  // three are built to find the others
  if (regular.end <= regular.begin || zone.period > (regular.end - regular.begin) / kFewestCycles) {
    return std::nullopt;
  }
  RunCycle cycle;
  cycle.key_tiles_ = zone.period / tile.k;
  cycle.first_tile_ = ceil_div(regular.begin - rows.begin, tile.q);
  cycle.end_tile_ = (regular.end - rows.begin) / tile.q;
  const std::int64_t tiles = zone.period / tile.q;
  const std::int64_t cycles = (cycle.end_tile_ - cycle.first_tile_) / tiles;
  if (cycles < kFewestCycles) return std::nullopt;
  std::vector<TileRun> now, later;
  for (std::int64_t t = cycle.first_tile_; t < cycle.first_tile_ + tiles; ++t) {
    now.clear();
    later.clear();
    build(t, now);
    build(t + tiles, later);
    if (!cycle.add_pattern(now, later)) return std::nullopt;
  }
  const std::int64_t last_cycle = cycle.first_tile_ + (cycles - 1) * tiles;
  for (std::int64_t t = last_cycle; t < last_cycle + tiles; ++t) {
    now.clear();
    later.clear();
    cycle.append(t, now);
    build(t, later);
    if (now != later) return std::nullopt;
  }
  return cycle;
}

bool RunCycle::add_pattern(std::span<const TileRun> now, std::span<const TileRun> a_cycle_later) {
  Pattern pattern;
  std::span<const TileRun> later = a_cycle_later;
  while (!now.empty() && !later.empty() && now.front() == later.front()) {
    pattern.standing.push_back(now.front());
    now = now.subspan(1);
    later = later.subspan(1);
  }
  if (!now.empty() && !later.empty() && now.front().first == later.front().first &&
      now.front().count < later.front().count) {  // only whole runs are longer than a tile
    pattern.growth = later.front().count - now.front().count;
    pattern.standing.push_back(now.front());
    now = now.subspan(1);
    later = later.subspan(1);
  }
  const auto last = std::mismatch(now.rbegin(), now.rend(), later.rbegin(), later.rend());
  const auto num_last = static_cast<std::size_t>(last.first - now.rbegin());
  pattern.last.assign(now.end() - (last.first - now.rbegin()), now.end());
  pattern.moving.assign(now.begin(), now.end() - (last.first - now.rbegin()));
  later = later.first(later.size() - num_last);
  std::vector<TileRun> moved;
  append_moved(pattern.moving, 1, moved);
  if (moved.size() > later.size() || !std::equal(moved.rbegin(), moved.rend(), later.rbegin())) {
    return false;
  }
  pattern.gained.assign(later.begin(), later.end() - std::ssize(moved));
  patterns_.push_back(std::move(pattern));
  return true;
}

void RunCycle::append_moved(std::span<const TileRun> runs, std::int64_t cycles,
                            std::vector<TileRun>& out) const {
  for (const TileRun& run : runs) {
    out.push_back({run.first + cycles * key_tiles_, run.count, run.mask});
  }
}

void RunCycle::append(std::int64_t tile_idx, std::vector<TileRun>& out) const {
  const std::int64_t tiles = std::ssize(patterns_);
  const std::int64_t cycles = (tile_idx - first_tile_) / tiles;
  const Pattern& pattern =
      patterns_[static_cast<std::size_t>(tile_idx - first_tile_ - cycles * tiles)];
  out.insert(out.end(), pattern.standing.begin(), pattern.standing.end());
  if (pattern.growth != 0) out.back().count += cycles * pattern.growth;
  for (std::int64_t gained = 0; !pattern.gained.empty() && gained < cycles; ++gained) {
    append_moved(pattern.gained, gained, out);
  }
  append_moved(pattern.moving, cycles, out);
  out.insert(out.end(), pattern.last.begin(), pattern.last.end());
}

}  // namespace lacuna

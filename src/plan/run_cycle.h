#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lacuna/plan.h"
#include "lacuna/ranges.h"
#include "topology/periodic.h"

namespace lacuna {

// Builds the runs of a query tile, counted from the first row asked for, and appends them.
using TileSource = std::function<void(std::int64_t tile_idx, std::vector<TileRun>& out)>;

// The runs of query tiles that repeat. From one cycle to the next a tile keeps its first runs (the
// last of them may be a whole one that grows), gains a group that stands a cycle further on each
// time, and reads the rest a cycle further on, but for runs that stand at the end. Windows have
// only what moves, full a run that grows, strided and vertical blocks what they gain. Immutable.
class RunCycle {
 public:
  // Builds two cycles at the start of the zone, takes from them how tiles change, and checks that
  // against the zone's last whole cycle. nullopt where the zone is too short to gain by it, or
  // where tiles change otherwise.
  static std::optional<RunCycle> find(const RegularZone& zone, Range rows, Tile tile,
                                      const TileSource& build);

  bool holds(std::int64_t tile_idx) const {
    return first_tile_ <= tile_idx && tile_idx < end_tile_;
  }
  // REQUIRES: holds(tile_idx).
  void append(std::int64_t tile_idx, std::vector<TileRun>& out) const;

 private:
  struct Pattern {
    std::vector<TileRun> standing;
    std::int64_t growth = 0;  // of the last standing run, in key tiles a cycle
    std::vector<TileRun> gained;
    std::vector<TileRun> moving;
    std::vector<TileRun> last;
  };
  RunCycle() = default;
  bool add_pattern(std::span<const TileRun> now, std::span<const TileRun> a_cycle_later);
  void append_moved(std::span<const TileRun> runs, std::int64_t cycles,
                    std::vector<TileRun>& out) const;

  std::int64_t first_tile_ = 0;
  std::int64_t end_tile_ = 0;
  std::int64_t key_tiles_ = 1;     // a cycle, in key tiles
  std::vector<Pattern> patterns_;  // one a query tile of the cycle
};

}  // namespace lacuna

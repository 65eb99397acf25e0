#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lacuna/plan.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"
#include "plan/draft.h"
#include "plan/row_ranges.h"
#include "topology/periodic.h"

namespace lacuna {

// Whether tiles may be derived from others that they repeat, or are each built from their rows. The
// plan is the same.
enum class Repetition { kDerived, kBuilt };

// A topology with what a plan asks of it, once for all sequences.
struct TopologyParts {
  Topology whole;
  Topology ordinary;  // without scattered columns and global rows
  bool has_globals = false;
  friend bool operator==(const TopologyParts& a, const TopologyParts& b) {
    return a.whole == b.whole;
  }
};
TopologyParts parts_of(const Topology& topology);

// The parts that one topology has in the tiles of a sequence's asked rows, for whichever heads:
// head_set is left open.
struct Strip {
  std::vector<TilePart> ordinary;     // one a tile; without rows where all of them are global
  std::optional<std::size_t> global;  // into SequenceStrips::globals
};

// Tiles of global rows, tile.q of them at a time; the same for all topologies with the same ones.
struct GlobalStrip {
  bool causal = true;
  Ranges rows;
  std::vector<TilePart> parts;
};

// All strips of one sequence.
struct SequenceStrips {
  std::int64_t num_tiles = 0;
  std::vector<Strip> strips;  // one a topology
  std::vector<GlobalStrip> globals;
};

// Appends rows, runs and masks to the draft.
SequenceStrips make_strips(Draft& draft, std::span<const TopologyParts> topologies,
                           const SequenceRows& sequence, Repetition repetition);
// One strip, of what key ranges say.
SequenceStrips make_strip(Draft& draft, const KeyRanges& key_ranges, const SequenceRows& sequence);

}  // namespace lacuna

#include "plan/strip.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "lacuna/integer.h"
#include "plan/panels.h"
#include "plan/run_cycle.h"
#include "plan/runs.h"
#include "topology/terms.h"

namespace lacuna {
namespace {

// Where ordinary tiles come from.
struct TileInput {
  SequenceRows sequence;
  RowSource source;
  std::int64_t rows_begin = 0;  // the ordinary rows in the plan's rows, ascending to rows_end
  std::int64_t rows_end = 0;
  std::optional<RegularZone> zone;  // absent: every tile is built from its rows
  bool causal = true;
  std::vector<std::int64_t> gathered;
};

class StripMaker {
 public:
  StripMaker(Draft& draft, TileInput input)
      : draft_(draft),
        input_(std::move(input)),
        asked_(input_.sequence.rows),
        panels_(input_.gathered, input_.causal, draft.plan().tile.k, draft.masks()) {}

  std::vector<TilePart> make() {
    const std::int64_t tile_q = draft_.plan().tile.q;
    const std::optional<RunCycle> cycle = find_cycle();
    std::vector<TilePart> parts;
    parts.reserve(static_cast<std::size_t>(ceil_div(asked_.end - asked_.begin, tile_q)));
    std::int64_t next_row = input_.rows_begin;
    for (std::int64_t begin = asked_.begin; begin < asked_.end; begin += tile_q) {
      TilePart part;
      part.rows_begin = next_row;
      part.rows_end = next_row = rows_below(begin + tile_q, next_row);
      runs_.clear();
      const std::int64_t tile_idx = std::ssize(parts);
      // A cycle's tiles are full: without a global row taken out.
      if (cycle && cycle->holds(tile_idx) && part.rows_end - part.rows_begin == tile_q) {
        cycle->append(tile_idx, runs_);
      } else {
        build(rows_of(part), runs_);
      }
      append(part);
      parts.push_back(part);
    }
    name_gathered(parts);
    return parts;
  }

 private:
  std::span<const std::int64_t> rows_of(const TilePart& part) {
    return std::span(draft_.plan().rows)
        .subspan(static_cast<std::size_t>(part.rows_begin),
                 static_cast<std::size_t>(part.rows_end - part.rows_begin));
  }

  // The end of the rows below `position`, `from` on: at most a tile's.
  std::int64_t rows_below(std::int64_t position, std::int64_t from) const {
    const auto rows = draft_.plan().rows.begin();
    const std::int64_t limit = std::min(from + draft_.plan().tile.q, input_.rows_end);
    return std::lower_bound(rows + from, rows + limit, position) - rows;
  }

  std::optional<RunCycle> find_cycle() {
    if (!input_.zone) return std::nullopt;
    const Tile tile = draft_.plan().tile;
    return RunCycle::find(*input_.zone, asked_, tile,
                          [&](std::int64_t tile_idx, std::vector<TileRun>& out) {
                            std::vector<std::int64_t> rows(static_cast<std::size_t>(tile.q));
                            std::iota(rows.begin(), rows.end(), asked_.begin + tile_idx * tile.q);
                            build(rows, out);
                          });
  }

  void build(std::span<const std::int64_t> rows, std::vector<TileRun>& out) {
    ranges_.clear();
    for (const std::int64_t row : rows) input_.source(row, ranges_);
    append_runs(ranges_, draft_.plan().tile.k, draft_.masks(), out);
  }

  // Writes the tile's runs into the plan, those of gathered keys first.
  void append(TilePart& part) {
    std::vector<TileRun>& runs = draft_.plan().runs;
    part.runs_begin = std::ssize(runs);
    if (!input_.gathered.empty() && part.rows_begin < part.rows_end) {
      panels_.append(rows_of(part), runs_, runs);
    }
    part.gathered_end = std::ssize(runs);
    runs.insert(runs.end(), runs_.begin(), runs_.end());
    part.runs_end = std::ssize(runs);
  }

  // Keys that no tile gathers are nobody's set.
  void name_gathered(std::vector<TilePart>& parts) {
    std::int64_t set = -1;
    for (TilePart& part : parts) {
      if (part.runs_begin == part.gathered_end) continue;
      if (set < 0) set = draft_.gathered_set(input_.gathered);
      part.gathered = set;
    }
  }

  Draft& draft_;
  const TileInput input_;
  const Range asked_;
  Panels panels_;
  RowRanges ranges_;           // of one tile, filled anew
  std::vector<TileRun> runs_;  // likewise
};

// Global rows of a sequence's asked ones. A term lists at most 2^22 of them at a time.
Ranges global_rows(const Topology& topology, const SequenceRows& sequence) {
  constexpr std::int64_t kSlab = std::int64_t{1} << 20;
  std::vector<Range> found;
  for (std::int64_t begin = sequence.rows.begin; begin < sequence.rows.end; begin += kSlab) {
    const std::int64_t end = std::min(begin + kSlab, sequence.rows.end);
    const Ranges slab = topology.global_rows(begin, end, sequence.length);
    found.insert(found.end(), slab.begin(), slab.end());
  }
  return Ranges(std::move(found));
}

// Scattered globals that a row asked for may read.
std::vector<std::int64_t> gathered_keys(const Topology& topology, const SequenceRows& sequence) {
  const std::int64_t end = topology.causal() ? sequence.rows.end : sequence.length;
  std::vector<std::int64_t> keys;
  for (const Range& part : topology.scattered_globals({0, end}, sequence.length)) {
    for (std::int64_t key = part.begin; key < part.end; ++key) keys.push_back(key);
  }
  return keys;
}

// Global rows read all they may.
std::vector<TilePart> global_parts(Draft& draft, bool causal, const Ranges& rows,
                                   std::int64_t length) {
  const std::int64_t rows_begin = draft.append_rows(rows.parts());
  const std::int64_t rows_end = std::ssize(draft.plan().rows);
  const Tile tile = draft.plan().tile;
  std::vector<TileRun>& runs = draft.plan().runs;
  std::vector<TilePart> parts;
  RowRanges ranges;
  for (std::int64_t at = rows_begin; at < rows_end; at += tile.q) {
    TilePart part;
    part.rows_begin = at;
    part.rows_end = std::min(at + tile.q, rows_end);
    ranges.clear();
    for (std::int64_t idx = at; idx < part.rows_end; ++idx) {
      const std::int64_t row = draft.plan().rows[static_cast<std::size_t>(idx)];
      ranges.append({0, causal ? row + 1 : length});
      ranges.end_row();
    }
    part.runs_begin = part.gathered_end = std::ssize(runs);
    append_runs(ranges, tile.k, draft.masks(), runs);
    part.runs_end = std::ssize(runs);
    parts.push_back(part);
  }
  return parts;
}

// The strips of one sequence, which share what they can.
class StripsMaker {
 public:
  StripsMaker(Draft& draft, const SequenceRows& sequence, Repetition repetition)
      : draft_(draft), sequence_(sequence), repetition_(repetition) {
    result_.num_tiles = ceil_div(sequence.rows.end - sequence.rows.begin, draft.plan().tile.q);
  }

  void add(const TopologyParts& topology) {
    const Ranges globals = topology.has_globals ? global_rows(topology.whole, sequence_) : Ranges{};
    TileInput input;
    input.sequence = sequence_;
    input.source = TopologyRows(topology.ordinary, sequence_.length);
    input.causal = topology.whole.causal();
    if (topology.has_globals) input.gathered = gathered_keys(topology.whole, sequence_);
    if (repetition_ == Repetition::kDerived) {
      input.zone = regular_zone(topology.ordinary, sequence_.length, draft_.plan().tile);
    }
    const RowList& rows = ordinary_rows(globals);
    input.rows_begin = rows.begin;
    input.rows_end = rows.end;
    Strip strip;
    strip.ordinary = StripMaker(draft_, std::move(input)).make();
    if (!globals.empty()) strip.global = global_strip(topology.whole.causal(), globals);
    result_.strips.push_back(std::move(strip));
  }

  SequenceStrips take() { return std::move(result_); }

 private:
  // Asked rows without global ones, in the plan's rows.
  struct RowList {
    Ranges without;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  const RowList& ordinary_rows(const Ranges& globals) {
    for (const RowList& known : row_lists_) {
      if (known.without == globals) return known;
    }
    const Ranges rows = subtract(Ranges{sequence_.rows}, globals);
    const std::int64_t begin = draft_.append_rows(rows.parts());
    row_lists_.push_back({globals, begin, std::ssize(draft_.plan().rows)});
    return row_lists_.back();
  }

  std::size_t global_strip(bool causal, const Ranges& rows) {
    for (std::size_t known = 0; known < result_.globals.size(); ++known) {
      const GlobalStrip& strip = result_.globals[known];
      if (strip.causal == causal && strip.rows == rows) return known;
    }
    result_.globals.push_back({causal, rows, global_parts(draft_, causal, rows, sequence_.length)});
    return result_.globals.size() - 1;
  }

  Draft& draft_;
  const SequenceRows sequence_;
  const Repetition repetition_;
  std::vector<RowList> row_lists_;
  SequenceStrips result_;
};

}  // namespace

TopologyParts parts_of(const Topology& topology) {
  const bool has_globals =
      std::ranges::any_of(topology.terms(), [](const Topology::PlacedTerm& placed) {
        return is_global(placed.term) && !placed.columns_only;
      });
  return {topology, has_globals ? topology.without_globals() : topology, has_globals};
}

SequenceStrips make_strips(Draft& draft, std::span<const TopologyParts> topologies,
                           const SequenceRows& sequence, Repetition repetition) {
  StripsMaker maker(draft, sequence, repetition);
  for (const TopologyParts& topology : topologies) maker.add(topology);
  return maker.take();
}

SequenceStrips make_strip(Draft& draft, const KeyRanges& key_ranges, const SequenceRows& sequence) {
  TileInput input;
  input.sequence = sequence;
  const std::int64_t first_row = sequence.rows.begin;
  input.source = [&key_ranges, first_row](std::int64_t row, RowRanges& out) {
    append_row(key_ranges, first_row, row, out);
  };
  input.rows_begin = draft.append_rows(std::span(&sequence.rows, 1));
  input.rows_end = std::ssize(draft.plan().rows);
  SequenceStrips result;
  result.strips.push_back({StripMaker(draft, std::move(input)).make(), std::nullopt});
  result.num_tiles = std::ssize(result.strips.front().ordinary);
  return result;
}

}  // namespace lacuna

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// A term with what keys its draws, and with what of its union it depends on.
struct Topology::PlacedTerm {
  Term term;
  // Only random terms depend on these; 0 elsewhere, so that equal sets compare equal.
  int layer = 0;
  int head = 0;
  // random_blocks(outside=window): the union's window and global terms.
  std::shared_ptr<const std::vector<Term>> outside;
  // A global read by all as a column whose own row is left to somebody else.
  bool columns_only = false;

  friend bool operator==(const PlacedTerm& a, const PlacedTerm& b) {
    const bool same_outside =
        a.outside == b.outside || (a.outside && b.outside && *a.outside == *b.outside);
    return a.term == b.term && a.layer == b.layer && a.head == b.head &&
           a.columns_only == b.columns_only && same_outside;
  }
};

// A position past every position a segment can have: rows without end.
inline constexpr std::int64_t kForever = std::int64_t{1} << 60;

struct Scope {
  bool causal = true;
  std::int64_t length = 0;    // keys below it exist; bidirectional: the segment's length
  bool every_choice = false;  // dynamic terms: every key they could choose, not a stand-in
};

// Appends the keys that any row of [q_begin, q_end) reads through this term, in any order, overlaps
// allowed. REQUIRES: q_begin < q_end. q_end may be kForever in a causal table.
void append_rows(const Topology::PlacedTerm& placed, const Scope& scope, std::int64_t q_begin,
                 std::int64_t q_end, std::vector<Range>& out);

// One range of a row, and which of its ends move by one with each next row.
struct MovingRange {
  Range range;
  bool begin_moves = false;
  bool end_moves = false;
};
// Standing single keys offset, offset+k, … below `end`: too many to be listed as ranges.
struct Lattice {
  std::int64_t k = 1;
  std::int64_t offset = 0;
  std::int64_t end = 0;
  std::int64_t count_below(std::int64_t position) const {
    const std::int64_t limit = std::min(position, end);
    return limit <= offset ? 0 : (limit - 1 - offset) / k + 1;
  }
};

// A row as it moves: the union of its ranges and of its lattice's keys.
struct MovingRow {
  std::vector<MovingRange> ranges;
  Lattice lattice;
};

// Adds what row `query` reads through this term; returns the first later row for which that no
// longer holds as it moves. Of several lattices the first is kept as one, the others as ranges.
std::int64_t add_moving(const Topology::PlacedTerm& placed, const Scope& scope, std::int64_t query,
                        MovingRow& row);

// How a term's rows repeat: with `period`, once a row is `extent` keys past the start (and before
// the end). Extents of a union's terms add up. nullopt: a random draw or an explicit list.
std::optional<Topology::Rhythm> rhythm_of(const Term& term);

// True where the term does not exist in this direction; then `why` says what to write instead.
void check_direction(const Term& term, bool causal);

bool is_dynamic(const Term& term);
// Positions of a global term inside `within`, in a segment of `length` tokens.
Ranges global_positions(const Term& term, Range within, std::int64_t length);
bool is_global(const Term& term);
// Those among them that stand alone: listed ones whose neighbours the term does not list, and those
// of every=k for k > 1. What stands alone does not depend on the length.
Ranges scattered_positions(const Term& term, Range within, std::int64_t length);

}  // namespace lacuna

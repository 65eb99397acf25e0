#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace lacuna {

// Half-open interval of positions [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// A set of positions as sorted, disjoint, non-touching, non-empty ranges: every set has exactly one
// form, so == compares sets. A plain value.
class Ranges {
 public:
  Ranges() = default;
  // Any order, overlaps and empty ranges allowed.
  explicit Ranges(std::vector<Range> parts);
  Ranges(std::initializer_list<Range> parts) : Ranges(std::vector<Range>(parts)) {}

  bool empty() const { return parts_.empty(); }
  // Number of positions.
  std::int64_t size() const;
  bool contains(std::int64_t position) const;
  bool covers(Range part) const;
  // First and last position; REQUIRES: not empty.
  std::int64_t front() const { return parts_.front().begin; }
  std::int64_t back() const { return parts_.back().end - 1; }

  std::span<const Range> parts() const { return parts_; }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }

  friend bool operator==(const Ranges&, const Ranges&) = default;

 private:
  std::vector<Range> parts_;
};

Ranges unite(const Ranges& a, const Ranges& b);
Ranges intersect(const Ranges& a, const Ranges& b);
Ranges subtract(const Ranges& a, const Ranges& b);
// The part of `a` inside `window`.
Ranges clip(const Ranges& a, Range window);
// The tiles of `tile` positions (tile t covers t·tile .. t·tile+tile-1) that hold any position of
// `a`. REQUIRES: tile >= 1.
Ranges tiles_touched(const Ranges& a, std::int64_t tile);

// Rows q_begin .. of one KV head as CSR: row r (0-based from the first row asked for) reads
// ranges[indptr[r]] .. ranges[indptr[r+1]-1], sorted and disjoint. A topology makes it; so does a
// selector; a plan is made from it.
struct KeyRanges {
  std::vector<std::int64_t> indptr = {0};  // [num_rows + 1]
  std::vector<Range> ranges;               // [indptr.back()]

  void append_row(const Ranges& keys);
};

}  // namespace lacuna

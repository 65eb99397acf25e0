#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/integer.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// A packed (varlen) batch: sequences one after another without padding. Each is a segment with its
// own position 0, in which windows, sinks, globals and draws are counted; no edge crosses a
// segment. Immutable and shareable.
class Segments {
 public:
  // Throws Error naming the segment where a length is negative or the sum exceeds 2^60.
  explicit Segments(std::span<const std::int64_t> lengths);

  // Segment s holds packed positions indptr[s] .. indptr[s+1]-1.
  const std::vector<std::int64_t>& indptr() const { return indptr_; }
  std::int64_t num_segments() const { return static_cast<std::int64_t>(indptr_.size()) - 1; }
  std::int64_t num_tokens() const { return indptr_.back(); }
  // The segment that holds a packed position; throws Error outside 0..num_tokens()-1.
  std::int64_t segment_of(std::int64_t position) const;

  // N(query) in packed positions.
  Ranges row(const Topology& topology, std::int64_t query) const;
  // Packed rows q_begin..q_end-1, which may cross segments, as a plan takes them.
  KeyRanges key_ranges(const Topology& topology, std::int64_t q_begin, std::int64_t q_end) const;
  // Edges of all segments: the sum segment by segment, never of a mean length.
  Int128 edges(const Topology& topology) const;

 private:
  std::vector<std::int64_t> indptr_;  // [num_segments + 1]
};

}  // namespace lacuna

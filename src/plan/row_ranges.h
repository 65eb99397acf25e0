#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lacuna/ranges.h"
#include "lacuna/topology.h"
#include "topology/terms.h"

namespace lacuna {

// What the rows of one tile read, each row as sorted, non-touching ranges. Filled anew for each
// tile without new memory.
class RowRanges {
 public:
  void clear();
  // Appends a row; its ranges may be in any order and overlap.
  void append(Range part) { ranges_.push_back(part); }
  void end_row();

  std::size_t num_rows() const { return ends_.size(); }
  std::span<const Range> row(std::size_t row_idx) const {
    const std::size_t begin = row_idx == 0 ? 0 : ends_[row_idx - 1];
    return {ranges_.data() + begin, ends_[row_idx] - begin};
  }
  // So many ranges at the start of every row are the same in all of them.
  std::size_t num_common() const { return num_common_; }
  // For what appends ranges of the row that has not ended.
  std::vector<Range>& open_row() { return ranges_; }

 private:
  std::vector<Range> ranges_;
  std::vector<std::size_t> ends_;  // [num_rows] into ranges_
  std::size_t num_common_ = 0;
};

// Appends what one row of a sequence reads and ends it.
using RowSource = std::function<void(std::int64_t row, RowRanges& out)>;

// Topology::row() of one sequence, without a vector for each row, and asking terms that read the
// same for a whole block of rows (but for what a causal row may not read) once a block. Globals are
// asked as columns only.
class TopologyRows {
 public:
  TopologyRows(Topology topology, std::int64_t length);
  void operator()(std::int64_t row, RowRanges& out);

 private:
  // Row of the terms that are asked once for rows [.., end).
  struct Block {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::vector<Range> keys;
  };
  void ask_block(std::int64_t row);

  Topology topology_;
  Scope scope_;
  std::vector<const Topology::PlacedTerm*> by_row_;
  std::vector<const Topology::PlacedTerm*> by_block_;
  Block block_;
};

// Row `row` of key ranges whose first row is `first_row`.
void append_row(const KeyRanges& key_ranges, std::int64_t first_row, std::int64_t row,
                RowRanges& out);

}  // namespace lacuna

#include "plan/row_ranges.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace lacuna {

namespace {

// The end of the rows from `row` on for which a term reads the same, but for what a causal row may
// not read; `row` where it tells each row apart.
struct SameUntil {
  std::int64_t row;
  bool columns_only;

  std::int64_t operator()(const Full&) const { return kForever; }
  std::int64_t operator()(const Sink&) const { return kForever; }
  std::int64_t operator()(const GlobalPositions&) const { return column(); }
  std::int64_t operator()(const GlobalFirst&) const { return column(); }
  std::int64_t operator()(const GlobalLast&) const { return column(); }
  std::int64_t operator()(const Chunk& t) const { return block_end(t.c); }
  std::int64_t operator()(const Fixed& t) const { return block_end(t.l); }
  std::int64_t operator()(const WindowBlocks& t) const { return block_end(t.block); }
  std::int64_t operator()(const VerticalBlocks& t) const { return block_end(t.block); }
  std::int64_t operator()(const TopKBlocks& t) const { return block_end(t.block); }
  std::int64_t operator()(const RandomBlocks& t) const { return block_end(t.block); }
  std::int64_t operator()(const ExplicitBlocks& t) const { return block_end(t.block); }
  template <typename Other>
  std::int64_t operator()(const Other&) const {
    return row;
  }

 private:
  std::int64_t column() const { return columns_only ? kForever : row; }
  std::int64_t block_end(std::int64_t size) const {
    return size == 1 ? row : row - row % size + size;
  }
};

std::int64_t same_until(const Topology::PlacedTerm& placed, std::int64_t row) {
  return std::visit(SameUntil{row, placed.columns_only}, placed.term);
}

}  // namespace

void RowRanges::clear() {
  ranges_.clear();
  ends_.clear();
  num_common_ = 0;
}

void RowRanges::end_row() {
  const auto first =
      ranges_.begin() + static_cast<std::ptrdiff_t>(ends_.empty() ? 0 : ends_.back());
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(first, ranges_.end(), by_begin)) std::sort(first, ranges_.end(), by_begin);
  auto kept = first;
  for (auto part = first; part != ranges_.end(); ++part) {
    if (part->begin >= part->end) continue;
    if (kept != first && part->begin <= std::prev(kept)->end) {
      std::prev(kept)->end = std::max(std::prev(kept)->end, part->end);
    } else {
      *kept++ = *part;
    }
  }
  ranges_.erase(kept, ranges_.end());
  ends_.push_back(ranges_.size());
  const std::span<const Range> now = row(num_rows() - 1);
  if (num_rows() == 1) num_common_ = now.size();
  const std::span<const Range> common = row(0).first(num_common_);
  num_common_ = static_cast<std::size_t>(
      std::mismatch(common.begin(), common.end(), now.begin(), now.end()).first - common.begin());
}

TopologyRows::TopologyRows(Topology topology, std::int64_t length)
    : topology_(std::move(topology)), scope_{topology_.causal(), length, false} {
  for (const Topology::PlacedTerm& placed : topology_.terms()) {
    (same_until(placed, 0) > 0 ? by_block_ : by_row_).push_back(&placed);
  }
}

void TopologyRows::operator()(std::int64_t row, RowRanges& out) {
  if (!by_block_.empty()) {
    if (row < block_.begin || row >= block_.end) ask_block(row);
    const std::int64_t key_end = scope_.causal ? row + 1 : scope_.length;
    for (const Range& part : block_.keys) {
      if (part.begin >= key_end) break;
      out.append({part.begin, std::min(part.end, key_end)});
    }
  }
  for (const Topology::PlacedTerm* placed : by_row_) {
    append_rows(*placed, scope_, row, row + 1, out.open_row());
  }
  out.end_row();
}

// What the block's last row reads holds what the others do.
void TopologyRows::ask_block(std::int64_t row) {
  block_.begin = row;
  block_.end = scope_.length;
  for (const Topology::PlacedTerm* placed : by_block_) {
    block_.end = std::min(block_.end, same_until(*placed, row));
  }
  block_.keys.clear();
  for (const Topology::PlacedTerm* placed : by_block_) {
    append_rows(*placed, scope_, block_.end - 1, block_.end, block_.keys);
  }
  const Ranges sorted(std::move(block_.keys));
  block_.keys.assign(sorted.begin(), sorted.end());
}

void append_row(const KeyRanges& key_ranges, std::int64_t first_row, std::int64_t row,
                RowRanges& out) {
  const auto row_idx = static_cast<std::size_t>(row - first_row);
  const std::int64_t end = key_ranges.indptr[row_idx + 1];
  for (std::int64_t at = key_ranges.indptr[row_idx]; at < end; ++at) {
    out.append(key_ranges.ranges[static_cast<std::size_t>(at)]);
  }
  out.end_row();
}

}  // namespace lacuna

#include "plan/runs.h"

#include <algorithm>
#include <array>

namespace lacuna {
namespace {

// Past every key, and with room for a tile more.
constexpr std::int64_t kNoKey = std::int64_t{1} << 62;

// Bits begin..end-1 of a word. REQUIRES: 0 <= begin < end <= 16.
std::uint32_t bits_between(std::int64_t begin, std::int64_t end) {
  return ((std::uint32_t{1} << end) - 1) & ~((std::uint32_t{1} << begin) - 1);
}

// Walks the ranges of rows side by side, from key tile to key tile.
class RowCursors {
 public:
  // The first `num_rows` rows, from key `begin` on. REQUIRES: begin < kNoKey.
  RowCursors(const RowRanges& rows, std::size_t num_rows, std::int64_t begin)
      : num_rows_(num_rows) {
    for (std::size_t r = 0; r < num_rows_; ++r) {
      const std::span<const Range> ranges = rows.row(r);
      next_[r] = ranges.data();
      last_[r] = ranges.data() + ranges.size();
      take_next(r);
      while (end_[r] <= begin) take_next(r);
      begin_[r] = std::max(begin_[r], begin);
    }
  }

  std::int64_t first_key() const {
    std::int64_t first = kNoKey;
    for (std::size_t r = 0; r < num_rows_; ++r) first = std::min(first, begin_[r]);
    return first;
  }
  // Every row reads every key of [key, returned value), which may be empty.
  std::int64_t common_end(std::int64_t key) const {
    std::int64_t latest_begin = 0;
    std::int64_t first_end = kNoKey;
    for (std::size_t r = 0; r < num_rows_; ++r) {
      latest_begin = std::max(latest_begin, begin_[r]);
      first_end = std::min(first_end, end_[r]);
    }
    return latest_begin <= key ? first_end : key;
  }
  // Moves every row on to its first key at or after `key`, which its present range holds or ends
  // at.
  void skip_to(std::int64_t key) {
    for (std::size_t r = 0; r < num_rows_; ++r) {
      begin_[r] = key;
      if (end_[r] == key) take_next(r);
    }
  }
  // Writes each row's bits inside [key_begin, key_end), and moves on behind it.
  void take_bits(std::int64_t key_begin, std::int64_t key_end, std::span<std::uint16_t> mask) {
    for (std::size_t r = 0; r < num_rows_; ++r) {
      std::uint32_t bits = 0;
      while (begin_[r] < key_end) {
        const std::int64_t end = std::min(end_[r], key_end);
        bits |= bits_between(begin_[r] - key_begin, end - key_begin);
        begin_[r] = end;
        if (end_[r] == end) take_next(r);
      }
      mask[r] = static_cast<std::uint16_t>(bits);
    }
  }
  std::size_t num_rows() const { return num_rows_; }

 private:
  void take_next(std::size_t r) {
    const bool none = next_[r] == last_[r];
    begin_[r] = none ? kNoKey : next_[r]->begin;
    end_[r] = none ? kNoKey : next_[r]->end;
    if (!none) ++next_[r];
  }

  static constexpr std::size_t kRows = kMostTileRows;
  std::size_t num_rows_;
  std::array<std::int64_t, kRows> begin_;
  std::array<std::int64_t, kRows> end_;
  std::array<const Range*, kRows> next_;
  std::array<const Range*, kRows> last_;
};

// The first key that some rows may read and others not.
std::int64_t first_difference(const RowRanges& rows) {
  std::int64_t first_begin = kNoKey;
  std::int64_t last_begin = 0;
  std::int64_t first_end = kNoKey;
  for (std::size_t r = 0; r < rows.num_rows(); ++r) {
    const std::span<const Range> differing = rows.row(r).subspan(rows.num_common());
    const Range next = differing.empty() ? Range{kNoKey, kNoKey} : differing.front();
    first_begin = std::min(first_begin, next.begin);
    last_begin = std::max(last_begin, next.begin);
    first_end = std::min(first_end, next.end);
  }
  return first_begin == last_begin ? first_end : first_begin;
}

// Appends tiles below `limit`, a multiple of tile_k. A single cursor speaks for all `num_rows`.
void append_below(RowCursors& cursors, std::size_t num_rows, std::int64_t limit,
                  std::int64_t tile_k, MaskPool& masks, std::vector<TileRun>& out) {
  std::array<std::uint16_t, kMostTileRows> mask;
  for (std::int64_t key = cursors.first_key(); key < limit; key = cursors.first_key()) {
    const std::int64_t tile = key / tile_k;
    const std::int64_t begin = tile * tile_k;
    const std::int64_t whole = std::min(cursors.common_end(begin), limit) / tile_k - tile;
    if (whole > 0) {
      out.push_back({tile, whole, TileRun::kWhole});
      cursors.skip_to(begin + whole * tile_k);
      continue;
    }
    cursors.take_bits(begin, begin + tile_k, mask);
    if (cursors.num_rows() == 1) std::fill_n(mask.begin() + 1, num_rows - 1, mask[0]);
    out.push_back({tile, 1, masks.intern(std::span(mask).first(num_rows))});
  }
}

}  // namespace

void append_runs(const RowRanges& rows, std::int64_t tile_k, MaskPool& masks,
                 std::vector<TileRun>& out) {
  if (rows.num_rows() == 0) return;
  // Up to the tile in which rows first differ one of them speaks for all.
  const std::int64_t difference = first_difference(rows);
  const std::int64_t alike_end = difference == kNoKey ? kNoKey : difference / tile_k * tile_k;
  RowCursors one(rows, 1, 0);
  append_below(one, rows.num_rows(), alike_end, tile_k, masks, out);
  if (alike_end == kNoKey) return;
  RowCursors all(rows, rows.num_rows(), alike_end);
  append_below(all, rows.num_rows(), kNoKey, tile_k, masks, out);
}

}  // namespace lacuna

#include "plan/panels.h"

#include <algorithm>
#include <array>

#include "lacuna/integer.h"
#include "plan/runs.h"

namespace lacuna {

std::int64_t Panels::ordinal_of(std::int64_t position, std::int64_t from) const {
  return std::lower_bound(gathered_.begin() + from, gathered_.end(), position) - gathered_.begin();
}

void Panels::append(std::span<const std::int64_t> rows, std::span<const TileRun> ordinary,
                    std::vector<TileRun>& out) {
  rows_ = rows;
  ordinary_ = ordinary;
  out_ = &out;
  out_begin_ = out.size();
  next_ = 0;
  run_idx_ = 0;
  num_keys_ = causal_ ? ordinal_of(rows.back() + 1, 0) : std::ssize(gathered_);
  // From here on keys lie after the first row, or the panel is not full.
  const std::int64_t late_panel = (causal_ ? ordinal_of(rows.front() + 1, 0) : num_keys_) / tile_k_;
  std::int64_t key_end = 0;
  for (const TileRun& run : ordinary) {
    const std::int64_t key_begin = ordinal_of(run.first * tile_k_, key_end);
    key_end = ordinal_of((run.first + run.count) * tile_k_, key_begin);
    if (key_begin / tile_k_ >= late_panel) break;
    if (key_begin == key_end) continue;
    append_whole(key_begin / tile_k_);
    if (run.mask == TileRun::kWhole) {  // panels inside it have no key left to read
      append_masked(std::min(ceil_div(key_begin, tile_k_), late_panel));
      next_ = std::max(next_, std::min(key_end / tile_k_, late_panel));
    }
    append_masked(std::min(ceil_div(key_end, tile_k_), late_panel));
  }
  append_whole(late_panel);
  append_masked(ceil_div(num_keys_, tile_k_));
}

void Panels::append_whole(std::int64_t end) {
  if (end <= next_) return;
  if (out_->size() > out_begin_ && out_->back().mask == TileRun::kWhole &&
      out_->back().first + out_->back().count == next_) {
    out_->back().count += end - next_;
  } else {
    out_->push_back({next_, end - next_, TileRun::kWhole});
  }
  next_ = end;
}

void Panels::append_masked(std::int64_t end) {
  while (next_ < end) append_panel(next_);
}

// 1 where the row reads the key and does not find it among its ordinary ones.
std::uint32_t Panels::rows_of_key(std::int64_t key, std::size_t row_idx) const {
  if (causal_ && key > rows_[row_idx]) return 0;
  if (run_idx_ == ordinary_.size()) return 1;
  const TileRun& run = ordinary_[run_idx_];
  const std::int64_t bit = key - run.first * tile_k_;
  if (bit < 0) return 1;
  if (run.mask == TileRun::kWhole) return 0;
  return 1u ^ (1u & (std::uint32_t{masks_.row(run.mask, row_idx)} >> bit));
}

void Panels::append_panel(std::int64_t panel) {
  std::array<std::uint16_t, kMostTileRows> bits{};
  std::uint32_t any = 0;
  std::uint32_t all = (std::uint32_t{1} << tile_k_) - 1;
  const std::int64_t begin = panel * tile_k_;
  const std::int64_t end = std::min(begin + tile_k_, num_keys_);
  for (std::int64_t at = begin; at < end; ++at) {
    const std::int64_t key = gathered_[static_cast<std::size_t>(at)];
    while (run_idx_ < ordinary_.size() &&
           key >= (ordinary_[run_idx_].first + ordinary_[run_idx_].count) * tile_k_) {
      ++run_idx_;
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      bits[r] = static_cast<std::uint16_t>(bits[r] | rows_of_key(key, r) << (at - begin));
    }
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    any |= bits[r];
    all &= bits[r];
  }
  if (all == (std::uint32_t{1} << tile_k_) - 1) return append_whole(panel + 1);
  if (any != 0) {
    out_->push_back({panel, 1, masks_.intern(std::span(bits).first(rows_.size()))});
  }
  next_ = panel + 1;
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/plan.h"
#include "plan/mask_pool.h"

namespace lacuna {

// Gathered single keys in panels of tile_k: which panels a tile's rows visit for keys that their
// ordinary ranges do not give them already.
class Panels {
 public:
  // `gathered`: positions, ascending. Both outlive the panels.
  Panels(std::span<const std::int64_t> gathered, bool causal, std::int64_t tile_k, MaskPool& masks)
      : gathered_(gathered), causal_(causal), tile_k_(tile_k), masks_(masks) {}

  // Appends runs of panels for rows that read `ordinary`. Takes a few steps a run, and a few for
  // each panel with a key among the ordinary ones or after the first row.
  void append(std::span<const std::int64_t> rows, std::span<const TileRun> ordinary,
              std::vector<TileRun>& out);

 private:
  // Gathered keys below `position`, from ordinal `from` on.
  std::int64_t ordinal_of(std::int64_t position, std::int64_t from) const;
  void append_whole(std::int64_t end);
  void append_masked(std::int64_t end);
  std::uint32_t rows_of_key(std::int64_t key, std::size_t row_idx) const;
  void append_panel(std::int64_t panel);

  std::span<const std::int64_t> gathered_;
  bool causal_;
  std::int64_t tile_k_;
  MaskPool& masks_;

  // The tile at hand.
  std::span<const std::int64_t> rows_;
  std::span<const TileRun> ordinary_;
  std::vector<TileRun>* out_ = nullptr;
  std::size_t out_begin_ = 0;
  std::int64_t num_keys_ = 0;  // gathered keys that some row may read
  std::int64_t next_ = 0;      // panels below it are decided
  std::size_t run_idx_ = 0;    // the first ordinary run that may hold the next panel's keys
};

}  // namespace lacuna

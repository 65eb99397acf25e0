#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/call.h"
#include "attention/key_blocks.h"
#include "lacuna/integer.h"

namespace lacuna {

// Consecutive pieces of the workspace, each 64-byte aligned. From nullptr it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(std::int64_t count) {
    std::byte* const piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// One part of the item that a thread is at.
struct PartWork {
  const TilePart* part;
  std::int64_t first_row;  // into the thread's arrays
  RowBlock rows;
  const float* slopes;  // [num_heads]
  RunCursor cursor;
  std::int64_t split;    // the one at hand
  int split_state;       // which of the thread's states is the split's; the other is the total's
  bool split_empty;      // the split's state holds nothing yet
  bool total_empty;      // likewise
  VisitedPanels panels;  // of the block at hand
};

// What one thread works in.
struct ThreadSpace {
  std::uint32_t* k_panels = nullptr;  // [kBlockPanels] packed
  std::uint32_t* v_panels = nullptr;
  PanelPlace panels[kBlockPanels] = {};  // of the block at hand: there, or where they lie packed
  std::uint32_t* q = nullptr;            // [max_rows, q_lanes]
  StateBlock states[2] = {};             // [max_rows] of the split at hand, and of those before it
  float* scratch = nullptr;              // [kScratchLanes]
  float* slopes = nullptr;               // [max_parts, group]
  std::int64_t* positions = nullptr;     // [kBlockKeys]
  PartWork* parts = nullptr;             // [max_parts]
  float* lse2 = nullptr;                 // [max_rows]
  float* sums = nullptr;                 // [group, kBlockKeys]
};

// Which key tiles of one KV head, or panels of one gathered set, were executed: a bit each, sixteen
// a block. Threads may mark the same ones.
class ExecutedTiles {
 public:
  ExecutedTiles() = default;
  ExecutedTiles(std::int64_t num_tiles, Carver& carver)
      : num_words_(ceil_div(num_tiles, kWordBits)),
        words_(carver.take<std::uint64_t>(num_words_)) {}

  void clear() const { std::fill_n(words_, num_words_, std::uint64_t{0}); }
  // The tiles of a block whose bits are set.
  void mark(std::int64_t block, std::uint32_t visited) const {
    constexpr std::int64_t kBlocks = kWordBits / kBlockPanels;
    std::atomic_ref<std::uint64_t>(words_[block / kBlocks])
        .fetch_or(std::uint64_t{visited} << (block % kBlocks * kBlockPanels),
                  std::memory_order_relaxed);
  }
  bool holds(std::int64_t tile) const {
    return (words_[tile / kWordBits] >> (tile % kWordBits) & 1U) != 0;
  }
  std::int64_t count() const {
    std::int64_t tiles = 0;
    for (std::int64_t idx = 0; idx < num_words_; ++idx) tiles += std::popcount(words_[idx]);
    return tiles;
  }

 private:
  static constexpr std::int64_t kWordBits = 64;
  std::int64_t num_words_ = 0;
  std::uint64_t* words_ = nullptr;
};

// The states of a cut item: of what it gathered and of each of its splits. Threads that compute
// its pieces fill their own; whoever ends last merges them.
struct CutStates {
  std::int64_t first_split = 0;
  std::int64_t num_states = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_parts = 0;
  StateBlock states = {};               // [num_states, num_rows]
  std::uint8_t* filled = nullptr;       // [num_states, num_parts]
  std::int64_t* pieces_left = nullptr;  // counted down by all threads

  // Which state is a split's; a negative split: of gathered keys.
  std::int64_t idx(std::int64_t split) const { return split < 0 ? 0 : 1 + split - first_split; }
};

// Panels of gathered keys of one (sequence, KV head, gathered set), packed before the items run.
struct GatheredPanels {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t set = 0;
  std::uint32_t* k = nullptr;
  std::uint32_t* v = nullptr;
  PanelPlace* panels = nullptr;  // [panels]
  ExecutedTiles executed = {};
};

// The thread's own room for a panel of the block at hand.
PanelSpace panel_space(const Call& call, const ThreadSpace& space, int panel);

// The workspace of a call, laid out from `base`; with nullptr only its size is meant.
struct Workspace {
  Workspace(const Call& call, std::byte* base);
  const GatheredPanels& gathered(std::int64_t sequence, std::int64_t kv_head,
                                 std::int64_t set) const;

  std::vector<ThreadSpace> threads;
  std::vector<GatheredPanels> gathered_panels;
  std::vector<ExecutedTiles> executed_tiles;  // [num_sequences · num_kv_heads]
  std::vector<CutStates> cuts;                // of the plan's
  std::int64_t size_bytes = 0;
};

// Throws Error where the caller's memory is too small or not aligned.
Workspace checked_workspace(const Call& call, std::span<std::byte> memory);

// Clears marks and counts, and packs the gathered keys.
void prepare(const Call& call, Workspace& workspace);

}  // namespace lacuna

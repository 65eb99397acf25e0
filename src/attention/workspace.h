#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/call.h"
#include "attention/key_blocks.h"

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

// Panels of gathered keys of one (sequence, KV head, gathered set), packed before the items run.
struct GatheredPanels {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t set = 0;
  std::uint32_t* k = nullptr;
  std::uint32_t* v = nullptr;
  PanelPlace* panels = nullptr;      // [panels]
  std::uint8_t* executed = nullptr;  // [panels] flags
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
  std::vector<std::uint8_t*> executed_tiles;  // [num_sequences · num_kv_heads][key tiles] flags
  std::int64_t size_bytes = 0;
};

// Throws Error where the caller's memory is too small or not aligned.
Workspace checked_workspace(const Call& call, std::span<std::byte> memory);

// Clears the flags and packs the gathered keys.
void prepare(const Call& call, Workspace& workspace);

}  // namespace lacuna

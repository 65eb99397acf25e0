#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lacuna/plan.h"
#include "plan/mask_pool.h"

namespace lacuna {

// A plan in the making: its arrays, and what finds equal pieces in them. Not thread-safe.
class Draft {
 public:
  Draft(std::span<const SequenceRows> sequences, HeadCounts heads, Tile tile);
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  Plan& plan() { return plan_; }
  MaskPool& masks() { return masks_; }
  // Query heads inside their KV head's group, ascending.
  std::int64_t head_set(const std::vector<int>& heads);
  std::int64_t gathered_set(const std::vector<std::int64_t>& positions);

  // Appends positions and returns where they begin in the plan's rows.
  std::int64_t append_rows(std::span<const Range> parts);

 private:
  Plan plan_;
  MaskPool masks_{plan_.masks};
  std::unordered_multimap<std::size_t, std::int64_t> gathered_ids_;  // by a hash of the positions
};

}  // namespace lacuna

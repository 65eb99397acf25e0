#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lacuna {

// Masks of edge tiles, one 16-bit word a row, each different one kept once: a window has as many as
// a period has edge tiles, however long the sequence. Not thread-safe.
class MaskPool {
 public:
  // Masks are appended to `words`, which outlives the pool and is changed by nobody else.
  explicit MaskPool(std::vector<std::uint16_t>& words);

  // Where the mask stands in `words`.
  std::int64_t intern(std::span<const std::uint16_t> mask);
  std::uint16_t row(std::int64_t mask, std::size_t row_idx) const {
    return words_[static_cast<std::size_t>(mask) + row_idx];
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;       // high bits of the hash
    std::uint32_t num_rows = 0;  // 0: free
    std::int64_t begin = 0;
  };
  bool holds(const Slot& slot, std::uint32_t tag, std::span<const std::uint16_t> mask) const;
  void grow();

  std::vector<std::uint16_t>& words_;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  std::size_t num_masks_ = 0;
  std::size_t last_ = 0;  // slot of the last answer: neighbours are often equal
};

}  // namespace lacuna

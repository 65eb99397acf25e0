#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/call.h"

namespace lacuna {

// The panels of one block that some rows visit, in any order of asking: bit p stands for panel p.
struct VisitedPanels {
  std::uint32_t visited = 0;
  std::array<const std::uint16_t*, kBlockPanels> masks = {};  // nullptr: whole
};

// Walks ascending runs of key tiles block by block.
class RunCursor {
 public:
  RunCursor() = default;
  RunCursor(const Plan& plan, std::int64_t begin, std::int64_t end)
      : plan_(&plan), at_(begin), end_(end) {}

  static constexpr std::int64_t kNone = INT64_MAX;
  // The next block that is visited, or kNone.
  std::int64_t block() const;
  // The panels of block(); the cursor passes it.
  VisitedPanels take();
  // Passes runs before a block.
  void skip_to(std::int64_t block);

 private:
  const Plan* plan_ = nullptr;
  std::int64_t at_ = 0;
  std::int64_t end_ = 0;
  std::int64_t done_ = 0;  // tiles of runs[at_] that were passed
};

// Bits of the panel's keys that any row reads.
std::uint16_t keys_read(const VisitedPanels& panels, int panel, std::int64_t num_tokens);

// Where a vector of K or V lies.
class KeyAddress {
 public:
  KeyAddress(const Call& call, std::int64_t sequence, std::int64_t kv_head);
  const void* k(std::int64_t position) const {
    return at(call_.kv.k, call_.kv.k_strides, position);
  }
  const void* v(std::int64_t position) const {
    return at(call_.kv.v, call_.kv.v_strides, position);
  }

 private:
  const void* at(const void* base, const KvStrides& strides, std::int64_t position) const;
  const Call& call_;
  std::int64_t sequence_;
  std::int64_t kv_head_;
};

// Asks for the bytes of a panel's keys ahead of pack_panel: rows of heads lie apart, which the
// processor does not guess.
void prefetch_panel(const Call& call, const KeyAddress& address,
                    std::span<const std::int64_t, kPanelKeys> positions, std::uint16_t read);

// Asks for the bytes of one vector.
void prefetch_vector(const void* vector, std::int64_t bytes);

// Packs one panel: keys positions[0..15] whose bit in `read` is set; the others become zeros and
// are not touched. Returns the keys whose V is not finite.
std::uint16_t pack_panel(const Call& call, const KeyAddress& address,
                         std::span<const std::int64_t, kPanelKeys> positions, std::uint16_t read,
                         std::uint32_t* k, std::uint32_t* v);

}  // namespace lacuna

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/call.h"

namespace lacuna {

// The panels of one block that some rows visit, in any order of asking: bit p stands for panel p.
struct VisitedPanels {
  std::uint32_t visited = 0;
  std::uint32_t masked = 0;
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
  // Their bits; the cursor stays.
  std::uint32_t visited() const { return RunCursor(*this).take().visited; }
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

// The page that holds a key, paged views only; kNullPage: none.
std::int64_t page_of(const KvView& kv, std::int64_t sequence, std::int64_t kv_head,
                     std::int64_t position);

// Where a key's vector lies, or nullptr on a null page. Packed, with a multiple of 16: its panel.
const std::byte* key_vector(const KvView& kv, const void* base, const KvStrides& strides,
                            std::int64_t sequence, std::int64_t kv_head, std::int64_t position);
// The scales of the panel that begins with a key, likewise.
const std::uint16_t* panel_scales(const KvView& kv, const void* base, const KvStrides& strides,
                                  std::int64_t sequence, std::int64_t kv_head,
                                  std::int64_t position);

// A panel as the kernel reads it, and the keys whose V is not finite.
struct PanelPlace {
  const std::uint32_t* k = nullptr;
  const std::uint32_t* v = nullptr;
  std::uint16_t non_finite = 0;
  const std::uint16_t* k_scales = nullptr;  // what the kernel reads in whole numbers
  const std::uint16_t* v_scales = nullptr;
};

// Where the keys of one KV head of one sequence lie.
class KeyAddress {
 public:
  KeyAddress(const Call& call, std::int64_t sequence, std::int64_t kv_head);
  // Strided: the vector of a key. Packed: the panel that holds it.
  const std::byte* k(std::int64_t position) const {
    return at(call_.kv.k, call_.kv.k_strides, position);
  }
  const std::byte* v(std::int64_t position) const {
    return at(call_.kv.v, call_.kv.v_strides, position);
  }
  // Packed only: the same with the scales, if there are any.
  PackedPanel k_panel(std::int64_t position) const {
    return {k(position), scales(call_.kv.k_scales, call_.kv.k_scale_strides, position), type()};
  }
  PackedPanel v_panel(std::int64_t position) const {
    return {v(position), scales(call_.kv.v_scales, call_.kv.v_scale_strides, position), type()};
  }

 private:
  const std::byte* at(const void* base, const KvStrides& strides, std::int64_t position) const;
  const std::uint16_t* scales(const void* base, const KvStrides& strides,
                              std::int64_t position) const;
  ElementType type() const { return static_cast<ElementType>(call_.kv.dtype); }
  const Call& call_;
  std::int64_t sequence_;
  std::int64_t kv_head_;
};

// Packed panels of one KV head, asked for in ascending order: one look into the table a page.
class PanelWalk {
 public:
  PanelWalk(const Call& call, std::int64_t sequence, std::int64_t kv_head);

  // Writes where the panel of the keys from `position` on lies, a multiple of 16; without a look
  // for keys whose V is not finite.
  void find(PanelPlace& panel, std::int64_t position) {
    if (position < begin_ || position >= end_) turn_to_page_of(position);
    const std::int64_t idx = (position - begin_) / kPanelTokens;
    panel.k = first_.k + idx * k_lanes_;
    panel.v = first_.v + idx * v_lanes_;
    panel.non_finite = 0;
    panel.k_scales = first_.k_scales + idx * k_scales_;
    panel.v_scales = first_.v_scales + idx * v_scales_;
  }

 private:
  void turn_to_page_of(std::int64_t position);

  const KvView& kv_;
  std::int64_t sequence_;
  std::int64_t kv_head_;
  // From a panel to the next one: lanes, and f16.
  std::int64_t k_lanes_;
  std::int64_t v_lanes_;
  std::int64_t k_scales_ = 0;
  std::int64_t v_scales_ = 0;
  std::int64_t begin_ = 0;  // of the page at hand
  std::int64_t end_ = 0;
  PanelPlace first_ = {};
};

// Whether the kernel reads the view's panels where they lie.
bool reads_packed(const Call& call);

// Packed panels of one block, those that some rows visit.
struct BlockPanels {
  std::uint32_t visited;
  PanelPlace at[kBlockPanels];
};
// Looks for keys whose V is not finite.
void find_non_finite(const Call& call, PanelPlace& panel);

// Where a panel may be packed to.
struct PanelSpace {
  std::uint32_t* k;
  std::uint32_t* v;
};
using Positions = std::span<const std::int64_t, kPanelKeys>;

// Asks for the bytes of a strided panel's keys ahead of take_panel: rows of heads lie apart, which
// the processor does not guess.
void prefetch_panel(const Call& call, const KeyAddress& address, Positions positions,
                    std::uint16_t read);

// Asks for the bytes of one vector.
inline void prefetch_vector(const void* vector, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kLineBytes) {
    __builtin_prefetch(static_cast<const std::byte*>(vector) + at);
  }
}

// The panel of 16 consecutive keys from a multiple of 16 on. Keys whose bit in `read` is set are
// packed into `space`, the others are zeros and not touched; a packed panel that the kernel can
// read stays where it is. `masked`: some row does not read all of the panel.
PanelPlace take_panel(const Call& call, const KeyAddress& address, Positions positions,
                      std::uint16_t read, bool masked, const PanelSpace& space);

// The same for any 16 keys, always packed into `space`. `scratch` has room for a panel too.
PanelPlace gather_panel(const Call& call, const KeyAddress& address, Positions positions,
                        std::uint16_t read, const PanelSpace& scratch, const PanelSpace& space);

}  // namespace lacuna

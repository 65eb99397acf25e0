#include "attention/key_blocks.h"

#include <algorithm>

namespace lacuna {

std::int64_t RunCursor::block() const {
  if (at_ == end_) return kNone;
  return (plan_->runs[static_cast<std::size_t>(at_)].first + done_) / kBlockPanels;
}

VisitedPanels RunCursor::take() {
  const std::int64_t this_block = block();
  VisitedPanels panels;
  while (block() == this_block) {
    const TileRun& run = plan_->runs[static_cast<std::size_t>(at_)];
    const std::int64_t panel = run.first + done_ - this_block * kBlockPanels;
    const std::int64_t count = std::min(run.count - done_, kBlockPanels - panel);
    const std::uint32_t bits = ((1U << count) - 1U) << panel;
    if ((panels.visited & bits) != 0) break;  // listed twice: visited twice
    panels.visited |= bits;
    if (run.mask != TileRun::kWhole) {
      panels.masks[static_cast<std::size_t>(panel)] = plan_->masks.data() + run.mask;
    }
    done_ += count;
    if (done_ == run.count) {
      ++at_;
      done_ = 0;
    }
  }
  return panels;
}

void RunCursor::skip_to(std::int64_t block) {
  const std::int64_t tile = block * kBlockPanels;
  const auto begin = plan_->runs.begin();
  const auto found = std::partition_point(
      begin + at_, begin + end_, [&](const TileRun& run) { return run.first + run.count <= tile; });
  at_ = found - begin;
  done_ = at_ == end_ ? 0 : std::max<std::int64_t>(0, tile - found->first);
}

std::uint16_t keys_read(const VisitedPanels& panels, int panel, std::int64_t num_tokens) {
  const std::uint16_t* const mask = panels.masks[static_cast<std::size_t>(panel)];
  if (mask == nullptr) return 0xffff;
  unsigned read = 0;
  for (std::int64_t token = 0; token < num_tokens; ++token) read |= mask[token];
  return static_cast<std::uint16_t>(read);
}

KeyAddress::KeyAddress(const Call& call, std::int64_t sequence, std::int64_t kv_head)
    : call_(call), sequence_(sequence), kv_head_(kv_head) {}

const void* KeyAddress::at(const void* base, const KvStrides& strides,
                           std::int64_t position) const {
  const KvView& kv = call_.kv;
  std::int64_t offset = kv_head_ * strides.head;
  if (kv.page_size == 0) {
    offset += (kv.starts[static_cast<std::size_t>(sequence_)] + position) * strides.token;
  } else {
    const std::int64_t entry = sequence_ * kv.table_columns + position / kv.page_size;
    offset += kv.block_table[static_cast<std::size_t>(entry)] * strides.page +
              position % kv.page_size * strides.token;
  }
  return static_cast<const std::byte*>(base) + offset * size_bytes(kv.dtype);
}

void prefetch_vector(const void* vector, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(static_cast<const std::byte*>(vector) + at);
  }
}

void prefetch_panel(const Call& call, const KeyAddress& address,
                    std::span<const std::int64_t, kPanelKeys> positions, std::uint16_t read) {
  if (call.kv.k_strides.dim != 1 || call.kv.v_strides.dim != 1) return;
  const std::int64_t element = size_bytes(call.kv.dtype);
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    prefetch_vector(address.k(positions[idx]), call.kv.head_dim * element);
    prefetch_vector(address.v(positions[idx]), call.kv.v_head_dim * element);
  }
}

std::uint16_t pack_panel(const Call& call, const KeyAddress& address,
                         std::span<const std::int64_t, kPanelKeys> positions, std::uint16_t read,
                         std::uint32_t* k, std::uint32_t* v) {
  const auto type = static_cast<ElementType>(call.kv.dtype);
  PanelSource keys = {{}, type, call.kv.k_strides.dim, call.kv.head_dim};
  PanelSource values = {{}, type, call.kv.v_strides.dim, call.kv.v_head_dim};
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    keys.vectors[idx] = address.k(positions[idx]);
    values.vectors[idx] = address.v(positions[idx]);
  }
  call.kernel.pack_k(k, keys);
  return call.kernel.pack_v(v, values);
}

}  // namespace lacuna

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

std::int64_t page_of(const KvView& kv, std::int64_t sequence, std::int64_t kv_head,
                     std::int64_t position) {
  const std::int64_t table = sequence * kv.num_tables + kv.head_place(kv_head).table;
  return kv
      .block_table[static_cast<std::size_t>(table * kv.table_columns + position / kv.page_size)];
}

const std::byte* key_vector(const KvView& kv, const void* base, const KvStrides& strides,
                            std::int64_t sequence, std::int64_t kv_head, std::int64_t position) {
  std::int64_t offset = 0;
  if (kv.page_size == 0) {
    offset = (kv.starts[static_cast<std::size_t>(sequence)] + position) * strides.token +
             kv_head * strides.head;
  } else {
    const std::int64_t page = page_of(kv, sequence, kv_head, position);
    if (page == KvView::kNullPage) return nullptr;
    offset = page * strides.page + position % kv.page_size * strides.token +
             kv.head_place(kv_head).slot * strides.head;
  }
  return static_cast<const std::byte*>(base) + offset * size_bits(kv.dtype) / 8;
}

KeyAddress::KeyAddress(const Call& call, std::int64_t sequence, std::int64_t kv_head)
    : call_(call), sequence_(sequence), kv_head_(kv_head) {}

const std::byte* KeyAddress::at(const void* base, const KvStrides& strides,
                                std::int64_t position) const {
  if (call_.kv.layout == KvLayout::kPacked) position -= position % kPanelTokens;
  return key_vector(call_.kv, base, strides, sequence_, kv_head_, position);
}

PanelWalk::Panel PanelWalk::at(std::int64_t position) {
  const KvView& kv = call_.kv;
  if (position < begin_ || position >= end_) {
    begin_ = kv.page_size == 0 ? 0 : position - position % kv.page_size;
    end_ = kv.page_size == 0 ? INT64_MAX : begin_ + kv.page_size;
    first_ = {address_.k(begin_), address_.v(begin_)};
  }
  const std::int64_t tokens = (position - begin_) / kPanelTokens * kPanelTokens;
  return {first_.k + tokens * kv.k_strides.token * size_bits(kv.dtype) / 8,
          first_.v + tokens * kv.v_strides.token * size_bits(kv.dtype) / 8};
}

bool reads_packed(const Call& call) {
  if (call.kv.layout != KvLayout::kPacked) return false;
  return call.kernel.bf16_products ? call.kv.dtype == DType::kBf16 : call.kv.dtype == DType::kF32;
}

void find_non_finite(const Call& call, PanelPlace& panel) {
  panel.non_finite = call.kernel.non_finite_keys(panel.v, call.shape.dim_blocks);
}

void prefetch_vector(const void* vector, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(static_cast<const std::byte*>(vector) + at);
  }
}

void prefetch_panel(const Call& call, const KeyAddress& address, Positions positions,
                    std::uint16_t read) {
  const KvView& kv = call.kv;
  const std::int64_t element = size_bytes(kv.dtype);
  if (kv.k_strides.dim != 1 || kv.v_strides.dim != 1) return;
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    prefetch_vector(address.k(positions[idx]), kv.head_dim * element);
    prefetch_vector(address.v(positions[idx]), kv.v_head_dim * element);
  }
}

namespace {

PanelPlace pack_vectors(const Call& call, const PanelSource& keys, const PanelSource& values,
                        const PanelSpace& space) {
  call.kernel.pack_k(space.k, keys);
  return {space.k, space.v, call.kernel.pack_v(space.v, values)};
}

PanelPlace pack_strided(const Call& call, const KeyAddress& address, Positions positions,
                        std::uint16_t read, const PanelSpace& space) {
  const auto type = static_cast<ElementType>(call.kv.dtype);
  PanelSource keys = {{}, type, call.kv.k_strides.dim, call.kv.head_dim};
  PanelSource values = {{}, type, call.kv.v_strides.dim, call.kv.v_head_dim};
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    keys.vectors[idx] = address.k(positions[idx]);
    values.vectors[idx] = address.v(positions[idx]);
  }
  return pack_vectors(call, keys, values, space);
}

// Element `dim` of a key in a packed panel, in elements from the panel on.
std::int64_t k_offset(DType dtype, std::int64_t key, std::int64_t dim) {
  if (dtype == DType::kF32) return dim * kPanelTokens + key;
  return (dim / 2 * kPanelTokens + key) * 2 + dim % 2;
}
std::int64_t v_offset(DType dtype, std::int64_t key, std::int64_t dim) {
  const std::int64_t block = dim / kDimBlock * kDimBlock * kPanelTokens;
  const std::int64_t in_block = dim % kDimBlock;
  if (dtype == DType::kF32) return block + key * kDimBlock + in_block;
  return block + (key / 2 * kDimBlock + in_block) * 2 + key % 2;
}

template <typename Offset>
void extract(std::byte* vector, const std::byte* panel, DType dtype, std::int64_t key,
             std::int64_t dim, const Offset& offset) {
  const std::int64_t element = size_bytes(dtype);
  for (std::int64_t d = 0; d < dim; ++d) {
    std::copy_n(panel + offset(dtype, key, d) * element, element, vector + d * element);
  }
}

}  // namespace

PanelPlace take_panel(const Call& call, const KeyAddress& address, Positions positions,
                      std::uint16_t read, bool masked, const PanelSpace& space) {
  if (call.kv.layout == KvLayout::kStrided) {
    return pack_strided(call, address, positions, read, space);
  }
  const std::byte* const k = address.k(positions[0]);
  const std::byte* const v = address.v(positions[0]);
  PanelPlace place = {reinterpret_cast<const std::uint32_t*>(k),
                      reinterpret_cast<const std::uint32_t*>(v), 0};
  if (!reads_packed(call)) {
    const auto type = static_cast<ElementType>(call.kv.dtype);
    call.kernel.widen_panel(space.k, k, type, call.kv.head_dim);
    call.kernel.widen_panel(space.v, v, type, call.shape.dim_blocks * kPanelKeys);
    place = {space.k, space.v, 0};
  }
  if (masked) find_non_finite(call, place);
  return place;
}

PanelPlace gather_panel(const Call& call, const KeyAddress& address, Positions positions,
                        std::uint16_t read, const PanelSpace& scratch, const PanelSpace& space) {
  if (call.kv.layout == KvLayout::kStrided) {
    return pack_strided(call, address, positions, read, space);
  }
  const DType dtype = call.kv.dtype;
  const auto type = static_cast<ElementType>(dtype);
  PanelSource keys = {{}, type, 1, call.kv.head_dim};
  PanelSource values = {{}, type, 1, call.kv.v_head_dim};
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    const auto at = static_cast<std::int64_t>(idx);
    const std::int64_t key = positions[idx] % kPanelTokens;
    auto* const k = reinterpret_cast<std::byte*>(scratch.k) + at * call.kv.head_dim * 4;
    auto* const v = reinterpret_cast<std::byte*>(scratch.v) + at * call.kv.v_head_dim * 4;
    extract(k, address.k(positions[idx]), dtype, key, call.kv.head_dim, k_offset);
    extract(v, address.v(positions[idx]), dtype, key, call.kv.v_head_dim, v_offset);
    keys.vectors[idx] = k;
    values.vectors[idx] = v;
  }
  return pack_vectors(call, keys, values, space);
}

}  // namespace lacuna

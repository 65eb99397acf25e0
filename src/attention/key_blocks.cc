#include "attention/key_blocks.h"

#include <algorithm>

#include "kernels/packed_bits.h"
#include "lacuna/kv_pack.h"

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
      panels.masked |= 1U << panel;
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

namespace {

// Where a key is held, whatever is stored of it.
struct Slot {
  std::int64_t page;  // 0 where there are none
  std::int64_t token;
  std::int64_t head;
  bool is_there() const { return page != KvView::kNullPage; }
  // Elements from the first one.
  std::int64_t offset(const KvStrides& strides) const {
    return page * strides.page + token * strides.token + head * strides.head;
  }
};

Slot slot_of(const KvView& kv, std::int64_t sequence, std::int64_t kv_head, std::int64_t position) {
  if (kv.page_size == 0) {
    return {0, kv.starts[static_cast<std::size_t>(sequence)] + position, kv_head};
  }
  return {page_of(kv, sequence, kv_head, position), position % kv.page_size,
          kv.head_place(kv_head).slot};
}

template <typename Number>
const Number* number_at(const void* base, std::int64_t bits) {
  return reinterpret_cast<const Number*>(static_cast<const std::byte*>(base) + bits / 8);
}

// Of a slot that is there. One member after another: a copy of all of them would wait for each to
// be stored.
void set_panel(PanelPlace& panel, const KvView& kv, const Slot& slot) {
  const std::int64_t bits = size_bits(kv.dtype);
  panel.k = number_at<std::uint32_t>(kv.k, slot.offset(kv.k_strides) * bits);
  panel.v = number_at<std::uint32_t>(kv.v, slot.offset(kv.v_strides) * bits);
  if (!is_quantized(kv.dtype)) return;
  panel.k_scales = static_cast<const std::uint16_t*>(kv.k_scales) + slot.offset(kv.k_scale_strides);
  panel.v_scales = static_cast<const std::uint16_t*>(kv.v_scales) + slot.offset(kv.v_scale_strides);
}

}  // namespace

const std::byte* key_vector(const KvView& kv, const void* base, const KvStrides& strides,
                            std::int64_t sequence, std::int64_t kv_head, std::int64_t position) {
  const Slot slot = slot_of(kv, sequence, kv_head, position);
  if (!slot.is_there()) return nullptr;
  return number_at<std::byte>(base, slot.offset(strides) * size_bits(kv.dtype));
}

const std::uint16_t* panel_scales(const KvView& kv, const void* base, const KvStrides& strides,
                                  std::int64_t sequence, std::int64_t kv_head,
                                  std::int64_t position) {
  const Slot slot = slot_of(kv, sequence, kv_head, position);
  return slot.is_there() ? static_cast<const std::uint16_t*>(base) + slot.offset(strides) : nullptr;
}

KeyAddress::KeyAddress(const Call& call, std::int64_t sequence, std::int64_t kv_head)
    : call_(call), sequence_(sequence), kv_head_(kv_head) {}

const std::byte* KeyAddress::at(const void* base, const KvStrides& strides,
                                std::int64_t position) const {
  if (call_.kv.layout == KvLayout::kPacked) position -= position % kPanelTokens;
  return key_vector(call_.kv, base, strides, sequence_, kv_head_, position);
}

const std::uint16_t* KeyAddress::scales(const void* base, const KvStrides& strides,
                                        std::int64_t position) const {
  if (!is_quantized(call_.kv.dtype)) return nullptr;
  position -= position % kPanelTokens;
  return panel_scales(call_.kv, base, strides, sequence_, kv_head_, position);
}

PanelWalk::PanelWalk(const Call& call, std::int64_t sequence, std::int64_t kv_head)
    : kv_(call.kv),
      sequence_(sequence),
      kv_head_(kv_head),
      k_lanes_(kPanelTokens * kv_.k_strides.token * size_bits(kv_.dtype) / 32),
      v_lanes_(kPanelTokens * kv_.v_strides.token * size_bits(kv_.dtype) / 32) {
  if (!is_quantized(kv_.dtype)) return;
  k_scales_ = kPanelTokens * kv_.k_scale_strides.token;
  v_scales_ = kPanelTokens * kv_.v_scale_strides.token;
}

void PanelWalk::turn_to_page_of(std::int64_t position) {
  begin_ = kv_.page_size == 0 ? 0 : position - position % kv_.page_size;
  end_ = kv_.page_size == 0 ? INT64_MAX : begin_ + kv_.page_size;
  const Slot slot = slot_of(kv_, sequence_, kv_head_, begin_);
  if (slot.is_there()) {
    set_panel(first_, kv_, slot);
  } else {
    first_ = {};
  }
}

bool reads_packed(const Call& call) {
  return call.kv.layout == KvLayout::kPacked &&
         call.kernel.lanes == static_cast<ElementType>(call.kv.dtype);
}

void find_non_finite(const Call& call, PanelPlace& panel) {
  panel.non_finite = call.kernel.non_finite_keys(panel.v, call.shape.dim_blocks);
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

// The numbers of one key of a packed panel that are whole bytes, as its type stores them.
template <typename Bit>
void extract(std::byte* vector, const PackedPanel& panel, std::int64_t key, std::int64_t dim,
             const Bit& bit) {
  const DType dtype = dtype_of(panel.type);
  const std::int64_t element = size_bytes(dtype);
  const auto* const from = static_cast<const std::byte*>(panel.numbers);
  for (std::int64_t d = 0; d < dim; ++d) {
    std::copy_n(from + bit(dtype, key, d) / 8, element, vector + d * element);
  }
}

// One key's integers, and its scales, to another place in a panel of the same type.
template <typename Bit>
void copy_integers(const MutablePackedPanel& to, std::int64_t to_key, const PackedPanel& from,
                   std::int64_t key, std::int64_t dim, const Bit& bit) {
  const DType dtype = dtype_of(from.type);
  const unsigned bits = dtype == DType::kInt8 ? 0xffU : 0xfU;
  for (std::int64_t d = 0; d < dim; ++d) {
    const std::int64_t source = bit(dtype, key, d);
    const std::int64_t target = bit(dtype, to_key, d);
    const unsigned number =
        static_cast<const std::uint8_t*>(from.numbers)[source / 8] >> (source % 8) & bits;
    std::uint8_t& byte = static_cast<std::uint8_t*>(to.numbers)[target / 8];
    byte = static_cast<std::uint8_t>((byte & ~(bits << (target % 8))) | number << (target % 8));
  }
  for (std::int64_t group = 0; group < num_scales(dtype, dim); ++group) {
    to.scales[group * kPanelTokens + to_key] = from.scales[group * kPanelTokens + key];
  }
}

std::uint16_t* scales_behind(std::uint32_t* panel, std::int64_t num_lanes) {
  return reinterpret_cast<std::uint16_t*>(panel + num_lanes);
}

// Panels of whole numbers in the workspace; keys that are not read are zeros.
PanelPlace gather_integers(const Call& call, const KeyAddress& address, Positions positions,
                           std::uint16_t read, const PanelSpace& space) {
  const auto type = static_cast<ElementType>(call.kv.dtype);
  const MutablePackedPanel k = {
      space.k, scales_behind(space.k, call.kernel.k_panel_lanes(call.kv.head_dim)), type};
  const MutablePackedPanel v = {
      space.v, scales_behind(space.v, call.kernel.v_panel_lanes(call.kv.v_head_dim)), type};
  std::fill_n(space.k, call.k_panel_lanes, 0U);
  std::fill_n(space.v, call.v_panel_lanes, 0U);
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    const auto at = static_cast<std::int64_t>(idx);
    const std::int64_t key = positions[idx] % kPanelTokens;
    copy_integers(k, at, address.k_panel(positions[idx]), key, call.kv.head_dim, k_bit);
    copy_integers(v, at, address.v_panel(positions[idx]), key, call.kv.v_head_dim, v_bit);
  }
  return {space.k, space.v, 0, k.scales, v.scales};
}

// One head of packed numbers from the panel that holds a key on, as kv_pack.h sees it.
PackedHead head_at(const Call& call, const KeyAddress& address, std::int64_t position) {
  const PackedPanel k = address.k_panel(position);
  const PackedPanel v = address.v_panel(position);
  const auto writable = [](const void* memory) { return const_cast<void*>(memory); };  // only read
  return {writable(k.numbers), writable(v.numbers), writable(k.scales), writable(v.scales),
          call.kv.dtype,       call.kv.head_dim,    call.kv.v_head_dim};
}

}  // namespace

PanelPlace take_panel(const Call& call, const KeyAddress& address, Positions positions,
                      std::uint16_t read, bool masked, const PanelSpace& space) {
  if (call.kv.layout == KvLayout::kStrided) {
    return pack_strided(call, address, positions, read, space);
  }
  const PackedPanel k = address.k_panel(positions[0]);
  const PackedPanel v = address.v_panel(positions[0]);
  PanelPlace place = {static_cast<const std::uint32_t*>(k.numbers),
                      static_cast<const std::uint32_t*>(v.numbers), 0, k.scales, v.scales};
  if (!reads_packed(call)) {
    call.kernel.widen_k(space.k, k, call.kv.head_dim);
    call.kernel.widen_v(space.v, v, call.shape.dim_blocks);
    place = {space.k, space.v};
  }
  if (masked) find_non_finite(call, place);
  return place;
}

PanelPlace gather_panel(const Call& call, const KeyAddress& address, Positions positions,
                        std::uint16_t read, const PanelSpace& scratch, const PanelSpace& space) {
  if (call.kv.layout == KvLayout::kStrided) {
    return pack_strided(call, address, positions, read, space);
  }
  const bool quantized = is_quantized(call.kv.dtype);
  if (quantized && reads_packed(call)) {
    return gather_integers(call, address, positions, read, space);
  }
  const ElementType type = quantized ? ElementType::kF32 : static_cast<ElementType>(call.kv.dtype);
  PanelSource keys = {{}, type, 1, call.kv.head_dim};
  PanelSource values = {{}, type, 1, call.kv.v_head_dim};
  for (std::size_t idx = 0; idx < kPanelKeys; ++idx) {
    if ((read >> idx & 1U) == 0) continue;
    const auto at = static_cast<std::int64_t>(idx);
    const std::int64_t key = positions[idx] % kPanelTokens;
    auto* const k = reinterpret_cast<float*>(scratch.k) + at * call.kv.head_dim;
    auto* const v = reinterpret_cast<float*>(scratch.v) + at * call.kv.v_head_dim;
    if (quantized) {
      const PackedHead head = head_at(call, address, positions[idx]);
      read_k({k, static_cast<std::size_t>(call.kv.head_dim)}, head, key);
      read_v({v, static_cast<std::size_t>(call.kv.v_head_dim)}, head, key);
    } else {
      extract(reinterpret_cast<std::byte*>(k), address.k_panel(positions[idx]), key,
              call.kv.head_dim, k_bit);
      extract(reinterpret_cast<std::byte*>(v), address.v_panel(positions[idx]), key,
              call.kv.v_head_dim, v_bit);
    }
    keys.vectors[idx] = k;
    values.vectors[idx] = v;
  }
  return pack_vectors(call, keys, values, space);
}

}  // namespace lacuna

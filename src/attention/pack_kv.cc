// A kernel-ready copy of keys and values.
#include <fmt/format.h>

#include "attention/key_blocks.h"
#include "kernels/kernel_table.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_pack.h"

namespace lacuna {
namespace {

std::int64_t padded_tokens(const KvView& kv) {
  std::int64_t tokens = 0;
  for (std::int64_t length : kv.lengths) {
    tokens = checked_add64(tokens, ceil_div(length, kPanelTokens) * kPanelTokens);
  }
  return tokens;
}

std::int64_t aligned(std::int64_t bytes) { return ceil_div(bytes, 64) * 64; }

// K, V and their scales, which lie one after another.
PackedBytes bytes_of(const KvView& kv, DType stored) {
  constexpr std::int64_t kMostBits = 64;  // of a dim, with its share of scales and padding
  const std::int64_t tokens = checked_mul64(padded_tokens(kv), kv.num_kv_heads);
  const std::int64_t dims = packed_k_dims(stored, kv.head_dim) + packed_v_dims(kv.v_head_dim);
  checked_mul64(checked_mul64(tokens, dims), kMostBits);  // throws where it is too much
  return packed_bytes(stored, kv.head_dim, kv.v_head_dim, tokens);
}

// K or V of one head: where it comes from.
struct Side {
  const void* base;
  const KvStrides& strides;
  std::int64_t dim;
};

// Slots past the end, and those of null pages, become zeros.
PanelSource source_of(const KvView& kv, const Side& side, std::int64_t sequence, std::int64_t head,
                      std::int64_t first) {
  PanelSource source = {{}, static_cast<ElementType>(kv.dtype), side.strides.dim, side.dim};
  const std::int64_t length = kv.lengths[static_cast<std::size_t>(sequence)];
  for (int idx = 0; idx < kPanelKeys && first + idx < length; ++idx) {
    source.vectors[idx] = key_vector(kv, side.base, side.strides, sequence, head, first + idx);
  }
  return source;
}

MutablePackedPanel target_of(const KvView& packed, const Side& numbers, const Side& scales,
                             std::int64_t sequence, std::int64_t head, std::int64_t first) {
  // Memory of the caller, seen through a view.
  const auto* const panel =
      key_vector(packed, numbers.base, numbers.strides, sequence, head, first);
  const auto* const panel_scale =
      is_quantized(packed.dtype)
          ? panel_scales(packed, scales.base, scales.strides, sequence, head, first)
          : nullptr;
  return {const_cast<std::byte*>(panel), const_cast<std::uint16_t*>(panel_scale),
          static_cast<ElementType>(packed.dtype)};
}

void pack_one_panel(const KvView& packed, const KvView& kv, std::int64_t sequence,
                    std::int64_t head, std::int64_t first) {
  const PanelPacker& packer = panel_packer();
  const auto target = [&](const Side& numbers, const Side& scales) {
    return target_of(packed, numbers, scales, sequence, head, first);
  };
  packer.put_k(
      target({packed.k, packed.k_strides, 0}, {packed.k_scales, packed.k_scale_strides, 0}), 0,
      kPanelKeys, source_of(kv, {kv.k, kv.k_strides, kv.head_dim}, sequence, head, first));
  packer.put_v(
      target({packed.v, packed.v_strides, 0}, {packed.v_scales, packed.v_scale_strides, 0}), 0,
      kPanelKeys, source_of(kv, {kv.v, kv.v_strides, kv.v_head_dim}, sequence, head, first));
}

KvView packed_view(std::span<std::byte> memory, std::span<const std::int64_t> starts,
                   const KvView& kv, DType stored) {
  const PackedBytes bytes = bytes_of(kv, stored);
  const std::int64_t tokens = padded_tokens(kv);
  const auto strides = [&](std::int64_t token) { return KvStrides{0, token, tokens * token, 1}; };
  KvView packed = kv;
  packed.dtype = stored;
  packed.layout = KvLayout::kPacked;
  packed.k = memory.data();
  packed.v = memory.data() + aligned(bytes.k);
  packed.k_strides = strides(packed_k_dims(stored, kv.head_dim));
  packed.v_strides = strides(packed_v_dims(kv.v_head_dim));
  packed.k_scales = memory.data() + aligned(bytes.k) + aligned(bytes.v);
  packed.v_scales = memory.data() + aligned(bytes.k) + aligned(bytes.v) + aligned(bytes.k_scales);
  packed.k_scale_strides = strides(num_scales(stored, kv.head_dim));
  packed.v_scale_strides = strides(num_scales(stored, kv.v_head_dim));
  packed.starts = starts;
  packed.page_size = packed.table_columns = packed.num_pages = 0;
  packed.block_table = {};
  packed.head_places = {};
  packed.num_tables = 1;
  return packed;
}

}  // namespace

std::int64_t packed_kv_bytes(const KvView& kv, DType stored) {
  check(kv);
  const PackedBytes bytes = bytes_of(kv, stored);
  return aligned(bytes.k) + aligned(bytes.v) + aligned(bytes.k_scales) + bytes.v_scales;
}

KvView pack_kv(std::span<std::byte> memory, std::span<std::int64_t> starts, const KvView& kv,
               DType stored) {
  const std::int64_t needed = packed_kv_bytes(kv, stored);
  if (kv.layout == KvLayout::kPacked) throw Error("kv is packed; allowed: the strided layout");
  if (static_cast<std::int64_t>(memory.size()) < needed) {
    throw Error(
        fmt::format("the memory has {} bytes; allowed: at least {}", memory.size(), needed));
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % 64 != 0) {
    throw Error(fmt::format("the memory is at {}; allowed: multiples of 64 bytes",
                            static_cast<const void*>(memory.data())));
  }
  if (starts.size() != kv.lengths.size()) {
    throw Error(fmt::format("starts has {} entries; allowed: one for each of {} sequences",
                            starts.size(), kv.lengths.size()));
  }
  std::int64_t next = 0;
  for (std::size_t s = 0; s < starts.size(); ++s) {
    starts[s] = next;
    next += ceil_div(kv.lengths[s], kPanelTokens) * kPanelTokens;
  }
  const KvView packed = packed_view(memory, starts, kv, stored);
  check(packed);
  for (std::int64_t s = 0; s < kv.num_sequences(); ++s) {
    for (std::int64_t head = 0; head < kv.num_kv_heads; ++head) {
      for (std::int64_t first = 0; first < kv.lengths[static_cast<std::size_t>(s)];
           first += kPanelTokens) {
        pack_one_panel(packed, kv, s, head, first);
      }
    }
  }
  return packed;
}

}  // namespace lacuna

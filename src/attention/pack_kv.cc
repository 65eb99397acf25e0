// A kernel-ready copy of keys and values.
#include <fmt/format.h>

#include "attention/key_blocks.h"
#include "kernels/kernel_table.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

// Elements of a token's K, and of its V, over all heads.
struct TokenElements {
  std::int64_t k;
  std::int64_t v;
};

TokenElements token_elements(const KvView& kv) {
  return {packed_k_dims(kv.dtype, kv.head_dim), packed_v_dims(kv.v_head_dim)};
}

std::int64_t padded_tokens(const KvView& kv) {
  std::int64_t tokens = 0;
  for (std::int64_t length : kv.lengths) {
    tokens = checked_add64(tokens, ceil_div(length, kPanelTokens) * kPanelTokens);
  }
  return tokens;
}

std::int64_t aligned(std::int64_t bytes) { return ceil_div(bytes, 64) * 64; }

std::int64_t bytes_of(const KvView& kv, std::int64_t elements) {
  return checked_mul64(checked_mul64(checked_mul64(padded_tokens(kv), kv.num_kv_heads), elements),
                       size_bytes(kv.dtype));
}

void pack_one_panel(const KvView& packed, const KvView& kv, std::int64_t sequence,
                    std::int64_t head, std::int64_t first) {
  const auto type = static_cast<ElementType>(kv.dtype);
  PanelSource keys = {{}, type, kv.k_strides.dim, kv.head_dim};
  PanelSource values = {{}, type, kv.v_strides.dim, kv.v_head_dim};
  const std::int64_t length = kv.lengths[static_cast<std::size_t>(sequence)];
  for (int idx = 0; idx < kPanelKeys && first + idx < length; ++idx) {
    keys.vectors[idx] = key_vector(kv, kv.k, kv.k_strides, sequence, head, first + idx);
    values.vectors[idx] = key_vector(kv, kv.v, kv.v_strides, sequence, head, first + idx);
  }
  const PanelPacker& packer = panel_packer(type);
  const auto place = [&](const void* base, const KvStrides& strides) {
    const void* const at = key_vector(packed, base, strides, sequence, head, first);
    return const_cast<void*>(at);  // memory of the caller, seen through a view
  };
  packer.pack_k(place(packed.k, packed.k_strides), keys);
  packer.pack_v(place(packed.v, packed.v_strides), values);
}

}  // namespace

std::int64_t packed_kv_bytes(const KvView& kv) {
  check(kv);
  const TokenElements token = token_elements(kv);
  return checked_add64(aligned(bytes_of(kv, token.k)), bytes_of(kv, token.v));
}

KvView pack_kv(std::span<std::byte> memory, std::span<std::int64_t> starts, const KvView& kv) {
  const std::int64_t needed = packed_kv_bytes(kv);
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
  const TokenElements token = token_elements(kv);
  const std::int64_t tokens = padded_tokens(kv);
  KvView packed = kv;
  packed.layout = KvLayout::kPacked;
  packed.k = memory.data();
  packed.v = memory.data() + aligned(bytes_of(kv, token.k));
  packed.k_strides = {0, token.k, tokens * token.k, 1};
  packed.v_strides = {0, token.v, tokens * token.v, 1};
  packed.starts = starts;
  packed.page_size = packed.table_columns = packed.num_pages = 0;
  packed.block_table = {};
  std::int64_t next = 0;
  for (std::size_t s = 0; s < starts.size(); ++s) {
    starts[s] = next;
    next += ceil_div(kv.lengths[s], kPanelTokens) * kPanelTokens;
  }
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

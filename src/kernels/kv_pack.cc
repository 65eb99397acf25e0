#include "lacuna/kv_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/packed_bits.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

void check_source(const char* name, const TensorView& x, std::int64_t dim, std::int64_t head) {
  if (is_quantized(x.dtype)) {
    throw Error(
        fmt::format("dtype of {} is {}; allowed: f32, bf16, f16", name, to_string(x.dtype)));
  }
  if (x.shape[2] != dim) {
    throw Error(fmt::format("dims of {} is {}; allowed: the page's {}", name, x.shape[2], dim));
  }
  if (head < 0 || head >= x.shape[1]) {
    throw Error(fmt::format("head is {}; allowed: 0..{}", head, x.shape[1] - 1));
  }
}

// One side of a page: K or V of one head.
struct Side {
  void* numbers;
  void* scales;
  std::int64_t dim;
  std::int64_t padded_dim;
};

Side k_side(const PackedHead& page) {
  return {page.k, page.k_scales, page.head_dim, packed_k_dims(page.dtype, page.head_dim)};
}
Side v_side(const PackedHead& page) {
  return {page.v, page.v_scales, page.v_head_dim, packed_v_dims(page.v_head_dim)};
}

MutablePackedPanel panel_at(const Side& side, DType dtype, std::int64_t slot) {
  const std::int64_t panel = slot / kPanelTokens;
  const std::int64_t bytes = kPanelTokens * side.padded_dim * size_bits(dtype) / 8;
  auto* const scales = static_cast<std::uint16_t*>(side.scales);
  const std::int64_t count = kPanelTokens * num_scales(dtype, side.dim);
  return {static_cast<std::byte*>(side.numbers) + panel * bytes,
          count == 0 ? nullptr : scales + panel * count, static_cast<ElementType>(dtype)};
}

PanelSource source_of(const TensorView& x, std::int64_t first, int count, std::int64_t head) {
  PanelSource source = {{}, static_cast<ElementType>(x.dtype), x.strides[2], x.shape[2]};
  for (int idx = 0; idx < count; ++idx) {
    source.vectors[idx] =
        static_cast<const std::byte*>(x.data) + x.offset(first + idx, head) * size_bytes(x.dtype);
  }
  return source;
}

float number_at(const void* numbers, DType dtype, std::int64_t bit) {
  const auto* const at = static_cast<const std::byte*>(numbers) + bit / 8;
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  if (is_quantized(dtype)) {
    const auto byte = std::to_integer<unsigned>(*at);
    if (dtype == DType::kInt8) return static_cast<float>(static_cast<std::int8_t>(byte));
    return static_cast<float>(static_cast<int>(byte >> (bit % 8) & 0xFU) - 8);
  }
  std::uint16_t half = 0;
  std::memcpy(&half, at, 2);
  return dtype == DType::kBf16 ? from_bf16(half) : from_f16(half);
}

template <typename Bit>
void read(std::span<float> vector, const Side& side, DType dtype, std::int64_t slot,
          const Bit& bit) {
  const MutablePackedPanel panel = panel_at(side, dtype, slot);
  const std::int64_t key = slot % kPanelTokens;
  const std::int64_t group = dtype == DType::kInt4 ? kInt4Group : side.dim;
  for (std::int64_t dim = 0; dim < side.dim; ++dim) {
    float value = number_at(panel.numbers, dtype, bit(dtype, key, dim));
    if (panel.scales != nullptr) value *= from_f16(panel.scales[dim / group * kPanelTokens + key]);
    vector[static_cast<std::size_t>(dim)] = value;
  }
}

}  // namespace

PackedBytes packed_bytes(DType dtype, std::int64_t head_dim, std::int64_t v_head_dim,
                         std::int64_t tokens) {
  const std::int64_t bits = tokens * size_bits(dtype);
  return {bits * packed_k_dims(dtype, head_dim) / 8, bits * packed_v_dims(v_head_dim) / 8,
          tokens * num_scales(dtype, head_dim) * 2, tokens * num_scales(dtype, v_head_dim) * 2};
}

void append_tokens(const PackedHead& page, std::int64_t first_slot, const TensorView& k,
                   const TensorView& v, std::int64_t head) {
  if (first_slot < 0) {
    throw Error(fmt::format("first_slot is {}; allowed: 0 and more", first_slot));
  }
  if (v.shape[0] != k.shape[0]) {
    throw Error(fmt::format("tokens of v is {}; allowed: {}, those of k", v.shape[0], k.shape[0]));
  }
  check_source("k", k, page.head_dim, head);
  check_source("v", v, page.v_head_dim, head);
  const PanelPacker& packer = panel_packer();
  std::int64_t done = 0;
  while (done < k.shape[0]) {
    const std::int64_t slot = first_slot + done;
    const auto first = static_cast<int>(slot % kPanelTokens);
    const auto count =
        static_cast<int>(std::min<std::int64_t>(kPanelTokens - first, k.shape[0] - done));
    packer.put_k(panel_at(k_side(page), page.dtype, slot), first, count,
                 source_of(k, done, count, head));
    packer.put_v(panel_at(v_side(page), page.dtype, slot), first, count,
                 source_of(v, done, count, head));
    done += count;
  }
}

void ask_for_slot(const PackedHead& page, std::int64_t first_slot) {
  constexpr int kToWrite = 1;
  const auto* const k =
      static_cast<const std::byte*>(panel_at(k_side(page), page.dtype, first_slot).numbers);
  const auto* const v =
      static_cast<const std::byte*>(panel_at(v_side(page), page.dtype, first_slot).numbers);
  const PackedBytes panel = packed_bytes(page.dtype, page.head_dim, page.v_head_dim, kPanelTokens);
  // A key has one row in each dim block of V's panel, and a lane in every row of K's. V goes first:
  // the processor drops what is asked beyond some lines.
  const std::int64_t block = panel.v * 16 / packed_v_dims(page.v_head_dim);
  for (std::int64_t at = first_slot % kPanelTokens * block / kPanelTokens; at < panel.v;
       at += block) {
    __builtin_prefetch(v + at, kToWrite);
  }
  for (std::int64_t at = 0; at < panel.k; at += kLineBytes) {
    __builtin_prefetch(k + at, kToWrite);
  }
}

void read_k(std::span<float> vector, const PackedHead& page, std::int64_t slot) {
  read(vector, k_side(page), page.dtype, slot, k_bit);
}

void read_v(std::span<float> vector, const PackedHead& page, std::int64_t slot) {
  read(vector, v_side(page), page.dtype, slot, v_bit);
}

}  // namespace lacuna

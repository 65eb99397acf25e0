#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/pack_panel.h"
#include "machine/simd.h"

// Vectors into packed panels of any type, as a cache appends them: a few dims of all vectors are
// staged as stored elements, which then go to their places. No product or sum is rounded twice, so
// the bits are the same with every instruction set. For kernel files.
namespace lacuna {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000U;

// The largest integer of a type of whole numbers.
constexpr float largest_integer(ElementType type) {
  return type == ElementType::kInt8 ? 127.0F : 7.0F;
}

inline F32 clamped(F32 x, float limit) {
  const F32 floor = broadcast(-limit);
  const F32 zero = broadcast(0.0F);
  return zero - max_of(floor, zero - max_of(floor, x));
}

// x/scale to the nearest whole number, ties to even, within ±limit; 0 where the scale is 0 or NaN.
inline I32 integers(F32 x, float scale, float limit) {
  if (!(scale > 0)) return broadcast_bits(0);
  return round_to_int(clamped(x / broadcast(scale), limit));
}

// Bits of the largest size of dims first .. end-1; those of ∞ and NaN are the largest.
template <ElementType kSource>
std::uint32_t largest_size(const Vectors& vector, std::int64_t first, std::int64_t end) {
  const auto* const bytes = static_cast<const unsigned char*>(*vector.at);
  if (bytes == nullptr) return 0;
  const void* const at = bytes + first * vector.stride * vector.size;
  I32 largest = broadcast_bits(0);
  for_pieces<1, kLanes>({&at, vector.size, vector.stride, end - first}, end - first,
                        [&](std::int64_t, const auto& pieces) {
                          const I32 size =
                              and_bits(widened<kSource>(pieces[0]), broadcast_bits(0x7fffffffU));
                          largest = max_bits(largest, size);
                        });
  return static_cast<std::uint32_t>(reduce_max_bits(largest));
}

// largest/limit as f16; NaN where it does not fit or is not finite: such a vector reads as NaN.
inline std::uint16_t scale_bits(std::uint32_t largest, float limit) {
  constexpr std::uint16_t kNan = 0x7e00;
  if (largest >= kInfinityBits) return kNan;
  float size = 0;
  std::memcpy(&size, &largest, 4);
  const std::uint16_t bits = to_f16(size / limit);
  return bits == 0x7c00 ? kNan : bits;
}

template <ElementType kStored, ElementType kSource>
void put_scales(std::uint16_t* scales, const Vectors& vector) {
  constexpr bool kGroups = kStored == ElementType::kInt4;
  const std::int64_t step = kGroups ? kInt4Group : vector.dim;
  for (std::int64_t first = 0; first < vector.dim; first += step, scales += kPanelKeys) {
    *scales =
        scale_bits(largest_size<kSource>(vector, first, first + step), largest_integer(kStored));
  }
}

// ---- Staged elements ----------------------------------------------------------------------------

constexpr std::int64_t kStagedDims = 128;

// f32, 16-bit numbers, int8, and int4 a byte each.
constexpr std::int64_t staged_bytes(ElementType type) {
  return type == ElementType::kF32 ? 4 : is_quantized(dtype_of(type)) ? 1 : 2;
}

template <ElementType kStored, ElementType kSource>
I32 stored_bits(const void* elements, float scale) {
  if constexpr (kStored == ElementType::kInt8) {
    return integers(as_f32(widened<kSource>(elements)), scale, largest_integer(kStored));
  } else if constexpr (kStored == ElementType::kInt4) {
    const I32 numbers =
        integers(as_f32(widened<kSource>(elements)), scale, largest_integer(kStored));
    return add_bits(numbers, broadcast_bits(8));
  } else if constexpr (kStored == ElementType::kF32) {
    return widened<kSource>(elements);
  } else if constexpr (kStored == kSource) {
    return load_u16(static_cast<const std::uint16_t*>(elements));
  } else {
    const F32 x = as_f32(widened<kSource>(elements));
    return kStored == ElementType::kBf16 ? round_bf16(x) : round_f16(x);
  }
}

template <std::int64_t kBytes>
void store_low(unsigned char* to, I32 bits) {
  if constexpr (kBytes == 4) {
    store_bits(to, bits);
  } else if constexpr (kBytes == 2) {
    store_low16(reinterpret_cast<std::uint16_t*>(to), bits);
  } else {
    store_low8(to, bits);
  }
}

// Dims first .. first + kStagedDims-1 side by side, zeros behind the last one up to a multiple of
// 16. scales: those of the vector, kPanelKeys apart.
template <ElementType kStored, ElementType kSource>
void stage(unsigned char* to, const Vectors& vector, std::int64_t first,
           const std::uint16_t* scales) {
  constexpr std::int64_t kGroups = kStagedDims / kInt4Group;
  const std::int64_t left = vector.dim - first < kStagedDims ? vector.dim - first : kStagedDims;
  float group_scales[kGroups] = {};
  if constexpr (kStored == ElementType::kInt8) {
    for (float& scale : group_scales) scale = from_f16(*scales);
  } else if constexpr (kStored == ElementType::kInt4) {
    for (std::int64_t group = 0; group * kInt4Group < left; ++group) {
      group_scales[group] = from_f16(scales[(first / kInt4Group + group) * kPanelKeys]);
    }
  }
  const auto* const bytes = static_cast<const unsigned char*>(*vector.at);
  const void* const at = bytes == nullptr ? nullptr : bytes + first * vector.stride * vector.size;
  for_pieces<1, kLanes>(
      {&at, vector.size, vector.stride, left}, (left + 15) / 16 * 16,
      [&](std::int64_t dim, const auto& pieces) {
        store_low<staged_bytes(kStored)>(
            to + dim * staged_bytes(kStored),
            stored_bits<kStored, kSource>(pieces[0], group_scales[dim / kInt4Group]));
      });
}

// Calls work.template operator()<stored, source>().
template <typename Work>
void with_types(ElementType stored, ElementType source, const Work& work) {
  with_type(source, [&]<ElementType kSource>() {
    switch (stored) {
      case ElementType::kF32:
        return work.template operator()<ElementType::kF32, kSource>();
      case ElementType::kBf16:
        return work.template operator()<ElementType::kBf16, kSource>();
      case ElementType::kF16:
        return work.template operator()<ElementType::kF16, kSource>();
      case ElementType::kInt8:
        return work.template operator()<ElementType::kInt8, kSource>();
      case ElementType::kInt4:
        return work.template operator()<ElementType::kInt4, kSource>();
    }
  });
}

using Staged = unsigned char[kPanelKeys][kStagedDims * 4];

// Calls put(first dim, staged) for each kStagedDims dims.
template <typename Put>
void for_staged(const MutablePackedPanel& to, int first_key, int count, const PanelSource& source,
                const Put& put) {
  with_types(to.type, source.type, [&]<ElementType kStored, ElementType kSource>() {
    const Vectors all = {source.vectors, element_bytes(source.type), source.dim_stride, source.dim};
    std::uint16_t* const scales = is_quantized(dtype_of(kStored)) ? to.scales + first_key : nullptr;
    const auto one = [&](int idx) { return Vectors{all.at + idx, all.size, all.stride, all.dim}; };
    for (int idx = 0; idx < count && is_quantized(dtype_of(kStored)); ++idx) {
      put_scales<kStored, kSource>(scales + idx, one(idx));
    }
    Staged staged;
    for (std::int64_t first = 0; first < source.dim; first += kStagedDims) {
      for (int idx = 0; idx < count; ++idx) {
        stage<kStored, kSource>(staged[idx], one(idx), first,
                                scales == nullptr ? nullptr : scales + idx);
      }
      put(first, staged);
    }
  });
}

// ---- Places -------------------------------------------------------------------------------------

// Bytes of one int4 each to the lanes of K: four dims in the low halves, the next four in the high
// ones.
inline void join_halves(unsigned char* bytes) {
  for (std::int64_t lane = 0; lane < kStagedDims / 8; ++lane) {
    std::uint32_t halves[2];
    std::memcpy(halves, bytes + lane * 8, 8);
    halves[0] |= halves[1] << 4;
    std::memcpy(bytes + lane * 4, halves, 4);
  }
}

inline void put_k(const MutablePackedPanel& to, int first_key, int count,
                  const PanelSource& source) noexcept {
  const std::int64_t lane_dims = 32 / size_bits(dtype_of(to.type));
  for_staged(to, first_key, count, source, [&](std::int64_t first, Staged& staged) {
    const std::int64_t dims = source.dim - first < kStagedDims ? source.dim - first : kStagedDims;
    const std::int64_t steps = (dims + lane_dims - 1) / lane_dims;
    Lane32* const lanes = static_cast<Lane32*>(to.numbers) + first / lane_dims * kPanelKeys;
    if (to.type == ElementType::kInt4) {
      for (int idx = 0; idx < count; ++idx) join_halves(staged[idx]);
    }
    if (count == kPanelKeys) {  // whole lanes: what they hold is all the same
      PanelSource whole = {{}, ElementType::kF32, 1, steps};
      for (int idx = 0; idx < count; ++idx) whole.vectors[idx] = staged[idx];
      pack_k<F32Product>(lanes, whole);
      return;
    }
    for (int idx = 0; idx < count; ++idx) {
      const auto* const vector = reinterpret_cast<const Lane32*>(staged[idx]);
      for (std::int64_t step = 0; step < steps; ++step) {
        lanes[step * kPanelKeys + first_key + idx] = vector[step];
      }
    }
  });
}

// One key's elements into a row of 16 dims, each `shift` bits into its word, which other keys
// share.
template <typename Word, typename Element>
void put_row(void* row, const unsigned char* elements, int shift, Word bits) {
  typedef Word Words __attribute__((may_alias));
  auto* const words = static_cast<Words*>(row);
  const auto keep = static_cast<Word>(~(bits << shift));
  for (int dim = 0; dim < kDimBlock; ++dim) {
    Element x;
    std::memcpy(&x, elements + dim * static_cast<int>(sizeof(x)), sizeof(x));
    const auto placed = static_cast<Word>(static_cast<Word>(x & bits) << shift);
    words[dim] = static_cast<Word>((words[dim] & keep) | placed);
  }
}

// One key's 16 dims into the block of a V panel that holds them.
inline void put_values(unsigned char* block, ElementType type, int key,
                       const unsigned char* elements) {
  switch (type) {
    case ElementType::kF32:
      std::memcpy(block + key * 64, elements, 64);
      return;
    case ElementType::kBf16:
    case ElementType::kF16:
      return put_row<std::uint32_t, std::uint16_t>(block + key / 2 * 64, elements, key % 2 * 16,
                                                   0xffffU);
    case ElementType::kInt8:
      return put_row<std::uint16_t, std::uint8_t>(block + key / 2 * 32, elements, key % 2 * 8,
                                                  std::uint16_t{0xff});
    case ElementType::kInt4:
      return put_row<std::uint16_t, std::uint8_t>(
          block + key / 4 * 32, elements, key % 2 * 8 + key / 2 % 2 * 4, std::uint16_t{0xf});
  }
}

inline void put_v(const MutablePackedPanel& to, int first_key, int count,
                  const PanelSource& source) noexcept {
  const std::int64_t block_bytes = kDimBlock * kPanelKeys * size_bits(dtype_of(to.type)) / 8;
  for_staged(to, first_key, count, source, [&](std::int64_t first, const Staged& staged) {
    for (std::int64_t dim = 0; dim < kStagedDims && first + dim < source.dim; dim += kDimBlock) {
      auto* const block =
          static_cast<unsigned char*>(to.numbers) + (first + dim) / kDimBlock * block_bytes;
      for (int idx = 0; idx < count; ++idx) {
        put_values(block, to.type, first_key + idx, staged[idx] + dim * staged_bytes(to.type));
      }
    }
  });
}

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/product.h"
#include "machine/simd.h"

// From the caller's vectors to packed panels: see kernel_table.h for the layouts. For kernel files.
namespace lacuna {
namespace {

// Binary16 in the low halves of the lanes, exactly.
inline F32 widen_f16(I32 bits) {
  const I32 sign = shift_left(and_bits(bits, broadcast_bits(0x8000U)), 16);
  const I32 exponent = and_bits(bits, broadcast_bits(0x7c00U));
  const I32 rest = and_bits(bits, broadcast_bits(0x7fffU));
  const F32 normal = as_f32(add_bits(shift_left(rest, 13), broadcast_bits((127U - 15U) << 23)));
  const F32 special = as_f32(or_bits(shift_left(rest, 13), broadcast_bits(0x7f800000U)));
  const F32 tiny = to_f32(rest) * broadcast(0x1p-24F);
  const F32 finite = select_if(exponent, normal, tiny);
  const I32 is_finite =
      and_bits(add_bits(exponent, broadcast_bits(0x400U)), broadcast_bits(0x7c00U));
  const F32 size = select_if(is_finite, finite, special);
  return as_f32(or_bits(as_i32(size), sign));
}

constexpr std::int64_t element_bytes(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

// kLanes consecutive elements as lanes of f32.
template <ElementType kType>
I32 widened(const void* elements) {
  if constexpr (kType == ElementType::kF32) {
    return load_bits(elements);
  } else {
    const I32 bits = load_u16(static_cast<const std::uint16_t*>(elements));
    return kType == ElementType::kBf16 ? shift_left(bits, 16) : as_i32(widen_f16(bits));
  }
}

// Calls work.template operator()<type>().
template <typename Work>
void with_type(ElementType type, const Work& work) {
  switch (type) {
    case ElementType::kF32:
      return work.template operator()<ElementType::kF32>();
    case ElementType::kBf16:
      return work.template operator()<ElementType::kBf16>();
    case ElementType::kF16:
      return work.template operator()<ElementType::kF16>();
    case ElementType::kInt8:
    case ElementType::kInt4:
      return;  // no caller's tensor holds them
  }
}

// Vectors of one length and stride; nullptr stands for zeros.
struct Vectors {
  const void* const* at;
  std::int64_t size;  // bytes of an element
  std::int64_t stride;
  std::int64_t dim;
};

template <int kElements>
void copy_padded(unsigned char* padded, const void* vector, const Vectors& all,
                 std::int64_t first) {
  std::memset(padded, 0, 4 * kElements);
  const auto* const bytes = static_cast<const unsigned char*>(vector);
  for (std::int64_t idx = 0; bytes != nullptr && idx < kElements && first + idx < all.dim; ++idx) {
    std::memcpy(padded + idx * all.size, bytes + (first + idx) * all.stride * all.size,
                static_cast<std::size_t>(all.size));
  }
}

// Calls work(first, pieces) for first = 0, kElements, … < end, pieces[i] being kElements elements
// of vector i side by side: in place where all of them are, else a copy padded with zeros.
template <int kVectors, int kElements, typename Work>
inline void for_pieces(const Vectors& all, std::int64_t end, const Work& work) {
  static constexpr unsigned char kZeros[4 * kElements] = {};
  const unsigned char* pieces[kVectors];
  std::int64_t first = 0;
  if (all.stride == 1) {
    std::int64_t step[kVectors];
    for (int idx = 0; idx < kVectors; ++idx) {
      const auto* const bytes = static_cast<const unsigned char*>(all.at[idx]);
      pieces[idx] = bytes == nullptr ? kZeros : bytes;
      step[idx] = bytes == nullptr ? 0 : kElements * all.size;
    }
    for (; first + kElements <= all.dim; first += kElements) {
      work(first, pieces);
      for (int idx = 0; idx < kVectors; ++idx) pieces[idx] += step[idx];
    }
  }
  unsigned char padded[kVectors][4 * kElements];
  for (; first < end; first += kElements) {
    for (int idx = 0; idx < kVectors; ++idx) {
      copy_padded<kElements>(padded[idx], all.at[idx], all, first);
      pieces[idx] = padded[idx];
    }
    work(first, pieces);
  }
}

// Elements of kLanes packed lanes along the dims.
template <typename Product>
constexpr int kLaneElements = Product::kIsBf16 ? 2 * kLanes : kLanes;

template <typename Product, ElementType kType>
I32 packed_lanes(const void* elements) {
  if constexpr (Product::kIsBf16) return load_bits(elements);
  return widened<kType>(elements);
}

inline void store_first(Lane32* to, I32 lanes, std::int64_t count) {
  if (count >= kLanes) {
    store_bits(to, lanes);
    return;
  }
  std::uint32_t all[kLanes];
  store_bits(all, lanes);
  for (std::int64_t idx = 0; idx < count; ++idx) to[idx] = all[idx];
}

template <typename Product>
void pack_q(void* row, const void* vector, ElementType type, std::int64_t dim_stride,
            std::int64_t dim) noexcept {
  end_shared_loads();
  auto* const to = static_cast<Lane32*>(row);
  constexpr int kElements = kLaneElements<Product>;
  constexpr std::int64_t kPerLane = kElements / kLanes;
  const std::int64_t steps = (dim + kPerLane - 1) / kPerLane;
  const Vectors one = {&vector, element_bytes(type), dim_stride, dim};
  with_type(type, [&]<ElementType kType>() {
    for_pieces<1, kElements>(one, dim, [&](std::int64_t first, const auto& pieces) {
      const std::int64_t step = first / kPerLane;
      store_first(to + step, packed_lanes<Product, kType>(pieces[0]), steps - step);
    });
  });
}

// Squares of kLanes keys × kLanes steps are transposed in registers.
template <typename Product>
void pack_k(void* panel, const PanelSource& source) noexcept {
  end_shared_loads();
  constexpr int kElements = kLaneElements<Product>;
  constexpr std::int64_t kPerLane = kElements / kLanes;
  const std::int64_t steps = (source.dim + kPerLane - 1) / kPerLane;
  for (int first_key = 0; first_key < kPanelKeys; first_key += kLanes) {
    auto* const to = static_cast<Lane32*>(panel) + first_key;
    const Vectors keys = {source.vectors + first_key, element_bytes(source.type), source.dim_stride,
                          source.dim};
    with_type(source.type, [&]<ElementType kType>() {
      for_pieces<kLanes, kElements>(keys, source.dim, [&](std::int64_t first, const auto& pieces) {
        I32 square[kLanes];
        for (int idx = 0; idx < kLanes; ++idx) {
          square[idx] = packed_lanes<Product, kType>(pieces[idx]);
        }
        transpose(square);
        const std::int64_t step = first / kPerLane;
        for (int idx = 0; idx < kLanes; ++idx) {
          if (step + idx < steps) store_bits(to + (step + idx) * kPanelKeys, square[idx]);
        }
      });
    });
  }
}

// Keys of a panel that hold a number which is not finite, looked at one by one.
template <ElementType kType>
unsigned non_finite_keys(const Vectors& keys) {
  unsigned bad = 0;
  for (int key = 0; key < kPanelKeys; ++key) {
    Vectors one = keys;
    one.at = keys.at + key;
    for_pieces<1, kLanes>(one, keys.dim, [&](std::int64_t, const auto& pieces) {
      const I32 size = and_bits(widened<kType>(pieces[0]), broadcast_bits(0x7fffffffU));
      if (any_at_least(size, 0x7f800000)) bad |= 1U << key;
    });
  }
  return bad;
}

// One lane of a V panel for kLanes dims, and its largest size so far, to tell whether all numbers
// are finite: as bits, the sizes of ∞ and NaN are the largest.
template <typename Product, ElementType kType>
I32 value_lanes(const unsigned char* const* pieces, int key, I32& largest) {
  if constexpr (Product::kIsBf16) {
    const auto* const even = reinterpret_cast<const std::uint16_t*>(pieces[key]);
    const auto* const odd = reinterpret_cast<const std::uint16_t*>(pieces[key + 1]);
    const I32 pair = or_bits(load_u16(even), shift_left(load_u16(odd), 16));
    largest = max_halves(largest, and_bits(pair, broadcast_bits(0x7fff7fffU)));
    return pair;
  } else {
    const I32 lanes = widened<kType>(pieces[key]);
    largest = max_bits(largest, and_bits(lanes, broadcast_bits(0x7fffffffU)));
    return lanes;
  }
}

template <typename Product>
bool all_finite(I32 largest) {
  if constexpr (Product::kIsBf16) {
    return !any_at_least(and_bits(largest, broadcast_bits(0x7fff0000U)), 0x7f800000) &&
           !any_at_least(shift_left(largest, 16), 0x7f800000);
  } else {
    return !any_at_least(largest, 0x7f800000);
  }
}

template <typename Product>
std::uint16_t pack_v(void* panel, const PanelSource& source) noexcept {
  constexpr int kKeys = kPanelKeys / Product::kPanelSteps;  // of a lane
  constexpr std::int64_t kBlockLanes = std::int64_t{Product::kPanelSteps} * kDimBlock;
  const std::int64_t padded_dim = (source.dim + kDimBlock - 1) / kDimBlock * kDimBlock;
  const Vectors keys = {source.vectors, element_bytes(source.type), source.dim_stride, source.dim};
  unsigned bad_keys = 0;
  with_type(source.type, [&]<ElementType kType>() {
    I32 largest = broadcast_bits(0);
    for_pieces<kPanelKeys, kLanes>(keys, padded_dim, [&](std::int64_t first, const auto& pieces) {
      Lane32* const to =
          static_cast<Lane32*>(panel) + first / kDimBlock * kBlockLanes + first % kDimBlock;
      I32 largest_here = largest;
#pragma GCC unroll 16
      for (int key = 0; key < kPanelKeys; key += kKeys) {
        store_bits(to + key / kKeys * kDimBlock,
                   value_lanes<Product, kType>(pieces, key, largest_here));
      }
      largest = largest_here;
    });
    if (!all_finite<Product>(largest)) bad_keys = non_finite_keys<kType>(keys);
  });
  return static_cast<std::uint16_t>(bad_keys);
}

// One key at a time: only panels with a mask are asked.
template <typename Product>
std::uint16_t non_finite_keys_of_panel(const void* v_panel, std::int64_t dim_blocks) noexcept {
  constexpr int kKeys = kPanelKeys / Product::kPanelSteps;  // of a lane
  const auto* const lanes = static_cast<const Lane32*>(v_panel);
  unsigned bad = 0;
  for (std::int64_t row = 0; row < dim_blocks * Product::kPanelSteps; ++row) {
    const int key = static_cast<int>(row % Product::kPanelSteps) * kKeys;
    for (int vec = 0; vec < kVecs; ++vec) {
      const I32 bits = load_bits(lanes + row * kDimBlock + vec * kLanes);
      if constexpr (Product::kIsBf16) {
        const I32 even = and_bits(shift_left(bits, 16), broadcast_bits(0x7fffffffU));
        if (any_at_least(even, 0x7f800000)) bad |= 1U << key;
        const I32 odd = and_bits(bits, broadcast_bits(0x7fff0000U));
        if (any_at_least(odd, 0x7f800000)) bad |= 2U << key;
      } else if (any_at_least(and_bits(bits, broadcast_bits(0x7fffffffU)), 0x7f800000)) {
        bad |= 1U << key;
      }
    }
  }
  return static_cast<std::uint16_t>(bad);
}

}  // namespace
}  // namespace lacuna

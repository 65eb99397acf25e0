#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"
#include "machine/simd.h"

// From a row's o to the caller's vector. For kernel files.
namespace lacuna {
namespace {

// kLanes elements side by side.
inline void store_elements(void* to, ElementType type, F32 x) {
  switch (type) {
    case ElementType::kF32:
      store(to, x);
      return;
    case ElementType::kBf16:
      store_bf16(static_cast<std::uint16_t*>(to), x);
      return;
    case ElementType::kF16:
      store_f16(static_cast<std::uint16_t*>(to), x);
      return;
    case ElementType::kInt8:
    case ElementType::kInt4:
      return;  // no output holds them
  }
}

inline void write_row(void* vector, ElementType type, std::int64_t dim_stride, std::int64_t dim,
                      const float* o, float factor) noexcept {
  auto* const to = static_cast<unsigned char*>(vector);
  const std::int64_t size = type == ElementType::kF32 ? 4 : 2;
  for (std::int64_t first = 0; first < dim; first += kLanes) {
    // + 0: a sum that cancelled to −0 and one that never began are the same 0.
    const F32 x = factor == 0 ? F32{} : fused(load(o + first), broadcast(factor), broadcast(0.0F));
    if (dim_stride == 1 && first + kLanes <= dim) {
      store_elements(to + first * size, type, x);
      continue;
    }
    unsigned char elements[4 * kLanes];
    store_elements(elements, type, x);
    for (std::int64_t idx = 0; idx < kLanes && first + idx < dim; ++idx) {
      std::memcpy(to + (first + idx) * dim_stride * size, elements + idx * size,
                  static_cast<std::size_t>(size));
    }
  }
}

}  // namespace
}  // namespace lacuna

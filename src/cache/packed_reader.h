#pragma once

// Keys and values as they must be stored, and as they lie in pages: written from the words of
// kv_pack.h and kv_view.h, apart from the code that packs.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lacuna/kv_view.h"
#include "lacuna/page_pool.h"
#include "lacuna/tensor.h"

namespace lacuna::rig {

// A vector as kv_pack.h says that it is stored.
inline std::vector<float> stored(std::vector<float> vector, DType dtype) {
  float largest = 0;
  for (const float x : vector) largest = std::max(largest, std::abs(x));
  const float scale = from_f16(to_f16(largest / 127));
  for (float& x : vector) {
    if (dtype == DType::kBf16) x = from_bf16(to_bf16(x));
    if (dtype == DType::kF16) x = from_f16(to_f16(x));
    if (dtype == DType::kInt8) {
      x = scale == 0 ? 0 : scale * std::clamp(std::nearbyint(x / scale), -127.0F, 127.0F);
    }
  }
  return vector;
}

// The same vector, read where kv_view.h says that it lies.
class PackedReader {
 public:
  PackedReader(const KvView& kv, bool is_value, std::int64_t head, std::int64_t position)
      : kv_(kv), is_value_(is_value), slot_(position % kv.page_size) {
    place_ = kv.head_place(head);
    page_ = kv.block_table[static_cast<std::size_t>(place_.table * kv.table_columns +
                                                    position / kv.page_size)];
  }

  std::vector<float> vector() const {
    std::vector<float> result;
    for (std::int64_t dim = 0; dim < (is_value_ ? kv_.v_head_dim : kv_.head_dim); ++dim) {
      result.push_back(number(dim));
    }
    return result;
  }

 private:
  std::int64_t panel(const KvStrides& strides) const {
    return page_ * strides.page + place_.slot * strides.head + slot_ / 16 * 16 * strides.token;
  }

  // K: lanes of 32 bits, one after another for 16 keys. V: rows of 16 dims, of as many keys as lie
  // side by side in one.
  std::int64_t in_panel(std::int64_t dim) const {
    const std::int64_t key = slot_ % 16;
    const std::int64_t in_lane = 32 / size_bits(kv_.dtype);
    if (!is_value_) return (dim / in_lane * 16 + key) * in_lane + dim % in_lane;
    const std::int64_t in_row = kv_.dtype == DType::kF32 ? 1 : 2;
    return dim / 16 * 256 + (key / in_row * 16 + dim % 16) * in_row + key % in_row;
  }

  template <typename T>
  static T load(const void* base, std::int64_t element) {
    T x;
    std::memcpy(
        &x, static_cast<const std::byte*>(base) + element * static_cast<std::int64_t>(sizeof(T)),
        sizeof(T));
    return x;
  }

  float number(std::int64_t dim) const {
    const void* const base = is_value_ ? kv_.v : kv_.k;
    const std::int64_t element = panel(is_value_ ? kv_.v_strides : kv_.k_strides) + in_panel(dim);
    if (kv_.dtype == DType::kF32) return load<float>(base, element);
    if (kv_.dtype == DType::kBf16) return from_bf16(load<std::uint16_t>(base, element));
    if (kv_.dtype == DType::kF16) return from_f16(load<std::uint16_t>(base, element));
    const void* const scales = is_value_ ? kv_.v_scales : kv_.k_scales;
    const std::int64_t scale =
        panel(is_value_ ? kv_.v_scale_strides : kv_.k_scale_strides) + slot_ % 16;
    return from_f16(load<std::uint16_t>(scales, scale)) *
           static_cast<float>(load<std::int8_t>(base, element));
  }

  const KvView& kv_;
  bool is_value_;
  std::int64_t slot_;
  KvHeadPlace place_;
  PageId page_;
};

}  // namespace lacuna::rig

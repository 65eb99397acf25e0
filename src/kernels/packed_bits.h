#pragma once

#include <cstdint>

#include "lacuna/kv_view.h"

namespace lacuna {

// Where one number lies in a packed panel, in bits from its begin: kv_view.h's picture as a
// formula.
inline std::int64_t k_bit(DType dtype, std::int64_t key, std::int64_t dim) {
  const std::int64_t size = size_bits(dtype);
  const std::int64_t lane_dims = 32 / size;
  const std::int64_t lane = dim / lane_dims * kPanelTokens + key;
  std::int64_t in_lane = dim % lane_dims * size;
  if (dtype == DType::kInt4) in_lane = dim % 4 * 8 + dim % 8 / 4 * 4;
  return lane * 32 + in_lane;
}

inline std::int64_t v_bit(DType dtype, std::int64_t key, std::int64_t dim) {
  constexpr std::int64_t kRowKeys[] = {1, 2, 2, 2, 4};
  constexpr std::int64_t kBlockDims = 16;
  const std::int64_t size = size_bits(dtype);
  const std::int64_t row_keys = kRowKeys[static_cast<int>(dtype)];
  const std::int64_t row = dim / kBlockDims * (kPanelTokens / row_keys) + key / row_keys;
  std::int64_t in_word = key % row_keys * size;
  if (dtype == DType::kInt4) in_word = key % 2 * 8 + key % 4 / 2 * 4;
  return (row * kBlockDims + dim % kBlockDims) * row_keys * size + in_word;
}

}  // namespace lacuna

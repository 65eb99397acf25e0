#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lacuna/tensor.h"

namespace lacuna {

struct PackedHead {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  std::byte* k_scales = nullptr;
  std::byte* v_scales = nullptr;
  DType dtype = DType::kF32;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;
};

void append_tokens(const PackedHead& page, std::int64_t first_slot, const TensorView& k,
                   const TensorView& v, std::int64_t head);
void read_key(std::span<float> key, const PackedHead& page, std::int64_t slot);

}  // namespace lacuna

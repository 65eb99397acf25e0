#pragma once

#include <cstdint>
#include <span>

#include "lacuna/kv_view.h"
#include "lacuna/tensor.h"

namespace lacuna {

// Where one head of one page lies in the packed layout of kv_view.h: panels of 16 slots, one after
// another, of K and of V, and their scales where the numbers are quantized. It owns nothing.
struct PackedHead {
  void* k = nullptr;
  void* v = nullptr;
  void* k_scales = nullptr;  // f16, quantized only
  void* v_scales = nullptr;
  DType dtype = DType::kF32;
  std::int64_t head_dim = 0;    // of k
  std::int64_t v_head_dim = 0;  // of v
};

// Bytes of one page of one head: `tokens` slots, a multiple of 16.
struct PackedBytes {
  std::int64_t k = 0;
  std::int64_t v = 0;
  std::int64_t k_scales = 0;
  std::int64_t v_scales = 0;
};
PackedBytes packed_bytes(DType dtype, std::int64_t head_dim, std::int64_t v_head_dim,
                         std::int64_t tokens);

// Writes head `head` of k and v [tokens, heads, dims] to the slots from first_slot on. The other
// slots' bits stay. The bits of a slot depend on its own vectors and the dtypes alone, never on the
// instruction set or on what is written with it. Any strides, no alignment.
//
// f32, bf16, f16: the nearest stored number, ties to even; the same type is copied as it is.
// int8: scale = max|x| / 127 as f16, integer = x / scale, the f16, to the nearest, ties to even,
//   within ±127. So |x − integer · scale| <= scale / 2 + 127 · |scale − max|x| / 127|, the second
//   being at most 2^-11 of max|x| or 127 · 2^-25.
// int4: the same for each group of kInt4Group dims, with 7 in place of 127.
// A vector (int4: group) of zeros, or of nothing above 2^-25 of that limit, has a scale of 0 and
// reads as zeros. One that holds a number which is not finite, or whose scale is beyond f16, has a
// scale of NaN and reads as NaN throughout.
//
// Throws Error where k and v are not of one count, or not of the page's dims. Different heads and
// pages may be written by different threads at once.
void append_tokens(const PackedHead& page, std::int64_t first_slot, const TensorView& k,
                   const TensorView& v, std::int64_t head);

// Asks for the memory that append_tokens() writes for this slot, so that it comes while something
// else is computed. REQUIRES: first_slot >= 0, within the page.
void ask_for_slot(const PackedHead& page, std::int64_t first_slot);

// What a slot holds, exactly: a number is integer · scale. REQUIRES: room for the dims.
void read_k(std::span<float> vector, const PackedHead& page, std::int64_t slot);
void read_v(std::span<float> vector, const PackedHead& page, std::int64_t slot);

}  // namespace lacuna

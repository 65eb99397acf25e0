#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lacuna {

// How one number is stored: IEEE 754 binary32, bfloat16, IEEE 754 binary16; and, in packed keys and
// values only (kv_view.h), whole numbers of 8 or 4 bits with scales beside them.
enum class DType { kF32, kBf16, kF16, kInt8, kInt4 };
std::string_view to_string(DType dtype);
// "f32", "bf16", "f16", what a tensor may hold. Throws Error with all names and a near miss.
DType parse_dtype(std::string_view name);
constexpr bool is_quantized(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4; }
constexpr std::int64_t size_bits(DType dtype) {
  constexpr std::int64_t kBits[] = {32, 16, 16, 8, 4};
  return kBits[static_cast<int>(dtype)];
}
// REQUIRES: whole bytes.
constexpr std::int64_t size_bytes(DType dtype) { return size_bits(dtype) / 8; }

// Bits of the nearest 16-bit number (ties to even; too large becomes infinite, NaN stays NaN), and
// the exact value of one.
std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);
std::uint16_t to_f16(float value);
float from_f16(std::uint16_t bits);

// A three-dimensional view [tokens, heads, dims] that owns nothing. Strides are in elements, may be
// anything (a transposed tensor, a slice of a fused buffer) and need no alignment beyond the
// element's; all address arithmetic is in 64 bits. A plain value.
template <typename Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  std::array<std::int64_t, 3> shape = {0, 0, 0};
  std::array<std::int64_t, 3> strides = {0, 0, 0};

  std::int64_t offset(std::int64_t token, std::int64_t head) const {
    return token * strides[0] + head * strides[1];
  }
};
using TensorView = BasicTensorView<const void*>;
using MutableTensorView = BasicTensorView<void*>;

// A contiguous row-major view.
TensorView tensor_view(const void* data, DType dtype, std::array<std::int64_t, 3> shape);
MutableTensorView mutable_tensor_view(void* data, DType dtype, std::array<std::int64_t, 3> shape);

}  // namespace lacuna

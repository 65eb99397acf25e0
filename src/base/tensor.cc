#include "lacuna/tensor.h"

#include <bit>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF16};

constexpr std::uint32_t kAbsMask = 0x7FFFFFFF;
constexpr std::uint32_t kInfinity = 0x7F800000;
constexpr std::uint32_t kQuietBit = 0x00400000;

// bits / 2^shift, ties to even. REQUIRES: 1 <= shift <= 31 and no overflow of the rounding.
std::uint32_t shift_to_even(std::uint32_t bits, int shift) {
  const std::uint32_t kept = bits >> shift;
  const std::uint32_t rest = bits & ((std::uint32_t{1} << shift) - 1);
  const std::uint32_t half = std::uint32_t{1} << (shift - 1);
  return kept + (rest > half || (rest == half && kept % 2 == 1) ? 1 : 0);
}

// The magnitude as binary16, whose numbers below 2^-14 are multiples of 2^-24.
std::uint32_t f16_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t kSmallestNormal = (127 - 14) << 23;
  constexpr std::uint32_t kTooLarge = ((127 + 16) << 23) - (1 << 12);  // 65520 and above
  if (magnitude > kInfinity) return 0x7E00 | (magnitude >> 13 & 0x3FF);
  if (magnitude >= kTooLarge) return 0x7C00;
  // A carry out of the mantissa raises the exponent, as it should.
  if (magnitude >= kSmallestNormal) return shift_to_even(magnitude - ((127 - 15) << 23), 13);
  const int shift = 126 - static_cast<int>(magnitude >> 23);  // 14 at 2^-15
  if (shift > 24) return 0;                                   // below half of 2^-24
  return shift_to_even((magnitude & 0x007FFFFF) | 0x00800000, shift);
}

template <typename Pointer>
BasicTensorView<Pointer> contiguous(Pointer data, DType dtype, std::array<std::int64_t, 3> shape) {
  return {data, dtype, shape, {shape[1] * shape[2], shape[2], 1}};
}

}  // namespace

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kInt8:
      return "int8";
    case DType::kInt4:
      return "int4";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  std::vector<std::string> names;
  std::string allowed;
  for (const DType dtype : kDTypes) {
    if (to_string(dtype) == name) return dtype;
    names.emplace_back(to_string(dtype));
    allowed += (allowed.empty() ? "" : ", ") + names.back();
  }
  throw Error("dtype is '" + std::string(name.substr(0, 64)) + "'; allowed: " + allowed +
              did_you_mean(name, names));
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Dropping the low half of a NaN may leave the bits of infinity; rounding may even wrap around.
  if ((bits & kAbsMask) > kInfinity) return static_cast<std::uint16_t>((bits | kQuietBit) >> 16);
  return static_cast<std::uint16_t>(shift_to_even(bits, 16));
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | f16_magnitude(bits & kAbsMask));
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7FFF;
  const auto with_sign = [sign](std::uint32_t f32_bits) {
    return std::bit_cast<float>(sign | f32_bits);
  };
  if (magnitude > 0x7C00) return with_sign(kInfinity | kQuietBit | (magnitude & 0x3FF) << 13);
  if (magnitude == 0x7C00) return with_sign(kInfinity);
  if (magnitude >= 0x0400) return with_sign((magnitude << 13) + ((127 - 15) << 23));
  if (magnitude == 0) return with_sign(0);
  // A multiple of 2^-24: its leading one becomes the implicit one.
  const int width = static_cast<int>(std::bit_width(magnitude));
  const std::uint32_t mantissa = (magnitude << (24 - width)) & 0x007FFFFF;
  return with_sign(static_cast<std::uint32_t>(127 - 25 + width) << 23 | mantissa);
}

TensorView tensor_view(const void* data, DType dtype, std::array<std::int64_t, 3> shape) {
  return contiguous(data, dtype, shape);
}

MutableTensorView mutable_tensor_view(void* data, DType dtype, std::array<std::int64_t, 3> shape) {
  return contiguous(data, dtype, shape);
}

}  // namespace lacuna

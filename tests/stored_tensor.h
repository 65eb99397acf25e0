#pragma once

// Numbers as memory holds them, for tests: the formats of lacuna/tensor.h written out on their own,
// and tensors in every order of their axes, at every alignment, between numbers that nobody may
// read or write: all those are NaN.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "attention_oracle.h"
#include "lacuna/tensor.h"

namespace lacuna::stored {

using oracle::Values;

// ---- Numbers ------------------------------------------------------------------------------------

// A binary floating-point format: bits of the significand with the hidden one, least and greatest
// exponent of normal numbers, bits in all.
struct Format {
  int precision;
  int min_exponent;
  int max_exponent;
  int num_bits;
};

inline Format format(DType dtype) {
  if (dtype == DType::kF32) return {24, -126, 127, 32};
  if (dtype == DType::kBf16) return {8, -126, 127, 16};
  return {11, -14, 15, 16};
}

// The nearest number that the format holds, ties to even.
inline double nearest(double value, DType dtype) {
  if (!std::isfinite(value) || value == 0) return value;
  const Format f = format(dtype);
  const int exponent = std::max(std::ilogb(value), f.min_exponent);
  const double unit = std::ldexp(1.0, exponent - (f.precision - 1));
  const double rounded = std::nearbyint(value / unit) * unit;
  const double limit = std::ldexp(1.0, f.max_exponent + 1);
  return std::abs(rounded) >= limit ? std::copysign(oracle::kInfinity, value) : rounded;
}

// The largest error of storing a number of that size.
inline double half_unit(double value, DType dtype) {
  const Format f = format(dtype);
  const int exponent = value == 0 ? f.min_exponent : std::max(std::ilogb(value), f.min_exponent);
  return std::ldexp(0.5, exponent - (f.precision - 1));
}

// REQUIRES: the format holds the value.
inline std::uint32_t bits(double value, DType dtype) {
  const Format f = format(dtype);
  const int fraction_bits = f.precision - 1;
  const auto word = [&](std::uint32_t exponent, std::uint32_t fraction) {
    const auto sign = static_cast<std::uint32_t>(std::signbit(value) ? 1 : 0);
    return (sign << (f.num_bits - 1)) + (exponent << fraction_bits) + fraction;
  };
  const auto all_ones = static_cast<std::uint32_t>(2 * f.max_exponent + 1);
  if (std::isnan(value)) return word(all_ones, std::uint32_t{1} << (fraction_bits - 1));
  if (std::isinf(value)) return word(all_ones, 0);
  if (value == 0) return word(0, 0);
  const int exponent = std::ilogb(value);
  const int scale = std::max(exponent, f.min_exponent) - fraction_bits;
  const auto significand = static_cast<std::uint32_t>(std::ldexp(std::abs(value), -scale));
  if (exponent < f.min_exponent) return word(0, significand);
  return word(static_cast<std::uint32_t>(exponent + f.max_exponent),
              significand - (std::uint32_t{1} << fraction_bits));
}

inline double value(std::uint32_t word, DType dtype) {
  const Format f = format(dtype);
  const int fraction_bits = f.precision - 1;
  const double sign = (word >> (f.num_bits - 1)) != 0 ? -1 : 1;
  const auto fraction = word & ((std::uint32_t{1} << fraction_bits) - 1);
  const auto exponent = static_cast<int>((word >> fraction_bits) &
                                         static_cast<std::uint32_t>(2 * f.max_exponent + 1));
  if (exponent == 2 * f.max_exponent + 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * oracle::kInfinity;
  }
  const double significand = fraction + (exponent > 0 ? std::ldexp(1.0, fraction_bits) : 0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - f.max_exponent - fraction_bits);
}

// Numbers of each vector, int4: of each group of 32 dims, as whole multiples of its scale, a
// binary16. Doing it twice changes nothing: the largest is the limit times the scale.
inline void quantize(Values& values, DType dtype) {
  const float limit = dtype == DType::kInt8 ? 127 : 7;
  const std::int64_t group = dtype == DType::kInt8 ? values.dims : 32;
  for (auto at = values.data.begin(); at != values.data.end(); at += group) {
    double largest = 0;
    for (auto x = at; x != at + group; ++x) largest = std::max(largest, std::abs(*x));
    const double scale =
        nearest(static_cast<double>(static_cast<float>(largest) / limit), DType::kF16);
    for (auto x = at; x != at + group && scale > 0; ++x) {
      const float ratio = static_cast<float>(*x) / static_cast<float>(scale);
      *x = static_cast<double>(std::clamp(std::nearbyint(ratio), -limit, limit)) * scale;
    }
  }
}

// Numbers around 0 with a deviation of about 1, as the dtype holds them.
inline void randomize(Values& values, DType dtype, std::mt19937_64& random) {
  const DType rounded = is_quantized(dtype) ? DType::kF32 : dtype;
  for (double& value : values.data) {
    double sum = 0;
    for (int i = 0; i < 3; ++i) sum += std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
    value = nearest(sum, rounded);
  }
  if (is_quantized(dtype)) quantize(values, dtype);
}

// ---- Memory -------------------------------------------------------------------------------------

// Bytes whose every number is NaN until it is written. The first element lies `lead` elements past
// a 64-byte boundary; nothing lies past the last, so that an address sanitizer sees who reads on.
class Buffer {
 public:
  Buffer(std::int64_t num_elements, DType dtype, std::int64_t lead = 0)
      : dtype_(dtype),
        size_(size_bytes(dtype)),
        begin_(static_cast<std::size_t>(lead * size_)),
        num_bytes_(begin_ + static_cast<std::size_t>(num_elements * size_)),
        bytes_(static_cast<std::byte*>(::operator new(num_bytes_, kAlignment))),
        offered_(static_cast<std::size_t>(num_elements), false) {
    std::fill_n(bytes_.get(), num_bytes_, kPoison);
  }

  void* data() { return bytes_.get() + begin_; }
  const void* data() const { return bytes_.get() + begin_; }
  DType dtype() const { return dtype_; }

  std::uint32_t bits_at(std::int64_t offset) const {
    std::uint32_t word = 0;
    std::memcpy(&word, place(offset), static_cast<std::size_t>(size_));
    return word;
  }
  double at(std::int64_t offset) const { return value(bits_at(offset), dtype_); }
  void put(std::int64_t offset, double number) {
    const std::uint32_t word = bits(number, dtype_);
    std::memcpy(place(offset), &word, static_cast<std::size_t>(size_));
  }
  // Declares an element the callee's to write.
  void offer(std::int64_t offset) { offered_[static_cast<std::size_t>(offset)] = true; }
  // Whether all that was not offered is as it was at first.
  bool rest_is_untouched() const {
    for (std::size_t byte = 0; byte < num_bytes_; ++byte) {
      const bool offered =
          byte >= begin_ && offered_[(byte - begin_) / static_cast<std::size_t>(size_)];
      if (!offered && bytes_.get()[byte] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr std::byte kPoison{0xFF};  // bytes of a NaN in all three formats
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  std::byte* place(std::int64_t offset) const {
    return bytes_.get() + begin_ + static_cast<std::size_t>(offset * size_);
  }

  DType dtype_;
  std::int64_t size_;
  std::size_t begin_;
  std::size_t num_bytes_;
  std::unique_ptr<std::byte, Free> bytes_;
  std::vector<bool> offered_;
};

// How the three axes lie in memory.
struct Layout {
  std::array<int, 3> order = {0, 1, 2};  // 0 token, 1 head, 2 dim; from the outermost inwards
  std::int64_t step = 1;                 // elements from one of the innermost axis to the next
  std::int64_t gap = 0;   // elements of somebody else after each entry of the outermost axis
  std::int64_t lead = 0;  // elements of somebody else before all: no alignment but the element's
};

// A tensor in memory of its own.
class Tensor {
 public:
  using Shape = std::array<std::int64_t, 3>;
  Tensor(Shape shape, DType dtype, const Layout& layout = {})
      : shape_(shape), strides_(strides_of(shape, layout)), buffer_(extent(), dtype, layout.lead) {}
  Tensor(const Values& values, DType dtype, const Layout& layout = {})
      : Tensor(Shape{values.tokens, values.heads, values.dims}, dtype, layout) {
    for_each([&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      buffer_.put(offset(token, head, dim), values.at(token, head, dim));
    });
  }

  TensorView view() const { return {buffer_.data(), buffer_.dtype(), shape_, strides_}; }
  // All its elements are offered.
  MutableTensorView mutable_view() {
    for_each([&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      buffer_.offer(offset(token, head, dim));
    });
    return {buffer_.data(), buffer_.dtype(), shape_, strides_};
  }
  Values values() const {
    Values result(shape_[0], shape_[1], shape_[2]);
    for_each([&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      result.at(token, head, dim) = buffer_.at(offset(token, head, dim));
    });
    return result;
  }
  std::vector<std::uint32_t> words() const {
    std::vector<std::uint32_t> result;
    for_each([&](std::int64_t token, std::int64_t head, std::int64_t dim) {
      result.push_back(buffer_.bits_at(offset(token, head, dim)));
    });
    return result;
  }
  bool rest_is_untouched() const { return buffer_.rest_is_untouched(); }

 private:
  static std::array<std::int64_t, 3> strides_of(std::array<std::int64_t, 3> shape,
                                                const Layout& layout) {
    const auto axis = [&](int place) {
      return static_cast<std::size_t>(layout.order[static_cast<std::size_t>(place)]);
    };
    std::array<std::int64_t, 3> strides{};
    strides[axis(2)] = layout.step;
    strides[axis(1)] = layout.step * std::max<std::int64_t>(shape[axis(2)], 1);
    strides[axis(0)] = strides[axis(1)] * std::max<std::int64_t>(shape[axis(1)], 1) + layout.gap;
    return strides;
  }
  std::int64_t extent() const {
    std::int64_t last = 1;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      last += std::max<std::int64_t>(shape_[axis] - 1, 0) * strides_[axis];
    }
    return last;
  }
  std::int64_t offset(std::int64_t token, std::int64_t head, std::int64_t dim) const {
    return token * strides_[0] + head * strides_[1] + dim * strides_[2];
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::int64_t token = 0; token < shape_[0]; ++token) {
      for (std::int64_t head = 0; head < shape_[1]; ++head) {
        for (std::int64_t dim = 0; dim < shape_[2]; ++dim) visit(token, head, dim);
      }
    }
  }

  std::array<std::int64_t, 3> shape_;
  std::array<std::int64_t, 3> strides_;
  Buffer buffer_;
};

}  // namespace lacuna::stored

#include "model/row_math.h"

#include <bit>
#include <cmath>

namespace lacuna {
namespace {

float sum_of_squares(const float* x, std::size_t size) {
  constexpr std::size_t kSums = 16;  // so that they lie in vectors; their number fixes the bits
  float sums[kSums] = {};
  std::size_t at = 0;
  for (; at + kSums <= size; at += kSums) {
    for (std::size_t lane = 0; lane < kSums; ++lane) sums[lane] += x[at + lane] * x[at + lane];
  }
  double sum = 0;
  for (const float part : sums) sum += part;
  for (; at < size; ++at) sum += x[at] * x[at];
  return static_cast<float>(sum);
}

}  // namespace

void rms_norm(float* to, const float* x, std::span<const float> weight, float epsilon) {
  const float mean = sum_of_squares(x, weight.size()) / static_cast<float>(weight.size());
  const float factor = 1 / std::sqrt(mean + epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) to[i] = x[i] * factor * weight[i];
}

void add(float* to, const float* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) to[i] += x[i];
}

Angles angles_of(const Rotary& rotary, std::span<const float> divisors, std::int64_t head_dim,
                 std::int64_t position) {
  const auto pairs = static_cast<std::size_t>(head_dim / 2);
  Angles angles;
  angles.cos.resize(pairs);
  angles.sin.resize(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double angle = static_cast<double>(position) / rotary.factor * std::pow(rotary.base, exponent);
    if (!divisors.empty()) angle /= divisors[i];
    angles.cos[i] = static_cast<float>(std::cos(angle));
    angles.sin[i] = static_cast<float>(std::sin(angle));
  }
  return angles;
}

void rotate(float* head, const Angles& angles, bool neighbours) {
  const std::size_t pairs = angles.cos.size();
  const auto turn = [&](std::size_t pair, float& a, float& b) {
    const float turned = a * angles.cos[pair] - b * angles.sin[pair];
    b = a * angles.sin[pair] + b * angles.cos[pair];
    a = turned;
  };
  if (neighbours) {
    for (std::size_t i = 0; i < pairs; ++i) turn(i, head[2 * i], head[2 * i + 1]);
  } else {
    for (std::size_t i = 0; i < pairs; ++i) turn(i, head[i], head[pairs + i]);
  }
}

void round_to_bf16(std::uint16_t* to, const float* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<std::uint16_t>(is_nan ? (bits >> 16 | 0x40U) : rounded);
  }
}

void soft_cap(std::span<float> x, float cap) {
  for (float& value : x) value = cap * std::tanh(value / cap);
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/exp2.h"
#include "kernels/softmax_rows.h"
#include "lacuna/activation.h"
#include "machine/simd.h"

// Activations of an MLP (lacuna/activation.h). For kernel files.
namespace lacuna {
namespace {

// x · σ(z), by e = e^(−|z|), so that nothing overflows: σ is 1 / (1 + e) or e / (1 + e).
inline F32 times_sigmoid(F32 x, F32 z) {
  const F32 one = broadcast(1.0F);
  const F32 size = as_f32(and_bits(as_i32(z), broadcast_bits(0x7fffffffU)));
  const F32 e = exp2_nonpositive(size * broadcast(-kLog2E));
  const I32 is_negative = shift_right(as_i32(z), 31);
  return x * select_if(is_negative, e, one) / (one + e);
}

inline F32 activated(F32 x, Activation activation) {
  if (activation == Activation::kSilu) return times_sigmoid(x, x);
  constexpr float kTwiceRootOf2OverPi = 1.5957691216F;
  const F32 inner = fused(x * x * x, broadcast(0.044715F), x);
  return times_sigmoid(x, inner * broadcast(kTwiceRootOf2OverPi));
}

void gate_row(float* to, const float* gate, const float* up, std::int64_t size,
              Activation activation) noexcept {
  std::int64_t at = 0;
  for (; at + kLanes <= size; at += kLanes) {
    store(to + at, activated(load(gate + at), activation) * load(up + at));
  }
  if (at == size) return;
  const auto bytes = static_cast<std::size_t>(size - at) * sizeof(float);
  float rest[2][kLanes] = {};
  std::memcpy(rest[0], gate + at, bytes);
  std::memcpy(rest[1], up + at, bytes);
  store(rest[0], activated(load(rest[0]), activation) * load(rest[1]));
  std::memcpy(to + at, rest[0], bytes);
}

}  // namespace
}  // namespace lacuna

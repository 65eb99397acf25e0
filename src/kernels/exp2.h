#pragma once

#include <cstddef>

#include "machine/simd.h"

// 2^x in lanes, for softmax and gates. For kernel files.
namespace lacuna {
namespace {

constexpr float kLeastExponent = -126;

#if defined(__AVX512F__) && defined(__AVX512DQ__) && !defined(LACUNA_SIMD_COUNTING)
// 2^x: a polynomial of x − ⌊x⌋, which has ever lower powers, times 2^⌊x⌋.
template <std::size_t kSize>
inline F32 exp2_by(const float (&coefficients)[kSize], F32 x) {
  constexpr int kFloor = 1;
  const F32 f =
      reinterpret_cast<F32>(_mm512_maskz_reduce_ps(0xffff, reinterpret_cast<__m512>(x), kFloor));
  F32 p = broadcast(coefficients[0]);
#pragma GCC unroll 8
  for (std::size_t i = 1; i < kSize; ++i) p = fused(p, f, broadcast(coefficients[i]));
  return reinterpret_cast<F32>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(x)));
}
// 2^x for x <= 0 (a NaN stays one), exactly 1 for 0; relative error 8.3e-8 before rounding. What is
// less than 2^-126 may become 0.
inline F32 exp2_nonpositive(F32 x) {
  constexpr float kCoefficients[] = {1.8671302133e-3F, 9.0170300188e-3F, 5.5799913321e-2F,
                                     2.4016445010e-1F, 6.9315131181e-1F, 1.0F};
  return exp2_by(kCoefficients, x);
}
// The same with an error of 2.9e-6, for what is rounded to 16 bits.
inline F32 exp2_rough(F32 x) {
  constexpr float kCoefficients[] = {1.3426685531e-2F, 5.2242472201e-2F, 2.4128020570e-1F,
                                     6.9304484478e-1F, 1.0F};
  return exp2_by(kCoefficients, x);
}
// exp2_nonpositive with 2^-126 for what is less.
inline F32 exp2_floored(F32 x) { return exp2_nonpositive(max_of(broadcast(kLeastExponent), x)); }
#else
// The same functions: x = n + f, |f| <= 1/2, 2^f by a polynomial of degree 5 (relative error 9.2e-8
// before rounding), n added to the exponent.
inline F32 exp2_floored(F32 x) {
  const F32 clamped = max_of(broadcast(kLeastExponent), x);  // NaN where x is
  const F32 shifted = clamped + broadcast(kRoundingSum);
  const F32 f = clamped - (shifted - broadcast(kRoundingSum));
  F32 p = broadcast(1.326472722e-3F);
  p = fused(p, f, broadcast(9.671512640e-3F));
  p = fused(p, f, broadcast(5.550733743e-2F));
  p = fused(p, f, broadcast(2.402224209e-1F));
  p = fused(p, f, broadcast(6.931469776e-1F));
  p = fused(p, f, broadcast(1.0F));  // 2^0 is exactly 1: a maximum that stays rescales nothing
  return as_f32(add_bits(as_i32(p), shift_left(as_i32(shifted), 23)));
}
inline F32 exp2_nonpositive(F32 x) {
  return zero_below(exp2_floored(x), x, broadcast(kLeastExponent));
}
inline F32 exp2_rough(F32 x) { return exp2_nonpositive(x); }
#endif

}  // namespace
}  // namespace lacuna

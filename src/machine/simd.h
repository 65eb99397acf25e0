#pragma once

#include <cstdint>
#include <cstring>
#include <utility>  // integer_sequence: types only

#if defined(LACUNA_SIMD_COUNTING)
#include <unordered_set>
#elif defined(__AVX512F__) || defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

// Vectors of a kernel file: the widest registers of the instruction set that the file is compiled
// for, on compiler vector extensions, so that one source serves all of them. Include it only from
// files that are compiled once per instruction set: everything here has internal linkage.
//
// LACUNA_SIMD_COUNTING replaces the vector of floats by a single one that counts what is done with
// it: the counting build of the same source.
namespace lacuna {
namespace {

#if defined(LACUNA_SIMD_COUNTING)
constexpr int kLanes = 1;
#elif defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

#if defined(LACUNA_SIMD_COUNTING)

struct SimdCounts {
  std::int64_t multiply_adds = 0;
  std::int64_t exponentials = 0;
  std::int64_t shared_loads = 0;  // different lanes between two packings
};
SimdCounts simd_counts;                      // one thread counts
std::unordered_set<const void*> shared_now;  // since the last packing

inline void end_shared_loads() {
  simd_counts.shared_loads += static_cast<std::int64_t>(shared_now.size());
  shared_now.clear();
}

struct F32 {
  float value = 0;
  friend F32 operator+(F32 a, F32 b) { return {a.value + b.value}; }
  friend F32 operator-(F32 a, F32 b) { return {a.value - b.value}; }
  friend F32 operator*(F32 a, F32 b) { return {a.value * b.value}; }
  friend F32 operator/(F32 a, F32 b) { return {a.value / b.value}; }
};
struct I32 {
  std::int32_t value = 0;
};

inline F32 broadcast(float x) { return {x}; }
inline I32 broadcast_bits(std::uint32_t x) { return {static_cast<std::int32_t>(x)}; }
inline F32 load(const void* p) {
  F32 x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
inline I32 load_bits(const void* p) {
  I32 x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
// A load of packed K or V, which all rows of a tile share.
inline I32 load_shared(const void* p) {
  shared_now.insert(p);
  return load_bits(p);
}
// The same of kLanes pairs of bytes: half a lane of packed memory for each lane of the result.
inline void count_shared_pair(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  shared_now.insert(reinterpret_cast<const void*>(address - address % 4));
}
inline I32 load_shared_pairs_u8(const std::uint8_t* p) {
  count_shared_pair(p);
  return {p[0] | p[1] << 16};
}
inline I32 load_shared_pairs_i8(const std::uint8_t* p) {
  count_shared_pair(p);
  const auto low = static_cast<std::uint16_t>(static_cast<std::int8_t>(p[0]));
  return {low | static_cast<std::int8_t>(p[1]) * 0x10000};
}
inline void store(void* p, F32 x) { std::memcpy(p, &x, sizeof(x)); }
inline void store_bits(void* p, I32 x) { std::memcpy(p, &x, sizeof(x)); }
// The low 16 or 8 bits of each lane, side by side.
inline void store_low16(std::uint16_t* p, I32 x) { *p = static_cast<std::uint16_t>(x.value); }
inline void store_low8(std::uint8_t* p, I32 x) { *p = static_cast<std::uint8_t>(x.value); }
// kLanes 16-bit numbers, each in the low half of its lane.
inline I32 load_u16(const std::uint16_t* p) { return {*p}; }
inline F32 to_f32(I32 x) { return {static_cast<float>(x.value)}; }
inline void transpose(I32 (&)[kLanes]) {}
// a where mask is not 0, else b.
inline F32 select_if(I32 mask, F32 a, F32 b) { return mask.value != 0 ? a : b; }
inline float lane(F32 x, int) { return x.value; }

inline F32 as_f32(I32 x) {
  F32 y;
  std::memcpy(&y.value, &x.value, 4);
  return y;
}
inline I32 as_i32(F32 x) {
  I32 y;
  std::memcpy(&y.value, &x.value, 4);
  return y;
}
inline I32 shift_left(I32 x, int n) {
  return {static_cast<std::int32_t>(static_cast<std::uint32_t>(x.value) << n)};
}
inline I32 shift_right(I32 x, int n) {
  return {static_cast<std::int32_t>(static_cast<std::uint32_t>(x.value) >> n)};
}
inline I32 shift_right_signed(I32 x, int n) { return {x.value >> n}; }
inline I32 and_bits(I32 a, I32 b) { return {a.value & b.value}; }
inline I32 or_bits(I32 a, I32 b) { return {a.value | b.value}; }
inline I32 xor_bits(I32 a, I32 b) { return {a.value ^ b.value}; }
inline I32 add_bits(I32 a, I32 b) {
  return {static_cast<std::int32_t>(static_cast<std::uint32_t>(a.value) +
                                    static_cast<std::uint32_t>(b.value))};
}

// a·b + c
inline F32 multiply_add(F32 a, F32 b, F32 c) {
  ++simd_counts.multiply_adds;
  return {a.value * b.value + c.value};
}
// The same as part of another operation, which is what is counted.
inline F32 fused(F32 a, F32 b, F32 c) { return {a.value * b.value + c.value}; }
// b where either is NaN.
inline F32 max_of(F32 a, F32 b) { return a.value > b.value ? a : b; }
// x where x >= limit or x is NaN, else 0.
inline F32 zero_below(F32 x, F32 of, F32 limit) { return of.value < limit.value ? F32{0} : x; }
// x in the lanes whose bit is set, else `other`.
inline F32 select(std::uint32_t bits, F32 x, F32 other) { return (bits & 1U) != 0 ? x : other; }
// The larger of numbers that are not negative, and whether a lane is at least `limit`.
inline I32 max_bits(I32 a, I32 b) { return a.value > b.value ? a : b; }
inline bool any_at_least(I32 x, std::int32_t limit) { return x.value >= limit; }
inline std::int32_t reduce_max_bits(I32 x) { return x.value; }
inline std::int32_t reduce_add_bits(I32 x) { return x.value; }
// Each half of a lane is two bytes: the low and the high one of each, with their signs, in 16 bits.
inline I32 low_bytes(I32 x) {
  const auto low = static_cast<std::uint16_t>(static_cast<std::int8_t>(x.value));
  return {low | static_cast<std::int8_t>(x.value >> 16) * 0x10000};
}
inline I32 high_bytes(I32 x) { return low_bytes({x.value >> 8}); }
// acc + a₀·b₀ + a₁·b₁ for the pairs of 16-bit numbers in each lane.
inline I32 dot_i16(I32 acc, I32 a, I32 b) {
  simd_counts.multiply_adds += 2;
  const auto low = [](I32 x) { return static_cast<std::int16_t>(x.value); };
  return {acc.value + low(a) * low(b) + (a.value >> 16) * (b.value >> 16)};
}
// The larger 16-bit numbers of each lane's halves.
inline I32 max_halves(I32 a, I32 b) {
  const auto low = max_bits(and_bits(a, {0xffff}), and_bits(b, {0xffff}));
  return or_bits(shift_left(max_bits(shift_right(a, 16), shift_right(b, 16)), 16), low);
}
inline float reduce_max(F32 x) { return x.value; }
inline float reduce_add(F32 x) { return x.value; }
inline void count_exponential() { ++simd_counts.exponentials; }

#else

typedef float F32 __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t I32 __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t U32 __attribute__((vector_size(4 * kLanes)));
typedef float F32Unaligned __attribute__((vector_size(4 * kLanes), aligned(1), may_alias));
typedef std::uint16_t U16Unaligned __attribute__((vector_size(2 * kLanes), aligned(1), may_alias));
typedef std::int32_t I32Unaligned __attribute__((vector_size(4 * kLanes), aligned(1), may_alias));

inline F32 broadcast(float x) { return x - F32{}; }
inline I32 broadcast_bits(std::uint32_t x) { return static_cast<std::int32_t>(x) - I32{}; }
inline F32 load(const void* p) { return *static_cast<const F32Unaligned*>(p); }
inline I32 load_bits(const void* p) { return *static_cast<const I32Unaligned*>(p); }
inline I32 load_shared(const void* p) { return load_bits(p); }
typedef std::uint8_t U8Unaligned __attribute__((vector_size(2 * kLanes), aligned(1), may_alias));
typedef std::int8_t I8Unaligned __attribute__((vector_size(2 * kLanes), aligned(1), may_alias));
typedef std::int16_t I16 __attribute__((vector_size(4 * kLanes)));
#if defined(__AVX512F__)
// One instruction: g++ 12 converts halves and joins them.
inline I32 load_shared_pairs_u8(const std::uint8_t* p) {
  return reinterpret_cast<I32>(_mm512_maskz_cvtepu8_epi16(
      0xffffffffU, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
inline I32 load_shared_pairs_i8(const std::uint8_t* p) {
  return reinterpret_cast<I32>(_mm512_maskz_cvtepi8_epi16(
      0xffffffffU, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
#else
inline I32 load_shared_pairs_u8(const std::uint8_t* p) {
  return reinterpret_cast<I32>(
      __builtin_convertvector(*reinterpret_cast<const U8Unaligned*>(p), I16));
}
inline I32 load_shared_pairs_i8(const std::uint8_t* p) {
  return reinterpret_cast<I32>(
      __builtin_convertvector(*reinterpret_cast<const I8Unaligned*>(p), I16));
}
#endif
inline void end_shared_loads() {}
inline void store(void* p, F32 x) { *static_cast<F32Unaligned*>(p) = x; }
inline void store_bits(void* p, I32 x) { *static_cast<I32Unaligned*>(p) = x; }
inline void store_low16(std::uint16_t* p, I32 x) {
  *reinterpret_cast<U16Unaligned*>(p) = __builtin_convertvector(x, U16Unaligned);
}
inline void store_low8(std::uint8_t* p, I32 x) {
  typedef std::uint8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
  *reinterpret_cast<Bytes*>(p) = __builtin_convertvector(x, Bytes);
}
inline I32 load_u16(const std::uint16_t* p) {
  return __builtin_convertvector(*reinterpret_cast<const U16Unaligned*>(p), I32);
}
inline F32 to_f32(I32 x) { return __builtin_convertvector(x, F32); }

// Exchanges the off-diagonal blocks of kSize × kSize of rows a and b = a + kSize.
template <int kSize, int... kLane>
inline void exchange_blocks(I32& a, I32& b, std::integer_sequence<int, kLane...>) {
  const I32 low =
      __builtin_shufflevector(a, b, ((kLane & kSize) == 0 ? kLane : kLanes + kLane - kSize)...);
  const I32 high =
      __builtin_shufflevector(a, b, ((kLane & kSize) == 0 ? kLane + kSize : kLanes + kLane)...);
  a = low;
  b = high;
}
template <int kSize>
inline void transpose_blocks(I32 (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int idx = 0; idx < kLanes; ++idx) {
    if ((idx & kSize) == 0) {
      exchange_blocks<kSize>(rows[idx], rows[idx + kSize],
                             std::make_integer_sequence<int, kLanes>{});
    }
  }
  if constexpr (kSize > 1) transpose_blocks<kSize / 2>(rows);
}
// A square of 32-bit lanes: row i, lane j changes places with row j, lane i.
inline void transpose(I32 (&rows)[kLanes]) { transpose_blocks<kLanes / 2>(rows); }
inline float lane(F32 x, int idx) { return x[idx]; }

inline F32 as_f32(I32 x) { return reinterpret_cast<F32>(x); }
inline I32 as_i32(F32 x) { return reinterpret_cast<I32>(x); }
// a where mask is not 0, else b.
inline F32 select_if(I32 mask, F32 a, F32 b) {
  const I32 chosen = mask != 0;
  return as_f32((chosen & as_i32(a)) | (~chosen & as_i32(b)));
}
inline I32 shift_left(I32 x, int n) { return x << n; }
inline I32 shift_right(I32 x, int n) {  // zeros come in
  return reinterpret_cast<I32>(reinterpret_cast<U32>(x) >> n);
}
inline I32 shift_right_signed(I32 x, int n) { return x >> n; }
inline I32 and_bits(I32 a, I32 b) { return a & b; }
inline I32 or_bits(I32 a, I32 b) { return a | b; }
inline I32 xor_bits(I32 a, I32 b) { return a ^ b; }
inline I32 add_bits(I32 a, I32 b) { return a + b; }

// a·b + c: one rounding where the instruction set has it (contraction is on in kernel files).
inline F32 multiply_add(F32 a, F32 b, F32 c) { return a * b + c; }
inline F32 fused(F32 a, F32 b, F32 c) { return a * b + c; }

#if defined(__AVX512F__)
// The max instruction instead of compare and blend: softmax loses 2 of its 11 cycles for 16 scores.
inline F32 max_of(F32 a, F32 b) {
  // maskz: g++ 12 warns of the undefined vector in _mm512_max_ps.
  return reinterpret_cast<F32>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
inline F32 zero_below(F32 x, F32 of, F32 limit) {
  const __mmask16 keep = _mm512_cmp_ps_mask(reinterpret_cast<__m512>(of),
                                            reinterpret_cast<__m512>(limit), _CMP_NLT_UQ);
  return reinterpret_cast<F32>(_mm512_maskz_mov_ps(keep, reinterpret_cast<__m512>(x)));
}
inline F32 select(std::uint32_t bits, F32 x, F32 other) {
  return reinterpret_cast<F32>(_mm512_mask_mov_ps(
      reinterpret_cast<__m512>(other), static_cast<__mmask16>(bits), reinterpret_cast<__m512>(x)));
}
#else
#if defined(__AVX2__)
inline F32 max_of(F32 a, F32 b) {
  return reinterpret_cast<F32>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
#else
inline F32 max_of(F32 a, F32 b) { return a > b ? a : b; }
#endif
inline F32 zero_below(F32 x, F32 of, F32 limit) {
  const I32 below = of < limit;
  return as_f32(~below & as_i32(x));
}
inline F32 select(std::uint32_t bits, F32 x, F32 other) {
  I32 lane_bits;
  for (int idx = 0; idx < kLanes; ++idx) lane_bits[idx] = 1 << idx;
  const I32 chosen = (broadcast_bits(bits) & lane_bits) != 0;
  return as_f32((chosen & as_i32(x)) | (~chosen & as_i32(other)));
}
#endif

#if defined(__AVX512F__)
// One instruction instead of compare, expand and blend: packing V takes a third of the time.
inline I32 max_bits(I32 a, I32 b) {
  return reinterpret_cast<I32>(
      _mm512_maskz_max_epi32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline I32 max_halves(I32 a, I32 b) {
  return reinterpret_cast<I32>(_mm512_maskz_max_epu16(0xffffffff, reinterpret_cast<__m512i>(a),
                                                      reinterpret_cast<__m512i>(b)));
}
#else
// The larger 16-bit numbers of each lane's halves.
inline I32 max_halves(I32 a, I32 b) {
  typedef std::uint16_t U16 __attribute__((vector_size(4 * kLanes)));
  const U16 x = reinterpret_cast<U16>(a);
  const U16 y = reinterpret_cast<U16>(b);
  const U16 larger = reinterpret_cast<U16>(x > y);
  return reinterpret_cast<I32>((larger & x) | (~larger & y));
}
inline I32 max_bits(I32 a, I32 b) {
  const I32 larger = a > b;
  return (larger & a) | (~larger & b);
}
#endif
inline bool any_at_least(I32 x, std::int32_t limit) {
  std::int32_t any = 0;
  for (int idx = 0; idx < kLanes; ++idx) any |= x[idx] >= limit ? 1 : 0;
  return any != 0;
}

inline I32 low_bytes(I32 x) { return reinterpret_cast<I32>((reinterpret_cast<I16>(x) << 8) >> 8); }
inline I32 high_bytes(I32 x) { return reinterpret_cast<I32>(reinterpret_cast<I16>(x) >> 8); }

// A product of 16-bit numbers is one instruction everywhere on x86-64; vector extensions alone make
// six of it.
inline I32 dot_i16(I32 acc, I32 a, I32 b) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<I32>(_mm512_dpwssd_epi32(
      reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX512F__)
  return acc + reinterpret_cast<I32>(
                   _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return acc + reinterpret_cast<I32>(
                   _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return acc + reinterpret_cast<I32>(
                   _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return acc + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

// Halves are folded onto each other: a fixed order, whatever the compiler.
template <int kHalf, typename Vector, int... kLane>
inline Vector folded_lanes(Vector x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(x, x, ((kLane + kHalf) % kLanes)...);
}
template <int kHalf = kLanes / 2, typename Vector, typename Combine>
inline auto fold(Vector x, const Combine& combine) {
  if constexpr (kHalf == 0) {
    return x[0];
  } else {
    const Vector other = folded_lanes<kHalf>(x, std::make_integer_sequence<int, kLanes>{});
    return fold<kHalf / 2>(combine(x, other), combine);
  }
}
inline float reduce_max(F32 x) {
  return fold(x, [](F32 a, F32 b) { return max_of(a, b); });
}
inline float reduce_add(F32 x) {
  return fold(x, [](F32 a, F32 b) { return a + b; });
}
inline std::int32_t reduce_max_bits(I32 x) {
  return fold(x, [](I32 a, I32 b) { return max_bits(a, b); });
}
inline std::int32_t reduce_add_bits(I32 x) {
  return fold(x, [](I32 a, I32 b) { return a + b; });
}
inline void count_exponential() {}

#endif  // LACUNA_SIMD_COUNTING

constexpr float kRoundingSum = 12582912.0F;  // 1.5·2^23: x and it, |x| < 2^22, end in round(x)

// acc + a₀·b₀ + a₁·b₁ for the pairs of bfloat16 in each lane, the even one in the low half.
inline F32 dot_bf16(F32 acc, I32 a, I32 b) {
#if defined(__AVX512BF16__) && !defined(LACUNA_SIMD_COUNTING)
  return reinterpret_cast<F32>(_mm512_dpbf16_ps(
      reinterpret_cast<__m512>(acc), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
#else
  const I32 high = broadcast_bits(0xffff0000U);
  acc = multiply_add(as_f32(shift_left(a, 16)), as_f32(shift_left(b, 16)), acc);
  return multiply_add(as_f32(and_bits(a, high)), as_f32(and_bits(b, high)), acc);
#endif
}

// A product that no sum is fused with: of two products in a sum the compiler may fuse either.
inline F32 rounded(F32 x) {
#if defined(LACUNA_SIMD_COUNTING)
#elif defined(__AVX512F__)
  asm("" : "+v"(x));
#elif defined(__x86_64__)
  asm("" : "+x"(x));
#else
  asm("" : "+m"(x));
#endif
  return x;
}

// acc + Σ of the four products of the bytes in each lane, those of a without a sign, those of b
// with one.
inline I32 dot_u8_i8(I32 acc, I32 a, I32 b) {
#if defined(__AVX512VNNI__) && !defined(LACUNA_SIMD_COUNTING)
  return reinterpret_cast<I32>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  const I32 low = broadcast_bits(0x00ff00ffU);
  acc = dot_i16(acc, and_bits(a, low), low_bytes(b));
  return dot_i16(acc, and_bits(shift_right(a, 8), low), high_bytes(b));
#endif
}

// The nearest whole number, ties to even. REQUIRES: |x| < 2^22.
inline I32 round_to_int(F32 x) {
  return add_bits(as_i32(x + broadcast(kRoundingSum)), broadcast_bits(0U - 0x4b400000U));
}

// 1 where a number that is not negative is at least `limit`, else 0.
inline I32 at_least(I32 x, std::uint32_t limit) {
  return shift_right(add_bits(x, broadcast_bits(0x80000000U - limit)), 31);
}
inline I32 select_bits(I32 mask, I32 a, I32 b) {
  return as_i32(select_if(mask, as_f32(a), as_f32(b)));
}

// The nearest binary16 of each lane in its low half, ties to even; too large becomes infinite.
inline I32 round_f16(F32 x) {
  const I32 size = and_bits(as_i32(x), broadcast_bits(0x7fffffffU));
  const I32 sign = and_bits(shift_right(as_i32(x), 16), broadcast_bits(0x8000U));
  const I32 odd = and_bits(shift_right(size, 13), broadcast_bits(1));
  const I32 normal =
      shift_right(add_bits(add_bits(size, broadcast_bits(0xfffU - 0x38000000U)), odd), 13);
  // Multiples of 2^-24: adding 1/2 leaves them, rounded, at the end of the significand.
  const I32 tiny =
      add_bits(as_i32(as_f32(size) + broadcast(0.5F)), broadcast_bits(0U - 0x3f000000U));
  I32 half = select_bits(at_least(size, 0x38800000U), normal, tiny);
  // 65520 and more
  half = select_bits(at_least(size, 0x477ff000U), broadcast_bits(0x7c00U), half);
  const I32 payload = and_bits(shift_right(size, 13), broadcast_bits(0x3ffU));
  const I32 nan = or_bits(payload, broadcast_bits(0x7e00U));
  return or_bits(select_bits(at_least(size, 0x7f800001U), nan, half), sign);
}
inline void store_f16(std::uint16_t* to, F32 x) { store_low16(to, round_f16(x)); }

// The nearest bfloat16 of each lane in its low half, ties to even.
inline I32 round_bf16(F32 x) {
  const I32 bits = as_i32(x);
  const I32 size = and_bits(bits, broadcast_bits(0x7fffffffU));
  const I32 odd = and_bits(shift_right(bits, 16), broadcast_bits(1));
  const I32 rounded = add_bits(add_bits(bits, broadcast_bits(0x7fffU)), odd);
  const I32 nan = or_bits(bits, broadcast_bits(0x400000U));
  return shift_right(select_bits(at_least(size, 0x7f800001U), nan, rounded), 16);
}
// The same side by side; the instruction flushes what is below the normal numbers.
inline void store_bf16(std::uint16_t* to, F32 x) {
#if defined(__AVX512BF16__) && !defined(LACUNA_SIMD_COUNTING)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x))));
#else
  store_low16(to, round_bf16(x));
#endif
}

}  // namespace
}  // namespace lacuna

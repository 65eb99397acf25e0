#include "machine/probe_kernel.h"

#if defined(LACUNA_PROBE_BF16) || defined(LACUNA_PROBE_INT8)
#include <immintrin.h>
#endif

#include <utility>  // index_sequence: types only

// Set by the build for each compilation:
// LACUNA_PROBE_KERNEL       name of the ProbeKernel defined here
// LACUNA_PROBE_ISA          its text
// LACUNA_PROBE_VECTOR_BYTES width of a register
// LACUNA_PROBE_ACCUMULATORS chains in flight: 2 multiply-adds a cycle × 4..5 cycles latency need
//                           8..10, four a cycle 16. 32 registers hold 16 and the operands; 16
//                           registers hold 10..12: with more it spills and measures its stores.
// LACUNA_PROBE_BF16 or LACUNA_PROBE_INT8, or neither: the product
namespace lacuna {
namespace {

constexpr std::int64_t kVectorBytes = LACUNA_PROBE_VECTOR_BYTES;
constexpr std::int64_t kLanes = kVectorBytes / 4;
constexpr int kAccumulators = LACUNA_PROBE_ACCUMULATORS;

typedef float F32Vector __attribute__((vector_size(kVectorBytes)));

#if defined(LACUNA_PROBE_BF16)

// Intrinsics, because no plain C++ becomes these instructions: on the core where they are fast they
// do twice (bf16) and four times (int8) the f32 rate, and measuring that is what they are here for.
struct Product {
  static constexpr const char* kName = "bf16";
  static constexpr std::int64_t kProductsPerLane = 2;
  using Accumulators = F32Vector;

  explicit Product(float) {}
  static F32Vector start(float value) { return F32Vector{} + value; }
  F32Vector up(F32Vector acc) const { return _mm512_dpbf16_ps(acc, left_, up_); }
  F32Vector down(F32Vector acc) const { return _mm512_dpbf16_ps(acc, left_, down_); }
  static double lane(F32Vector sum, std::int64_t idx) { return static_cast<double>(sum[idx]); }

 private:
  // Two bf16 in each lane, the first in its low half; REQUIRES: exact in bf16.
  static __m512bh pairs(const float (&values)[2]) {
    const auto low = __builtin_bit_cast(std::uint32_t, values[0]) >> 16;
    const auto high = __builtin_bit_cast(std::uint32_t, values[1]) & 0xFFFF0000U;
    return (__m512bh)_mm512_set1_epi32(static_cast<int>(high | low));
  }

  static constexpr ProbeBf16Dot kDot = {};
  __m512bh left_ = pairs(kDot.left);
  __m512bh up_ = pairs(kDot.up);
  __m512bh down_ = pairs(kDot.down);
};

#elif defined(LACUNA_PROBE_INT8)

struct Product {
  static constexpr const char* kName = "int8";
  static constexpr std::int64_t kProductsPerLane = 4;
  // Unsigned: sums may wrap, as the instruction's do.
  typedef std::uint32_t Accumulators __attribute__((vector_size(kVectorBytes)));

  explicit Product(float) {}
  static Accumulators start(float value) {
    return Accumulators{} + static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
  }
  Accumulators up(Accumulators acc) const {
    return (Accumulators)_mm512_dpbusd_epi32((__m512i)acc, left_, up_);
  }
  Accumulators down(Accumulators acc) const {
    return (Accumulators)_mm512_dpbusd_epi32((__m512i)acc, left_, down_);
  }
  static double lane(Accumulators sum, std::int64_t idx) {
    return static_cast<double>(static_cast<std::int32_t>(sum[idx]));
  }

 private:
  template <typename Byte>
  static __m512i quads(const Byte (&values)[4]) {
    return _mm512_set1_epi32(__builtin_bit_cast(int, values));
  }

  static constexpr ProbeInt8Dot kDot = {};
  __m512i left_ = quads(kDot.left);
  __m512i up_ = quads(kDot.up);
  __m512i down_ = quads(kDot.down);
};

#else

// The product depends on acc, so that no compiler can hoist it and leave an addition; the sum goes
// where acc was, as every multiply-add instruction can.
struct Product {
  static constexpr const char* kName = "f32";
  static constexpr std::int64_t kProductsPerLane = 1;
  using Accumulators = F32Vector;

  explicit Product(float seed)
      : up_(F32Vector{} + (kProbeUp + seed * 0.0F)),
        down_(F32Vector{} + (kProbeDown + seed * 0.0F)) {}
  static F32Vector start(float value) { return F32Vector{} + value; }
  F32Vector up(F32Vector acc) const { return acc + acc * up_; }
  F32Vector down(F32Vector acc) const { return acc + acc * down_; }
  static double lane(F32Vector sum, std::int64_t idx) { return static_cast<double>(sum[idx]); }

 private:
  F32Vector up_;
  F32Vector down_;
};

#endif

constexpr std::int64_t kRounds = 2;
constexpr std::int64_t kFlopsPerIteration =
    kRounds * kAccumulators * kLanes * Product::kProductsPerLane * 2;

// Indices are template arguments: an array indexed by constants lives in registers at every
// optimisation level.
template <int... kIdx>
double multiply_add_loop(std::int64_t num_iterations, float seed,
                         std::integer_sequence<int, kIdx...>) {
  const Product product(seed);
  Product::Accumulators acc[kAccumulators] = {Product::start(seed + static_cast<float>(kIdx))...};
  for (std::int64_t iteration = 0; iteration < num_iterations; ++iteration) {
    ((acc[kIdx] = product.up(acc[kIdx])), ...);
    ((acc[kIdx] = product.down(acc[kIdx])), ...);
  }
  const Product::Accumulators sum = (acc[kIdx] + ...);
  double total = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) total += Product::lane(sum, lane);
  return total;
}

double multiply_add(std::int64_t num_iterations, float seed) noexcept {
  return multiply_add_loop(num_iterations, seed, std::make_integer_sequence<int, kAccumulators>{});
}

#if defined(LACUNA_PROBE_BF16) || defined(LACUNA_PROBE_INT8)

constexpr auto kRead = nullptr;

#else

typedef std::uint64_t U64Vector __attribute__((vector_size(kVectorBytes), may_alias));

// Four accumulators hide the latency of the exclusive-or; the loads are the limit.
std::uint64_t read(const void* data, std::int64_t num_bytes, std::int64_t num_passes) noexcept {
  constexpr int kStreams = 4;
  U64Vector acc[kStreams] = {};
  const auto* const begin = static_cast<const U64Vector*>(data);
  const std::int64_t num_vectors = num_bytes / kVectorBytes;
  for (std::int64_t pass = 0; pass < num_passes; ++pass) {
    for (std::int64_t idx = 0; idx < num_vectors; idx += kStreams) {
      acc[0] ^= begin[idx];
      acc[1] ^= begin[idx + 1];
      acc[2] ^= begin[idx + 2];
      acc[3] ^= begin[idx + 3];
    }
    // A second pass must read memory again, not undo the first one in arithmetic.
    asm volatile("" ::: "memory");
  }
  const U64Vector sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
  std::uint64_t total = 0;
  for (std::int64_t lane = 0; lane < kVectorBytes / 8; ++lane) total += sum[lane];
  return total;
}

constexpr auto kRead = &read;

#endif

}  // namespace

constinit const ProbeKernel LACUNA_PROBE_KERNEL = {
    LACUNA_PROBE_ISA,   Product::kName, kLanes, kAccumulators,
    kFlopsPerIteration, multiply_add,   kRead};

}  // namespace lacuna

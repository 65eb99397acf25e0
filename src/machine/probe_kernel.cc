#include "machine/probe_kernel.h"

#include <utility>  // index_sequence: types only

// Set by the build for each compilation:
// LACUNA_PROBE_KERNEL       name of the ProbeKernel defined here
// LACUNA_PROBE_ISA          its text
// LACUNA_PROBE_VECTOR_BYTES width of a register
// LACUNA_PROBE_ACCUMULATORS chains in flight: 2 multiply-adds a cycle × 4..5 cycles latency need
//                           8..10, four a cycle 16. 32 registers hold 16 and the two steps; 16
//                           registers hold 10..12: with more it spills and measures its stores.
namespace lacuna {
namespace {

constexpr std::int64_t kVectorBytes = LACUNA_PROBE_VECTOR_BYTES;
constexpr std::int64_t kLanes = kVectorBytes / 4;
constexpr int kAccumulators = LACUNA_PROBE_ACCUMULATORS;

typedef float F32Vector __attribute__((vector_size(kVectorBytes)));
typedef std::uint64_t U64Vector __attribute__((vector_size(kVectorBytes), may_alias));

using AccumulatorIndices = std::make_integer_sequence<int, kAccumulators>;

constexpr std::int64_t kRounds = 2;
constexpr std::int64_t kFlopsPerIteration = kRounds * kAccumulators * kLanes * 2;

// acc ← acc + acc · step, up and down in turn. The product depends on acc, so that no compiler can
// hoist it and leave an addition; the sum goes where acc was, as every multiply-add instruction
// can. Indices are template arguments: an array indexed by constants lives in registers at every
// optimisation level.
template <int... kIdx>
float multiply_add_loop(std::int64_t num_iterations, float seed,
                        std::integer_sequence<int, kIdx...>) {
  const F32Vector up = F32Vector{} + (kProbeUp + seed * 0.0F);
  const F32Vector down = F32Vector{} + (kProbeDown + seed * 0.0F);
  F32Vector acc[kAccumulators] = {(F32Vector{} + (seed + static_cast<float>(kIdx)))...};
  for (std::int64_t iteration = 0; iteration < num_iterations; ++iteration) {
    ((acc[kIdx] = acc[kIdx] + acc[kIdx] * up), ...);
    ((acc[kIdx] = acc[kIdx] + acc[kIdx] * down), ...);
  }
  const F32Vector sum = (acc[kIdx] + ...);
  float total = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

float multiply_add(std::int64_t num_iterations, float seed) noexcept {
  return multiply_add_loop(num_iterations, seed, AccumulatorIndices{});
}

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

}  // namespace

constinit const ProbeKernel LACUNA_PROBE_KERNEL = {LACUNA_PROBE_ISA,   kLanes,       kAccumulators,
                                                   kFlopsPerIteration, multiply_add, read};

}  // namespace lacuna

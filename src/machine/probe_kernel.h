#pragma once

#include <cstdint>

// The inner loops of the probe. The one source probe_kernel.cc is compiled once for each
// instruction set; a file compiled for a newer one includes no library code, so that no inline
// function of it can be picked by the linker for the whole program.
namespace lacuna {

struct ProbeKernel {
  const char* isa;
  std::int64_t num_lanes;         // f32 in a register
  std::int64_t num_accumulators;  // registers in flight
  // Two multiply-adds for each lane of each accumulator.
  std::int64_t flops_per_iteration;
  // Nothing is loaded or stored inside the loop. Accumulator i starts as seed + i in every lane; an
  // iteration is acc += acc · kProbeUp, then acc += acc · kProbeDown, each fused where the
  // instruction set can. Returns the sum of all lanes.
  float (*multiply_add)(std::int64_t num_iterations, float seed) noexcept;
  // Reads num_bytes from `data` once, num_passes times over. REQUIRES: data 64-byte aligned,
  // num_bytes a positive multiple of kProbeReadBytes.
  std::uint64_t (*read)(const void* data, std::int64_t num_bytes, std::int64_t num_passes) noexcept;
};

inline constexpr std::int64_t kProbeReadBytes = 1024;

// 1.6 · 0.625 = 1: every value keeps its size for as long as the loop may run. Neither product is
// exact, so that a result tells one rounding from two.
inline constexpr float kProbeUp = 0.6F;
inline constexpr float kProbeDown = -0.375F;

// Defined where the build has the instruction set; callers ask the processor first.
extern const ProbeKernel kProbeKernelPortable;
extern const ProbeKernel kProbeKernelAvx2;
extern const ProbeKernel kProbeKernelAvx512;

}  // namespace lacuna

#pragma once

#include <cstdint>

// The inner loops of the probe. The one source probe_kernel.cc is compiled once for each
// instruction set; a file compiled for a newer one includes no library code, so that no inline
// function of it can be picked by the linker for the whole program.
namespace lacuna {

struct ProbeKernel {
  const char* isa;
  // What multiply_add multiplies: "f32", or the dot products "bf16" (two to a lane) and "int8"
  // (four to a lane, unsigned × signed) of the same product instruction.
  const char* product;
  std::int64_t num_lanes;         // sums of 32 bits in a register
  std::int64_t num_accumulators;  // registers in flight
  // Two for each multiply-add: two instructions for each accumulator, times the products a lane.
  std::int64_t flops_per_iteration;
  // Nothing is loaded or stored inside the loop. Accumulator i starts as seed + i in every lane
  // (int8: rounded toward zero), and an iteration is
  //   f32:   acc += acc · kProbeUp, then acc += acc · kProbeDown, fused where the set can;
  //   else:  acc += Σ kDot.left · kDot.up, then acc += Σ kDot.left · kDot.down.
  // Returns the sum of all lanes.
  double (*multiply_add)(std::int64_t num_iterations, float seed) noexcept;
  // Reads num_bytes from `data` once, num_passes times over; null but with f32. REQUIRES: data
  // 64-byte aligned, num_bytes a positive multiple of kProbeReadBytes.
  std::uint64_t (*read)(const void* data, std::int64_t num_bytes, std::int64_t num_passes) noexcept;
};

inline constexpr std::int64_t kProbeReadBytes = 1024;

// 1.6 · 0.625 = 1: every value keeps its size for as long as the loop may run. Neither product is
// exact, so that a result tells one rounding from two.
inline constexpr float kProbeUp = 0.6F;
inline constexpr float kProbeDown = -0.375F;

// Operands of the dot products: exact in their type, every one with a part in the sum, so that a
// result tells which were multiplied. What an iteration adds up is not zero and stays exact for
// thousands of them.
struct ProbeBf16Dot {
  float left[2] = {3, 5};
  float up[2] = {0.5F, 0.25F};       // 2.75
  float down[2] = {-0.5F, -0.125F};  // −2.125
};
struct ProbeInt8Dot {
  std::uint8_t left[4] = {200, 1, 2, 3};  // 200 is no signed byte
  std::int8_t up[4] = {1, -2, 3, -4};     // 192
  std::int8_t down[4] = {-1, 2, -3, 5};   // −189
};

// Defined where the build has the instruction set; callers ask the processor first.
extern const ProbeKernel kProbeKernelPortable;
extern const ProbeKernel kProbeKernelAvx2;
extern const ProbeKernel kProbeKernelAvx512;
extern const ProbeKernel kProbeKernelAvx512Vnni;
extern const ProbeKernel kProbeKernelAvx512Bf16;

}  // namespace lacuna

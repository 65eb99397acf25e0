#pragma once

namespace lacuna {

// Groups of instructions that both the processor and the operating system allow, as the kernels are
// compiled for them. All false where there is no such group, as on other architectures.
struct CpuFeatures {
  bool avx2_fma_f16c = false;
  bool avx512 = false;       // F, BW, VL and DQ
  bool avx512_vnni = false;  // beside avx512: dot products of bytes
  bool avx512_bf16 = false;  // beside avx512: dot products of bfloat16
};

// Asked once; thread-safe.
const CpuFeatures& cpu_features();

}  // namespace lacuna

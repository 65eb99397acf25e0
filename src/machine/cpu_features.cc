#include "lacuna/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lacuna {
namespace {

#if defined(__x86_64__)
// clang 14 has no name for F16C. Its registers are AVX's, for which the operating system was asked.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

CpuFeatures ask() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2_fma_f16c =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = ask();
  return features;
}

}  // namespace lacuna

#include "machine/probe_dispatch.h"

namespace lacuna {

std::vector<const ProbeKernel*> supported_probe_kernels() {
  std::vector<const ProbeKernel*> kernels;
#if defined(LACUNA_PROBE_X86)
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(&kProbeKernelAvx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels.push_back(&kProbeKernelAvx2);
  }
#endif
  kernels.push_back(&kProbeKernelPortable);
  return kernels;
}

}  // namespace lacuna

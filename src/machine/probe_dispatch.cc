#include "machine/probe_dispatch.h"

#include "lacuna/cpu_features.h"

namespace lacuna {

std::vector<const ProbeKernel*> supported_probe_kernels() {
  std::vector<const ProbeKernel*> kernels;
#if defined(LACUNA_PROBE_X86)
  const CpuFeatures& features = cpu_features();
  if (features.avx512_bf16) kernels.push_back(&kProbeKernelAvx512Bf16);
  if (features.avx512_vnni) kernels.push_back(&kProbeKernelAvx512Vnni);
  if (features.avx512) kernels.push_back(&kProbeKernelAvx512);
  if (features.avx2_fma_f16c) kernels.push_back(&kProbeKernelAvx2);
#endif
  kernels.push_back(&kProbeKernelPortable);
  return kernels;
}

std::vector<const ProbeKernel*> probe_kernels_of(std::string_view product) {
  std::vector<const ProbeKernel*> kernels = supported_probe_kernels();
  std::erase_if(kernels, [&](const ProbeKernel* kernel) { return product != kernel->product; });
  return kernels;
}

}  // namespace lacuna

#pragma once

#include <string_view>
#include <vector>

#include "machine/probe_kernel.h"

namespace lacuna {

// The kernels of this build that this processor runs, the widest first, "portable" last.
std::vector<const ProbeKernel*> supported_probe_kernels();

// Those among them that multiply this. Empty for bf16 or int8 where no instruction does; never for
// f32, whose kernels also read.
std::vector<const ProbeKernel*> probe_kernels_of(std::string_view product);

}  // namespace lacuna

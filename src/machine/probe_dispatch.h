#pragma once

#include <vector>

#include "machine/probe_kernel.h"

namespace lacuna {

// The kernels of this build that this processor runs, the widest first, "portable" last.
std::vector<const ProbeKernel*> supported_probe_kernels();

}  // namespace lacuna

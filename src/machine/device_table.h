#pragma once

#include <vector>

#include "lacuna/machine.h"

namespace lacuna {

// The rows of devices().
std::vector<Device> make_device_table();

}  // namespace lacuna

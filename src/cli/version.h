#pragma once

#include <string>

namespace lacuna::cli {

// "lacuna 0.1.0"; verbose: what the program was compiled with, what it found on this machine and
// what it chose for it. Without a newline at the end. The first verbose call on a machine measures
// its product rates, some tens of milliseconds.
std::string version_text(bool verbose);

}  // namespace lacuna::cli

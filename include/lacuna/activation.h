#pragma once

#include <cstdint>
#include <string>

namespace lacuna {

enum class Activation { kSilu, kGeluTanh };

// to[i] = activation(gate[i]) · up[i], with the kernels of an instruction set ("": the best one).
// Both are x · σ(z) = x / (1 + e^(−z)), with z = x for SiLU and z = 2·√(2/π)·(x + 0.044715·x³) for
// GELU by tanh; off by at most 3e-7 of x·up and 1e-30. `to` may be one of the inputs.
void gate(float* to, const float* gate, const float* up, std::int64_t size, Activation activation,
          const std::string& isa = "");

}  // namespace lacuna

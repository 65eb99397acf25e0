#include "lacuna/activation.h"

#include "kernels/kernel_table.h"

namespace lacuna {

void gate(float* to, const float* gate, const float* up, std::int64_t size, Activation activation,
          const std::string& isa) {
  tile_kernel(isa.c_str(), ElementType::kF32, ElementType::kF32)
      .gate(to, gate, up, size, activation);
}

}  // namespace lacuna

#pragma once

#include <cstddef>
#include <cstdint>

#include "lacuna/weights.h"

namespace lacuna::model {

// The numbers of `num_blocks` blocks that lie one after the other at `from`, of any alignment.
// REQUIRES: `to` has room for num_blocks * block_of(type).size numbers and does not overlap `from`.
void dequantize(float* to, const std::byte* from, std::int64_t num_blocks, WeightType type);

// The same as whole numbers in groups of 32, of the types that group_bits() knows.
void unpack_groups(DenseGroup* to, const std::byte* from, std::int64_t num_blocks, WeightType type);

}  // namespace lacuna::model

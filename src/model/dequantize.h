#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lacuna/weights.h"

namespace lacuna::model {

// How blocks of a type are read, which lie one after the other at `from`, of any alignment.
// REQUIRES: `to` has room for num_blocks * block.size numbers and does not overlap `from`; `block`
// is block_of(type).
struct BlockReader {
  WeightType type;
  void (*dequantize)(float* to, const std::byte* from, std::int64_t num_blocks, WeightBlock block);
  int group_bits = 0;  // as group_bits() has it
  // The same as whole numbers in groups of 32; null where group_bits is 0.
  void (*unpack)(DenseGroup* to, const std::byte* from, std::int64_t num_blocks,
                 WeightBlock block) = nullptr;
};
std::span<const BlockReader> block_readers();  // one for each type

}  // namespace lacuna::model

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/layer_table.h"
#include "lacuna/tensor.h"

namespace lacuna {

// The one source of the attention kernels, compiled for several instruction sets. Everything here
// is thread-safe; the choice is made once, at first use.

// Names of the compiled tables that this machine can run, best first and "portable" last:
// "avx512_bf16", "avx512_vnni", "avx512", "avx2", "portable".
std::vector<std::string> kernel_isas();

// The table that serves these inputs: LACUNA_ISA where it is set; else the first in the list whose
// product is not, on this machine, more than 1.3 times slower than another's. Throws Error for an
// unknown or unsupported LACUNA_ISA, with the names that are allowed.
std::string kernel_isa(DType q, DType kv);

// The smallest executed unit of every table, in tokens of one query head × keys.
constexpr Tile kernel_tile() { return {16, 16}; }

// Keys whose running maximum is taken together, and keys after which a row's state is merged: both
// at absolute multiples, in prefill as in decode.
constexpr std::int64_t kSplitTokens = 4096;

// Multiply-adds that a table executes for one pair of these dims: dims are padded to its layout.
std::int64_t executed_dims(std::string_view isa, DType q, DType kv, std::int64_t head_dim,
                           std::int64_t v_head_dim);

}  // namespace lacuna

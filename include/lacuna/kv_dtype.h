#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/equation.h"
#include "lacuna/shape.h"

namespace lacuna {

// How one element of K and V is stored, with its scales. A plain value.
struct KvDtype {
  std::string name;        // "bf16", "q8_0", "int4", …
  std::int64_t group = 1;  // elements that share `group_bytes`; 0: the whole head vector
  std::int64_t group_bytes = 2;
  std::int64_t vector_bytes = 0;  // bytes beside the elements for each token, head and K or V
};

// f32, f16, bf16, fp8, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, mxfp4, nvfp4, int8, int4, fp8_ds_mla.
// Throws Error with all names and a near miss.
KvDtype kv_dtype(std::string_view name);
std::vector<std::string> kv_dtype_names();

// Bytes of one vector of `dim` elements. Throws Error where the group does not divide `dim`.
Equation vector_bytes(const KvDtype& dtype, const std::string& dim_symbol, std::int64_t dim);

// Bytes that one token adds to the KV cache of a layer of this mixer: K and V of every KV head, or
// one latent, or none. The layer's kv_from is not looked at.
Equation kv_bytes_per_token(const LayerShape& shape, Mixer mixer, const KvDtype& dtype);

}  // namespace lacuna

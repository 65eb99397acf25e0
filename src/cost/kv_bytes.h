#pragma once

#include "lacuna/equation.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/shape.h"

namespace lacuna {

// vector_bytes() for a width that is itself a formula.
Equation vector_bytes(const KvDtype& dtype, const Equation& dim);

// Bytes of one token and KV head: its K and V, or the one latent of an mla layer, or 0.
Equation kv_head_bytes(const LayerShape& shape, Mixer mixer, const KvDtype& dtype);

}  // namespace lacuna

#pragma once

#include <span>

#include "bench/tensors.h"
#include "lacuna/kernel_bench.h"
#include "lacuna/topology.h"

namespace lacuna::bench {

// What a kernel gave for a problem: out [rows, num_q_heads, v_head_dim] and lse [rows,
// num_q_heads].
struct Outputs {
  TensorView out;
  std::span<const float> lse;
  // K and V are integers times scales and were read so: with the error that attention.h states.
  bool integer_kv = false;
};

// A few rows and heads, spread over the call and always with its first and last row, against the
// softmax by its definition in double. `topologies`: one, or one for each query head.
SpotCheck spot_check(const KernelProblem& problem, std::span<const Topology> topologies,
                     const Inputs& inputs, const Outputs& outputs, std::string_view isa);

}  // namespace lacuna::bench

#pragma once

#include <cstdint>
#include <span>

#include "lacuna/plan.h"
#include "lacuna/shape.h"
#include "lacuna/tensor.h"
#include "lacuna/topology.h"

namespace lacuna::bench {

// What kernels execute in one layer for rows of one sequence, by the topology and cost's executed()
// alone.
struct PredictedCall {
  std::int64_t pairs = 0;         // over all query heads
  std::int64_t needed_pairs = 0;  // that the topology has
  std::int64_t loaded_keys = 0;   // over all KV heads
  friend PredictedCall operator+(const PredictedCall& a, const PredictedCall& b) {
    return {a.pairs + b.pairs, a.needed_pairs + b.needed_pairs, a.loaded_keys + b.loaded_keys};
  }
};
// `topologies`: one for all query heads or one for each.
PredictedCall predicted_call(std::span<const Topology> topologies, const HeadCounts& heads,
                             const SequenceRows& rows);

// Of one loaded key with its value.
std::int64_t loaded_key_bytes(DType kv_dtype, std::int64_t head_dim, std::int64_t v_head_dim);

}  // namespace lacuna::bench

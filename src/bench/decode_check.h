#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/spot_check.h"
#include "lacuna/decode_bench.h"
#include "lacuna/kv_cache.h"

namespace lacuna::bench {

// What one layer of a step gave, for all sequences.
struct DecodeAnswer {
  DecodeProblem problem;
  std::string isa;
  int layer = 0;
  std::int64_t kv_heads = 1;
  std::vector<Topology> topologies;
  TensorView q;
  TensorView out;
  std::span<const float> lse;
};

// The query heads of the first KV head of one sequence, whose rows begin at first_row, against the
// softmax by definition over what its pages hold, read back number by number.
SpotCheck check_decode(const DecodeAnswer& answer, const KvCache& cache, SequenceId sequence,
                       std::int64_t first_row);

}  // namespace lacuna::bench

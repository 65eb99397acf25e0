#pragma once

#include <cstdint>
#include <vector>

#include "bench/prediction.h"
#include "lacuna/kernel_bench.h"
#include "lacuna/topology.h"

namespace lacuna::bench {

// Throws Error naming the argument, its value and the allowed range.
void require(const char* name, std::int64_t value, std::int64_t min, std::int64_t max);

// Throws Error naming the member of the problem, its value and what is allowed.
void check(const KernelProblem& problem);

// The topology that all query heads share, or one for each.
std::vector<Topology> topologies_of(const KernelProblem& problem);

// The rows that a problem computes, as a plan takes them.
SequenceRows sequence_rows(const KernelProblem& problem);
Plan plan_of(const KernelProblem& problem, std::span<const Topology> topologies);

// predicted_call() of a problem; the masked path executes every pair.
PredictedCall predicted_pairs(const KernelProblem& problem, std::span<const Topology> topologies);

}  // namespace lacuna::bench

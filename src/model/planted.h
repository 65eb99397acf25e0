#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lacuna/attention.h"
#include "lacuna/kv_cache.h"

// What PlantedFaults do.
namespace lacuna {

// A sequence of one token that nobody will free.
void leak(KvCache& cache);

// masked_dense(), called as run() is.
std::optional<Ledger> run_masked_dense(const MutableTensorView& out, std::span<float> lse,
                                       const Plan& plan, const TensorView& q, const KvView& kv,
                                       std::span<std::byte> workspace,
                                       const AttentionOptions& options);

void spend(double seconds);

}  // namespace lacuna

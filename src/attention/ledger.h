#pragma once

#include <cstddef>
#include <span>

#include "attention/call.h"
#include "attention/workspace.h"
#include "lacuna/attention.h"

namespace lacuna {

// Bytes of a key's K and V of one head, as the inputs store them, scales included.
inline std::int64_t key_bytes(const KvView& kv) {
  const std::int64_t scales =
      num_scales(kv.dtype, kv.head_dim) + num_scales(kv.dtype, kv.v_head_dim);
  return (kv.head_dim + kv.v_head_dim) * size_bits(kv.dtype) / 8 + scales * size_bytes(DType::kF16);
}

// Adds what a kernel counted: an exponential for each executed pair.
inline void add(Ledger& ledger, const KernelCounts& counts) {
  ledger.tiles += counts.tiles;
  ledger.executed_pairs += counts.executed_pairs;
  ledger.needed_pairs += counts.needed_pairs;
  ledger.exponentials += counts.executed_pairs;
}

// What the threads counted, added up; distinct_bytes are not.
Ledger sum_of(const Call& call, std::span<const Ledger> ledgers);

// The threads' ledgers added up, with the bytes of the keys that they loaded, and of the different
// ones among them, from the flags of the workspace.
Ledger total_ledger(const Call& call, const Workspace& workspace, std::span<const Ledger> ledgers);

}  // namespace lacuna

#include "attention/ledger.h"

namespace lacuna {
namespace {

// Keys of executed tiles that exist.
std::int64_t distinct_ordinary(const Call& call, const Workspace& workspace, std::size_t head) {
  const auto sequence = static_cast<std::int64_t>(head) / call.plan.heads.num_kv_heads;
  const std::int64_t length = call.plan.sequences[static_cast<std::size_t>(sequence)].length;
  const ExecutedTiles& executed = workspace.executed_tiles[head];
  const std::int64_t keys = executed.count() * kPanelKeys;
  const std::int64_t past_end = num_key_tiles(call, sequence) * kPanelKeys - length;
  return past_end > 0 && executed.holds(length / kPanelKeys) ? keys - past_end : keys;
}

// Gathered keys of executed panels that no executed tile holds.
std::int64_t distinct_gathered(const Call& call, const Workspace& workspace,
                               const GatheredPanels& gathered) {
  const auto head =
      static_cast<std::size_t>(gathered.sequence * call.plan.heads.num_kv_heads + gathered.kv_head);
  const auto& keys = call.plan.gathered_sets[static_cast<std::size_t>(gathered.set)];
  std::int64_t distinct = 0;
  for (std::size_t idx = 0; idx < keys.size(); ++idx) {
    if (!gathered.executed.holds(static_cast<std::int64_t>(idx) / kPanelKeys)) continue;
    if (!workspace.executed_tiles[head].holds(keys[idx] / kPanelKeys)) ++distinct;
  }
  return distinct;
}

}  // namespace

Ledger sum_of(const Call& call, std::span<const Ledger> ledgers) {
  Ledger total;
  for (const Ledger& ledger : ledgers) {
    total.tiles += ledger.tiles;
    total.executed_pairs += ledger.executed_pairs;
    total.needed_pairs += ledger.needed_pairs;
    total.exponentials += ledger.exponentials;
    total.loaded_keys += ledger.loaded_keys;
  }
  total.loaded_bytes = total.loaded_keys * key_bytes(call.kv);
  return total;
}

Ledger total_ledger(const Call& call, const Workspace& workspace, std::span<const Ledger> ledgers) {
  std::int64_t distinct = 0;
  for (std::size_t head = 0; head < workspace.executed_tiles.size(); ++head) {
    distinct += distinct_ordinary(call, workspace, head);
  }
  for (const GatheredPanels& gathered : workspace.gathered_panels) {
    distinct += distinct_gathered(call, workspace, gathered);
  }
  Ledger total = sum_of(call, ledgers);
  total.distinct_bytes = distinct * key_bytes(call.kv);
  return total;
}

}  // namespace lacuna

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

Ledger& Ledger::operator+=(const Ledger& other) {
  tiles += other.tiles;
  executed_pairs += other.executed_pairs;
  needed_pairs += other.needed_pairs;
  exponentials += other.exponentials;
  loaded_keys += other.loaded_keys;
  loaded_bytes += other.loaded_bytes;
  distinct_bytes += other.distinct_bytes;
  return *this;
}

Ledger sum_of(const Call& call, std::span<const Ledger> ledgers) {
  Ledger total;
  for (const Ledger& ledger : ledgers) total += ledger;
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

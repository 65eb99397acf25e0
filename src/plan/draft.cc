#include "plan/draft.h"

#include <algorithm>

namespace lacuna {

Draft::Draft(std::span<const SequenceRows> sequences, HeadCounts heads, Tile tile) {
  plan_.tile = tile;
  plan_.heads = heads;
  plan_.sequences.assign(sequences.begin(), sequences.end());
  plan_.indptr = {0};
  for (const SequenceRows& sequence : sequences) {
    plan_.indptr.push_back(plan_.indptr.back() + sequence.rows.end - sequence.rows.begin);
  }
}

std::int64_t Draft::head_set(const std::vector<int>& heads) {
  auto known = std::find(plan_.head_sets.begin(), plan_.head_sets.end(), heads);
  if (known == plan_.head_sets.end()) known = plan_.head_sets.insert(known, heads);
  return known - plan_.head_sets.begin();
}

std::int64_t Draft::gathered_set(const std::vector<std::int64_t>& positions) {
  std::size_t hash = positions.size();
  for (const std::int64_t position : positions) {
    hash = hash * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(position);
  }
  const auto [begin, end] = gathered_ids_.equal_range(hash);
  for (auto id = begin; id != end; ++id) {
    if (plan_.gathered_sets[static_cast<std::size_t>(id->second)] == positions) return id->second;
  }
  plan_.gathered_sets.push_back(positions);
  const std::int64_t id = std::ssize(plan_.gathered_sets) - 1;
  gathered_ids_.emplace(hash, id);
  return id;
}

std::int64_t Draft::append_rows(std::span<const Range> parts) {
  const std::int64_t begin = std::ssize(plan_.rows);
  for (const Range& part : parts) {
    for (std::int64_t row = part.begin; row < part.end; ++row) plan_.rows.push_back(row);
  }
  return begin;
}

}  // namespace lacuna

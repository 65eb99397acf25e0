#include "lacuna/plan.h"

#include <array>
#include <map>
#include <utility>

#include "plan/build.h"
#include "plan/check.h"
#include "plan/draft.h"
#include "plan/head_classes.h"
#include "plan/head_tiles.h"
#include "plan/items.h"

namespace lacuna {
namespace {

bool same_rows(const KeyRanges& a, const KeyRanges& b) {
  return a.indptr == b.indptr && a.ranges == b.ranges;
}

}  // namespace

Plan build_plan(std::span<const Topology> topologies, std::span<const SequenceRows> sequences,
                HeadCounts heads, const PlanOptions& options, Repetition repetition) {
  check_call(sequences, heads, options);
  check_num_topologies(topologies.size(), heads);
  Draft draft(sequences, heads, options.tile);
  const HeadClasses classes = head_classes(draft, topologies);
  // Sequences with the same rows share their tiles.
  std::map<std::array<std::int64_t, 3>, std::vector<HeadTiles>> groups_of_rows;
  std::vector<HeadTiles> tiles;
  for (const SequenceRows& sequence : sequences) {
    const auto [found, is_new] =
        groups_of_rows.try_emplace({sequence.rows.begin, sequence.rows.end, sequence.length});
    std::vector<HeadTiles>& groups = found->second;
    if (is_new) {
      const SequenceStrips strips = make_strips(draft, classes.topologies, sequence, repetition);
      for (const auto& group : classes.groups) groups.push_back(append_tiles(draft, strips, group));
    }
    for (const std::size_t group : classes.group_of_kv_head) tiles.push_back(groups[group]);
  }
  append_items(draft, tiles, options);
  return std::move(draft.plan());
}

Plan make_plan(std::span<const Topology> topologies, std::span<const SequenceRows> sequences,
               HeadCounts heads, const PlanOptions& options) {
  return build_plan(topologies, sequences, heads, options, Repetition::kDerived);
}

Plan make_plan(std::span<const KeyRanges> key_ranges, std::span<const SequenceRows> sequences,
               HeadCounts heads, const PlanOptions& options) {
  check_call(sequences, heads, options);
  check_key_ranges(key_ranges, sequences, heads);
  Draft draft(sequences, heads, options.tile);
  const std::vector<HeadClass> all_heads = one_class(draft);
  const auto num_kv_heads = static_cast<std::size_t>(heads.num_kv_heads);
  std::vector<HeadTiles> tiles;
  for (std::size_t at = 0; at < key_ranges.size(); ++at) {
    const std::size_t first_head = at - at % num_kv_heads;
    std::size_t like = first_head;  // an earlier KV head of the sequence that reads the same
    while (like < at && !same_rows(key_ranges[like], key_ranges[at])) ++like;
    if (like < at) {
      tiles.push_back(tiles[like]);
      continue;
    }
    const SequenceStrips strips = make_strip(draft, key_ranges[at], sequences[at / num_kv_heads]);
    tiles.push_back(append_tiles(draft, strips, all_heads));
  }
  append_items(draft, tiles, options);
  return std::move(draft.plan());
}

}  // namespace lacuna

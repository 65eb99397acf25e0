#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "lacuna/plan.h"
#include "plan/decoded_plan.h"

// How a plan's tiles are cut into items.

namespace lacuna {
namespace {

using decoded::at;

Plan plan_of(const Topology& topology, const std::vector<SequenceRows>& sequences, HeadCounts heads,
             const PlanOptions& options = {}) {
  return make_plan(std::span(&topology, 1), sequences, heads, options);
}

Topology window_with_globals() { return Topology({Window{30}, GlobalEvery{100, 0}}, true); }

std::int64_t num_tiles(const WorkItem& item) { return item.tiles_end - item.tiles_begin; }

TEST(PlanItems, WeighWhatTheyExecuteAndStandHeaviestFirst) {
  const Plan plan = plan_of(window_with_globals(), {{{0, 700}, 700}, {{300, 400}, 400}}, {6, 2});
  Int128 sum = 0;
  for (const WorkItem& item : plan.items) {
    Plan alone = plan;
    alone.items = {item};
    EXPECT_EQ(alone.executed_pairs(), item.weight);
    sum += item.weight;
  }
  EXPECT_EQ(plan.executed_pairs(), sum);
  const auto order = [](const WorkItem& a, const WorkItem& b) {
    return std::tuple(-a.weight, a.sequence, a.kv_head, a.tiles_begin) <
           std::tuple(-b.weight, b.sequence, b.kv_head, b.tiles_begin);
  };
  EXPECT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(), order));
}

TEST(PlanItems, HoldEachTileOfEachHeadOnce) {
  const Plan plan = plan_of(window_with_globals(), {{{0, 700}, 700}, {{0, 700}, 700}}, {6, 2});
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
  for (const WorkItem& item : plan.items) {
    for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
      EXPECT_TRUE(seen.emplace(item.sequence, item.kv_head, t).second);
    }
  }
  EXPECT_EQ(seen.size(), 2 * 2 * plan.tiles.size());
}

TEST(PlanItems, HoldAsManyTilesAsAreAskedFor) {
  const Plan plan = plan_of(Topology({Full{}}, true), {{{0, 336}, 336}}, {1, 1},
                            {.tile = {16, 16}, .tiles_per_item = 5});
  std::multiset<std::int64_t> sizes;
  for (const WorkItem& item : plan.items) sizes.insert(num_tiles(item));
  EXPECT_EQ(sizes, (std::multiset<std::int64_t>{5, 5, 5, 5, 1}));
}

TEST(PlanItems, HoldAbout1024RowsOfAllHeadsInALongPlan) {
  for (const auto& [heads, tiles] :
       {std::pair(HeadCounts{8, 2}, 16), {HeadCounts{4, 4}, 64}, {HeadCounts{128, 1}, 1}}) {
    const Plan plan = plan_of(Topology({Window{127}}, true), {{{0, 65536}, 65536}}, heads);
    for (const WorkItem& item : plan.items) EXPECT_EQ(num_tiles(item), tiles);
  }
}

TEST(PlanItems, AreAtLeast16WhereThereAreAsManyTiles) {
  const Topology topology({Full{}}, true);
  EXPECT_GE(plan_of(topology, {{{0, 256}, 256}}, {1, 1}).items.size(), 16u);
  EXPECT_GE(plan_of(topology, {{{0, 130}, 130}}, {8, 2}).items.size(), 16u);
  EXPECT_EQ(plan_of(topology, {{{0, 40}, 40}}, {8, 2}).items.size(), 6u);
}

TEST(PlanItems, DoNotMixGlobalRowsWithOthers) {
  const Plan plan = plan_of(window_with_globals(), {{{0, 4000}, 4000}}, {1, 1});
  int num_global = 0;
  for (const WorkItem& item : plan.items) {
    int of_item = 0;
    for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
      const TilePart& part = at(plan.parts, at(plan.tiles, t).parts_begin);
      of_item += at(plan.rows, part.rows_begin) % 100 == 0 ? 1 : 0;
    }
    num_global += of_item;
    EXPECT_TRUE(of_item == 0 || num_tiles(item) == 1);
  }
  EXPECT_EQ(num_global, 3);  // 40 global rows, 16 at a time
}

}  // namespace
}  // namespace lacuna

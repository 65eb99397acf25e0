#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lacuna/executed.h"
#include "lacuna/plan.h"
#include "plan/decoded_plan.h"

// Query heads of one KV head that differ.

namespace lacuna {
namespace {

using decoded::at;

const std::vector<SequenceRows> kSequence = {{{0, 200}, 200}};

Topology window(std::int64_t w) { return Topology({Window{w - 1}}, true); }

TEST(PlanHeads, AreOnePartForEachTopology) {
  const std::vector<Topology> topologies = {window(20), window(50), window(20), window(50),
                                            window(50), window(20), window(50), window(20)};
  const Plan plan = make_plan(topologies, kSequence, {8, 2});
  EXPECT_EQ(plan.head_sets, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  for (const WorkItem& item : plan.items) {
    for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
      const PlanTile& tile = at(plan.tiles, t);
      ASSERT_EQ(tile.parts_end - tile.parts_begin, 2);
      const TilePart& first = at(plan.parts, tile.parts_begin);
      const TilePart& second = at(plan.parts, tile.parts_begin + 1);
      EXPECT_EQ(first.rows_begin, second.rows_begin) << "the same rows are kept once";
      EXPECT_EQ(first.rows_end, second.rows_end);
    }
  }
}

TEST(PlanHeads, ShareRunsOverKvHeadsThatShareOnlyATopology) {
  const std::vector<Topology> mixed = {window(20), window(50), window(50), window(50)};
  const std::vector<Topology> both = {window(20), window(50)};
  const Plan plan = make_plan(mixed, kSequence, {4, 2});
  const Plan each = make_plan(both, kSequence, {2, 2});
  EXPECT_EQ(plan.runs.size(), each.runs.size());
  EXPECT_EQ(plan.rows.size(), 200u);
}

TEST(PlanHeads, LoadAKeyTileOnceForAllOfThem) {
  const std::vector<Topology> topologies = {window(100), window(20)};
  const Plan together = make_plan(topologies, kSequence, {2, 1});
  const Plan wide = make_plan(std::span(topologies).first(1), kSequence, {1, 1});
  EXPECT_EQ(together.loaded_keys(), wide.loaded_keys());
  const Plan apart = make_plan(topologies, kSequence, {2, 2});
  EXPECT_GT(apart.loaded_keys(), together.loaded_keys());
  EXPECT_EQ(apart.executed_pairs(), together.executed_pairs());
}

TEST(PlanHeads, WithTheSameGlobalRowsAreOneThere) {
  const std::vector<Topology> topologies = {Topology({Window{19}, GlobalFirst{4}}, true),
                                            Topology({Window{49}, GlobalFirst{4}}, true),
                                            Topology({Window{9}}, true)};
  const Plan plan = make_plan(topologies, kSequence, {3, 1}, {.tile = {16, 16}});
  decoded::expect_canonical(plan);
  const TilePart& global = plan.parts.back();
  EXPECT_EQ(at(plan.head_sets, global.head_set), (std::vector<int>{0, 1}));
  EXPECT_EQ(global.rows_end - global.rows_begin, 4);
  // In the first tile head 2 has all 16 rows, the others 12.
  const PlanTile& first = plan.tiles.front();
  ASSERT_EQ(first.parts_end - first.parts_begin, 3);
  const TilePart& with_all = at(plan.parts, first.parts_begin + 2);
  EXPECT_EQ(with_all.rows_end - with_all.rows_begin, 16);
  const TilePart& without = at(plan.parts, first.parts_begin);
  EXPECT_EQ(without.rows_end - without.rows_begin, 12);
}

TEST(PlanHeads, OfWhichSomeHaveOnlyGlobalRowsInATileLeaveItToTheOthers) {
  const std::vector<Topology> topologies = {Topology({Window{4}, GlobalFirst{32}}, true),
                                            Topology({Window{4}}, true)};
  const Plan plan = make_plan(topologies, kSequence, {2, 1}, {.tile = {16, 16}});
  decoded::expect_canonical(plan);
  ASSERT_EQ(plan.tiles.front().parts_end, 1);
  EXPECT_EQ(at(plan.head_sets, plan.parts.front().head_set), std::vector<int>{1});
}

// What plan.h says of loaded keys where heads gather differently: each its own panels.
TEST(PlanHeads, ThatGatherDifferentKeysLoadEachSet) {
  const std::vector<Topology> topologies = {Topology({Window{4}, GlobalEvery{50, 10}}, true),
                                            Topology({Window{4}, GlobalEvery{50, 20}}, true)};
  const Plan plan = make_plan(topologies, kSequence, {2, 1}, {.tile = {16, 16}});
  decoded::expect_canonical(plan);
  EXPECT_EQ(plan.gathered_sets,
            (std::vector<std::vector<std::int64_t>>{{10, 60, 110, 160}, {20, 70, 120, 170}}));
  EXPECT_EQ(plan.gathered_of_head, (std::vector<std::vector<std::int64_t>>{{0, 1}}));
  const auto one = [](const Topology& topology) {
    return executed(topology, {0, 200}, 200, {16, 16});
  };
  EXPECT_EQ(plan.executed_pairs(), one(topologies[0]).pairs + one(topologies[1]).pairs);
  // Ordinary tiles are shared, panels and global rows (4 of each head, in one tile) are not.
  const Executed band = one(Topology({Window{4}}, true));
  EXPECT_EQ(plan.loaded_keys(),
            one(topologies[0]).loaded_keys + one(topologies[1]).loaded_keys - band.loaded_keys);
}

}  // namespace
}  // namespace lacuna

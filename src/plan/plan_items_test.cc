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

// ---- Pieces -------------------------------------------------------------------------------------

std::int64_t sum_of_weights(const Plan& plan) {
  std::int64_t sum = 0;
  for (const WorkPiece& piece : plan.pieces) sum += piece.weight;
  return sum;
}

// Each split of a cut item that holds keys it reads is in one of its pieces, each other item whole
// in one, and weights are those of the items.
void expect_pieces_hold_items(const Plan& plan) {
  std::vector<std::int64_t> weights(plan.items.size());
  std::vector<std::vector<Range>> splits(plan.cuts.size());
  for (const WorkPiece& piece : plan.pieces) {
    EXPECT_EQ(weights.at(static_cast<std::size_t>(piece.item)) > 0 && piece.cut < 0, false);
    weights.at(static_cast<std::size_t>(piece.item)) += piece.weight;
    if (piece.cut < 0) continue;
    EXPECT_EQ(at(plan.cuts, piece.cut).item, piece.item);
    splits.at(static_cast<std::size_t>(piece.cut)).push_back(piece.splits);
  }
  for (std::size_t idx = 0; idx < weights.size(); ++idx) {
    EXPECT_EQ(weights[idx], plan.items[idx].weight);
  }
  for (std::size_t idx = 0; idx < splits.size(); ++idx) {
    std::ranges::sort(splits[idx], {}, &Range::begin);
    EXPECT_EQ(std::ssize(splits[idx]), plan.cuts[idx].num_pieces);
    EXPECT_EQ(splits[idx].front().begin, plan.cuts[idx].splits.begin);
    EXPECT_EQ(splits[idx].back().end, plan.cuts[idx].splits.end);
    for (std::size_t next = 1; next < splits[idx].size(); ++next) {
      EXPECT_EQ(splits[idx][next - 1].end, splits[idx][next].begin);
    }
  }
  const auto heavier = [](const WorkPiece& a, const WorkPiece& b) { return a.weight > b.weight; };
  EXPECT_TRUE(std::is_sorted(plan.pieces.begin(), plan.pieces.end(), heavier));
}

TEST(PlanPieces, HoldEveryItemOnce) {
  for (const Topology& topology :
       {Topology({Full{}}, true), Topology({Window{300}, Sink{4}}, true), window_with_globals()}) {
    for (std::int64_t num_threads : {1, 2, 7}) {
      const Plan plan = plan_of(
          topology, {{{999, 1000}, 1000}, {{0, 0}, 0}, {{5000, 5008}, 5008}, {{0, 300}, 300}},
          {8, 2}, {.num_threads = num_threads, .split_tokens = 256});
      expect_pieces_hold_items(plan);
      EXPECT_EQ(plan.executed_pairs(), sum_of_weights(plan));
    }
  }
}

TEST(PlanPieces, OfOneRowOnOneKvHeadAreASplitEachWhereThreadsAreMany) {
  const Topology topology({Full{}}, true);
  const std::vector<SequenceRows> row = {{{32767, 32768}, 32768}};
  const Plan plan = plan_of(topology, row, {4, 1}, {.num_threads = 4});
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.pieces.size(), 8u);
  for (const WorkPiece& piece : plan.pieces) EXPECT_EQ(piece.weight, 4 * 4096);
}

TEST(PlanPieces, AreWholeItemsForOneThreadAndWhereItemsAreManyOrHaveManyRows) {
  const Topology topology({Full{}}, true);
  const auto num_cuts = [&](const std::vector<SequenceRows>& rows, HeadCounts heads,
                            std::int64_t num_threads) {
    return plan_of(topology, rows, heads, {.num_threads = num_threads}).cuts.size();
  };
  const std::vector<SequenceRows> one = {{{32767, 32768}, 32768}};
  EXPECT_EQ(num_cuts(one, {4, 1}, 1), 0u);
  EXPECT_GT(num_cuts(one, {4, 1}, 2), 0u);
  EXPECT_EQ(num_cuts(std::vector(32, one[0]), {8, 8}, 2), 0u);
  EXPECT_EQ(num_cuts({{{0, 8192}, 8192}}, {8, 2}, 2), 0u);
  EXPECT_EQ(num_cuts({{{8190, 8192}, 8192}}, {257, 1}, 2), 0u);
}

TEST(PlanPieces, SkipTheSplitsBetweenASinkAndAWindow) {
  const Plan plan = plan_of(Topology({Window{8192}, Sink{4}}, true), {{{131071, 131072}, 131072}},
                            {4, 1}, {.num_threads = 2});
  expect_pieces_hold_items(plan);
  ASSERT_EQ(plan.cuts.size(), 1u);
  EXPECT_LE(plan.pieces.size(), 3u);
  EXPECT_GE(plan.pieces.size(), 2u);
}

TEST(PlanPieces, AreNotCutInsideAKeyTile) {
  const Topology topology({Full{}}, true);
  const Plan plan = plan_of(topology, {{{999, 1000}, 1000}}, {1, 1},
                            {.tile = {16, 16}, .num_threads = 4, .split_tokens = 100});
  EXPECT_TRUE(plan.cuts.empty());
}

}  // namespace
}  // namespace lacuna

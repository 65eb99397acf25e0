#include "oracle.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

// The oracle against worked examples and pictures drawn by hand: only these stand above it.

namespace lacuna {
namespace {

using Picture = std::vector<std::string>;

Picture picture(const oracle::Matrix& matrix) {
  Picture rows;
  for (const oracle::Row& row : matrix) {
    std::string line;
    for (bool read : row) line += read ? 'x' : '.';
    rows.push_back(line);
  }
  return rows;
}

Picture causal(const Union& attend, std::int64_t n, std::uint32_t head = 0) {
  return picture(oracle::adjacency(attend, {true, n, 0, head}));
}

Picture both_ways(const Union& attend, std::int64_t n) {
  return picture(oracle::adjacency(attend, {false, n, 0, 0}));
}

std::string line(const oracle::Row& row) { return picture({row})[0]; }

TEST(Oracle, PhiloxGivesThePublishedKnownAnswer) {
  const std::array<std::uint32_t, 4> want = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(oracle::philox({0, 0, 0, 0}, 0, 0), want);
  const std::array<std::uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(oracle::philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u), ones);
}

TEST(Oracle, DrawsAreDistinctAndAllWherePopulationIsSmall) {
  for (std::uint64_t row = 0; row < 50; ++row) {
    EXPECT_EQ(oracle::draw_distinct({7, 1, 2, row}, 5, 9).size(), 5u);
    EXPECT_EQ(oracle::draw_distinct({7, 1, 2, row}, 5, 3), (std::set<std::int64_t>{0, 1, 2}));
  }
}

TEST(Oracle, DrawsHitEveryKeyEquallyOften) {
  std::vector<int> hits(10);
  for (std::uint64_t row = 0; row < 5000; ++row) {
    for (std::int64_t key : oracle::draw_distinct({1, 0, 0, row}, 3, 10)) {
      ++hits[static_cast<std::size_t>(key)];
    }
  }
  // 1500 expected; five standard deviations of a binomial(5000, 0.3) are 162.
  for (int hit : hits) EXPECT_NEAR(hit, 1500, 162);
}

TEST(Oracle, WorkedExampleWindow3HasRowsUpTo3And21Edges) {
  const auto matrix = oracle::adjacency({Window{2, 0}}, {true, 8, 0, 0});
  std::vector<std::int64_t> lengths;
  for (const auto& row : matrix) lengths.push_back(oracle::count(row));
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{1, 2, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(oracle::edges(matrix, 0, 8), 21);
  EXPECT_FALSE(matrix[7][0]);
  EXPECT_EQ(oracle::edges(oracle::adjacency({Full{}}, {true, 8, 0, 0}), 0, 8), 36);
  EXPECT_EQ(oracle::edges(oracle::adjacency({Full{}}, {true, 4, 0, 0}), 0, 4), 10);
}

// kv-and-bugs.md O-04: the last of nine tokens reads keys 5..8 under a window of four.
TEST(Oracle, WindowCountsTheQueryItself) {
  EXPECT_EQ(line(oracle::adjacency({Window{3, 0}}, {true, 9, 0, 0})[8]), ".....xxxx");
}

TEST(Oracle, CausalTermsLookLikeTheirPictures) {
  EXPECT_EQ(causal({Window{1, 0}}, 4), (Picture{"x...", "xx..", ".xx.", "..xx"}));
  EXPECT_EQ(causal({Dilated{2, 2}}, 5), (Picture{"x....", ".x...", "x.x..", ".x.x.", "..x.x"}));
  EXPECT_EQ(causal({Sink{2}}, 4), (Picture{"x...", "xx..", "xx..", "xx.."}));
  EXPECT_EQ(causal({GlobalPositions{{2}}}, 4), (Picture{"....", "....", "xxx.", "..x."}));
  EXPECT_EQ(causal({GlobalFirst{1}}, 3), (Picture{"x..", "x..", "x.."}));
  EXPECT_EQ(causal({GlobalEvery{3, 1}}, 5), (Picture{".....", "xx...", ".x...", ".x...", "xxxxx"}));
  EXPECT_EQ(causal({Chunk{2}}, 5), (Picture{"x....", "xx...", "..x..", "..xx.", "....x"}));
  EXPECT_EQ(causal({Strided{3}}, 5), (Picture{"x....", ".x...", "..x..", "x..x.", ".x..x"}));
  EXPECT_EQ(causal({Fixed{3, 1}}, 7),
            (Picture{"x......", "xx.....", "xxx....", "..xx...", "..xxx..", "..xxxx.", "..x..xx"}));
  EXPECT_EQ(causal({WindowBlocks{1, 0, 2}}, 6),
            (Picture{"x.....", "xx....", "xxx...", "xxxx..", "..xxx.", "..xxxx"}));
}

TEST(Oracle, VerticalBlocksReadLocalAndStridedBlocks) {
  // Blocks of one token, the two last ones local, every third by offset 0; then by head.
  EXPECT_EQ(causal({VerticalBlocks{1, 2, 3, 0, false}}, 6),
            (Picture{"x.....", "xx....", "xxx...", "x.xx..", "x..xx.", "x..xxx"}));
  // Head 0: blocks b with (b + 1) mod 3 = 0, that is 2 and 5.
  EXPECT_EQ(causal({VerticalBlocks{1, 1, 3, 0, true}}, 6, 0),
            (Picture{"x.....", ".x....", "..x...", "..xx..", "..x.x.", "..x..x"}));
}

TEST(Oracle, DynamicTermsStandForTheMostRecentKeys) {
  EXPECT_EQ(causal({TopK{2}}, 4), causal({Window{1, 0}}, 4));
  EXPECT_EQ(causal({TopKBlocks{2, 2, 1, 1}}, 6), causal({WindowBlocks{1, 0, 2}}, 6));
}

TEST(Oracle, BidirectionalTermsLookLikeTheirPictures) {
  EXPECT_EQ(both_ways({Window{1, 2}}, 5), (Picture{"xxx..", "xxxx.", ".xxxx", "..xxx", "...xx"}));
  EXPECT_EQ(both_ways({Dilated{2, 2}}, 5), (Picture{"x.x..", ".x.x.", "x.x.x", ".x.x.", "..x.x"}));
  EXPECT_EQ(both_ways({Sink{1}}, 3), (Picture{"x..", "x..", "x.."}));
  EXPECT_EQ(both_ways({GlobalFirst{1}}, 3), (Picture{"xxx", "x..", "x.."}));
  EXPECT_EQ(both_ways({GlobalLast{1}}, 3), (Picture{"..x", "..x", "xxx"}));
  EXPECT_EQ(both_ways({Chunk{2}}, 3), (Picture{"xx.", "xx.", "..x"}));
  EXPECT_EQ(both_ways({WindowBlocks{1, 1, 1}}, 4), both_ways({Window{1, 1}}, 4));
}

TEST(Oracle, RandomBlocksOutsideWindowDrawOnlyWhatNoWindowTouches) {
  RandomBlocks random{9, 2, 5, true};
  // Every untouched block is drawn: all but the own one, the one before and the sinking global's.
  const Union attend = {random, WindowBlocks{1, 0, 2}, GlobalFirst{1}};
  const oracle::Place at{true, 10, 0, 0};
  EXPECT_EQ(line(oracle::term_row(random, at, attend, 9, 10)), "..xxxx....");
}

TEST(Oracle, RetentionFollowsTheWordsOfTheExactPolicy) {
  const oracle::Place at{true, 0, 0, 0};
  const auto keeps = [&](const Union& attend, std::int64_t first_query, std::int64_t length) {
    return line(oracle::retained(oracle::last_readers(attend, at, length), first_query, length));
  };
  EXPECT_EQ(keeps({Window{2, 0}}, 7, 8), ".....xxx");  // during a step: min(L, W)
  EXPECT_EQ(keeps({Window{2, 0}}, 8, 8), "......xx");  // between steps: W - 1
  EXPECT_EQ(keeps({Window{2, 0}}, 5, 8), "...xxxxx");  // chunk of C = 3 in flight: W - 1 + C
  EXPECT_EQ(keeps({Window{2, 0}, Sink{1}}, 7, 8), "x....xxx");
  EXPECT_EQ(keeps({Chunk{3}}, 7, 8), "......xx");       // ((L-1) mod c) + 1
  EXPECT_EQ(keeps({Dilated{3, 2}}, 7, 8), "...xxxxx");  // the last (w-1) d and its own
  for (const Term& all :
       {Term{Strided{3}}, Term{Random{1, 2}}, Term{TopK{2}}, Term{TopKBlocks{1, 2, 0, 1}},
        Term{RandomBlocks{1, 2, 3, false}}, Term{GlobalEvery{5, 2}}, Term{GlobalPositions{{20}}}}) {
    EXPECT_EQ(keeps({all}, 7, 8), "xxxxxxxx");
  }
  EXPECT_EQ(keeps({GlobalPositions{{1, 4}}, Window{0, 0}}, 7, 8), ".x..x..x");
  EXPECT_EQ(keeps({Fixed{3, 1}}, 7, 8), "..x..xxx");
}

TEST(Oracle, TilesOfAWindowAreCountedByLooking) {
  const auto matrix = oracle::adjacency({Window{3, 0}}, {true, 8, 0, 0});
  const auto tiles = oracle::tiles(matrix, 2, 8, {4, 2});
  ASSERT_EQ(tiles.size(), 2u);
  EXPECT_EQ(line(tiles[0].visited), "xxx.");  // rows 2..5 read 0..5
  EXPECT_EQ(line(tiles[0].whole), "....");
  EXPECT_EQ(line(tiles[1].visited), ".xxx");  // rows 6..7 read 3..7
  EXPECT_EQ(line(tiles[1].whole), "..x.");    // both read 4 and 5
}

LayerTable equal_layers(int count, const Union& attend, bool causal) {
  LayerTable table;
  table.causal = causal;
  Layer layer;
  layer.attend.groups.push_back({{}, attend});
  table.layers.assign(static_cast<std::size_t>(count), layer);
  return table;
}

TEST(Oracle, WorkedExampleThreeWindowsOfFourReachNineBack) {
  const auto found = oracle::paths(equal_layers(3, {Window{3, 0}}, true), {1, 1, 1}, 16);
  EXPECT_EQ(found.hops[3][12], 3);
  EXPECT_EQ(found.hops[2][12], std::nullopt);
  EXPECT_EQ(found.hops[12][12], 0);
  EXPECT_EQ(found.hops[13][12], std::nullopt);
  EXPECT_EQ(found.first_layer[9][12], 0);
  EXPECT_EQ(found.first_layer[8][12], 1);
  EXPECT_EQ(found.first_layer[12][12], -1);
}

TEST(Oracle, WorkedExampleRadiusThreeNeedsFourLayersForDistanceTen) {
  const auto three = oracle::paths(equal_layers(3, {Window{3, 3}}, false), {1, 1, 1}, 16);
  const auto four = oracle::paths(equal_layers(4, {Window{3, 3}}, false), {1, 1, 1, 1}, 16);
  EXPECT_EQ(three.hops[12][2], std::nullopt);
  EXPECT_EQ(four.hops[12][2], 4);
}

// Layer 1 reads the states that went into layer 0: two windows of two reach no farther than one.
TEST(Oracle, SharedKvReadsTheOlderStates) {
  LayerTable table = equal_layers(2, {Window{1, 0}}, true);
  EXPECT_EQ(oracle::paths(table, {1, 1}, 4).hops[1][3], 2);
  table.layers[1].kv_from = 0;
  EXPECT_EQ(oracle::paths(table, {1, 1}, 4).hops[1][3], std::nullopt);
  EXPECT_EQ(oracle::paths(table, {1, 1}, 4).hops[2][3], 1);
}

}  // namespace
}  // namespace lacuna

#include "lacuna/tiles.h"

#include <gtest/gtest.h>

#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(Tiles, TellWholeTilesFromEdges) {
  const Topology full({Full{}}, true);
  std::vector<QueryTile> tiles;
  for_each_query_tile(full, {0, 8}, 8, {4, 4}, [&](const QueryTile& t) { tiles.push_back(t); });
  ASSERT_EQ(tiles.size(), 2u);
  EXPECT_EQ(tiles[0].visited, Ranges({{0, 1}}));
  EXPECT_TRUE(tiles[0].whole.empty());
  EXPECT_EQ(tiles[1].visited, Ranges({{0, 2}}));
  EXPECT_EQ(tiles[1].whole, Ranges({{0, 1}}));
}

TEST(Tiles, AWindowThatStartsInsideATileTouchesOneMore) {
  const auto keys_of_last_row = [](std::int64_t start) {
    const Topology window({Window{2999, 0}}, true);
    const std::int64_t last = start + 2999;
    return count_tiles(window, {last, last + 1}, last + 1, {1, 128}).executed_pairs;
  };
  EXPECT_EQ(keys_of_last_row(0), 3072);
  EXPECT_EQ(keys_of_last_row(127), 3200);
}

TEST(Tiles, ClosedFormEqualsTheWalk) {
  const std::int64_t n = 100000;
  const Topology mixed({Window{999, 0}, Sink{4}, GlobalPositions{{77, 5000}}, Chunk{640}}, true);
  TileCount walked;
  for_each_query_tile(mixed, {37, n}, n, {48, 80}, [&](const QueryTile& tile) {
    walked.visited += tile.visited.size();
    walked.whole += tile.whole.size();
    walked.executed_pairs += Int128{tile.visited.size()} * 80 * (tile.q_end - tile.q_begin);
  });
  const TileCount counted = count_tiles(mixed, {37, n}, n, {48, 80});
  EXPECT_EQ(counted.visited, walked.visited);
  EXPECT_EQ(counted.whole, walked.whole);
  EXPECT_EQ(counted.edge, walked.visited - walked.whole);
  EXPECT_EQ(counted.executed_pairs, walked.executed_pairs);
}

TEST(Tiles, RefuseSidesAndRowsOutOfRange) {
  const Topology full({Full{}}, true);
  EXPECT_THROW(count_tiles(full, {0, 8}, 8, {0, 64}), Error);
  EXPECT_THROW(count_tiles(full, {0, 8}, 8, {64, std::int64_t{1} << 31}), Error);
  EXPECT_THROW(count_tiles(full, {4, 9}, 8, {64, 64}), Error);
}

}  // namespace
}  // namespace lacuna

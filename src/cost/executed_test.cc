#include "lacuna/executed.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/layer_table.h"

namespace lacuna {
namespace {

struct Problem {
  std::string attend;
  bool causal;
};

Topology topology_of(const Problem& problem) {
  return Topology(parse_attend(problem.attend, problem.causal).groups.front().attend,
                  problem.causal);
}

// The definition of executed.h, row by row and key by key. `globals` are the scattered globals by
// ordinal, `band` the topology of everything else, as the test's author knows them.
Executed by_hand(const Topology& all, const Topology& band,
                 const std::vector<std::int64_t>& globals, Range rows, std::int64_t n, Tile tile) {
  Executed sum;
  std::vector<std::int64_t> global_rows;
  const auto is_global = [&](std::int64_t row) {
    return std::find(globals.begin(), globals.end(), row) != globals.end();
  };
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += tile.q) {
    std::set<std::int64_t> tiles, panels;
    std::int64_t num_rows = 0;
    for (std::int64_t q = begin; q < std::min(begin + tile.q, rows.end); ++q) {
      if (is_global(q)) {
        global_rows.push_back(q);
        continue;
      }
      ++num_rows;
      for (std::int64_t k = 0; k < n; ++k) {
        if (band.visible(q, k, n)) tiles.insert(k / tile.k);
      }
      for (std::size_t j = 0; j < globals.size(); ++j) {
        const std::int64_t key = globals[j];
        if (key < n && all.visible(q, key, n) && !band.visible(q, key, n)) {
          panels.insert(static_cast<std::int64_t>(j) / tile.k);
        }
      }
    }
    const Int128 keys = Int128{tiles.size() + panels.size()} * tile.k;
    sum = sum + Executed{keys * num_rows, num_rows > 0 ? keys : 0};
  }
  for (std::size_t first = 0; first < global_rows.size();
       first += static_cast<std::size_t>(tile.q)) {
    const std::size_t last =
        std::min(first + static_cast<std::size_t>(tile.q), global_rows.size()) - 1;
    const std::int64_t key_end = all.causal() ? global_rows[last] + 1 : n;
    const Int128 keys = Int128{(key_end + tile.k - 1) / tile.k} * tile.k;
    sum = sum + Executed{keys * (last - first + 1), keys};
  }
  return sum;
}

TEST(Executed, FollowsItsDefinitionOnSmallSegments) {
  EXPECT_TRUE(rc::check([] {
    const bool causal = *rc::gen::arbitrary<bool>();
    const std::string band = causal
                                 ? *rc::gen::element<std::string>("window(5)", "window(20)+sink(3)",
                                                                  "chunk(12)", "window(1)")
                                 : *rc::gen::element<std::string>("window(4,2)", "chunk(12)");
    const auto k = *rc::gen::inRange<std::int64_t>(2, 9);
    const auto n = *rc::gen::inRange<std::int64_t>(1, 90);
    std::vector<std::int64_t> globals;
    std::string with = band;
    const int kind = *rc::gen::inRange(0, 3);
    if (kind == 1) {
      with += "+global(every=" + std::to_string(k) + ")";
      for (std::int64_t p = 0; p < n; p += k) globals.push_back(p);
    } else if (kind == 2) {
      with += "+global(3,17,40)";
      globals = {3, 17, 40};
    }
    const Tile tile{*rc::gen::inRange<std::int64_t>(1, 14), *rc::gen::inRange<std::int64_t>(1, 14)};
    const auto begin = *rc::gen::inRange<std::int64_t>(0, n + 1);
    const auto end = *rc::gen::inRange<std::int64_t>(begin, n + 1);
    const Topology all = topology_of({with, causal});
    const Executed counted = executed(all, {begin, end}, n, tile);
    const Executed expected =
        by_hand(all, topology_of({band, causal}), globals, {begin, end}, n, tile);
    RC_ASSERT(counted.pairs == expected.pairs);
    RC_ASSERT(counted.loaded_keys == expected.loaded_keys);
  }));
}

// The same sums taken in one piece and tile by tile: the closed form against the walk.
TEST(Executed, ClosedFormEqualsTheSumOfItsTiles) {
  const std::vector<Problem> problems = {
      {"full", true},           {"window(1000)+sink(4)", true},
      {"chunk(640)", true},     {"window(300)+global(every=128)", true},
      {"strided(96)", true},    {"window(50)+global(7,2000,9001)", true},
      {"fixed(96,5)", true},    {"window_blocks(2,0,64)", true},
      {"window(70,90)", false}, {"window(64,64)+global(first=2)+global(every=512)", false}};
  for (const Problem& problem : problems) {
    for (const Tile tile : {Tile{64, 64}, Tile{48, 80}, Tile{1, 128}}) {
      const Topology topology = topology_of(problem);
      constexpr std::int64_t kLength = 20000;
      Executed walked;
      // Global rows are grouped over all rows asked for, so a walk may cut only where a group ends:
      // problems with globals are walked without them.
      const Topology rows_only = topology.without_globals();
      for (std::int64_t q = 0; q < kLength; q += tile.q) {
        walked = walked + executed(rows_only, {q, std::min(q + tile.q, kLength)}, kLength, tile);
      }
      const Executed counted = executed(rows_only, {0, kLength}, kLength, tile);
      EXPECT_EQ(counted.pairs, walked.pairs) << problem.attend;
      EXPECT_EQ(counted.loaded_keys, walked.loaded_keys) << problem.attend;
    }
  }
}

TEST(Executed, ScatteredGlobalsCostPanelsNotTiles) {
  // 16 globals, 1024 keys apart: one panel of 64 for the last row's tile, where tiles would be 16.
  const Topology topology({Window{0, 0}, GlobalEvery{1024, 0}}, true);
  const std::int64_t n = 16384;
  const Executed last = executed(topology, {n - 64, n}, n, {64, 64});
  EXPECT_EQ(last.pairs, 64 * (64 + 64));
}

TEST(Executed, RefusesRowsAndTilesOutOfRange) {
  const Topology topology({Full{}}, true);
  EXPECT_THROW(executed(topology, {0, 9}, 8, {64, 64}), Error);
  EXPECT_THROW(executed(topology, {0, 8}, 8, {64, 0}), Error);
}

}  // namespace
}  // namespace lacuna

#include "plan/run_cycle.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "plan/any_union.h"
#include "plan/build.h"
#include "plan/decoded_plan.h"

// Tiles that are derived from others they repeat, against tiles built from their own rows.

namespace lacuna {
namespace {

std::string derived_against_built(const Topology& topology, const SequenceRows& sequence,
                                  Tile tile) {
  const auto build = [&](Repetition repetition) {
    return build_plan(std::span(&topology, 1), std::span(&sequence, 1), {1, 1}, {.tile = tile},
                      repetition);
  };
  return decoded::tile_difference(build(Repetition::kDerived), build(Repetition::kBuilt));
}

struct Regular {
  const char* attend;
  bool causal;
  std::int64_t length;
};
std::ostream& operator<<(std::ostream& out, const Regular& regular) {
  return out << regular.attend;
}

class RepeatedTiles : public testing::TestWithParam<Regular> {};

TEST_P(RepeatedTiles, EqualBuiltOnesAtRealLengths) {
  const auto& [attend, causal, length] = GetParam();
  const Topology topology(any_union::parsed(attend, causal), causal);
  for (const SequenceRows& sequence :
       {SequenceRows{{0, length}, length}, SequenceRows{{length / 2 + 1, length - 77}, length}}) {
    EXPECT_EQ(derived_against_built(topology, sequence, {16, 16}), "") << sequence.rows.begin;
  }
  EXPECT_EQ(derived_against_built(topology, {{3, 12000}, 12000}, {5, 7}), "");
}

constexpr std::int64_t kLong = 131072;
constexpr std::int64_t kShort = 20000;
INSTANTIATE_TEST_SUITE_P(
    Topologies, RepeatedTiles,
    testing::Values(
        Regular{"full", true, kLong}, Regular{"window(128)", true, kLong},
        Regular{"window(512)+sink(4)+global(every=8192)", true, kLong},
        Regular{"window(50)+strided(1024)", true, kLong},
        Regular{"window(256,256)+global(first=64)", false, kLong},
        Regular{"chunk(8192)", true, kLong}, Regular{"window(100)+global(every=24)", true, kShort},
        Regular{"window(8)+global(3,40,41,90)", true, kShort}, Regular{"chunk(1009)", true, kShort},
        Regular{"dilated(7,5)+window(3)", true, kShort}, Regular{"fixed(256,8)", true, kShort},
        Regular{"vertical_blocks(64,4,6,2)", true, kShort},
        Regular{"window_blocks(3,0,48)+sink(100)", true, kShort},
        Regular{"topk(300)", true, kShort}, Regular{"topk_blocks(8,64,1,1)", true, kShort},
        Regular{"full", false, kShort},
        Regular{"window(100,30)+global(last=33)+global(first=1)", false, kShort},
        Regular{"window_blocks(1,2,64)+global(every=1000)", false, kShort},
        Regular{"chunk(100)+dilated(5,3)", false, kShort}));

RC_GTEST_PROP(RepeatedTilesOfAnyUnion, EqualBuiltOnes, ()) {
  const bool causal = *rc::gen::arbitrary<bool>();
  const std::string attend = any_union::text(causal, false);
  const std::int64_t length = any_union::number(1, 3000);
  const std::int64_t begin = any_union::number(0, length / 2);
  const Tile tile{any_union::number(1, 20), any_union::number(1, 16)};
  const Topology topology(any_union::parsed(attend, causal), causal);
  RC_ASSERT(derived_against_built(topology, {{begin, length}, length}, tile) == "");
}

// What the speed of long plans rests on.
TEST(RunCycle, BuildsThreeCyclesOfALongSequence) {
  int built = 0;
  const auto cycle = RunCycle::find({16, {100, 1 << 30}}, {0, 100000}, {16, 16},
                                    [&](std::int64_t tile_idx, std::vector<TileRun>& out) {
                                      ++built;
                                      out.push_back({0, 4, TileRun::kWhole});
                                      out.push_back({tile_idx - 3, 3, TileRun::kWhole});
                                      out.push_back({tile_idx, 1, 0});
                                    });
  ASSERT_TRUE(cycle.has_value());
  EXPECT_EQ(built, 3);
  EXPECT_FALSE(cycle->holds(6));
  EXPECT_TRUE(cycle->holds(7));
  EXPECT_TRUE(cycle->holds(6249));
  EXPECT_FALSE(cycle->holds(6250));
  std::vector<TileRun> runs;
  cycle->append(5000, runs);
  EXPECT_EQ(runs, (std::vector<TileRun>{{0, 4, -1}, {4997, 3, -1}, {5000, 1, 0}}));
}

TEST(RunCycle, DerivesRunsThatStandGrowAreGainedAndMove) {
  const auto source = [](std::int64_t tile_idx, std::vector<TileRun>& out) {
    const std::int64_t cycles = tile_idx / 2;
    out.push_back({0, 1, 3});
    out.push_back({1, 1 + 2 * cycles, TileRun::kWhole});
    for (std::int64_t gained = 0; gained < cycles; ++gained) {
      out.push_back({1000 + 2 * gained, 1, 5});
      out.push_back({1001 + 2 * gained, 1, 6});
    }
    out.push_back({2000 + tile_idx, 1, 4 + tile_idx % 2});
    out.push_back({9000, 1, 7});
  };
  const auto cycle = RunCycle::find({32, {0, 1 << 30}}, {0, 3200}, {16, 16}, source);
  ASSERT_TRUE(cycle.has_value());
  for (std::int64_t tile_idx = 0; tile_idx < 200; ++tile_idx) {
    std::vector<TileRun> derived, built;
    cycle->append(tile_idx, derived);
    source(tile_idx, built);
    EXPECT_EQ(derived, built) << tile_idx;
  }
}

TEST(RunCycle, RefusesTilesThatChangeTheirWayLater) {
  const auto source = [](std::int64_t bend) {
    return [bend](std::int64_t tile_idx, std::vector<TileRun>& out) {
      out.push_back({tile_idx, 1, tile_idx < bend ? 0 : 16});
    };
  };
  const RegularZone zone{16, {0, 1 << 30}};
  EXPECT_TRUE(RunCycle::find(zone, {0, 1600}, {16, 16}, source(1000)).has_value());
  EXPECT_FALSE(RunCycle::find(zone, {0, 1600}, {16, 16}, source(99)).has_value());
  EXPECT_FALSE(RunCycle::find(zone, {0, 1600}, {16, 16}, source(1)).has_value());
}

TEST(RunCycle, LeavesShortZonesToBeBuilt) {
  const auto source = [](std::int64_t tile_idx, std::vector<TileRun>& out) {
    out.push_back({tile_idx, 1, 0});
  };
  EXPECT_FALSE(RunCycle::find({16, {0, 1 << 30}}, {0, 63}, {16, 16}, source).has_value());
  EXPECT_TRUE(RunCycle::find({16, {0, 1 << 30}}, {0, 64}, {16, 16}, source).has_value());
  EXPECT_FALSE(RunCycle::find({16, {50, 100}}, {0, 640}, {16, 16}, source).has_value());
  EXPECT_FALSE(RunCycle::find({16, {1000, 10}}, {0, 640}, {16, 16}, source).has_value());
  EXPECT_FALSE(RunCycle::find({std::int64_t{1} << 40, {0, 1 << 30}}, {0, 640}, {16, 16}, source)
                   .has_value());
}

}  // namespace
}  // namespace lacuna

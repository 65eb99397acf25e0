#include "lacuna/retention.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cache/cache_rig.h"
#include "cache/refusal.h"

namespace lacuna {
namespace {

using rig::expect_refused;
using rig::Model;

Retention retention_of(const Model& model) { return {model.table, model.shape}; }

TEST(Retention, GivesHeadsThatKeepTheSameATableOfTheirOwn) {
  const Model model = rig::model("heads(0-1: full; 2-3: window(8); 4-5: full; 6-7: window(8))", 1,
                                 rig::sizes(8, 4, 4, 16));
  const Retention retention = retention_of(model);
  EXPECT_EQ(retention.layers()[0].head_groups, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(retention.kept(100, 100), (std::vector<Ranges>{{{0, 100}}, {{93, 100}}}));
}

TEST(Retention, KeepsForAKvHeadWhatAnyOfItsQueryHeadsReads) {
  const Model model =
      rig::model("heads(0: window(8); 1: sink(3)+window(4))", 1, rig::sizes(2, 1, 4, 16));
  EXPECT_EQ(retention_of(model).kept(100, 100), (std::vector<Ranges>{{{0, 3}, {93, 100}}}));
}

TEST(Retention, KeepsForASharedLayerWhatItsReadersRead) {
  Model model = rig::model("window(4), full, window(30)", 3, rig::sizes(1, 1, 4, 16));
  model.table.layers[2].kv_from = 0;
  EXPECT_EQ(retention_of(model).kept(100, 100), (std::vector<Ranges>{{{71, 100}}, {{0, 100}}}));
}

// Every query that may still run, row by row, by the topology alone.
TEST(Retention, KeepsExactlyWhatTheFirstQueryOrALaterOneReads) {
  for (const char* layers : {"window(9)", "window(1)", "chunk(12)", "window(5)+sink(3)",
                             "dilated(3,4)", "global(5,17)+window(3)", "window_blocks(1,0,8)"}) {
    const Model model = rig::model(layers, 1, rig::sizes(1, 1, 4, 16));
    const Retention retention = retention_of(model);
    const Topology topology = rig::topologies(model, 0)[0];
    for (const std::int64_t length : {0, 1, 8, 12, 15, 16, 17, 30}) {
      for (std::int64_t first = 0; first <= length; ++first) {
        Ranges read;
        for (std::int64_t query = first; query < length + 40; ++query) {
          read = unite(read, clip(topology.row(query, query + 1), {0, length}));
        }
        EXPECT_EQ(retention.kept(first, length), std::vector<Ranges>{read})
            << layers << ", from query " << first << " of " << length;
      }
    }
  }
}

TEST(Retention, TakesAFirstQueryBeforeTheStartForTheStart) {
  const Retention retention = retention_of(rig::model("window(4)", 1, rig::sizes(1, 1, 4, 16)));
  EXPECT_EQ(retention.kept(-5, 3), retention.kept(0, 3));
}

// Pages of 16 tokens that are there, written T and F.
Ranges pages(const std::string& there) {
  std::vector<Range> parts;
  for (std::size_t page = 0; page < there.size(); ++page) {
    const auto begin = static_cast<std::int64_t>(page) * 16;
    if (there[page] == 'T') parts.push_back({begin, begin + 16});
  }
  return Ranges(std::move(parts));
}

TEST(LongestPrefix, OfAWindowNeedsItsLastPagesOnlyAndOfAFullLayerAll) {
  const Retention window = retention_of(rig::model("window(32)", 1, rig::sizes(1, 1, 4, 16)));
  const Retention full = retention_of(rig::model("full", 1, rig::sizes(1, 1, 4, 16)));
  EXPECT_EQ(window.longest_prefix({{pages("TTFTFFTTFTTT")}}, 192), 192);
  EXPECT_EQ(window.longest_prefix({{pages("TTFTFFTTFFF")}}, 176), 128);
  EXPECT_EQ(full.longest_prefix({{pages("TTFTFFTTFTTT")}}, 192), 32);
  // A run that touches position 0 counts even if it is shorter than the window.
  EXPECT_EQ(window.longest_prefix({{pages("TFFF")}}, 64), 16);
  EXPECT_EQ(window.longest_prefix({{pages("FTFF")}}, 64), 0);
}

TEST(LongestPrefix, IsOneNumberThatEveryLayerCanGoOnFrom) {
  const Retention retention =
      retention_of(rig::model("window(32), window(128)", 2, rig::sizes(1, 1, 4, 16)));
  EXPECT_EQ(retention.longest_prefix({{pages("TTTTTTTTTTTT"), pages("TTTTTTTTFFFF")}}, 192), 128);
  EXPECT_EQ(retention.longest_prefix({{pages("FFFFFFTTTTTT"), pages("TTTTTTTTTTTF")}}, 192), 176);
  EXPECT_EQ(retention.longest_prefix({{pages("TTFFFFFFFFFF"), pages("TTTTTTTTTTTT")}}, 192), 32);
}

TEST(LongestPrefix, ThatEndsBeforeTheLastPageNeedsOnePageMoreBeforeIt) {
  const Retention window = retention_of(rig::model("window(32)", 1, rig::sizes(1, 1, 4, 16)));
  EXPECT_EQ(window.longest_prefix({{pages("FFTT")}}, 64), 64);  // query 64 reads from 33 on
  EXPECT_EQ(window.longest_prefix({{pages("FTTT")}}, 64), 64);
  EXPECT_EQ(window.longest_prefix({{pages("FTTT")}}, 48), 48);
  EXPECT_EQ(window.longest_prefix({{pages("FFTT")}}, 48), 0);
}

TEST(LongestPrefix, OfAWindowOfOneTokenNeedsNothing) {
  const Retention window = retention_of(rig::model("window(1)", 1, rig::sizes(1, 1, 4, 16)));
  EXPECT_EQ(window.longest_prefix({{Ranges()}}, 40), 40);
}

TEST(Retention, RefusesWhatACacheOfKeysAndValuesCannotKeep) {
  Model model = rig::model("full, full", 2, rig::sizes(1, 1, 4, 16));
  Model mla = model;
  mla.table.layers[1].mixer = Mixer::kMla;
  mla.shape.layers[1].latent = LatentShape{64, 0, 32, 16, 32};
  expect_refused([&] { retention_of(mla); }, {"layer 1 is mla", "allowed in a cache"});
  Model both_ways = model;
  both_ways.table = parse_layers("full", 2, false);
  expect_refused([&] { retention_of(both_ways); }, {"bidirectional", "causal tables"});
  Model short_shape = model;
  short_shape.shape.layers.pop_back();
  expect_refused([&] { retention_of(short_shape); }, {"2", "1"});
}

TEST(Retention, RefusesPositionsAndTablesThatAreNotThere) {
  const Retention retention =
      retention_of(rig::model("window(4), full", 2, rig::sizes(1, 1, 4, 16)));
  expect_refused([&] { static_cast<void>(retention.kept(6, 5)); }, {"6"});
  expect_refused([&] { static_cast<void>(retention.kept(0, -1)); }, {"-1"});
  expect_refused([&] { static_cast<void>(retention.longest_prefix({{Ranges()}}, 5)); },
                 {"present has ranges for 1 tables", "each of 2"});
}

}  // namespace
}  // namespace lacuna

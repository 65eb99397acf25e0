#include "lacuna/topology.h"

#include <gtest/gtest.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLong = std::int64_t{1} << 40;

Topology causal(Union attend, int layer = 0, int head = 0) {
  return Topology(attend, true, layer, head);
}

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Topology, WindowCountsTheQueryItself) {
  const Topology window = causal({Window{2, 0}});
  EXPECT_EQ(window.row(0, 8), Ranges({{0, 1}}));
  EXPECT_EQ(window.row(7, 8), Ranges({{5, 8}}));
  EXPECT_FALSE(window.visible(7, 0, 8));
  EXPECT_EQ(window.edges(8), 21);
}

TEST(Topology, UnionCountsAKeyOnce) {
  const Topology both = causal({Window{2, 0}, Sink{2}});
  EXPECT_EQ(both.row(2, 8), Ranges({{0, 3}}));
  EXPECT_EQ(both.row(7, 8), Ranges({{0, 2}, {5, 8}}));
}

TEST(Topology, ClosedFormsAnswerAtLengthsPast32Bits) {
  const Int128 n = kLong;
  EXPECT_EQ(causal({Full{}}).edges(kLong), n * (n + 1) / 2);
  EXPECT_EQ(causal({Window{4095, 0}}).edges(kLong), Int128{4096} * 4097 / 2 + (n - 4096) * 4096);
  EXPECT_EQ(causal({Chunk{8192}}).edges(kLong), n / 8192 * (Int128{8192} * 8193 / 2));
  // Row i reads floor(i/128)+1 keys.
  EXPECT_EQ(causal({Strided{128}}).edges(kLong), Int128{128} * (n / 128) * (n / 128 + 1) / 2);
  // A window as long as half the segment needs no more steps than a short one.
  const Int128 half = n / 2;
  EXPECT_EQ(causal({Window{kLong / 2 - 1, 0}}).edges(kLong), half * (half + 1) / 2 + half * half);
}

TEST(Topology, RetentionUnitesSinksWithTheWindow) {
  const Topology stream = causal({Window{4095, 0}, Sink{4}});
  EXPECT_EQ(stream.retained(4097, 4098).size(), 4098);
  EXPECT_EQ(stream.retained(9999, 10000).size(), 4100);
  EXPECT_EQ(stream.retained(9000, 10000).size(), 4095 + 1000 + 4);
}

TEST(Topology, RetentionKeepsAllWhileAGlobalRowIsToCome) {
  const Topology listed = causal({Window{3, 0}, GlobalPositions{{2, 50}}});
  EXPECT_EQ(listed.retained(9, 10), Ranges({{0, 10}}));
  EXPECT_EQ(listed.retained(59, 60), Ranges({{2, 3}, {50, 51}, {56, 60}}));
  EXPECT_EQ(causal({GlobalEvery{8, 0}}).retained(9, 10).size(), 10);
  EXPECT_EQ(causal({GlobalTokens{{5}}}).retained(9, 10).size(), 10);
}

TEST(Topology, DynamicTermsStandForTheirCountAndMayReadAll) {
  const Topology chosen = causal({TopK{4}});
  EXPECT_TRUE(chosen.dynamic());
  EXPECT_EQ(chosen.row(9, 16).size(), 4);
  EXPECT_EQ(chosen.may_read(9, 10, 16).size(), 10);
  EXPECT_EQ(chosen.retained(9, 10).size(), 10);
}

TEST(Topology, LargestRowSeesGlobalsAndEnds) {
  EXPECT_EQ(causal({Window{99, 0}, GlobalPositions{{70000}}}).largest_row(1 << 20), 70001);
  EXPECT_EQ(Topology({Window{2, 3}}, false).largest_row(1 << 20), 6);
  EXPECT_EQ(causal({Full{}}).largest_row(0), 0);
}

TEST(Topology, RandomRowsDifferByLayerAndHeadOnly) {
  const Union draw = {Random{3, 7}};
  EXPECT_EQ(causal(draw, 1, 2).row(50, 64), causal(draw, 1, 2).row(50, 99));
  EXPECT_NE(causal(draw, 1, 2).row(50, 64), causal(draw, 1, 3).row(50, 64));
  EXPECT_EQ(causal(draw).edges(64), 1 + 2 + 62 * 3);
}

TEST(Topology, RefusesWhatItCannotAnswer) {
  EXPECT_EQ(message_of([] { causal({Full{}}).row(8, 8); }),
            "rows are 8..9; allowed: an ascending pair inside 0..8");
  EXPECT_EQ(message_of([] { causal({Full{}}).visible(3, 8, 8); }), "key is 8; allowed: 0..7");
  EXPECT_EQ(message_of([] { causal({Full{}}).edges(-1); }), "length is -1; allowed: 0..2^60-1");
  EXPECT_EQ(message_of([] { Topology({}, true); }), "a topology needs at least one term");
  EXPECT_EQ(message_of([] { Topology({Strided{4}}, false); }),
            "strided does not exist in a bidirectional table; allowed: dilated(w,d)");
  EXPECT_EQ(message_of([] {
              Topology({Window{4, 1}}, true);
            }),
            "a window that reads ahead does not exist in a causal table; allowed: window(w), or "
            "window(l,0)");
  EXPECT_EQ(message_of([] { Topology({Full{}}, false).retained(1, 2); }),
            "a bidirectional table keeps no KV: retention is asked of causal ones");
  EXPECT_EQ(message_of([] { causal({GlobalTokens{{5}}}).edges(8); }),
            "global(token=…) has no positions yet; resolve it with the tokens first");
  EXPECT_EQ(
      message_of([] {
        causal({Random{5, 1}}).edges(kLong);
      }),
      "random and explicit terms are counted row by row, and rows 0..1099511627776 are too many; "
      "allowed: up to 67108864 rows");
  EXPECT_EQ(message_of([] { causal({Strided{2}}).row(kLong, 2 * kLong); }),
            "a row of this topology has 549755813888 separate ranges; allowed: up to 4194304");
}

TEST(LayerTopology, CountsHeadsByTopology) {
  Layer layer;
  layer.attend.groups = {{{0, 1, 2, 3}, {Full{}}}, {{4, 5, 6, 7}, {Window{3, 0}}}};
  const LayerTopology split(layer, true, 0, 8, 4);
  ASSERT_EQ(split.q_heads().size(), 2u);
  EXPECT_EQ(split.q_heads()[0].count, 4);
  EXPECT_EQ(split.kv_heads()[1].count, 2);
  EXPECT_FALSE(split.uniform());
  // One KV head for all: it is read for the union.
  EXPECT_EQ(LayerTopology(layer, true, 0, 8, 1).kv_heads()[0].topology.row(9, 10).size(), 10);
}

TEST(LayerTopology, GivesEachHeadItsOwnVerticalOffset) {
  Layer layer;
  layer.attend.groups = {{{}, {VerticalBlocks{64, 16, 8, 0, true}}}};
  const LayerTopology heads(layer, true, 0, 32, 8);
  EXPECT_EQ(heads.q_heads().size(), 8u);  // offsets repeat with the stride
  EXPECT_EQ(heads.q_heads()[0].count, 4);
}

TEST(LayerTopology, RefusesHeadsThatDoNotDivide) {
  Layer layer;
  layer.attend.groups = {{{}, {Full{}}}};
  EXPECT_EQ(
      message_of([&] { LayerTopology(layer, true, 3, 6, 4); }),
      "layer 3 has 6 query heads and 4 KV heads; allowed: query heads a multiple of KV heads");
}

}  // namespace
}  // namespace lacuna

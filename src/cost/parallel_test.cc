#include "lacuna/parallel.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(EvenShards, DifferByAtMostOne) {
  EXPECT_EQ(even_shards(10, 4), (std::vector<Range>{{0, 3}, {3, 6}, {6, 8}, {8, 10}}));
  EXPECT_EQ(even_shards(1, 3), (std::vector<Range>{{0, 1}, {1, 1}, {1, 1}}));
  EXPECT_THROW(even_shards(4, 0), Error);
}

TEST(ContextParallel, AWindowBringsAHaloFromItsNeighbour) {
  const std::vector<Range> shards = even_shards(4096, 4);
  const auto devices = context_parallel(Topology({Window{255, 0}}, true), shards, 10);
  EXPECT_TRUE(devices[0].receives.empty());
  for (std::size_t device = 1; device < 4; ++device) {
    ASSERT_EQ(devices[device].receives.size(), 1U);
    EXPECT_EQ(devices[device].receives[0].from, static_cast<int>(device) - 1);
    EXPECT_EQ(devices[device].receives[0].tokens, 255);
    EXPECT_EQ(devices[device].received_bytes, Int128{2550});
    EXPECT_EQ(devices[device].ring_received_bytes, Int128{3072 * 10});
  }
  EXPECT_EQ(devices[0].sent_bytes, Int128{2550});
  EXPECT_EQ(devices[3].sent_bytes, Int128{0});
}

TEST(ContextParallel, ShortShardsNeedSeveralNeighbours) {
  const std::vector<Range> shards = even_shards(80, 8);
  const auto devices = context_parallel(Topology({Window{24, 0}}, true), shards, 1);
  // min(w-1, history): 24 tokens before 70 are 10 + 10 + 4.
  ASSERT_EQ(devices[7].receives.size(), 3U);
  EXPECT_EQ(devices[7].receives[0].from, 4);
  EXPECT_EQ(devices[7].receives[0].tokens, 4);
  EXPECT_EQ(devices[7].receives[2].tokens, 10);
  EXPECT_EQ(devices[1].received_bytes, Int128{10});
}

TEST(ContextParallel, AFullLayerNeedsAllEarlierShards) {
  const auto devices = context_parallel(Topology({Full{}}, true), even_shards(100, 4), 1);
  EXPECT_EQ(devices[3].received_bytes, Int128{75});
  EXPECT_EQ(devices[0].received_bytes, Int128{0});
  EXPECT_EQ(devices[0].ring_received_bytes, Int128{75});
}

TEST(ContextParallel, EqualsTheTokensCountedOneByOne) {
  const std::vector<Range> shards = {{0, 13}, {13, 13}, {13, 40}, {40, 41}, {41, 70}};
  for (const bool causal : {true, false}) {
    std::vector<std::string> texts = {"window(4,3)", "window(9,0)+sink(3)", "full",
                                      "window(2,2)+global(20,50)"};
    if (causal) texts = {"window(9)", "window(5)+global(20,50)", "chunk(16)", "strided(7)"};
    for (const std::string& text : texts) {
      const Topology topology(parse_attend(text, causal).groups[0].attend, causal);
      const auto devices = context_parallel(topology, shards, 3);
      for (std::size_t device = 0; device < shards.size(); ++device) {
        std::set<std::int64_t> foreign;
        for (std::int64_t row = shards[device].begin; row < shards[device].end; ++row) {
          for (std::int64_t key = 0; key < 70; ++key) {
            const bool own = key >= shards[device].begin && key < shards[device].end;
            if (!own && topology.visible(row, key, 70)) foreign.insert(key);
          }
        }
        EXPECT_EQ(devices[device].received_bytes, Int128{3} * static_cast<Int128>(foreign.size()))
            << text << " device " << device;
      }
    }
  }
}

TEST(ContextParallel, ModelsSumTheirLayers) {
  LayerShape layer;
  layer.num_q_heads = 4;
  layer.num_kv_heads = 2;
  const LayerTable table = parse_layers("window(17)*5, full", 6, true);
  const auto devices =
      context_parallel(table, uniform_shape(6, layer), kv_dtype("bf16"), even_shards(128, 2));
  const std::int64_t token = 2 * (64 + 64) * 2;
  EXPECT_EQ(devices[1].received_bytes, Int128{(5 * 16 + 64) * token});
  EXPECT_EQ(devices[1].receives[0].tokens, 5 * 16 + 64);
  EXPECT_EQ(devices[1].ring_received_bytes, Int128{6 * 64 * token});
}

TEST(ContextParallel, ASelectorMayChooseAnyEarlierKey) {
  const auto devices = context_parallel(Topology({TopK{4}}, true), even_shards(100, 4), 1);
  EXPECT_EQ(devices[3].received_bytes, Int128{75});
}

TEST(ContextParallel, RefusesShardsWithGaps) {
  const std::vector<Range> shards = {{0, 4}, {5, 8}};
  EXPECT_THROW(context_parallel(Topology({Full{}}, true), shards, 1), Error);
}

}  // namespace
}  // namespace lacuna

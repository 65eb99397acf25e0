#include "lacuna/graph.h"

#include <gtest/gtest.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

Graph graph_of(const std::string& layers, int num_layers, std::int64_t length, bool causal = true) {
  return Graph(parse_layers(layers, num_layers, causal),
               std::vector<int>(static_cast<std::size_t>(num_layers), 1), length);
}

TEST(Graph, WindowsReachOneWindowLessOneALayer) {
  const Graph graph = graph_of("window(4)", 3, 64);
  EXPECT_EQ(graph.reach_tokens(), 9);
  EXPECT_EQ(graph.hops(50, 59), 3);
  EXPECT_EQ(graph.hops(49, 59), std::nullopt);
  EXPECT_EQ(graph.first_layer(50, 59), 2);
  EXPECT_EQ(graph.eccentricity(59), 3);
  EXPECT_EQ(graph.diameter(), 3);
}

TEST(Graph, TwoSidedWindowsNeedDistanceOverRadiusLayers) {
  EXPECT_EQ(graph_of("window(3,3)", 4, 32, false).first_layer(0, 10), 3);
  EXPECT_EQ(graph_of("window(3,3)", 3, 32, false).first_layer(0, 10), std::nullopt);
}

TEST(Graph, OneFullLayerIsOneHopFromThatLayerOn) {
  // The layer table of a model with one full layer in six.
  const Graph graph = graph_of("window(512)*5, full", 18, 8192);
  EXPECT_EQ(graph.hops(0, 8191), 1);
  EXPECT_EQ(graph.first_layer(0, 8191), 5);
  EXPECT_EQ(graph.reach_tokens(), 8191);
  EXPECT_EQ(graph.bucket(8000, 8191), DistanceBucket::kInsideWindow);
  EXPECT_EQ(graph.bucket(7400, 8191), DistanceBucket::kWithinTwoWindows);
  EXPECT_EQ(graph.bucket(0, 8191), DistanceBucket::kThroughFull);
}

TEST(Graph, ATokenNeedsNoHopToItselfAndIsItsOwnEmbedding) {
  const Graph graph = graph_of("window(4)", 2, 16);
  EXPECT_EQ(graph.hops(7, 7), 0);
  EXPECT_EQ(graph.first_layer(7, 7), -1);
  EXPECT_EQ(graph.hops(8, 7), std::nullopt);
}

TEST(Graph, ChunksAreNeverCrossed) {
  const Graph graph = graph_of("chunk(8)", 4, 30);
  EXPECT_EQ(graph.reach_tokens(), 7);
  EXPECT_EQ(graph.bucket(7, 8), DistanceBucket::kUnreachable);
  EXPECT_DOUBLE_EQ(graph.coverage(9), 0.2);
}

TEST(Graph, SharedKvReadsTheStatesThatItWasMadeFrom) {
  // Layer 2 reads layer 0's keys: embeddings of the window, not what layer 1 gathered.
  LayerTable table = parse_layers("window(4)", 3, true);
  const std::vector<int> heads(3, 1);
  EXPECT_EQ(Graph(table, heads, 32).reach_tokens(), 9);
  table.layers[2].kv_from = 0;
  EXPECT_EQ(Graph(table, heads, 32).reach_tokens(), 6);
}

TEST(Graph, AnswersFor64LayersAt128kTokens) {
  const Graph graph = graph_of("window(4096)*7, full", 64, 131072);
  EXPECT_EQ(graph.hops(0, 131071), 1);
  EXPECT_EQ(graph.first_layer(0, 131071), 7);
  EXPECT_EQ(graph_of("window(4096)", 64, 131072).hops(0, 131071), 33);
}

TEST(Graph, SpreadOverSeedsIsStated) {
  const RandomSpread spread =
      over_seeds(parse_layers("window(4)+random(2,1)", 3, true), {1, 1, 1}, 256, 0, 255, 5);
  EXPECT_EQ(spread.hops.seeds, 5);
  EXPECT_LE(spread.reach_tokens.min, spread.reach_tokens.max);
  EXPECT_GE(spread.eccentricity.min, 2);
}

TEST(Graph, RefusesPositionsOutsideTheSegment) {
  const Graph graph = graph_of("full", 1, 8);
  EXPECT_THROW(graph.hops(8, 0), Error);
  EXPECT_THROW(graph.first_layer(0, -1), Error);
  EXPECT_THROW(graph_of("full", 1, 0), Error);
}

}  // namespace
}  // namespace lacuna

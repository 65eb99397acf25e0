#include "lacuna/training.h"

#include <gtest/gtest.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

ModelShape gemma3_27b() {
  LayerShape layer;
  layer.num_q_heads = 32;
  layer.num_kv_heads = 16;
  layer.head_dim = 128;
  layer.v_head_dim = 128;
  layer.mlp = MlpShape{.kind = MlpKind::kGated, .intermediate_size = 21504};
  ModelShape shape = uniform_shape(62, layer);
  shape.hidden_size = 5376;
  shape.vocab_size = 262208;
  return shape;
}

LayerTable table_of(const ModelShape& shape) {
  return parse_layers("window(1024)*5, full", static_cast<int>(shape.layers.size()), true);
}

TEST(Parameters, OfGemma3EqualThePublishedCount) {
  const ModelShape shape = gemma3_27b();
  // Published as 25.6 B without embeddings.
  EXPECT_EQ(layer_parameters(table_of(shape), shape).value(), Int128{25598361600});
  EXPECT_EQ(training_memory(table_of(shape), shape, {}).parameters.value(),
            Int128{25598361600} + Int128{262208} * 5376);
}

TEST(Parameters, CountEveryExpert) {
  LayerShape layer;
  layer.mlp = MlpShape{.kind = MlpKind::kMixture,
                       .intermediate_size = 10,
                       .num_experts = 8,
                       .experts_per_token = 2,
                       .num_shared_experts = 1,
                       .shared_intermediate_size = 20};
  ModelShape shape = uniform_shape(1, layer);
  shape.hidden_size = 64;
  const Int128 attention = 4 * 64 * 64;
  EXPECT_EQ(layer_parameters(parse_layers("full", 1, true), shape).value(),
            attention + 3 * 64 * 10 * 8 + 3 * 64 * 20 + 64 * 8);
}

TEST(Parameters, UnknownSizesAreUnknownAndNotZero) {
  const ModelShape shape = uniform_shape(2, LayerShape{});
  const TrainingMemory memory = training_memory(parse_layers("full", 2, true), shape, {});
  EXPECT_FALSE(memory.parameters.has_value());
  EXPECT_FALSE(memory.activation_bytes.has_value());
  EXPECT_EQ(memory.activation_bytes.why, "hidden_size is not known");
  EXPECT_FALSE(memory.total_bytes.has_value());
  EXPECT_TRUE(memory.score_bytes.has_value());
}

TEST(TrainingMemory, MaterialisedScoresAreQuadratic) {
  EXPECT_EQ(materialised_bytes(2, 32, 8192, 2).value(), Int128{8589934592});
  EXPECT_EQ(materialised_bytes(2, 32, 8192, 2).text("score_bytes"),
            "score_bytes = B·H·n·n·b = 2·32·8192·8192·2 = 8589934592");
  EXPECT_EQ(tiled_attention_bytes(2, 32, 8192, 128, 2).value(),
            Int128{2} * 8192 * 32 * 128 * 2 + Int128{4} * 2 * 32 * 8192);
}

TEST(TrainingMemory, CheckpointsKeepInputsAndOneLayer) {
  const ModelShape shape = gemma3_27b();
  const LayerTable table = table_of(shape);
  TrainingQuery query;
  query.length = 4096;
  const Int128 all = training_memory(table, shape, query).activation_bytes.value();
  // 4 d + H d_h + 2 H_kv d_h + 3 d_ff elements, output and log-sum-exp.
  const Int128 token = 2 * (4 * 5376 + 4096 + 2 * 2048 + 3 * 21504) + 2 * 4096 + 4 * 32;
  EXPECT_EQ(all, Int128{62} * 4096 * token);
  query.checkpointing = true;
  EXPECT_EQ(training_memory(table, shape, query).activation_bytes.value(),
            Int128{62} * 4096 * 2 * 5376 + 4096 * token);
}

TEST(TrainingMemory, LayersThatShareKvKeepNoneAndTheLargestIsRecomputed) {
  ModelShape shape = uniform_shape(2, LayerShape{});
  shape.hidden_size = 64;
  shape.layers[0].mlp = MlpShape{.kind = MlpKind::kPlain, .intermediate_size = 100};
  shape.layers[1].mlp = MlpShape{.kind = MlpKind::kNone};
  LayerTable table = parse_layers("full", 2, true);
  table.layers[1].kv_from = 0;
  TrainingQuery query;
  query.length = 10;
  const Int128 owner = 2 * (4 * 64 + 64 + 128 + 2 * 100) + 2 * 64 + 4;
  const Int128 reader = 2 * (4 * 64 + 64) + 2 * 64 + 4;
  EXPECT_EQ(training_memory(table, shape, query).activation_bytes.value(), 10 * (owner + reader));
  query.checkpointing = true;
  EXPECT_EQ(training_memory(table, shape, query).activation_bytes.value(),
            10 * (2 * 2 * 64 + owner));
}

TEST(TrainingMemory, MaterialisingAddsScoresAndWeightsOfEveryLayer) {
  const ModelShape shape = gemma3_27b();
  TrainingQuery query;
  query.length = 1024;
  const TrainingMemory tiled = training_memory(table_of(shape), shape, query);
  query.materialised_scores = true;
  const TrainingMemory materialised = training_memory(table_of(shape), shape, query);
  EXPECT_EQ(materialised.score_bytes.value(), Int128{62} * 2 * 32 * 1024 * 1024 * 2);
  EXPECT_EQ(materialised.activation_bytes.value() - tiled.activation_bytes.value(),
            materialised.score_bytes.value() - Int128{62} * 4 * 32 * 1024);
}

TEST(TrainingMemory, AdamHoldsSixteenBytesAParameter) {
  const ModelShape shape = gemma3_27b();
  const TrainingMemory memory = training_memory(table_of(shape), shape, {});
  EXPECT_EQ(memory.state_bytes.value(), memory.parameters.value() * 16);
  EXPECT_EQ(memory.kind, FigureKind::kEstimate);
  TrainingQuery wrong;
  wrong.batch = -1;
  EXPECT_THROW(training_memory(table_of(shape), shape, wrong), Error);
}

}  // namespace
}  // namespace lacuna

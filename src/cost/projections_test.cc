#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lacuna/cost.h"

namespace lacuna {
namespace {

CostQuery query_of(Phase phase, std::vector<std::int64_t> lengths) {
  CostQuery query;
  query.phase = phase;
  query.lengths = std::move(lengths);
  query.kv_dtype = kv_dtype("bf16");
  return query;
}

ModelShape one_layer(const LayerShape& layer) {
  ModelShape shape = uniform_shape(1, layer);
  shape.hidden_size = 4096;
  shape.vocab_size = 1000;
  return shape;
}

LayerCost first_layer(const ModelShape& shape, const CostQuery& query,
                      const LayerTable& table = parse_layers("full", 1, true)) {
  return cost(table, shape, query).layers.front();
}

LayerTable mixer_table(Mixer mixer) {
  LayerTable table = parse_layers("full", 1, true);
  table.layers[0].mixer = mixer;
  if (mixer != Mixer::kMla) table.layers[0].attend = {};
  return table;
}

const LayerShape kMha{.num_q_heads = 32, .num_kv_heads = 32, .head_dim = 128, .v_head_dim = 128};
const LayerShape kGqa{.num_q_heads = 32, .num_kv_heads = 8, .head_dim = 192, .v_head_dim = 128};

TEST(Projections, OfEqualHeadsAreEightTimesNByDSquared) {
  const LayerCost cost_of = first_layer(one_layer(kMha), query_of(Phase::kPrefill, {100}));
  EXPECT_EQ(cost_of.projection_flops.value(), Int128{8} * 100 * 4096 * 4096);
}

TEST(Projections, OfGroupedHeadsFollowTheirWidths) {
  const LayerCost cost_of = first_layer(one_layer(kGqa), query_of(Phase::kPrefill, {100}));
  EXPECT_EQ(cost_of.projection_flops.known->text("projection_flops"),
            "projection_flops = 2·n·d·H·d_h + 2·n·d·H_kv·(d_h + d_v) + 2·n·d·H·d_v = "
            "2·100·4096·32·192 + 2·100·4096·8·(192 + 128) + 2·100·4096·32·128 = " +
                to_string(Int128{2} * 100 * 4096 * (32 * 192 + 8 * 320 + 32 * 128)));
}

TEST(Projections, CountRowsOfEveryStepOfDecode) {
  CostQuery query = query_of(Phase::kDecode, {100, 7});
  query.generate = 5;
  query.verify_rows = 3;
  const Int128 row = Int128{2} * 4096 * (32 * 192 + 8 * 320 + 32 * 128);
  EXPECT_EQ(first_layer(one_layer(kGqa), query).projection_flops.value(), 2 * 5 * 3 * row);
  query = query_of(Phase::kTrain, {100, 7});
  EXPECT_EQ(first_layer(one_layer(kGqa), query).projection_flops.value(), 3 * 107 * row);
}

TEST(Projections, OfAReaderOfOtherKvHaveNoKeysAndValues) {
  LayerTable table = parse_layers("full", 2, true);
  table.layers[1].kv_from = 0;
  ModelShape shape = uniform_shape(2, kGqa);
  shape.hidden_size = 4096;
  const PhaseCost phase = cost(table, shape, query_of(Phase::kPrefill, {100}));
  EXPECT_EQ(phase.layers[1].projection_flops.value(),
            Int128{2} * 100 * 4096 * (32 * 192 + 32 * 128));
}

TEST(Projections, OfALatentFollowDeepSeekV3) {
  LayerShape layer{.num_q_heads = 128, .num_kv_heads = 128};
  layer.latent = LatentShape{512, 1536, 128, 64, 128};
  ModelShape shape = one_layer(layer);
  shape.hidden_size = 7168;
  const Int128 up = Int128{512} * 128 * 256 + Int128{128} * 128 * 7168 + 7168 * 576;
  const Int128 query_latent = Int128{7168} * 1536 + Int128{1536} * 128 * 192;
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    EXPECT_EQ(first_layer(shape, query_of(phase, {10}), mixer_table(Mixer::kMla))
                  .projection_flops.value(),
              2 * (phase == Phase::kDecode ? 1 : 10) * (query_latent + up));
  }
  shape.layers[0].latent->q_lora_rank = 0;
  EXPECT_EQ(first_layer(shape, query_of(Phase::kPrefill, {10}), mixer_table(Mixer::kMla))
                .projection_flops.value(),
            20 * (Int128{7168} * 128 * 192 + up));
}

TEST(Projections, AreNeverGuessed) {
  ModelShape shape = uniform_shape(1, kGqa);
  EXPECT_EQ(first_layer(shape, query_of(Phase::kPrefill, {10})).projection_flops.why,
            "hidden_size is not known");
  shape.layers[0].state = StateShape{16, 32, 128, 128, 4, 8192};
  shape.hidden_size = 2048;
  const auto of_mixer = [&](Mixer mixer) {
    return first_layer(shape, query_of(Phase::kPrefill, {10}), mixer_table(mixer)).projection_flops;
  };
  EXPECT_EQ(of_mixer(Mixer::kLinear).why,
            "projections of a linear layer are not in the cost model");
  EXPECT_EQ(of_mixer(Mixer::kSsm).why, "projections of a ssm layer are not in the cost model");
  EXPECT_EQ(of_mixer(Mixer::kNone).value(), 0);
}

Figure128 mlp_flops(const MlpShape& mlp) {
  LayerShape layer = kGqa;
  layer.mlp = mlp;
  return first_layer(one_layer(layer), query_of(Phase::kPrefill, {10})).mlp_flops;
}

TEST(Mlp, HasThreeMatricesWhereGatedAndTwoWherePlain) {
  EXPECT_EQ(mlp_flops({.intermediate_size = 14336}).known->text("mlp_flops"),
            "mlp_flops = 6·n·d·d_ff = 6·10·4096·14336 = 3523215360");
  EXPECT_EQ(mlp_flops({.kind = MlpKind::kPlain, .intermediate_size = 14336}).value(),
            Int128{4} * 10 * 4096 * 14336);
  EXPECT_EQ(mlp_flops({.kind = MlpKind::kNone}).value(), 0);
}

TEST(Mlp, OfAMixtureCountsActiveAndSharedExpertsAndTheRouter) {
  MlpShape mixture{.kind = MlpKind::kMixture,
                   .intermediate_size = 2048,
                   .num_experts = 256,
                   .experts_per_token = 8,
                   .num_shared_experts = 1,
                   .shared_intermediate_size = 2048};
  EXPECT_EQ(mlp_flops(mixture).value(),
            Int128{6} * 10 * 4096 * 2048 * (8 + 1) + Int128{2} * 10 * 4096 * 256);
  mixture.gated_experts = false;
  mixture.num_shared_experts = 0;
  EXPECT_EQ(mlp_flops(mixture).known->text("mlp_flops"),
            "mlp_flops = 4·n·d·d_e·k + 2·n·d·E_x = 4·10·4096·2048·8 + 2·10·4096·256 = " +
                to_string(Int128{4} * 10 * 4096 * 2048 * 8 + Int128{2} * 10 * 4096 * 256));
}

TEST(Mlp, IsUnknownWithoutItsSizes) {
  EXPECT_EQ(first_layer(one_layer(kGqa), query_of(Phase::kPrefill, {10})).mlp_flops.why,
            "the MLP's sizes are not known");
  LayerShape layer = kGqa;
  layer.mlp = MlpShape{.intermediate_size = 8};
  EXPECT_EQ(first_layer(uniform_shape(1, layer), query_of(Phase::kPrefill, {10})).mlp_flops.why,
            "hidden_size is not known");
}

Figure128 logits_of(const CostQuery& query) {
  return cost(parse_layers("full", 1, true), one_layer(kGqa), query).total.logits_flops;
}

TEST(Logits, AreCountedOnceAndWhereTheyAreNeeded) {
  const Int128 position = Int128{2} * 4096 * 1000;
  EXPECT_EQ(logits_of(query_of(Phase::kPrefill, {100, 7, 0})).value(), 2 * position);
  EXPECT_EQ(logits_of(query_of(Phase::kTrain, {100, 7})).value(), 3 * 107 * position);
  CostQuery query = query_of(Phase::kDecode, {100, 7});
  query.generate = 5;
  query.verify_rows = 3;
  EXPECT_EQ(logits_of(query).value(), 2 * 5 * 3 * position);
  EXPECT_EQ(first_layer(one_layer(kGqa), query).logits_flops.why, "counted once, in the total");
}

TEST(Logits, AreUnknownWithoutWidthOrVocabulary) {
  ModelShape shape = one_layer(kGqa);
  shape.vocab_size.reset();
  const CostQuery query = query_of(Phase::kPrefill, {10});
  const LayerTable table = parse_layers("full", 1, true);
  EXPECT_EQ(cost(table, shape, query).total.logits_flops.why, "vocab_size is not known");
  shape.hidden_size.reset();
  EXPECT_EQ(cost(table, shape, query).total.logits_flops.why, "hidden_size is not known");
  EXPECT_EQ(cost(table, shape, query).total.projection_flops.why,
            "layer 0: hidden_size is not known");
}

}  // namespace
}  // namespace lacuna

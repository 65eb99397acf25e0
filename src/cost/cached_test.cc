#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/cost.h"
#include "oracle.h"

namespace lacuna {
namespace {

CostQuery prefill(std::vector<std::int64_t> lengths, std::int64_t chunk = 0) {
  CostQuery query;
  query.lengths = std::move(lengths);
  query.chunk = chunk;
  query.kv_dtype = kv_dtype("bf16");
  return query;
}

CostQuery decode(std::vector<std::int64_t> lengths, std::int64_t generate, std::int64_t rows = 1) {
  CostQuery query = prefill(std::move(lengths));
  query.phase = Phase::kDecode;
  query.generate = generate;
  query.verify_rows = rows;
  return query;
}

// K and V of one element of one byte: two bytes a token and KV head, so that bytes show tokens.
const LayerShape kOneByte{.num_q_heads = 4, .num_kv_heads = 1, .head_dim = 1, .v_head_dim = 1};
CostQuery in_pairs_of_bytes(CostQuery query) {
  query.kv_dtype = kv_dtype("fp8");
  return query;
}

LayerCost first_layer(const std::string& attend, const LayerShape& layer, const CostQuery& query) {
  return cost(parse_layers(attend, 1, true), uniform_shape(1, layer), query).layers[0];
}

// Tokens that one KV head (of 4 query heads) holds or peaks at.
Int128 held_tokens(const std::string& attend, std::int64_t length) {
  return first_layer(attend, kOneByte, in_pairs_of_bytes(decode({length}, 0)))
             .kv_held_bytes.value() /
         2;
}
Int128 peak_tokens(const std::string& attend, const CostQuery& query) {
  return first_layer(attend, kOneByte, in_pairs_of_bytes(query)).kv_peak_bytes.value() / 2;
}

// By brute force, for the union of 4 query heads.
oracle::Position counted_retained(const std::string& attend, std::int64_t first_query,
                                  std::int64_t length) {
  const Attend parsed = parse_attend(attend, true);
  oracle::Row kept(static_cast<std::size_t>(length), false);
  for (std::uint32_t head = 0; head < 4; ++head) {
    const auto last =
        oracle::last_readers(oracle::attend_of(parsed, head), {true, length, 0, head}, length);
    oracle::unite_into(kept, oracle::retained(last, first_query, length));
  }
  return oracle::count(kept);
}

const char* const kUnions[] = {"full",
                               "window(7)",
                               "window(5)+sink(2)",
                               "chunk(6)",
                               "dilated(3,4)",
                               "strided(5)",
                               "window(4)+global(every=9)",
                               "window(4)+global(3,20,33)",
                               "topk(6)",
                               "window(3)+random(2,7)",
                               "heads(0: window(9); 1-3: window(4)+sink(1))"};

TEST(KvHeld, IsWhatThisOrALaterQueryCanRead) {
  for (const std::string attend : kUnions) {
    for (const std::int64_t length : {1, 5, 12, 25, 40}) {
      EXPECT_EQ(held_tokens(attend, length), counted_retained(attend, length - 1, length))
          << attend << " L=" << length;
    }
  }
}

TEST(KvHeld, FollowsTheSpecificationsFormulas) {
  EXPECT_EQ(held_tokens("window(4096)", 131072), 4096);
  EXPECT_EQ(held_tokens("window(4096)+sink(4)", 4098), 4098);  // united, not added
  EXPECT_EQ(held_tokens("window(4096)+sink(4)", 131072), 4100);
  EXPECT_EQ(held_tokens("chunk(8192)", 131072), (131072 - 1) % 8192 + 1);
  EXPECT_EQ(held_tokens("chunk(8192)", 10000), (10000 - 1) % 8192 + 1);
  EXPECT_EQ(held_tokens("dilated(5,8)", 1000), 4 * 8 + 1);
  EXPECT_EQ(held_tokens("strided(128)", 1000), 1000);
  EXPECT_EQ(held_tokens("topk(16)", 1000), 1000);
  EXPECT_EQ(held_tokens("window(8)+global(every=64)", 1000), 1000);
  EXPECT_EQ(held_tokens("window(8)+global(1000)", 1000), 1000);
  EXPECT_EQ(held_tokens("window(8)+global(999)", 1100), 9);
}

TEST(KvHeld, OfGemma3With270MillionParameters) {
  const LayerTable table = parse_layers("window(512)*5, full", 18, true);
  const ModelShape shape =
      uniform_shape(18, {.num_q_heads = 4, .num_kv_heads = 1, .head_dim = 256, .v_head_dim = 256});
  const PhaseCost phase = cost(table, shape, decode({32768}, 0));
  EXPECT_EQ(phase.total.kv_bytes_per_token.value(), 18432);
  EXPECT_EQ(phase.total.kv_held_bytes.value(), 108527616);
  EXPECT_EQ(phase.total.kv_held_bytes.value(), 15 * 512 * 1024 + 3 * 32768 * 1024);
  EXPECT_EQ(phase.layers[0].kv_held_bytes.known->text("kv_held_bytes"),
            "kv_held_bytes = S·H_kv·(d_h + d_v)·b = 512·1·(256 + 256)·2 = 524288");
  EXPECT_EQ(cost(table, shape, prefill({32768})).total.kv_held_bytes.value(), 108527616);
  // The 256 tokens of `--prompt 32512 --generate 257`: the last step has length 32768.
  EXPECT_EQ(cost(table, shape, decode({32512}, 257)).total.kv_held_bytes.value(), 108527616);
}

TEST(KvHeld, IsKeptForEveryLayerThatReadsIt) {
  LayerTable table = parse_layers("window(4), window(9), window(3)", 3, true);
  table.layers[1].kv_from = 0;
  const ModelShape shape = uniform_shape(3, kOneByte);
  const PhaseCost phase = cost(table, shape, in_pairs_of_bytes(decode({40}, 0)));
  EXPECT_EQ(phase.layers[0].kv_held_bytes.value(), 2 * 9);
  EXPECT_EQ(phase.layers[1].kv_held_bytes.value(), 0);
  EXPECT_EQ(phase.layers[1].kv_bytes_per_token.value(), 0);
  EXPECT_EQ(phase.layers[1].kv_written_bytes_per_step.value(), 0);
  EXPECT_EQ(phase.layers[1].kv_read_bytes_per_step.value(), 2 * 9);
  EXPECT_EQ(phase.layers[0].kv_read_bytes_per_step.value(), 2 * 4);
  EXPECT_EQ(phase.total.kv_held_bytes.value(), 2 * (9 + 3));
}

TEST(KvHeld, OfEqualLayersDiffersWhereOnlyOneIsShared) {
  LayerTable table = parse_layers("window(4)*3, window(9)", 4, true);
  table.layers[3].kv_from = 1;
  const PhaseCost phase =
      cost(table, uniform_shape(4, kOneByte), in_pairs_of_bytes(decode({40}, 0)));
  EXPECT_EQ(phase.layers[0].kv_held_bytes.value(), 2 * 4);
  EXPECT_EQ(phase.layers[1].kv_held_bytes.value(), 2 * 9);
  EXPECT_EQ(phase.layers[2].kv_held_bytes.value(), 2 * 4);
}

TEST(KvHeld, OfSharedSplitHeadsIsUnitedHeadByHead) {
  LayerTable table = parse_layers(
      "heads(0-1: window(4); 2-3: window(6)), "
      "heads(0-1: window(9); 2-3: sink(2))",
      2, true);
  table.layers[1].kv_from = 0;
  LayerShape layer = kOneByte;
  layer.num_kv_heads = 2;
  const PhaseCost phase = cost(table, uniform_shape(2, layer), in_pairs_of_bytes(decode({40}, 0)));
  EXPECT_EQ(phase.layers[0].kv_held_bytes.value(), 2 * (9 + (6 + 2)));
  EXPECT_EQ(phase.layers[0].kv_held_bytes.known->text("kv_held_bytes"),
            "kv_held_bytes = S over all KV heads·(d_h + d_v)·b = 17·(1 + 1)·1 = 34");
  EXPECT_EQ(phase.layers[1].kv_read_bytes_per_step.value(), 2 * (9 + 2));
}

TEST(KvHeld, OfSplitHeadsIsTheUnionOfEachKvHeadsReaders) {
  LayerShape layer = kOneByte;
  layer.num_kv_heads = 2;
  const std::string attend = "heads(0: full; 1: window(5); 2-3: window(7))";
  EXPECT_EQ(first_layer(attend, layer, in_pairs_of_bytes(decode({40}, 0))).kv_held_bytes.value(),
            2 * (40 + 7));
}

TEST(KvHeld, OfALatentIsOneForAllHeads) {
  LayerTable table = parse_layers("topk(2048)", 61, true);
  LayerShape layer{.num_q_heads = 128, .num_kv_heads = 128};
  layer.latent = LatentShape{512, 1536, 128, 64, 128};
  layer.index = IndexShape{64, 128, 1, 132};
  for (Layer& each : table.layers) each.mixer = Mixer::kMla;
  const PhaseCost phase = cost(table, uniform_shape(61, layer), decode({4096}, 0));
  EXPECT_EQ(phase.total.kv_bytes_per_token.value(), 70272);
  EXPECT_EQ(phase.total.kv_held_bytes.value(), Int128{70272} * 4096);
  EXPECT_EQ(phase.total.kv_read_bytes_per_step.value(), Int128{70272} * 2048);
  EXPECT_EQ(phase.total.kv_written_bytes_per_step.value(), 70272);
  EXPECT_EQ(phase.total.index_held_bytes.value(), Int128{8052} * 4096);
}

TEST(Latent, CostsItsPublishedFlopsAnEdge) {
  LayerTable table = parse_layers("topk(2048)", 1, true);
  table.layers[0].mixer = Mixer::kMla;
  LayerShape layer{.num_q_heads = 128, .num_kv_heads = 128};
  layer.latent = LatentShape{512, 1536, 128, 64, 128};
  layer.index = IndexShape{64, 128, 1, 132};
  const LayerCost step = cost(table, uniform_shape(1, layer), decode({4096}, 0)).layers[0];
  EXPECT_EQ(step.pair_flops.value(), Int128{2176} * 128 * 2048);
  EXPECT_EQ(step.index_flops.value(), Int128{16384} * 4096);
  const LayerCost whole = cost(table, uniform_shape(1, layer), prefill({4096})).layers[0];
  EXPECT_EQ(whole.pair_flops.value(), Int128{640} * whole.pairs.value());
  EXPECT_EQ(whole.index_flops.value(), Int128{16384} * 4096 * 4097 / 2);
  EXPECT_EQ(whole.pair_flops.known->text("pair_flops"),
            "pair_flops = 2·E·H·(d_n + d_r) + 2·E·H·d_v = 2·6292480·128·(128 + 64) + "
            "2·6292480·128·128 = 515479961600");
}

TEST(KvPeak, HoldsTheChunkInFlightBesideTheWindow) {
  EXPECT_EQ(peak_tokens("window(8)", prefill({1000}, 64)), 8 - 1 + 64);
  EXPECT_EQ(peak_tokens("window(8)", prefill({40}, 64)), 40);
  EXPECT_EQ(peak_tokens("window(8)", prefill({40})), 40);
  EXPECT_EQ(peak_tokens("window(8)+sink(2)", prefill({1000}, 64)), 2 + 7 + 64);
  EXPECT_EQ(peak_tokens("full", prefill({1000}, 64)), 1000);
  for (const std::string attend : kUnions) {
    oracle::Position largest = 0;
    for (std::int64_t begin = 0; begin < 30; begin += 7) {
      largest =
          std::max(largest, counted_retained(attend, begin, std::min<std::int64_t>(30, begin + 7)));
    }
    EXPECT_EQ(peak_tokens(attend, prefill({30}, 7)), largest) << attend;
  }
}

TEST(KvPeak, HoldsTheRowsOfAStepInFlight) {
  EXPECT_EQ(peak_tokens("window(8)", decode({1000}, 1, 5)), 8 - 1 + 5);
  EXPECT_EQ(peak_tokens("window(8)", decode({1000}, 3)), 8);
}

TEST(KvPeak, LooksAtBothEndsOfAPromptInManyChunks) {
  EXPECT_EQ(peak_tokens("full", prefill({1000000}, 10)), 1000000);
  EXPECT_EQ(peak_tokens("window(64)", prefill({1000000000}, 10)), 73);
}

TEST(KvRead, IsTheUnionOfTheStepsRows) {
  for (const std::string attend : kUnions) {
    for (const std::int64_t rows : {1, 4}) {
      const std::int64_t length = 30 + 2 + rows - 2;
      const Attend parsed = parse_attend(attend, true);
      oracle::Row read(static_cast<std::size_t>(length), false);
      for (std::uint32_t head = 0; head < 4; ++head) {
        const auto matrix =
            oracle::adjacency(oracle::attend_of(parsed, head), {true, length, 0, head});
        oracle::unite_into(read, oracle::rows(matrix, length - rows, length));
      }
      const LayerCost cost_of =
          first_layer(attend, kOneByte, in_pairs_of_bytes(decode({30}, 2, rows)));
      EXPECT_EQ(cost_of.kv_read_bytes_per_step.value(), 2 * oracle::count(read)) << attend;
      EXPECT_EQ(cost_of.kv_written_bytes_per_step.value(), 2 * rows) << attend;
    }
  }
}

TEST(KvDtypes, ChangeEveryCacheFigureAlike) {
  const LayerShape layer{.num_q_heads = 8, .num_kv_heads = 2, .head_dim = 64, .v_head_dim = 64};
  CostQuery query = decode({1000}, 0);
  query.kv_dtype = kv_dtype("int8");
  const LayerCost cost_of = first_layer("window(100)", layer, query);
  EXPECT_EQ(cost_of.kv_held_bytes.value(), 100 * 2 * (66 + 66));
  EXPECT_EQ(cost_of.kv_read_bytes_per_step.value(), 100 * 2 * (66 + 66));
  EXPECT_EQ(cost_of.kv_written_bytes_per_step.value(), 2 * (66 + 66));
}

TEST(State, IsHeldWhateverTheHistory) {
  LayerTable table = parse_layers("full", 1, true);
  table.layers[0].mixer = Mixer::kLinear;
  table.layers[0].attend = {};
  LayerShape layer;
  layer.state = StateShape{16, 32, 128, 128, 4, 8192};
  for (const std::int64_t length : {1, 100000}) {
    const LayerCost cost_of =
        cost(table, uniform_shape(1, layer), decode({length, length}, 0)).layers[0];
    EXPECT_EQ(cost_of.state_held_bytes.value(), 2 * (32 * 128 * 128 * 4 + 3 * 8192 * 4));
    for (const Figure128* none : {&cost_of.edges, &cost_of.pairs, &cost_of.legal_pairs,
                                  &cost_of.kv_held_bytes, &cost_of.kv_bytes_per_token,
                                  &cost_of.kv_read_bytes_per_step, &cost_of.index_held_bytes}) {
      EXPECT_EQ(none->value(), 0);
    }
  }
  EXPECT_EQ(first_layer("full", kOneByte, decode({9}, 0)).state_held_bytes.value(), 0);
}

TEST(Index, IsScannedByItsOwnerAndReadAsIdsByTheOthers) {
  LayerTable table = parse_layers("topk(64)", 2, true);
  table.layers[1].index_from = 0;
  LayerShape layer = kOneByte;
  layer.index = IndexShape{32, 128, 1, 132};
  const ModelShape shape = uniform_shape(2, layer);
  const PhaseCost phase = cost(table, shape, decode({1000, 10}, 0));
  EXPECT_EQ(phase.layers[0].index_held_bytes.value(), 132 * 1010);
  EXPECT_EQ(phase.layers[0].index_read_bytes_per_step.value(), 132 * 1010);
  EXPECT_EQ(phase.layers[0].index_flops.value(), 2 * 1010 * 32 * 128);
  EXPECT_EQ(phase.layers[1].index_held_bytes.value(), 0);
  EXPECT_EQ(phase.layers[1].index_flops.value(), 0);
  EXPECT_EQ(phase.layers[1].index_read_bytes_per_step.value(), 4 * (64 + 10));
  const PhaseCost verified = cost(table, shape, decode({1000}, 0, 3));
  EXPECT_EQ(verified.layers[1].index_read_bytes_per_step.value(), 4 * 64 * 3);
}

TEST(Index, OfBlocksIsReadAsBlockIds) {
  LayerTable table = parse_layers("topk_blocks(16,128,0,1)", 2, true);
  table.layers[1].index_from = 0;
  const ModelShape shape = uniform_shape(2, kOneByte);
  const PhaseCost phase = cost(table, shape, decode({100000}, 0));
  EXPECT_EQ(phase.layers[1].index_read_bytes_per_step.value(), 4 * 16);
  EXPECT_EQ(cost(table, shape, decode({300}, 0)).layers[1].index_read_bytes_per_step.value(),
            4 * 3);
}

TEST(Index, IsNotAskedWhereNothingIsChosen) {
  LayerShape layer = kOneByte;
  layer.index = IndexShape{32, 128, 1, 132};
  const LayerCost cost_of = first_layer("window(64)", layer, decode({1000}, 0));
  EXPECT_EQ(cost_of.index_held_bytes.value(), 0);
  EXPECT_EQ(cost_of.index_flops.value(), 0);
  EXPECT_EQ(cost_of.index_read_bytes_per_step.value(), 0);
}

TEST(Encoder, KeepsNothing) {
  const LayerTable both = parse_layers("window(4,4)", 1, false);
  ModelShape shape = uniform_shape(1, kOneByte);
  const auto expect_nothing = [](const LayerCost& cost_of) {
    EXPECT_EQ(cost_of.kv_bytes_per_token.value(), 0);
    EXPECT_EQ(cost_of.kv_held_bytes.value(), 0);
    EXPECT_EQ(cost_of.kv_peak_bytes.value(), 0);
    EXPECT_EQ(cost_of.kv_written_bytes_per_step.value(), 0);
    EXPECT_EQ(cost_of.kv_read_bytes_per_step.value(), 0);
    EXPECT_GT(cost_of.pairs.value(), 0);
  };
  expect_nothing(cost(both, shape, prefill({40})).total);
  shape.has_cache = false;
  expect_nothing(cost(parse_layers("full", 1, true), shape, prefill({40})).total);
}

TEST(Training, KeepsNoCache) {
  CostQuery query = prefill({40});
  query.phase = Phase::kTrain;
  const LayerCost cost_of = first_layer("full", kOneByte, query);
  for (const Figure128* figure :
       {&cost_of.kv_bytes_per_token, &cost_of.kv_held_bytes, &cost_of.kv_peak_bytes,
        &cost_of.state_held_bytes, &cost_of.index_held_bytes, &cost_of.kv_written_bytes_per_step,
        &cost_of.kv_read_bytes_per_step, &cost_of.index_read_bytes_per_step}) {
    EXPECT_EQ(figure->why, "training keeps no KV cache");
  }
  EXPECT_EQ(cost_of.kv_loaded_bytes.why, "counted in prefill only");
}

TEST(Loaded, CountsAKeyTileOnceForEachQueryTileAndKvHead) {
  const LayerShape layer{.num_q_heads = 8, .num_kv_heads = 2, .head_dim = 64, .v_head_dim = 64};
  CostQuery query = prefill({10});
  query.tile = {4, 4};
  const LayerCost cost_of = first_layer("full", layer, query);
  EXPECT_EQ(cost_of.kv_loaded_bytes.value(), (4 + 8 + 12) * 2 * (64 + 64) * 2);
  EXPECT_EQ(cost_of.compulsory_bytes.value(),
            10 * 8 * (64 + 64) * 2 + 10 * 2 * (64 + 64) * 2 + 4 * 10 * 8);
  query.kv_dtype = kv_dtype("f32");
  EXPECT_EQ(first_layer("full", layer, query).compulsory_bytes.value(),
            10 * 8 * (64 + 64) * 4 + 10 * 2 * (64 + 64) * 4 + 4 * 10 * 8);
}

TEST(Loaded, OfALatentAreTheExpandedKeysAndValues) {
  LayerTable table = parse_layers("full", 1, true);
  table.layers[0].mixer = Mixer::kMla;
  LayerShape layer{.num_q_heads = 128, .num_kv_heads = 128};
  layer.latent = LatentShape{512, 1536, 128, 64, 128};
  CostQuery query = prefill({10});
  query.tile = {16, 16};
  const LayerCost cost_of = cost(table, uniform_shape(1, layer), query).layers[0];
  EXPECT_EQ(cost_of.kv_loaded_bytes.value(), 16 * 128 * (192 + 128) * 2);
  EXPECT_EQ(cost_of.compulsory_bytes.value(), 2 * 10 * 128 * (192 + 128) * 2 + 4 * 10 * 128);
}

TEST(Loaded, SumsTheUnionsOfSplitHeads) {
  const LayerShape layer{.num_q_heads = 4, .num_kv_heads = 2, .head_dim = 8, .v_head_dim = 8};
  CostQuery query = prefill({10});
  query.tile = {5, 1};
  // KV head 0 is read for full, KV head 1 for window(2): rows 0-4 and 5-9.
  EXPECT_EQ(first_layer("heads(0-1: full; 2-3: window(2))", layer, query).kv_loaded_bytes.value(),
            ((5 + 10) + (5 + 6)) * 16 * 2);
}

}  // namespace
}  // namespace lacuna

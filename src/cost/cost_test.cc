#include "lacuna/cost.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/error.h"
#include "oracle.h"

namespace lacuna {
namespace {

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

ModelShape heads(int num_layers, int num_q_heads, int num_kv_heads, std::int64_t head_dim) {
  return uniform_shape(num_layers, LayerShape{.num_q_heads = num_q_heads,
                                              .num_kv_heads = num_kv_heads,
                                              .head_dim = head_dim,
                                              .v_head_dim = head_dim});
}

CostQuery prefill(std::vector<std::int64_t> lengths) {
  CostQuery query;
  query.lengths = std::move(lengths);
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

CostQuery train(std::vector<std::int64_t> lengths) {
  CostQuery query = prefill(std::move(lengths));
  query.phase = Phase::kTrain;
  return query;
}

LayerCost total(const std::string& layers, const ModelShape& shape, const CostQuery& query) {
  const LayerTable table = parse_layers(layers, static_cast<int>(shape.layers.size()), true);
  return cost(table, shape, query).total;
}

// The texts of the causal table, one for each way in which rows are counted.
const char* const kUnions[] = {"full",
                               "window(7)",
                               "window(5)+sink(2)",
                               "chunk(6)",
                               "dilated(3,4)",
                               "window(4)+global(every=9)",
                               "topk(6)",
                               "window(3)+random(2,7)",
                               "heads(0: full; 1-3: window(4)+sink(1))"};

// Pairs of rows [first, end) of all heads of one layer, by brute force.
Int128 counted_pairs(const std::string& attend, int num_q_heads, std::int64_t first,
                     std::int64_t end) {
  const Attend parsed = parse_attend(attend, true);
  Int128 sum = 0;
  for (int head = 0; head < num_q_heads; ++head) {
    const oracle::Place at{true, end, 0, static_cast<std::uint32_t>(head)};
    const auto matrix =
        oracle::adjacency(oracle::attend_of(parsed, static_cast<std::uint32_t>(head)), at);
    sum += oracle::edges(matrix, first, end);
  }
  return sum;
}

TEST(Pairs, OfAPrefillAreTheCountedOnes) {
  for (const std::string attend : kUnions) {
    for (const std::int64_t n : {1, 2, 6, 7, 23}) {
      const LayerCost sum = total(attend, heads(1, 4, 2, 8), prefill({n}));
      EXPECT_EQ(sum.pairs.value(), counted_pairs(attend, 4, 0, n)) << attend << " n=" << n;
      EXPECT_EQ(sum.legal_pairs.value(), 4 * n * (n + 1) / 2) << attend;
      EXPECT_EQ(sum.exponentials.value(), sum.pairs.value()) << attend;
    }
  }
}

TEST(Pairs, OfDecodeAreThoseOfEachStepsRows) {
  for (const std::string attend : kUnions) {
    for (const std::int64_t rows : {1, 3, 6}) {
      for (const std::int64_t steps : {1, 4, 9}) {
        Int128 expected = 0;
        for (std::int64_t step = 0; step < steps; ++step) {
          const std::int64_t length = 11 + step + rows - 1;
          expected += counted_pairs(attend, 4, length - rows, length);
        }
        const LayerCost sum = total(attend, heads(1, 4, 2, 8), decode({11}, steps, rows));
        EXPECT_EQ(sum.pairs.value(), expected) << attend << " q=" << rows << " m=" << steps;
      }
    }
  }
}

TEST(Pairs, OfABidirectionalTableReadBothSides) {
  const LayerTable table = parse_layers("window(3,3)", 1, false);
  EXPECT_EQ(cost(table, heads(1, 1, 1, 8), prefill({20})).total.pairs.value(), 20 * 7 - 3 * 4);
  EXPECT_EQ(cost(table, heads(1, 1, 1, 8), prefill({20})).total.legal_pairs.value(), 400);
}

TEST(Edges, AreOfOneHeadAndUnknownWhereHeadsDiffer) {
  EXPECT_EQ(total("window(7)", heads(1, 4, 2, 8), prefill({20, 5})).edges.value(),
            (7 * 8 / 2 + 13 * 7) + 5 * 6 / 2);
  const LayerTable table = parse_layers("full, heads(0: full; 1-3: window(4))", 2, true);
  const PhaseCost phase = cost(table, heads(2, 4, 2, 8), prefill({20}));
  EXPECT_TRUE(phase.layers[0].edges.has_value());
  EXPECT_EQ(phase.layers[1].edges.why, "query heads differ");
  EXPECT_EQ(phase.total.edges.why, "layer 1: query heads differ");
}

TEST(Edges, EqualThePublishedCounts) {
  const LayerCost window = total("window(1024)", heads(1, 1, 1, 64), prefill({32768}));
  EXPECT_EQ(window.edges.value(), 33030656);
  EXPECT_EQ(window.legal_pairs.value(), 536887296);
}

TEST(Edges, PrintTheFormulaTheyHave) {
  const auto text = [](const std::string& attend, const CostQuery& query) {
    return total(attend, heads(1, 1, 1, 64), query).edges.known->text("edges");
  };
  const auto layer_text = [](const std::string& attend, const CostQuery& query) {
    return cost(parse_layers(attend, 1, true), heads(1, 1, 1, 64), query)
        .layers[0]
        .edges.known->text("edges");
  };
  EXPECT_EQ(text("full", prefill({4})), "edges = layer_0 = 10");
  EXPECT_EQ(layer_text("full", prefill({4})), "edges = n·(n + 1)/2 = 4·(4 + 1)/2 = 10");
  EXPECT_EQ(layer_text("window(3)", prefill({8})),
            "edges = w·(w + 1)/2 + (n - w)·w = 3·(3 + 1)/2 + (8 - 3)·3 = 21");
  EXPECT_EQ(layer_text("window(3)+sink(2)", prefill({8})),
            "edges = w·(w + 1)/2 + (n - w)·w + s·(s + 1)/2 + (n - w - s)·s = 3·(3 + 1)/2 + "
            "(8 - 3)·3 + 2·(2 + 1)/2 + (8 - 3 - 2)·2 = 30");
  EXPECT_EQ(layer_text("chunk(3)", prefill({8})),
            "edges = ⌊n/c⌋·c·(c + 1)/2 + r·(r + 1)/2 = ⌊8/3⌋·3·(3 + 1)/2 + 2·(2 + 1)/2 = 15");
  EXPECT_EQ(layer_text("full", decode({1000}, 64)),
            "edges = m·n + m·(m - 1)/2 = 64·1000 + 64·(64 - 1)/2 = 66016");
  EXPECT_EQ(layer_text("window(256)", decode({1000}, 64)), "edges = m·w = 64·256 = 16384");
  EXPECT_EQ(layer_text("topk(256)", decode({1000}, 64)), "edges = m·k = 64·256 = 16384");
  EXPECT_EQ(layer_text("dilated(3,2)", prefill({8})),
            "edges = edges of dilated(3,2) in rows 0..7 = 18");
  EXPECT_EQ(layer_text("window(3)", decode({8}, 2, 2)),
            "edges = edges of window(3) in rows 7..9 in steps of 2 = 12");
  EXPECT_EQ(layer_text("full", prefill({4, 4})), "edges = B·n·(n + 1)/2 = 2·4·(4 + 1)/2 = 20");
  EXPECT_EQ(layer_text("full", prefill({4, 2})), "edges = Σ over 2 sequences = 13");
}

TEST(PairFlops, PrintTheirEquation) {
  const PhaseCost phase = cost(parse_layers("full", 1, true), heads(1, 1, 1, 2), prefill({4}));
  EXPECT_EQ(phase.layers[0].pair_flops.known->text("pair_flops"),
            "pair_flops = 4·E·H·d_h = 4·10·1·2 = 80");
  ModelShape shape = heads(1, 4, 2, 8);
  shape.layers[0].v_head_dim = 16;
  EXPECT_EQ(cost(parse_layers("full", 1, true), shape, prefill({4}))
                .layers[0]
                .pair_flops.known->text("pair_flops"),
            "pair_flops = 2·E·H·d_h + 2·E·H·d_v = 2·10·4·8 + 2·10·4·16 = 1920");
  EXPECT_EQ(cost(parse_layers("heads(0: full; 1-3: window(2))", 1, true), shape, train({4}))
                .layers[0]
                .pair_flops.known->text("pair_flops"),
            "pair_flops = 3·(2·P·d_h + 2·P·d_v) = 3·(2·31·8 + 2·31·16) = 4464");
}

TEST(PairFlops, MacHalvesEveryFlop) {
  ModelShape shape = heads(2, 4, 2, 8);
  shape.hidden_size = 32;
  shape.vocab_size = 100;
  for (LayerShape& layer : shape.layers) layer.mlp = MlpShape{.intermediate_size = 64};
  for (CostQuery query : {prefill({9, 4}), decode({9}, 3), train({9})}) {
    const LayerCost flops = total("window(4)", shape, query);
    query.mac = true;
    const LayerCost macs = total("window(4)", shape, query);
    EXPECT_EQ(2 * macs.pair_flops.value(), flops.pair_flops.value());
    EXPECT_EQ(2 * macs.projection_flops.value(), flops.projection_flops.value());
    EXPECT_EQ(2 * macs.mlp_flops.value(), flops.mlp_flops.value());
    EXPECT_EQ(2 * macs.logits_flops.value(), flops.logits_flops.value());
    EXPECT_EQ(macs.pairs.value(), flops.pairs.value());
  }
}

TEST(PairFlops, OfTrainingAreThreeForwardsAndTheRecomputeStandsApart) {
  const LayerCost forward = total("window(7)", heads(2, 4, 2, 8), prefill({30, 12}));
  const LayerCost both = total("window(7)", heads(2, 4, 2, 8), train({30, 12}));
  EXPECT_EQ(both.pair_flops.value(), 3 * forward.pair_flops.value());
  EXPECT_EQ(both.recompute_flops.value(), 2 * forward.pairs.value() * 8);
  EXPECT_EQ(both.exponentials.value(), forward.exponentials.value());
  EXPECT_EQ(forward.recompute_flops.why, "layer 0: scores are computed again only in training");
}

TEST(PairFlops, EqualTheLlama2TableOfTrainingSteps) {
  // 12·B·L·s²·h over the full square, printed as 422.21 TF and halved for causal: 211.11.
  const LayerTable square = parse_layers("full", 32, false);
  const ModelShape shape = heads(32, 32, 32, 128);
  const auto tera = [](const Figure128& figure) {
    return static_cast<double>(figure.value()) / 1e12;
  };
  const PhaseCost full = cost(square, shape, train({8192, 8192, 8192, 8192}));
  EXPECT_EQ(full.total.pair_flops.value(), Int128{12} * 4 * 32 * 8192 * 8192 * 4096);
  EXPECT_NEAR(tera(full.total.pair_flops), 422.21, 0.005);
  EXPECT_NEAR(tera(full.total.pair_flops) / 2, 211.11, 0.005);
  const std::vector<std::int64_t> long_batch(4, 129024);
  EXPECT_NEAR(tera(cost(square, shape, train(long_batch)).total.pair_flops), 104735, 0.5);
  // The causal pairs with their diagonal exceed the half by one key in 129024.
  EXPECT_NEAR(tera(total("full", shape, train(long_batch)).pair_flops), 52367, 1);
}

TEST(ExecutedPairs, CountWholeTiles) {
  CostQuery query = prefill({10});
  query.tile = {4, 4};
  // Rows 0-3 visit one tile of keys, 4-7 two, 8-9 three.
  EXPECT_EQ(total("full", heads(1, 2, 1, 8), query).executed_pairs.value(),
            2 * (4 * 4 + 4 * 8 + 2 * 12));
}

TEST(ExecutedPairs, OfADecodeStepAreTiledAlone) {
  CostQuery query = decode({10}, 3);
  query.tile = {64, 4};
  EXPECT_EQ(total("full", heads(1, 2, 1, 8), query).executed_pairs.value(), 2 * (12 + 12 + 12));
  query.verify_rows = 2;  // rows 9-10, 10-11, 11-12
  EXPECT_EQ(total("full", heads(1, 2, 1, 8), query).executed_pairs.value(),
            2 * (2 * 12 + 2 * 12 + 2 * 16));
  query.tile = {1, 4};
  EXPECT_EQ(total("full", heads(1, 2, 1, 8), query).executed_pairs.value(),
            2 * ((12 + 12) + (12 + 12) + (12 + 16)));
}

TEST(Batch, IsTheSumOfItsSequences) {
  for (const std::string attend : kUnions) {
    for (const CostQuery& query : {prefill({}), decode({}, 3), decode({}, 2, 3), train({})}) {
      const ModelShape shape = heads(2, 4, 2, 8);
      CostQuery whole = query;
      whole.lengths = {5, 19, 8, 19};
      const LayerCost batch = total(attend, shape, whole);
      std::vector<LayerCost> singles;
      for (const std::int64_t length : whole.lengths) {
        CostQuery one = query;
        one.lengths = {length};
        singles.push_back(total(attend, shape, one));
      }
      const auto figures_of_batch = figures(batch);
      for (std::size_t f = 0; f < figures_of_batch.size(); ++f) {
        const auto& [name, figure] = figures_of_batch[f];
        if (!figure->has_value() || name == "kv_bytes_per_token") continue;
        Int128 sum = 0;
        for (const LayerCost& single : singles) sum += figures(single)[f].second->value();
        EXPECT_EQ(to_string(figure->value()), to_string(sum)) << name << " of " << attend;
      }
    }
  }
}

TEST(Batch, IsNeverCountedFromItsMeanLength) {
  EXPECT_EQ(total("full", heads(1, 1, 1, 64), prefill({2048, 30720})).edges.value(), 473972736);
  EXPECT_EQ(2 * total("full", heads(1, 1, 1, 64), prefill({16384})).edges.value(), 268451840);
}

TEST(Batch, CostsMoreWhenPaddedToItsLongest) {
  const CostQuery query = prefill({10, 4, 1});
  EXPECT_EQ(padded(query).lengths, (std::vector<std::int64_t>{10, 10, 10}));
  EXPECT_EQ(total("full", heads(1, 1, 1, 8), padded(query)).edges.value(), 3 * 55);
  EXPECT_EQ(total("full", heads(1, 1, 1, 8), query).edges.value(), 55 + 10 + 1);
  EXPECT_TRUE(padded(prefill({})).lengths.empty());
}

TEST(Batch, OfEmptySequencesCostsNothing) {
  for (const auto& lengths : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 0}}) {
    ModelShape shape = heads(2, 4, 2, 8);
    shape.hidden_size = 32;
    const LayerCost sum = total("full", shape, prefill(lengths));
    for (const auto& [name, figure] : figures(sum)) {
      if (name == "kv_bytes_per_token" || !figure->has_value()) continue;
      EXPECT_EQ(to_string(figure->value()), "0") << name;
    }
  }
  EXPECT_EQ(total("full", heads(1, 1, 1, 8), prefill({0, 3})).pairs.value(), 6);
}

TEST(Chunking, ChangesNoTotal) {
  for (const std::string attend : kUnions) {
    const ModelShape shape = heads(2, 4, 2, 8);
    CostQuery query = prefill({50});
    const LayerCost whole = total(attend, shape, query);
    query.chunk = 7;
    const LayerCost chunked = total(attend, shape, query);
    const auto figures_of_whole = figures(whole);
    for (std::size_t f = 0; f < figures_of_whole.size(); ++f) {
      const auto& [name, figure] = figures_of_whole[f];
      if (!figure->has_value() || name == "kv_peak_bytes") continue;
      EXPECT_EQ(to_string(figure->value()), to_string(figures(chunked)[f].second->value()))
          << name << " of " << attend;
    }
  }
}

TEST(Decode, IsTheSumOfItsSteps) {
  for (const std::string attend : kUnions) {
    const ModelShape shape = heads(1, 4, 2, 8);
    const LayerCost all = total(attend, shape, decode({9}, 5));
    LayerCost last;
    Int128 pairs = 0;
    Int128 executed = 0;
    Int128 flops = 0;
    for (std::int64_t length = 9; length < 14; ++length) {
      last = total(attend, shape, decode({length}, 0));
      pairs += last.pairs.value();
      executed += last.executed_pairs.value();
      flops += last.pair_flops.value();
    }
    EXPECT_EQ(all.pairs.value(), pairs) << attend;
    EXPECT_EQ(all.executed_pairs.value(), executed) << attend;
    EXPECT_EQ(all.pair_flops.value(), flops) << attend;
    EXPECT_EQ(all.kv_read_bytes_per_step.value(), last.kv_read_bytes_per_step.value()) << attend;
    EXPECT_EQ(all.kv_held_bytes.value(), last.kv_held_bytes.value()) << attend;
  }
}

TEST(Pairs, GoPastSixtyFourBits) {
  const Int128 n = Int128{1} << 40;
  const LayerCost sum = total("full", heads(2, 4, 2, 8), prefill({std::int64_t{1} << 40}));
  EXPECT_EQ(to_string(sum.pairs.value()), to_string(2 * 4 * (n * (n + 1) / 2)));
  EXPECT_EQ(to_string(sum.pair_flops.value()), to_string(2 * 4 * (n * (n + 1) / 2) * 4 * 8));
}

TEST(Totals, AreSumsOverLayersWrittenByTheirValues) {
  const LayerTable table = parse_layers("window(4)*5, full", 18, true);
  const PhaseCost phase = cost(table, heads(18, 1, 1, 8), prefill({10}));
  EXPECT_EQ(phase.total.edges.known->text("edges"),
            "edges = 15·layer_0 + 3·layer_5 = 15·34 + 3·55 = 675");
  Int128 sum = 0;
  for (const LayerCost& layer : phase.layers) sum += layer.pairs.value();
  EXPECT_EQ(phase.total.pairs.value(), sum);
}

TEST(Totals, AreNamedSumsWhereManyLayersDiffer) {
  const LayerTable table =
      parse_layers("window(2), window(3), window(4), window(5), full", 5, true);
  EXPECT_EQ(cost(table, heads(5, 1, 1, 8), prefill({10})).total.edges.known->text("edges"),
            "edges = Σ over 5 layers = 175");
}

TEST(Totals, OfRandomLayersDrawEachLayerApart) {
  const LayerTable table = parse_layers("window(8)+random(3,7)", 4, true);
  const PhaseCost phase = cost(table, heads(4, 1, 1, 8), prefill({90}));
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    const auto matrix =
        oracle::adjacency(table.layers[layer].attend.groups[0].attend, {true, 90, layer, 0});
    EXPECT_EQ(phase.layers[layer].edges.value(), oracle::edges(matrix, 0, 90));
  }
}

TEST(Figures, HaveTheirJsonNames) {
  const LayerCost sum = total("full", heads(1, 1, 1, 8), prefill({4}));
  const auto named = figures(sum);
  ASSERT_EQ(named.size(), 22u);
  EXPECT_EQ(named[0].first, "edges");
  EXPECT_EQ(named[0].second, &sum.edges);
  EXPECT_EQ(named[13].first, "kv_held_bytes");
  EXPECT_EQ(named[21].second, &sum.compulsory_bytes);
}

TEST(CostErrors, NameTheArgumentAndItsRange) {
  const ModelShape shape = heads(1, 1, 1, 8);
  const auto message = [&](const std::function<void(CostQuery&)>& spoil) {
    CostQuery query = decode({4}, 1);
    spoil(query);
    return message_of([&] { total("full", shape, query); });
  };
  const std::string up_to = "..576460752303423488";
  EXPECT_EQ(message([](CostQuery& q) { q.lengths = {-1}; }),
            "a sequence's length is -1; allowed: 0" + up_to);
  EXPECT_EQ(message([](CostQuery& q) {
              q.lengths = {4, 0};
            }),
            "a decode step has length 0; allowed: prompts of 1 token and above");
  EXPECT_EQ(message([](CostQuery& q) { q.generate = -1; }), "generate is -1; allowed: 0" + up_to);
  EXPECT_EQ(message([](CostQuery& q) { q.verify_rows = 0; }),
            "verify_rows is 0; allowed: 1" + up_to);
  EXPECT_EQ(message([](CostQuery& q) { q.chunk = -5; }), "chunk is -5; allowed: 0" + up_to);
  EXPECT_EQ(message([](CostQuery& q) { q.tile = {0, 64}; }), "tile rows is 0; allowed: 1" + up_to);
  EXPECT_EQ(message([](CostQuery& q) { q.tile = {64, 0}; }), "tile keys is 0; allowed: 1" + up_to);
  EXPECT_EQ(message_of([&] { cost(parse_layers("full", 1, false), shape, decode({4}, 1)); }),
            "phase is decode with a bidirectional table; allowed: train, prefill");
  EXPECT_EQ(message_of([&] { cost(parse_layers("full", 2, true), shape, prefill({4})); }),
            "the shape has 1 layers; allowed: 2, as the layer table");
}

TEST(CostAtScale, OfAHybridFollowsItsFormula) {
  const LayerTable table = parse_layers("window(1024)+sink(4)*5, full", 64, true);
  const ModelShape shape = heads(64, 32, 8, 128);
  for (const std::int64_t n : {std::int64_t{131072}, std::int64_t{1000000000}}) {
    // Rows 1024, 1025 and 1026 have one, two and three sinks beyond the window, later ones four.
    const Int128 local = Int128{1024} * 1025 / 2 + Int128{n - 1024} * 1024 + 6 + 4 * (n - 1027);
    const Int128 full = Int128{n} * (n + 1) / 2;
    EXPECT_EQ(cost(table, shape, prefill({n})).total.pairs.value(), 32 * (54 * local + 10 * full));
    const Int128 steps = 256 * Int128{n} + 256 * 255 / 2;
    EXPECT_EQ(cost(table, shape, decode({n}, 256)).total.pairs.value(),
              32 * (54 * Int128{256} * 1028 + 10 * steps));
  }
}

}  // namespace
}  // namespace lacuna

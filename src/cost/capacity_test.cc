#include "lacuna/capacity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cost/test_models.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

CapacityQuery query_of(const std::string& policy, std::int64_t budget, std::int64_t requests) {
  CapacityQuery query;
  query.policy = parse_policy(policy);
  query.budget_bytes = budget;
  query.requests = requests;
  query.kv_dtype = kv_dtype("bf16");
  return query;
}

Capacity capacity_of(const Model& model, const CapacityQuery& query) {
  return capacity(model.table, model.shape, query);
}

TEST(Capacity, FortyEightGibibytesHold24RequestsOf16384Tokens) {
  const Model made = model("full", 32, heads(32, 8, 128));
  const Capacity found = capacity_of(made, query_of("exact", 48 * kGiB, 24));
  EXPECT_EQ(found.limit.tokens, 16384);
  EXPECT_FALSE(found.limit.unbounded);
  EXPECT_EQ(found.limit.bytes, Int128{48 * kGiB});
  // The margin of 5 % is free of the plan.
  EXPECT_EQ(found.kept.tokens, 15564);
  EXPECT_EQ(found.requests_times_length_tokens, Int128{24 * 15564});
  for (const std::string policy : {"full", "uniform", "paged", "hf_static", "iswa"}) {
    EXPECT_EQ(capacity_of(made, query_of(policy, 48 * kGiB, 24)).limit.tokens, 16384) << policy;
  }
}

TEST(Capacity, PageTablesAndMarginAreTakenOff) {
  const Model made = model("full", 1, heads(1, 1, 64));
  CapacityQuery query = query_of("paged", 1000 * (64 * 256 + 4), 1);
  query.margin_share = 0;
  const Capacity found = capacity_of(made, query);
  EXPECT_EQ(found.kept.tokens, 64000);
  EXPECT_EQ(found.page_table_bytes, Int128{4000});
}

TEST(Capacity, WindowedLayersStopGrowing) {
  const Model made = model("window(1024)", 4, heads(1, 1, 64));
  const Capacity found = capacity_of(made, query_of("exact", 4 * 1024 * 256 * 2, 1));
  EXPECT_TRUE(found.kept.unbounded);
  EXPECT_EQ(found.notes[0], "no layer grows with the length any more: any length fits");
  EXPECT_FALSE(capacity_of(made, query_of("full", 4 * 1024 * 256 * 2, 1)).kept.unbounded);
  EXPECT_EQ(capacity_of(made, query_of("exact", 100, 1)).limit.tokens, 0);
}

// The largest length at which no shorter one holds more, by trying every length.
std::int64_t by_trying(const Model& made, const CapacityQuery& query, std::int64_t most) {
  std::int64_t best = 0;
  for (std::int64_t length = 1; length <= most; ++length) {
    const Held one = held(query.policy, made.table, made.shape, {length, length, query.kv_dtype});
    if (one.bytes.value() * query.requests > query.budget_bytes) break;
    best = length;
  }
  return best;
}

TEST(Capacity, EqualsTryingEveryLength) {
  const std::vector<std::string> tables = {"full",
                                           "window(50), full",
                                           "chunk(40)",
                                           "chunk(24)+sink(2)",
                                           "window(33)+sink(3)",
                                           "window_blocks(1,0,20)",
                                           "dilated(6,5)",
                                           "fixed(12,2)"};
  for (const std::string& layers : tables) {
    const Model made = model(layers, 2, heads(2, 1, 64));
    for (const std::string policy : {"exact", "paged(P=16)", "paged(P=7)", "full", "uniform",
                                     "pool(batched=32)", "hf_static", "hf_dynamic"}) {
      for (const std::int64_t slots : {20, 40, 90, 130, 200}) {
        CapacityQuery query = query_of(policy, slots * 256, 1);
        const TokensKept found = capacity_of(made, query).limit;
        const std::int64_t tried = by_trying(made, query, 600);
        // Layers whose peaks lie at different lengths may leave a little unused.
        if (layers == "window(50), full" || found.unbounded) {
          EXPECT_LE(std::min<std::int64_t>(found.tokens, 600), tried) << layers << " " << policy;
          EXPECT_GE(std::min<std::int64_t>(found.tokens, 600), tried - 16)
              << layers << " " << policy;
        } else {
          EXPECT_EQ(found.tokens, tried) << layers << " " << policy << " " << slots;
        }
      }
    }
  }
}

TEST(Capacity, ChunksCountAtTheirEndAndNotAfterIt) {
  const Model made = model("chunk(4096)", 1, heads(1, 1, 64));
  // Holds 4000 tokens: token 4001 does not fit, although length 4097 would hold a single one.
  EXPECT_EQ(capacity_of(made, query_of("exact", 4000 * 256, 1)).limit.tokens, 4000);
}

TEST(Capacity, MeanAndWorstCombinationOfTheLengths) {
  const Model made = model("full", 1, heads(1, 1, 64));  // 256 bytes a token
  CapacityQuery query = query_of("exact", 256 * 1000, 2);
  query.margin_share = 0;
  query.lengths = {100, 300, 200, 400};
  const Capacity found = capacity_of(made, query);
  EXPECT_EQ(found.requests_fit->mean, 4);   // 4 · 250
  EXPECT_EQ(found.requests_fit->worst, 4);  // 400 + 300 + 200 + 100 = 1000
  EXPECT_EQ(found.held_bytes->mean, Int128{256 * 500});
  EXPECT_EQ(found.held_bytes->worst, Int128{256 * 700});
  query.budget_bytes = 256 * 900;
  EXPECT_EQ(capacity_of(made, query).requests_fit->worst, 3);
  query.requests = 5;  // more than were observed: the longest comes again
  EXPECT_EQ(capacity_of(made, query).held_bytes->worst, Int128{256 * 1400});
}

TEST(Capacity, MeanOfBytesIsNotTheBytesOfTheMean) {
  const Model made = model("window(128)", 1, heads(1, 1, 64));
  CapacityQuery query = query_of("exact", kGiB, 1);
  query.lengths = {28, 1028};
  EXPECT_EQ(capacity_of(made, query).held_bytes->mean, Int128{(28 + 128) / 2 * 256});
}

TEST(Capacity, TheInverseBudgetHoldsItsRequests) {
  const Model made = model("window(1024)*5, full", 26, heads(4, 1, 256));
  for (const std::string& policy : policy_names()) {
    CapacityQuery query = query_of(policy, kGiB, 7);
    query.lengths = {100, 5000, 32768, 70};
    const Capacity found = capacity_of(made, query);
    query.budget_bytes = to_int64(found.budget_bytes->worst, "budget");
    EXPECT_GE(capacity_of(made, query).requests_fit->worst, 7) << policy;
    query.budget_bytes -= 1;
    EXPECT_LT(capacity_of(made, query).requests_fit->worst, 7) << policy;
  }
}

TEST(Capacity, TokensOfOneGroupAreAnotherMeaning) {
  Model gemma4 = model("window(1024)*5, full", 60, heads(32, 16, 256));
  for (std::size_t idx = 5; idx < 60; idx += 6) gemma4.shape.layers[idx] = heads(32, 4, 512);
  const auto budget = static_cast<std::int64_t>(24.54 * static_cast<double>(kGiB));
  EXPECT_EQ(*capacity_of(gemma4, query_of("uniform", budget, 1)).group_tokens, 26800);
  EXPECT_FALSE(capacity_of(gemma4, query_of("paged", budget, 1)).group_tokens.has_value());
  // pool: 6 groups of 10 layers share the same pages, 16 tokens each at the smallest.
  const std::int64_t pages = budget / (10 * 16 * 16384) / 6;
  EXPECT_EQ(*capacity_of(gemma4, query_of("pool", budget, 1)).group_tokens, pages * 16);
}

TEST(Capacity, IswaSizesOneContextForAllRequests) {
  const Model made = model("window(512)*5, full", 18, heads(4, 1, 256));
  const Capacity found = capacity_of(made, query_of("iswa(unified=0)", 18 * 1024 * 4 * 256, 4));
  EXPECT_EQ(found.limit.tokens, 256);
}

TEST(Capacity, RefusesNumbersOutOfRange) {
  const Model made = model("full", 1, heads(1, 1, 64));
  for (const auto& spoil :
       std::vector<void (*)(CapacityQuery&)>{[](CapacityQuery& query) { query.requests = 0; },
                                             [](CapacityQuery& query) { query.budget_bytes = -1; },
                                             [](CapacityQuery& query) { query.margin_share = 1; },
                                             [](CapacityQuery& query) { query.lengths = {-5}; }}) {
    CapacityQuery query = query_of("exact", 1, 1);
    spoil(query);
    EXPECT_THROW(capacity_of(made, query), Error);
  }
}

// --- the largest window ---

WindowQuery window_query(std::int64_t budget, std::int64_t requests, std::int64_t length) {
  WindowQuery query;
  query.capacity = query_of("exact", budget, requests);
  query.capacity.margin_share = 0;
  query.capacity.lengths = {length};
  return query;
}

TEST(LargestWindow, MemoryBindsAtTheCapacity) {
  const Model made = model("full", 32, heads(32, 8, 128));
  const LargestWindow found =
      largest_window(made.table, made.shape, window_query(48 * kGiB, 24, 65536));
  EXPECT_EQ(found.window, 16384);
  EXPECT_EQ(found.binds, std::vector<Bound>{Bound::kMemory});
  EXPECT_EQ(found.notes[0], "no layer has a window: every full layer is given one");
}

TEST(LargestWindow, BandwidthMayBindWhileMemoryIsLeft) {
  const Model made = model("window(4096)", 32, heads(32, 8, 128));
  WindowQuery query = window_query(48 * kGiB, 24, 65536);
  query.bandwidth_bytes_per_s = 2e12;
  query.weight_bytes = 16'000'000'000;
  query.tpot_seconds = 0.016;
  const LargestWindow found = largest_window(made.table, made.shape, query);
  // (2e12 · 0.016 - 16e9) / (24 · 131072) tokens.
  EXPECT_EQ(found.window, 5086);
  EXPECT_EQ(found.binds, std::vector<Bound>{Bound::kBandwidth});
  EXPECT_LE(found.bounds[1].used, found.bounds[1].allowed);
}

TEST(LargestWindow, PrefillMayBind) {
  Model made = model("window(4096)", 32, heads(32, 8, 128));
  for (LayerShape& layer : made.shape.layers) {
    layer.mlp = MlpShape{.kind = MlpKind::kGated, .intermediate_size = 14336};
  }
  made.shape.hidden_size = 4096;
  WindowQuery query = window_query(48 * kGiB, 24, 65536);
  query.flops_per_s = 1e15;
  query.ttft_seconds = 1.2;
  const LargestWindow found = largest_window(made.table, made.shape, query);
  ASSERT_TRUE(found.window.has_value());
  EXPECT_EQ(found.binds, std::vector<Bound>{Bound::kPrefill});
  // The dense products alone: n · 2 · (2 d² + 2 d H_kv d_h + 3 d d_ff) a layer.
  const double n = 65536;
  const double w = static_cast<double>(*found.window);
  const double dense = 32 * n * 2 * (2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 3.0 * 4096 * 14336);
  const auto flops = [&](double width) {
    return dense + 32 * 4 * 128 * 32 * (n * width - width * (width - 1) / 2);
  };
  EXPECT_LE(flops(w), 1.2e15);
  EXPECT_GT(flops(w + 1), 1.2e15);
  query.ttft_seconds = 0.5;
  const LargestWindow none = largest_window(made.table, made.shape, query);
  EXPECT_FALSE(none.window.has_value());
  EXPECT_EQ(none.binds, std::vector<Bound>{Bound::kPrefill});
}

TEST(LargestWindow, NothingLimitsAShortRequest) {
  const Model made = model("window(16), full", 4, heads(2, 1, 64));
  const LargestWindow found = largest_window(made.table, made.shape, window_query(kGiB, 1, 1000));
  EXPECT_EQ(found.window, 1000);
  EXPECT_FALSE(found.bounds[0].limits);
  EXPECT_TRUE(found.binds.empty());
  EXPECT_THROW(largest_window(made.table, made.shape, WindowQuery{}), Error);
}

TEST(WithWindow, ReplacesWindowsAndNothingElse) {
  const LayerTable table = parse_layers("window(4)+sink(2), full, chunk(8)", 3, true);
  EXPECT_EQ(to_text(with_window(table, 9)), "window(9)+sink(2), full, chunk(8)");
}

// --- levers ---

TEST(Levers, SayWhatTheyBuyAndWhatTheyChange) {
  const Model made = model("full", 32, heads(32, 8, 128));
  const std::vector<Lever> all = levers(made.table, made.shape, query_of("exact", 48 * kGiB, 24));
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].capacity->limit.tokens, 16384);
  EXPECT_FALSE(all[1].capacity.has_value());
  EXPECT_EQ(all[1].why, "no layer has a window");
  EXPECT_EQ(all[2].capacity->limit.tokens, 16384 * 256 / 130);  // a scale of 2 bytes beside 128
  EXPECT_EQ(all[3].capacity->limit.tokens, 16384 * 256 / 72);
  EXPECT_EQ(all[4].capacity->limit.tokens, 32768);
  EXPECT_EQ(all[5].capacity->limit.tokens, 65536);
  EXPECT_NE(all[2].changes.find("numerical error"), std::string::npos);
}

TEST(Levers, HalfTheWindowIsHalfTheBytesOfWindowLayers) {
  const Model made = model("window(1024)*5, full", 6, heads(2, 1, 64));
  CapacityQuery query = query_of("exact", kGiB, 1);
  query.lengths = {8192};
  const std::vector<Lever> all = levers(made.table, made.shape, query);
  EXPECT_EQ(all[0].capacity->held_bytes->worst, Int128{(5 * 1024 + 8192) * 256});
  EXPECT_EQ(all[1].capacity->held_bytes->worst, Int128{(5 * 512 + 8192) * 256});
}

TEST(Levers, SayWhyTheyCannotBePulled) {
  Model made = model("window(64), full", 2, heads(3, 3, 40));
  const std::vector<Lever> all = levers(made.table, made.shape, query_of("paged", kGiB, 1));
  EXPECT_TRUE(all[1].capacity.has_value());
  EXPECT_NE(all[3].why.find("head_dim is 40"), std::string::npos);
  EXPECT_EQ(all[4].why, "layer 0 has 3 KV heads, not a multiple of 2");
}

}  // namespace
}  // namespace lacuna

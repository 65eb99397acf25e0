#include "lacuna/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cost/test_models.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(Amdahl, OnlyThePairShareGetsFaster) {
  EXPECT_NEAR(amdahl_speedup(0.4, 0.25), 1 / 0.7, 1e-12);
  EXPECT_NEAR(amdahl_speedup(0.8, 0.25), 2.5, 1e-12);
  EXPECT_NEAR(amdahl_speedup(0.7, 0.125, 0.05), 2.285714285714286, 1e-12);
  EXPECT_NEAR(amdahl_speedup(0.25, 0.125, 0.05), 1.2030075187969924, 1e-12);
  EXPECT_EQ(amdahl_speedup(0.3, 1), 1);
}

TEST(Amdahl, AKernelOfHalfTheThroughputDoublesThePairTime) {
  const double r = pair_time_ratio(0.1, 0.5);
  EXPECT_NEAR(amdahl_speedup(0.7, r), 2.272727272727273, 1e-12);
  EXPECT_NEAR(amdahl_speedup(0.2, r), 1.1904761904761905, 1e-12);
}

TEST(Amdahl, SharesOutsideTheirRangeAreRefused) {
  EXPECT_THROW(amdahl_speedup(1.1, 0.5), Error);
  EXPECT_THROW(amdahl_speedup(std::nan(""), 0.5), Error);
  EXPECT_THROW(amdahl_speedup(0.5, -1), Error);
  EXPECT_THROW(pair_time_ratio(0.5, 0), Error);
  try {
    amdahl_speedup(2, 0.5);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "pair_share is 2; allowed: 0..1");
  }
}

TEST(Roofline, TheSlowerSideBinds) {
  const Roofline decode = roofline(1e9, 1e9, 100e12, 1e12);
  EXPECT_DOUBLE_EQ(decode.seconds, 1e-3);
  EXPECT_TRUE(decode.memory_bound);
  EXPECT_DOUBLE_EQ(decode.intensity, 1);
  EXPECT_DOUBLE_EQ(decode.ridge, 100);
  const Roofline prefill = roofline(1e12, 1e9, 100e12, 1e12);
  EXPECT_DOUBLE_EQ(prefill.seconds, 1e-2);
  EXPECT_FALSE(prefill.memory_bound);
  EXPECT_TRUE(std::isinf(roofline(1, 0, 1, 1).intensity));
}

TEST(Roofline, MultiTenantStepReadsSixteenGibibytes) {
  EXPECT_NEAR(roofline(0, 17179869184.0, 1, 2e12).seconds, 0.008589934592, 1e-12);
}

TEST(DecodeIntensity, IsTwiceTheGroupOverTheElement) {
  EXPECT_DOUBLE_EQ(decode_intensity(heads(8, 8, 128), Mixer::kSoftmax, kv_dtype("bf16")), 1);
  EXPECT_DOUBLE_EQ(decode_intensity(heads(64, 8, 128), Mixer::kSoftmax, kv_dtype("bf16")), 8);
  EXPECT_DOUBLE_EQ(decode_intensity(heads(64, 8, 128), Mixer::kSoftmax, kv_dtype("fp8")), 16);
  // int8 carries a scale of two bytes beside 128 elements.
  EXPECT_DOUBLE_EQ(decode_intensity(heads(8, 8, 128), Mixer::kSoftmax, kv_dtype("int8")),
                   2.0 * 128 / 130);
}

TEST(DecodeIntensity, AnAbsorbedLatentServesAllHeads) {
  LayerShape shape = heads(128, 128, 192);
  shape.latent = LatentShape{512, 1536, 128, 64, 128};
  // 2176 FLOPs an edge and head, 1152 bytes for all 128 heads.
  EXPECT_DOUBLE_EQ(decode_intensity(shape, Mixer::kMla, kv_dtype("bf16")), 128.0 * 2176 / 1152);
  EXPECT_THROW(decode_intensity(shape, Mixer::kLinear, kv_dtype("bf16")), Error);
}

TEST(Speculation, AStepIsPaidByTheTokensItCommits) {
  EXPECT_NEAR(cost_per_committed_token(1.2, 3.0), 0.4, 1e-12);
  EXPECT_THROW(cost_per_committed_token(1.2, 0.5), Error);
}

TEST(SelectionGain, IsNegativeWhereTheSelectorEatsIt) {
  EXPECT_GT(selection_gain(10, 4, 5), 0);
  EXPECT_LT(selection_gain(10, 6, 5), 0);
}

TEST(MillionTokens, AreDeviceSecondsAndJoules) {
  GenerationInputs inputs;
  inputs.step_seconds = 0.02;
  inputs.tokens_per_step = 32;
  inputs.num_devices = 2;
  EXPECT_DOUBLE_EQ(cost_per_million_tokens(inputs).device_seconds, 1250);
  EXPECT_FALSE(cost_per_million_tokens(inputs).joules.has_value());
  inputs.power_watts = 700;
  inputs.prefill_seconds_per_request = 0.5;
  inputs.tokens_per_request = 500;
  const GenerationCost cost = cost_per_million_tokens(inputs);
  EXPECT_DOUBLE_EQ(cost.device_seconds, 1250 + 2000);
  EXPECT_DOUBLE_EQ(*cost.joules, 3250 * 700.0);
  EXPECT_EQ(cost.kind, FigureKind::kEstimate);
}

TEST(RoundUp, PagesOfASequence) {
  const Rounding pages = round_up(4097, 256);
  EXPECT_EQ(pages.units.value(), Int128{17});
  EXPECT_EQ(pages.slots.value(), Int128{4352});
  EXPECT_NEAR(pages.waste, 255.0 / 4097, 1e-12);
  EXPECT_EQ(round_up(4097, 128).slots.value(), Int128{4224});
  EXPECT_EQ(round_up(0, 16).waste, 0);
  EXPECT_EQ(pages.units.text("pages"), "pages = ⌈tokens/unit⌉ = ⌈4097/256⌉ = 17");
}

TEST(RoundUp, AWindowThatStartsInsideATileTouchesOneMore) {
  const Rounding aligned = round_up({{0, 3000}}, 128);
  EXPECT_EQ(aligned.units.value(), Int128{24});
  EXPECT_NEAR(aligned.waste, 0.024, 1e-12);
  const Rounding offset = round_up({{127, 3127}}, 128);
  EXPECT_EQ(offset.units.value(), Int128{25});
  EXPECT_EQ(offset.empty.value(), Int128{200});
  EXPECT_NEAR(offset.waste, 200.0 / 3000, 1e-12);
}

TEST(RoundUp, ExplicitPositionsFillTwoTiles) {
  const std::vector<std::int64_t> list = {0,  1,  2,  3,  4,  5,  6,  7, 8,
                                          64, 65, 66, 67, 68, 69, 70, 71};
  EXPECT_EQ(round_up(positions(list), 64).slots.value(), Int128{128});
  EXPECT_EQ(positions(std::vector<std::int64_t>{5, 3, 5, 4}), (Ranges{{3, 6}}));
}

TEST(RoundUp, ScatteredTokensMoveWholePages) {
  EXPECT_EQ(round_up_counted(4000, 1000, 64).slots.value(), Int128{64000});
  EXPECT_EQ(round_up_counted(3500, 100, 64).slots.value(), Int128{6400});
  EXPECT_NEAR(round_up_counted(3500, 100, 64).valid, 3500.0 / 6400, 1e-12);
  EXPECT_EQ(round_up(2048, 64).units.value(), Int128{32});  // fewest blocks of 2048 tokens
  EXPECT_THROW(round_up_counted(10, 11, 4), Error);
  EXPECT_THROW(round_up_counted(10, 2, 4), Error);
}

TEST(DecodeEdges, AreThoseOfTheStepsOwnRows) {
  EXPECT_EQ(cumulative_decode_edges(Topology({Full{}}, true), 1000, 64), Int128{66016});
  EXPECT_EQ(cumulative_decode_edges(Topology({Window{255, 0}}, true), 1000, 64), Int128{16384});
  for (const std::int64_t prompt : {1, 3, 100}) {
    for (const std::int64_t steps : {0, 1, 17}) {
      EXPECT_EQ(cumulative_decode_edges(Topology({Full{}}, true), prompt, steps),
                Int128{steps * prompt + steps * (steps - 1) / 2});
    }
  }
}

TEST(Padding, IsPaidForTheLongestSequence) {
  const std::vector<std::int64_t> lengths = {2048, 30720};
  const Padding batch = padding(Topology({Full{}}, true), lengths);
  EXPECT_EQ(batch.edges, Int128{473972736});
  EXPECT_EQ(batch.padded_edges, Int128{2} * 30720 * 30721 / 2);
  EXPECT_EQ(batch.padded_tokens, Int128{61440});
  EXPECT_NEAR(batch.token_waste, (61440.0 - 32768) / 32768, 1e-12);
  EXPECT_EQ(padding(Topology({Full{}}, true), {}).edge_waste, 0);
}

TEST(SharedPrefix, IsHeldOnce) {
  const std::vector<std::int64_t> suffixes = {100, 200, 300};
  const PrefixBytes bytes = shared_prefix_bytes(4096, suffixes, 131072);
  EXPECT_EQ(bytes.shared.value(), Int128{615514112});
  EXPECT_EQ(bytes.copied.value(), Int128{1689255936});
}

TEST(Selector, BytesOfIndexAndChoice) {
  const std::int64_t kv = 2 * 8 * 128 * 2;
  EXPECT_NEAR(index_byte_ratio(4, kv), 0.0009765625, 1e-15);
  EXPECT_NEAR(selector_byte_ratio(128, kv, 2048, 65536), 128.0 / kv + 2048.0 / 65536, 1e-15);
  EXPECT_NEAR(selector_byte_ratio(0, kv, 2048, 1024), 1, 1e-15);  // all of a short history
}

TEST(TruncationError, EqualsTheDifferenceOfTheOutputs) {
  const std::vector<double> weights = {0.4, 0.3, 0.2, 0.1};
  const std::vector<std::vector<double>> values = {{1, 2}, {3, -1}, {0, 5}, {7, 7}};
  const double tau = 0.2 + 0.1;  // keys 2 and 3 are removed
  std::vector<double> kept(2), removed(2), full(2);
  for (std::size_t dim = 0; dim < 2; ++dim) {
    for (std::size_t key = 0; key < 4; ++key) {
      const double part = weights[key] * values[key][dim];
      full[dim] += part;
      (key < 2 ? kept : removed)[dim] += part / (key < 2 ? 1 - tau : tau);
    }
  }
  const std::vector<double> error = truncation_error(tau, kept, removed);
  for (std::size_t dim = 0; dim < 2; ++dim) EXPECT_NEAR(error[dim], full[dim] - kept[dim], 1e-12);
  EXPECT_THROW(truncation_error(0.5, kept, std::vector<double>{1.0}), Error);
}

}  // namespace
}  // namespace lacuna

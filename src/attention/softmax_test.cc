#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

// Scores and their softmax: extremes, softcap, bias, learned sinks.

namespace lacuna {
namespace {

using cases::Case;
using cases::expect_definition;
using cases::filled;
using cases::How;
using cases::how_in;
using cases::idx;
using cases::last_rows;
using cases::whole;

// One query that reads keys of exactly these scores; the value of key j is 1 in dim j.
Case scored(const std::vector<double>& scores, DType dtype = DType::kF32) {
  Case c;
  const auto n = static_cast<std::int64_t>(scores.size());
  c.shape = {"one", 1, 1, 1, std::min<std::int64_t>(n, 8)};
  c.q_dtype = c.kv_dtype = dtype;
  c.sequences = {last_rows(1, n)};
  c.sm_scale = 1.0F;
  c = filled(std::move(c));
  c.q.data = {1};
  for (std::size_t j = 0; j < scores.size(); ++j) {
    c.k[0].data[j] = stored::nearest(scores[j], dtype);
  }
  std::fill(c.v[0].data.begin(), c.v[0].data.end(), 0);
  for (std::int64_t key = 0; key < c.shape.v_head_dim; ++key) c.v[0].at(key, 0, key) = 1;
  return c;
}

// Random keys whose scores are what `score` says of their position: dim 0 carries it.
template <typename Score>
Case shaped(std::int64_t length, std::int64_t rows, Score score) {
  Case c;
  c.shape = {"shaped", 2, 1, 8, 8};
  c.sequences = {last_rows(rows, length)};
  c.sm_scale = 1.0F;
  c = filled(std::move(c), 21);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < 2; ++head) c.q.at(row, head, 0) = 1;
  }
  for (std::int64_t key = 0; key < length; ++key) {
    c.k[0].at(key, 0, 0) = static_cast<float>(score(static_cast<double>(key)));
  }
  return c;
}

// ---- Extremes -----------------------------------------------------------------------------------

TEST(IsaSoftmax, OneKeyGivesItsValueBitForBit) {
  for (DType dtype : kDTypes) {
    Case c;
    c.shape = {"heads", 4, 2, 20, 20};
    c.q_dtype = c.kv_dtype = dtype;
    c.attend = {{Window{0, 0}}};
    c.sequences = {whole(40)};
    c = filled(std::move(c));
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      for (std::int64_t row = 0; row < 40; ++row) {
        for (std::int64_t head = 0; head < 4; ++head) {
          ASSERT_EQ(got.out.at(row, head, 19), c.v[0].at(row, head / 2, 19)) << to_string(dtype);
        }
      }
    });
  }
}

TEST(IsaSoftmax, BearsScoresOfTenThousandOfBothSigns) {
  expect_definition(scored({1e4, -1e4, 9999, 1e4, 0, -9999.5}));
  expect_definition(scored({-1e4, -1e4, -10001}));
  expect_definition(shaped(200, 5, [](double key) { return std::fmod(key, 3) == 0 ? 1e4 : -1e4; }));
  expect_definition(shaped(200, 5, [](double key) { return key * 100 - 1e4; }));
  expect_definition(shaped(200, 5, [](double key) { return 1e4 - key * 100; }));
}

TEST(IsaSoftmax, BearsALateTileFarAboveTheRunningMaximum) {
  for (double rise : {80.0, 88.0, 100.0, 200.0, 1e4}) {
    SCOPED_TRACE(rise);
    expect_definition(shaped(300, 20, [&](double key) { return key == 270 ? rise : 0.0; }));
    expect_definition(shaped(300, 3, [&](double key) { return key >= 256 ? rise : 0.0; }));
    expect_definition(shaped(300, 3, [&](double key) { return key < 16 ? rise : 0.0; }));
  }
}

TEST(IsaSoftmax, BearsAMaximumThatRisesOrFallsInEveryTile) {
  for (double step : {0.5, 5.0, 80.0, -0.5, -5.0, -80.0}) {
    SCOPED_TRACE(step);
    expect_definition(shaped(260, 18, [&](double key) { return std::floor(key / 16) * step; }));
  }
}

TEST(IsaSoftmaxLong, BearsALateSplitFarAboveTheRunningMaximum) {
  for (double rise : {80.0, -80.0, 1e4, -1e4}) {
    SCOPED_TRACE(rise);
    expect_definition(
        shaped(kSplitTokens + 40, 2, [&](double key) { return key < 4096 ? 0.0 : rise; }));
  }
}

// Some callers spell a mask as a huge negative score: a row of nothing else is still a softmax.
TEST(IsaSoftmax, ARowOfHugeNegativeScoresIsUniform) {
  for (double score : {-1e30, -1e38, 1e30, 1e38}) {
    SCOPED_TRACE(score);
    const float held = static_cast<float>(score);
    const Case c = scored({held, held, held, held});
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      for (double weight : got.out.data) EXPECT_EQ(weight, 0.25);
      EXPECT_NEAR(got.lse[0], held, std::abs(held) * 1e-6);
    });
  }
}

// 32 · 32 · 128 is more than f16 can hold; so is a sum of values.
TEST(IsaSoftmax, AccumulatesWiderThanTheInputs) {
  for (const std::optional<float> scale : {std::optional<float>(), std::optional<float>(1.0F)}) {
    Case c;
    c.shape = {"wide", 1, 1, 128, 4};
    c.q_dtype = c.kv_dtype = DType::kF16;
    c.sm_scale = scale;
    c.sequences = {last_rows(2, 65)};
    c = filled(std::move(c));
    for (double& q : c.q.data) q = 32;
    for (double& k : c.k[0].data) k = 32;
    for (double& v : c.v[0].data) v = 60000;
    cases::for_each_isa([&](const std::string& isa) {
      for (DType out : {DType::kF32, DType::kF16}) {
        How how = how_in(isa);
        how.out_dtype = out;
        const auto got = cases::answer(c, how);
        for (double value : got.out.data) EXPECT_NEAR(value, 60000, out == DType::kF32 ? 0.1 : 32);
      }
    });
  }
}

TEST(IsaSoftmax, SumsManyEqualWeightsInF32) {
  for (const auto& [dtype, n] : {std::pair(DType::kF16, 4096), std::pair(DType::kBf16, 512),
                                 std::pair(DType::kBf16, 5000), std::pair(DType::kF16, 5000)}) {
    const Case c = scored(std::vector<double>(idx(n), 0.5), dtype);
    const double weight = 1.0 / n;
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      for (double value : got.out.data) EXPECT_NEAR(value, weight, weight * 1e-6);
      EXPECT_NEAR(got.lse[0], 0.5 - std::log(weight), 1e-5);
    });
  }
}

// The value sum too: the same value for every key must come out as it went in.
TEST(IsaSoftmax, AveragesEqualValuesToThatValue) {
  for (DType dtype : kDTypes) {
    Case c;
    c.shape = {"heads", 2, 1, 16, 16};
    c.q_dtype = c.kv_dtype = dtype;
    c.sequences = {last_rows(17, 1000)};
    c = filled(std::move(c));
    for (double& v : c.v[0].data) v = 1.5;
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      // Rounded weights need not sum to the sum of the unrounded ones, but err to both sides.
      const double allowed = 1.5 * (cases::tolerance_of(c, isa).weight / 8 + 1e-5);
      for (double value : got.out.data) ASSERT_NEAR(value, 1.5, allowed) << to_string(dtype);
    });
  }
}

// ---- Softcap ------------------------------------------------------------------------------------

TEST(IsaSoftcap, IsAppliedBeforeTheMask) {
  Case c = scored({2, 3, 5});
  c.sequences = {{{1, 2}, 3}};  // causal: key 2 is masked
  c.softcap = 1;
  cases::for_each_isa([&](const std::string& isa) {
    const auto got = cases::answer(c, how_in(isa));
    EXPECT_NEAR(got.out.at(0, 0, 0), 0.4922, 5e-5);
    EXPECT_NEAR(got.out.at(0, 0, 1), 0.5078, 5e-5);
    EXPECT_EQ(got.out.at(0, 0, 2), 0);
  });
}

TEST(IsaSoftcap, IsTheCapTimesTanh) {
  Case c = scored({124});
  c.softcap = 30;
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_NEAR(cases::answer(c, how_in(isa)).lse[0], 30 * std::tanh(124.0 / 30), 1e-4);
  });
}

TEST(IsaSoftcap, LosesNoDigitOfScoresFarBelowTheCap) {
  for (double score : {0.01, -0.01, 3.0, 12.4, 12.6}) {
    for (float cap : {50.0F, 1e3F, 1e5F, 1e7F, 1e30F}) {
      SCOPED_TRACE(std::to_string(score) + " under " + std::to_string(cap));
      Case c = scored({score});
      c.softcap = cap;
      const double want = static_cast<double>(cap) * std::tanh(score / static_cast<double>(cap));
      cases::for_each_isa([&](const std::string& isa) {
        EXPECT_NEAR(cases::answer(c, how_in(isa)).lse[0], want, std::abs(want) * 1e-6);
      });
    }
  }
}

TEST(IsaSoftcap, FollowsTheDefinitionFromTinyToHugeScores) {
  for (float cap : {0.5F, 1.0F, 30.0F, 50.0F, 1e4F}) {
    SCOPED_TRACE(cap);
    Case c = scored({0, 1e-3, -1e-3, 0.3, -0.3, 4, -4, 100, -100, 1e4, -1e4, 3e7});
    c.softcap = cap;
    expect_definition(c);
    c = shaped(70, 20, [](double key) { return std::sin(key) * 60; });
    c.softcap = cap;
    expect_definition(c);
  }
}

TEST(IsaSoftcap, OfZeroIsOff) {
  const Case off = scored({124, 120});
  Case zero = off;
  zero.softcap = 0;
  Case minus_zero = off;
  minus_zero.softcap = -0.0F;
  expect_definition(off);
  cases::for_each_isa([&](const std::string& isa) {
    const auto want = cases::answer(off, how_in(isa));
    EXPECT_NEAR(want.out.data[0], 1 / (1 + std::exp(-4.0)), 1e-6);
    EXPECT_EQ(cases::other_bits(cases::answer(zero, how_in(isa)), want), "");
    EXPECT_EQ(cases::other_bits(cases::answer(minus_zero, how_in(isa)), want), "");
  });
}

TEST(Softcap, NegativeOrNotFiniteIsRefused) {
  for (float cap : {-1.0F, -30.0F, std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    Case c = scored({1, 2});
    c.softcap = cap;
    EXPECT_THROW(cases::answer(c, {}), Error) << cap;
  }
}

// ---- Bias by distance ---------------------------------------------------------------------------

// Slopes as ALiBi defines them: 2^(-8i/m) for the power of two m below, then every other one of 2m.
std::vector<float> slopes_of(int num_heads) {
  int power = 1;
  while (2 * power <= num_heads) power *= 2;
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / power)));
  for (int i = 1; power + i <= num_heads; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-4.0 * (2 * i - 1) / power)));
  }
  return slopes;
}

TEST(IsaAlibi, FollowsTheDefinitionForTwelveHeads) {
  EXPECT_EQ(slopes_of(12)[7], 0x1p-8F);
  EXPECT_EQ(slopes_of(12)[8], std::exp2f(-0.5F));
  EXPECT_EQ(slopes_of(12)[11], std::exp2f(-3.5F));
  for (bool causal : {true, false}) {
    for (int kv_heads : {12, 4, 1}) {
      for (DType dtype : kDTypes) {
        SCOPED_TRACE(std::to_string(kv_heads) + " " + std::string(to_string(dtype)));
        Case c;
        c.causal = causal;
        c.shape = {"alibi", 12, kv_heads, 12, 12};
        c.q_dtype = c.kv_dtype = dtype;
        c.attend = {{Window{40, causal ? 0 : 9}, GlobalPositions{{3, 30}}}};
        c.sequences = {whole(55)};
        c.alibi_slopes = slopes_of(12);
        expect_definition(filled(std::move(c)));
      }
    }
  }
}

TEST(IsaAlibi, CountsNoDistanceForTheKeyItself) {
  Case c = scored({7, 7, 7});
  c.alibi_slopes = {0.5F};
  cases::for_each_isa([&](const std::string& isa) {
    const auto got = cases::answer(c, how_in(isa));
    const double lse = 7 + std::log(1 + std::exp(-0.5) + std::exp(-1.0));
    EXPECT_NEAR(got.lse[0], lse, 1e-5);
    EXPECT_NEAR(got.out.at(0, 0, 2), std::exp(7 - lse), 1e-6);
    EXPECT_NEAR(got.out.at(0, 0, 0), std::exp(6 - lse), 1e-6);
  });
}

TEST(IsaAlibi, MeasuresFromAbsolutePositionsInEveryChunkAndSequence) {
  Case c;
  c.shape = {"alibi", 2, 1, 8, 8};
  c.sequences = {last_rows(3, 70), whole(20), last_rows(1, 33)};
  c.alibi_slopes = {0.25F, 1};
  expect_definition(filled(c));
  How how;
  how.kv.page_size = 8;
  expect_definition(filled(std::move(c)), how);
}

TEST(IsaAlibi, OfSlopeZeroIsOffAndANegativeSlopePrefersFarKeys) {
  Case c;
  c.shape = {"alibi", 2, 2, 8, 8};
  c.sequences = {whole(50)};
  const Case off = filled(c);
  c.alibi_slopes = {0, 0};
  const Case zero = filled(c);
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_EQ(
        cases::difference(cases::answer(zero, how_in(isa)), cases::definition(off), kF32Tolerance),
        "");
  });
  c.alibi_slopes = {-0.5F, 2};
  expect_definition(filled(c));
}

TEST(IsaAlibiLong, StaysExactFarAway) {
  Case c;
  c.shape = {"alibi", 2, 1, 8, 8};
  c.sequences = {last_rows(2, kSplitTokens + 9)};
  c.alibi_slopes = {0x1p-8F, 0.5F};
  expect_definition(filled(std::move(c)));
}

// ---- Learned sinks ------------------------------------------------------------------------------

TEST(IsaLearnedSink, OfLogitZeroHalvesTheOnlyKeyOfScoreZero) {
  for (DType dtype : kDTypes) {
    Case c = scored({0}, dtype);
    c.sink_logits = {0};
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      EXPECT_EQ(got.out.data[0], 0.5);
      EXPECT_NEAR(got.lse[0], std::log(2.0), 1e-6);
    });
  }
}

TEST(IsaLearnedSink, EntersOnceWhateverTheNumberOfTiles) {
  for (std::int64_t length : {1, 16, 17, 100, 257}) {
    SCOPED_TRACE(length);
    Case c;
    c.shape = {"sinks", 6, 2, 16, 16};
    c.attend = {{Window{120, 0}, GlobalEvery{40, 3}}};
    c.sequences = {whole(length)};
    c.sink_logits = {3, 0, -5, 8, 1, -0.5F};
    expect_definition(filled(std::move(c)));
  }
}

TEST(IsaLearnedSinkLong, EntersOnceWhateverTheNumberOfSplits) {
  Case c;
  c.shape = {"sinks", 2, 1, 8, 8};
  c.sequences = {last_rows(2, 2 * kSplitTokens + 1)};
  c.sink_logits = {9, 4};
  expect_definition(filled(std::move(c)));
}

TEST(IsaLearnedSink, IsThereForARowWithoutKeys) {
  Case c;
  c.shape = {"sinks", 2, 1, 4, 4};
  c.sequences = {whole(3)};
  KeyRanges csr;
  csr.append_row({{0, 2}});
  csr.append_row({});
  csr.append_row({{1, 3}});
  c.key_ranges = {csr};
  c.sink_logits = {-3, 2.5F};
  c = filled(std::move(c));
  expect_definition(c);
  cases::for_each_isa([&](const std::string& isa) {
    const auto got = cases::answer(c, how_in(isa));
    EXPECT_FLOAT_EQ(got.lse[2], -3);
    EXPECT_FLOAT_EQ(got.lse[3], 2.5F);
    for (std::int64_t d = 0; d < 4; ++d) EXPECT_EQ(got.out.at(1, 1, d), 0);
  });
}

TEST(IsaLearnedSink, MayDominateOrVanish) {
  for (float logit : {1e4F, 100.0F, -100.0F, -1e4F}) {
    SCOPED_TRACE(logit);
    Case c;
    c.shape = {"sinks", 2, 1, 8, 8};
    c.sequences = {whole(30)};
    c.sink_logits = {logit, 0.5F};
    expect_definition(filled(std::move(c)));
  }
}

TEST(IsaLearnedSink, MinusInfinityIsNone) {
  Case c;
  c.shape = {"sinks", 2, 1, 8, 8};
  c.sequences = {whole(30)};
  const Case none = filled(c);
  c.sink_logits.assign(2, -std::numeric_limits<float>::infinity());
  const Case sink = filled(std::move(c));
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_EQ(
        cases::difference(cases::answer(sink, how_in(isa)), cases::definition(none), kF32Tolerance),
        "");
  });
}

// o = (1 - σ(b - lse)) times what comes out without a sink.
TEST(IsaLearnedSink, ScalesTheOutputBySigmoid) {
  Case c;
  c.shape = {"sinks", 2, 1, 8, 8};
  c.sequences = {whole(40)};
  const Case without = filled(c);
  c.sink_logits = {1.5F, -1};
  const Case with = filled(c);
  cases::for_each_isa([&](const std::string& isa) {
    const auto a = cases::answer(without, how_in(isa));
    const auto b = cases::answer(with, how_in(isa));
    for (std::int64_t row = 0; row < 40; ++row) {
      for (std::int64_t head = 0; head < 2; ++head) {
        const double lse = a.lse[idx(row * 2 + head)];
        const double share = 1 / (1 + std::exp(c.sink_logits[idx(head)] - lse));
        ASSERT_NEAR(b.out.at(row, head, 5), share * a.out.at(row, head, 5), 2e-6);
      }
    }
  });
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

// Partial results over disjoint keys meet in merge().

namespace lacuna {
namespace {

using cases::Answer;
using cases::Case;
using cases::filled;
using cases::How;
using cases::idx;
using cases::whole;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// [rows, heads, dims] and [rows, heads].
struct State {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t dims = 0;
  std::vector<float> out;
  std::vector<float> lse;

  State() = default;
  State(std::int64_t num_rows, std::int64_t num_heads, std::int64_t num_dims, float fill = 0,
        float fill_lse = -kInf)
      : rows(num_rows),
        heads(num_heads),
        dims(num_dims),
        out(idx(num_rows * num_heads * num_dims), fill),
        lse(idx(num_rows * num_heads), fill_lse) {}

  TensorView view() const { return tensor_view(out.data(), DType::kF32, {rows, heads, dims}); }
  MutableTensorView mutable_view() {
    return mutable_tensor_view(out.data(), DType::kF32, {rows, heads, dims});
  }
  friend bool operator==(const State&, const State&) = default;
};

State merged(const State& a, const State& b, std::span<const float> sinks = {}) {
  State result(a.rows, a.heads, a.dims, kNan, kNan);
  merge(result.mutable_view(), result.lse, a.view(), a.lse, b.view(), b.lse, sinks);
  return result;
}

State random_state(std::mt19937_64& random, double spread) {
  State state(3, 2, 5);
  std::uniform_real_distribution<double> number(-1, 1);
  for (float& value : state.out) value = static_cast<float>(number(random));
  for (float& lse : state.lse) lse = static_cast<float>(number(random) * spread);
  return state;
}

oracle::State row_of(const State& state, std::size_t row) {
  const auto begin = state.out.begin() + static_cast<std::ptrdiff_t>(row * idx(state.dims));
  return {{begin, begin + state.dims}, state.lse[row]};
}

// By definition, row by row.
void expect_merged(const State& got, const std::vector<State>& states,
                   std::span<const float> sinks = {}) {
  for (std::size_t row = 0; row < got.lse.size(); ++row) {
    std::vector<oracle::State> parts;
    for (const State& state : states) parts.push_back(row_of(state, row));
    if (!sinks.empty()) {
      parts.push_back({std::vector<double>(idx(got.dims), 0), sinks[row % idx(got.heads)]});
    }
    const oracle::State want = oracle::merged(parts);
    if (std::isinf(want.lse)) {
      ASSERT_EQ(got.lse[row], want.lse);
    } else {
      ASSERT_NEAR(got.lse[row], want.lse, 1e-6 * (1 + std::abs(want.lse)));
    }
    // A weight's error is that of the difference of two lse, each known to half a unit.
    double largest = 1;
    for (const oracle::State& part : parts) {
      if (std::isfinite(part.lse)) largest = std::max(largest, std::abs(part.lse));
    }
    for (std::size_t d = 0; d < want.out.size(); ++d) {
      ASSERT_NEAR(got.out[row * idx(got.dims) + d], want.out[d], 4e-7 * largest) << row;
    }
  }
}

TEST(Merge, FollowsTheDefinition) {
  std::mt19937_64 random(1);
  for (double spread : {0.1, 3.0, 80.0, 1e4}) {
    for (int round = 0; round < 20; ++round) {
      const State a = random_state(random, spread);
      const State b = random_state(random, spread);
      expect_merged(merged(a, b), {a, b});
      const std::vector<float> sinks = {static_cast<float>(spread), -0.5F};
      expect_merged(merged(a, b, sinks), {a, b}, sinks);
    }
  }
}

TEST(Merge, TakesTheEmptyStateAsAnExactIdentity) {
  std::mt19937_64 random(2);
  const State empty(3, 2, 5);
  for (double spread : {0.1, 3.0, 1e4}) {
    const State a = random_state(random, spread);
    EXPECT_EQ(merged(a, empty), a);
    EXPECT_EQ(merged(empty, a), a);
  }
}

TEST(Merge, OfTwoEmptyStatesIsEmpty) {
  const State empty(2, 3, 4);
  EXPECT_EQ(merged(empty, empty), empty);
}

// What stands in the output of a row without keys must not matter.
TEST(Merge, LooksAtNoOutputOfAnEmptyState) {
  std::mt19937_64 random(3);
  const State a = random_state(random, 1);
  for (float rest : {kNan, kInf, 7.0F}) {
    const State empty(3, 2, 5, rest);
    EXPECT_EQ(merged(a, empty), a) << rest;
    EXPECT_EQ(merged(empty, a), a) << rest;
    EXPECT_EQ(merged(empty, empty), State(3, 2, 5)) << rest;
  }
}

TEST(Merge, RefusesAnLseOfPlusInfinity) {
  std::mt19937_64 random(4);
  const State a = random_state(random, 1);
  State b = a;
  b.lse[3] = kInf;
  State out(3, 2, 5, 9, 9);
  EXPECT_THROW(merge(out.mutable_view(), out.lse, a.view(), a.lse, b.view(), b.lse), Error);
  EXPECT_THROW(merge(out.mutable_view(), out.lse, b.view(), b.lse, a.view(), a.lse), Error);
  EXPECT_EQ(out, State(3, 2, 5, 9, 9)) << "wrote before it refused";
}

TEST(Merge, RefusesALearnedSinkThatIsNoLogit) {
  const State a(1, 2, 3, 1, 0);
  for (float logit : {kNan, kInf}) {
    State out = a;
    const std::vector<float> sinks = {0, logit};
    EXPECT_THROW(merge(out.mutable_view(), out.lse, a.view(), a.lse, a.view(), a.lse, sinks), Error)
        << logit;
  }
}

TEST(Merge, Commutes) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const State a = random_state(random, 5);
    const State b = random_state(random, 5);
    const State ab = merged(a, b);
    const State ba = merged(b, a);
    for (std::size_t i = 0; i < ab.out.size(); ++i) EXPECT_NEAR(ab.out[i], ba.out[i], 1e-6);
    for (std::size_t i = 0; i < ab.lse.size(); ++i) EXPECT_NEAR(ab.lse[i], ba.lse[i], 1e-6);
  }
}

TEST(Merge, IsAssociativeWithinRounding) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>().as("seed"));
    const double spread = *rc::gen::element(0.1, 3.0, 60.0).as("spread of the lse");
    std::vector<State> states;
    for (int i = 0; i < 3; ++i) {
      states.push_back(*rc::gen::arbitrary<bool>().as("empty") ? State(3, 2, 5)
                                                               : random_state(random, spread));
    }
    const auto& [a, b, c] = std::tie(states[0], states[1], states[2]);
    const State left = merged(merged(a, b), c);
    const State right = merged(a, merged(b, c));
    const double allowed = 5e-7 * (1 + spread);
    for (std::size_t i = 0; i < left.out.size(); ++i) {
      RC_ASSERT(std::abs(left.out[i] - right.out[i]) <= allowed);
    }
    for (std::size_t i = 0; i < left.lse.size(); ++i) {
      const bool same = left.lse[i] == right.lse[i];
      RC_ASSERT(same || std::abs(left.lse[i] - right.lse[i]) <= allowed);
    }
  }));
}

TEST(Merge, AddsALearnedSinkOnce) {
  State a(1, 1, 2, 1, 0);  // one key of score 0 and value 1
  const State empty(1, 1, 2);
  const std::vector<float> sink = {0};
  const State halved = merged(a, empty, sink);
  EXPECT_FLOAT_EQ(halved.out[0], 0.5F);
  EXPECT_FLOAT_EQ(halved.lse[0], std::log(2.0F));
  const State only = merged(empty, empty, sink);
  EXPECT_EQ(only.out[0], 0);
  EXPECT_EQ(only.lse[0], 0);
}

TEST(Merge, MayWriteOverEitherInput) {
  std::mt19937_64 random(6);
  const State a = random_state(random, 2);
  const State b = random_state(random, 2);
  const State want = merged(a, b);
  State over_a = a;
  merge(over_a.mutable_view(), over_a.lse, over_a.view(), over_a.lse, b.view(), b.lse);
  EXPECT_EQ(over_a, want);
  State over_b = b;
  merge(over_b.mutable_view(), over_b.lse, a.view(), a.lse, over_b.view(), over_b.lse);
  EXPECT_EQ(over_b, want);
}

TEST(Merge, HonoursStrides) {
  std::mt19937_64 random(7);
  const State a = random_state(random, 2);
  const State b = random_state(random, 2);
  const State want = merged(a, b);
  const auto values = [](const State& state) {
    oracle::Values result(state.rows, state.heads, state.dims);
    result.data.assign(state.out.begin(), state.out.end());
    return result;
  };
  const stored::Tensor far_a(values(a), DType::kF32, {{1, 0, 2}, 1, 3, 1});
  const stored::Tensor far_b(values(b), DType::kF32, {{2, 1, 0}, 2, 0, 1});
  stored::Tensor out(stored::Tensor::Shape{3, 2, 5}, DType::kF32, {{1, 2, 0}, 3, 7, 5});
  std::vector<float> lse(6);
  merge(out.mutable_view(), lse, far_a.view(), a.lse, far_b.view(), b.lse);
  EXPECT_EQ(lse, want.lse);
  EXPECT_TRUE(out.rest_is_untouched());
  const auto got = out.values().data;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want.out[i]);
}

TEST(Merge, RefusesShapesThatDoNotMatch) {
  const State a(3, 2, 5);
  const auto expect_refused = [](const State& x, const State& y, State out,
                                 std::span<const float> sinks = {}) {
    EXPECT_THROW(merge(out.mutable_view(), out.lse, x.view(), x.lse, y.view(), y.lse, sinks),
                 Error);
  };
  expect_refused(a, State(2, 2, 5), a);
  expect_refused(State(3, 1, 5), a, a);
  expect_refused(a, a, State(3, 2, 4));
  const std::vector<float> one_sink = {0};
  expect_refused(a, a, a, one_sink);
  State short_lse = a;
  short_lse.lse.pop_back();
  expect_refused(short_lse, a, a);
  expect_refused(a, short_lse, a);
  expect_refused(a, a, short_lse);
}

TEST(Merge, RefusesOtherDTypes) {
  const State a(3, 2, 5);
  State out = a;
  TensorView narrow = a.view();
  narrow.dtype = DType::kBf16;
  EXPECT_THROW(merge(out.mutable_view(), out.lse, narrow, a.lse, a.view(), a.lse), Error);
  EXPECT_THROW(merge(out.mutable_view(), out.lse, a.view(), a.lse, narrow, a.lse), Error);
}

// ---- What merges are for ------------------------------------------------------------------------

State state_of(const Answer& answer) {
  State state(answer.out.tokens, answer.out.heads, answer.out.dims);
  state.out.assign(answer.out.data.begin(), answer.out.data.end());
  state.lse = answer.lse;
  return state;
}

// Each row of the case reads the keys below `cut`, or those from it on.
Case half_of(const Case& all, std::int64_t cut, bool first) {
  Case half = all;
  const auto length = all.sequences[0].length;
  const Range kept = first ? Range{0, cut} : Range{cut, length};
  KeyRanges csr;
  for (std::int64_t row = 0; row < length; ++row) {
    csr.append_row(clip(cases::topologies(all)[0].row(row, length), kept));
  }
  half.key_ranges.assign(idx(all.shape.num_kv_heads), csr);
  half.sink_logits.clear();
  return half;
}

Case whole_case(DType dtype) {
  Case c;
  c.shape = {"heads", 4, 2, 16, 12};
  c.q_dtype = c.kv_dtype = dtype;
  c.attend = {{Window{40, 0}, Sink{5}}};
  c.sequences = {whole(70)};
  return filled(std::move(c), 61);
}

TEST(IsaMerge, OfDisjointKeySetsIsTheUnion) {
  for (DType dtype : kDTypes) {
    Case all = whole_case(dtype);
    for (bool with_sink : {false, true}) {
      if (with_sink) all.sink_logits = {0, 2, -1, 5};
      const oracle::Attended want = cases::definition(all);
      cases::for_each_isa([&](const std::string& isa) {
        for (std::int64_t cut : {0, 1, 16, 33, 70}) {
          How how;
          how.isa = isa;
          const State a = state_of(cases::answer(half_of(all, cut, true), how));
          const State b = state_of(cases::answer(half_of(all, cut, false), how));
          const State got = merged(a, b, all.sink_logits);
          Answer answer;
          answer.out = oracle::Values(70, 4, 12);
          answer.out.data.assign(got.out.begin(), got.out.end());
          answer.lse = got.lse;
          EXPECT_EQ(cases::difference(answer, want, cases::tolerance_of(all, isa)), "")
              << "cut at " << cut;
        }
      });
    }
  }
}

// o - o^ = tau (mu_T - mu_S): what a sparse result loses is the dropped mass times the difference
// of the means; and lse_dense - lse_sparse = -ln(1 - tau). With a learned sink o^ takes mu_S's
// place.
TEST(IsaTruncation, LosesTheDroppedMassTimesTheDifferenceOfMeans) {
  for (bool with_sink : {false, true}) {
    Case dense;
    dense.shape = {"heads", 2, 1, 16, 12};
    dense.sequences = {whole(60)};
    dense = filled(std::move(dense), 62);
    Case kept = dense;
    kept.attend = {{Window{9, 0}, Sink{2}}};
    Case dropped = dense;
    KeyRanges csr;
    for (std::int64_t row = 0; row < 60; ++row) {
      csr.append_row(subtract(cases::topologies(dense)[0].row(row, 60),
                              cases::topologies(kept)[0].row(row, 60)));
    }
    dropped.key_ranges = {csr};
    if (with_sink) dense.sink_logits = kept.sink_logits = {1, -1};
    cases::for_each_isa([&](const std::string& isa) {
      How how;
      how.isa = isa;
      const Answer all = cases::answer(dense, how);
      const Answer some = cases::answer(kept, how);
      const Answer rest = cases::answer(dropped, how);
      for (std::size_t i = 0; i < all.lse.size(); ++i) {
        const double tau = std::exp(static_cast<double>(rest.lse[i]) - all.lse[i]);
        // An error of an lse grows as tau nears 1.
        EXPECT_NEAR(all.lse[i] - some.lse[i], -std::log1p(-tau), 1e-6 / (1 - tau));
        for (std::size_t d = i * 12; d < (i + 1) * 12; ++d) {
          EXPECT_NEAR(all.out.data[d] - some.out.data[d],
                      tau * (rest.out.data[d] - some.out.data[d]), 5e-6);
        }
      }
    });
  }
}

}  // namespace
}  // namespace lacuna

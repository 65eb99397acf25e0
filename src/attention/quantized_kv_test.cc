#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/kv_pack.h"

// Keys and values in int8 and int4: exactly as their dequantized selves where that is asked for,
// else within the bound of attention.h.

namespace lacuna {
namespace {

using cases::Answer;
using cases::Case;
using cases::filled;
using cases::How;
using cases::how_in;
using cases::idx;
using cases::last_rows;
using cases::whole;

constexpr const char* kAttends[] = {"full", "window(17)+sink(3)", "window(20)+global(3,40,41,90)",
                                    "heads(0: full; 1: window(9); 2: sink(2); 3: window(40))"};

struct Dims {
  DType dtype;
  std::int64_t k;
  std::int64_t v;
};
constexpr Dims kDims[] = {{DType::kInt8, 1, 1},   {DType::kInt8, 7, 40},  {DType::kInt8, 40, 7},
                          {DType::kInt8, 72, 80}, {DType::kInt8, 64, 64}, {DType::kInt4, 32, 32},
                          {DType::kInt4, 96, 64}, {DType::kInt4, 64, 160}};

Case case_of(const Dims& dims, const char* attend, DType q = DType::kF32) {
  Case c;
  c.shape = {"heads", 4, 2, static_cast<int>(dims.k), static_cast<int>(dims.v)};
  c.q_dtype = q;
  c.kv_dtype = dims.dtype;
  c.attend = cases::unions(attend, true, 4);
  c.sequences = {last_rows(20, 300), whole(33), last_rows(1, 17), {{3, 3}, 5}};
  return filled(std::move(c), 11);
}

Case with_every_option(Case c) {
  c.softcap = 4;
  c.alibi_slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  c.sink_logits = {1, -2, 0, 3};
  return c;
}

// The same numbers, held in f32.
Case dequantized(Case c) {
  c.kv_dtype = DType::kF32;
  return c;
}

How exactly(How how) {
  how.exact_kv = true;
  return how;
}

// ---- Exact mode ---------------------------------------------------------------------------------

TEST(IsaQuantizedKv, ReadExactlyHasTheBitsOfItsDequantizedSelf) {
  for (const Dims& dims : kDims) {
    for (const char* attend : kAttends) {
      for (DType q : {DType::kF32, DType::kBf16}) {
        if (q == DType::kBf16 && attend != kAttends[1]) continue;
        SCOPED_TRACE(std::string(to_string(dims.dtype)) + " " + std::to_string(dims.k) + " " +
                     attend);
        const Case c = case_of(dims, attend, q);
        cases::for_each_isa([&](const std::string& isa) {
          const Answer want = cases::answer(dequantized(c), how_in(isa));
          ASSERT_EQ(cases::other_bits(cases::answer(c, exactly(how_in(isa))), want), "");
          ASSERT_EQ(cases::other_bits(cases::answer(c, exactly(how_in(isa, 32))), want), "");
        });
      }
    }
  }
}

TEST(IsaQuantizedKv, ReadExactlyHasTheseBitsWithEveryOptionAndTheUsualWay) {
  for (const Dims& dims : {kDims[3], kDims[7]}) {
    const Case c = with_every_option(case_of(dims, kAttends[2]));
    const Plan plan = cases::plan_of(c);
    cases::for_each_isa([&](const std::string& isa) {
      for (cases::Path path : {cases::Path::kRun, cases::Path::kMaskedDense}) {
        const Answer want = cases::answer_with(plan, dequantized(c), how_in(isa), path);
        const Answer got = cases::answer_with(plan, c, exactly(how_in(isa)), path);
        ASSERT_EQ(cases::other_bits(got, want), "");
      }
    });
  }
}

TEST(IsaQuantizedKv, ReadExactlyLiesWithinTheToleranceOfTheDefinition) {
  How how;
  how.exact_kv = true;
  cases::expect_definition(case_of(kDims[3], kAttends[2]), how);
  cases::expect_definition(case_of(kDims[7], kAttends[1]), how);
}

// ---- Whole numbers ------------------------------------------------------------------------------

// max |x| of each vector, or group of dims, and Σ |x| of each vector: [token, head, …].
struct Sizes {
  Sizes(const oracle::Values& x, std::int64_t group)
      : largest(x.tokens, x.heads, x.dims), sum(x.tokens, x.heads, 1) {
    for (std::int64_t t = 0; t < x.tokens; ++t) {
      for (std::int64_t h = 0; h < x.heads; ++h) {
        for (std::int64_t first = 0; first < x.dims; first += group) add(x, t, h, {first, group});
      }
    }
  }
  oracle::Values largest;  // repeated for each dim
  oracle::Values sum;

 private:
  struct Dims {
    std::int64_t first;
    std::int64_t count;
  };
  void add(const oracle::Values& x, std::int64_t t, std::int64_t h, const Dims& dims) {
    double most = 0;
    for (std::int64_t d = dims.first; d < dims.first + dims.count; ++d) {
      most = std::max(most, std::abs(x.at(t, h, d)));
      sum.at(t, h, 0) += std::abs(x.at(t, h, d));
    }
    for (std::int64_t d = dims.first; d < dims.first + dims.count; ++d) largest.at(t, h, d) = most;
  }
};

// What attention.h allows, beside f32's rounding: [rows, heads] and [rows, heads, v_head_dim].
struct Bounds {
  std::vector<double> score;
  std::vector<double> out;
};

class BoundsOfCase {
 public:
  explicit BoundsOfCase(const Case& c) : c_(c), want_(cases::definition(c)), q_(c.q, c.q.dims) {
    std::int64_t row = 0;
    for (std::size_t s = 0; s < c.sequences.size(); ++s) {
      const std::vector<oracle::Matrix> reads = cases::reads_of(c, s);
      const Sizes k(c.k[s], c.shape.head_dim);
      const Sizes v(c.v[s], c.kv_dtype == DType::kInt8 ? c.shape.v_head_dim : 32);
      for (std::size_t r = 0; r < reads[0].size(); ++r, ++row) {
        for (std::int64_t h = 0; h < c.shape.num_q_heads; ++h) {
          add(s, oracle::reads_of_head(reads, h)[r], k, v, {row, h});
        }
      }
    }
  }
  const oracle::Attended& want() const { return want_; }
  const Bounds& bounds() const { return bounds_; }

 private:
  struct Place {
    std::int64_t row;
    std::int64_t head;
  };
  void add(std::size_t s, const oracle::Row& reads, const Sizes& k, const Sizes& v,
           const Place& place) {
    const std::int64_t kv_head = place.head / (c_.shape.num_q_heads / c_.shape.num_kv_heads);
    const double q_scale = q_.largest.at(place.row, place.head, 0) / 127;
    const double limit = c_.kv_dtype == DType::kInt8 ? 127 : 7;
    double size = 0;
    std::vector<double> farthest(idx(c_.shape.v_head_dim));
    std::vector<double> scale(farthest.size());
    for (std::size_t key = 0; key < reads.size(); ++key) {
      if (!reads[key]) continue;
      const auto token = static_cast<std::int64_t>(key);
      size = std::max(size, k.sum.at(token, kv_head, 0));
      for (std::size_t d = 0; d < farthest.size(); ++d) {
        const auto dim = static_cast<std::int64_t>(d);
        const double out = want_.out.at(place.row, place.head, dim);
        farthest[d] = std::max(farthest[d], std::abs(c_.v[s].at(token, kv_head, dim) - out));
        if (!c_.sink_logits.empty()) farthest[d] = std::max(farthest[d], std::abs(out));
        scale[d] = std::max(scale[d], v.largest.at(token, kv_head, dim) / limit);
      }
    }
    const double score = std::abs(cases::rule_of(c_).scale) * q_scale / 2 * size;
    bounds_.score.push_back(score);
    for (std::size_t d = 0; d < farthest.size(); ++d) {
      bounds_.out.push_back(std::expm1(2 * score) * farthest[d] + limit / 255.9 * scale[d]);
    }
  }

  const Case& c_;
  oracle::Attended want_;
  Sizes q_;
  Bounds bounds_;
};

struct Worst {
  double lse = 0;        // of the bound
  double out = 0;        // of the bound
  double out_error = 0;  // absolute
};

// The largest errors, as shares of what is allowed.
Worst worst_of(const BoundsOfCase& allowed, const Answer& got) {
  const oracle::Attended& want = allowed.want();
  Worst worst;
  const std::size_t dims = want.out.data.size() / want.lse.size();
  const auto share = [](double error, double of) {
    return std::isnan(error) ? HUGE_VAL : error / of;
  };
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    const double rounding = kF32Tolerance.score * want.size[i] + kF32Tolerance.sum;
    if (got.lse[i] != want.lse[i]) {
      const double error = std::abs(static_cast<double>(got.lse[i]) - want.lse[i]);
      worst.lse = std::max(worst.lse, share(error, allowed.bounds().score[i] +
                                                       rounding * (1 + std::abs(want.lse[i]))));
    }
    for (std::size_t d = i * dims; d < (i + 1) * dims; ++d) {
      const double error = std::abs(got.out.data[d] - want.out.data[d]);
      worst.out = std::max(worst.out, share(error, allowed.bounds().out[d] +
                                                       4 * rounding * want.spread.data[d] + 1e-30));
      worst.out_error = std::max(worst.out_error, error);
    }
  }
  return worst;
}

// Some dims of K and V, and some vectors, are far larger than the others.
Case with_outliers(Case c) {
  for (auto* all : {&c.k, &c.v}) {
    for (oracle::Values& x : *all) {
      for (std::int64_t t = 0; t < x.tokens; ++t) {
        for (std::int64_t h = 0; h < x.heads; ++h) {
          for (std::int64_t d = 0; d < x.dims; ++d) {
            if (d % 37 == 5) x.at(t, h, d) *= 12;
            if (t % 29 == 3) x.at(t, h, d) *= 8;
          }
        }
      }
      stored::quantize(x, c.kv_dtype);
    }
  }
  return c;
}

TEST(IsaQuantizedKv, StaysWithinTheStatedBoundAndIsNotExact) {
  for (const Dims& dims : kDims) {
    for (const char* attend : kAttends) {
      const Case plain = case_of(dims, attend);
      for (const Case& c : {plain, with_every_option(plain), with_outliers(plain)}) {
        SCOPED_TRACE(std::string(to_string(dims.dtype)) + " " + std::to_string(dims.k) + " " +
                     attend);
        const BoundsOfCase allowed(c);
        cases::for_each_isa([&](const std::string& isa) {
          const Worst worst = worst_of(allowed, cases::answer(c, how_in(isa)));
          EXPECT_LE(worst.lse, 1);
          EXPECT_LE(worst.out, 1);
          if (dims.k > 7) {
            EXPECT_GT(worst.out, 1e-3);
          }
        });
      }
    }
  }
}

TEST(IsaQuantizedKv, SumsOfWholeNumbersAreThoseOfEveryInstructionSet) {
  for (const Dims& dims : kDims) {
    const Case c = case_of(dims, "full");
    const Answer first = cases::answer(c, how_in(kernel_isas().front()));
    cases::for_each_isa([&](const std::string& isa) {
      const Answer got = cases::answer(c, how_in(isa));
      for (std::size_t i = 0; i < got.lse.size(); ++i) {
        if (std::isinf(first.lse[i])) continue;
        ASSERT_NEAR(got.lse[i], first.lse[i], 1e-5) << i;
      }
      for (std::size_t i = 0; i < got.out.data.size(); ++i) {
        // One weight in int16 may fall to the other side.
        ASSERT_NEAR(got.out.data[i], first.out.data[i], 3e-4) << i;
      }
    });
  }
}

TEST(IsaQuantizedKv, CountsALearnedSinkOnceForEveryStoredType) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4}) {
    for (bool exact : {false, true}) {
      Case c;
      c.shape = {"one", 1, 1, 32, 32};
      c.kv_dtype = dtype;
      c.sequences = {whole(1)};
      c.sink_logits = {0};
      c = filled(std::move(c));
      std::fill(c.q.data.begin(), c.q.data.end(), 0);
      std::fill(c.v[0].data.begin(), c.v[0].data.end(), 1);
      How how;
      how.exact_kv = exact;
      how.kv.packed = true;
      cases::for_each_isa([&](const std::string& isa) {
        how.isa = isa;
        const Answer got = cases::answer(c, how);
        EXPECT_NEAR(got.lse[0], std::log(2.0), 1e-6);
        // 1 is stored as 127 · (1/127 in 11 bits), or 7 of a seventh
        for (double x : got.out.data) EXPECT_NEAR(x, 0.5, is_quantized(dtype) ? 3e-4 : 1e-6);
      });
    }
  }
}

TEST(IsaQuantizedKv, ShowsScalesOfKeysAndValuesThatChangedPlaces) {
  for (DType dtype : {DType::kInt8, DType::kInt4}) {
    Case c = case_of({dtype, 64, 64}, "full");
    for (double& x : c.k[0].data) x *= 0.25;
    cases::KvMemory memory(c, {});
    KvView swapped = memory.view();
    std::swap(swapped.k_scales, swapped.v_scales);
    const Plan plan = cases::plan_of(c);
    const stored::Tensor q(c.q, c.q_dtype);
    cases::for_each_isa([&](const std::string& isa) {
      for (bool exact : {false, true}) {
        AttentionOptions options;
        options.isa = isa;
        options.exact_kv = exact;
        const auto out_of = [&](const KvView& kv) {
          cases::Workspace workspace(workspace_bytes(plan, q.view(), kv, options));
          stored::Tensor out(stored::Tensor::Shape{c.num_rows(), 4, 64}, DType::kF32);
          run(out.mutable_view(), {}, plan, q.view(), kv, workspace.span(), options);
          return out.values();
        };
        const oracle::Values right = out_of(memory.view());
        const oracle::Values wrong = out_of(swapped);
        double apart = 0;
        for (std::size_t i = 0; i < right.data.size(); ++i) {
          apart = std::max(apart, std::abs(right.data[i] - wrong.data[i]));
        }
        EXPECT_GT(apart, 0.1);
      }
    });
  }
}

// ---- What is not finite -------------------------------------------------------------------------

TEST(IsaQuantizedKv, KeepsKeysThatAreNotFiniteFromRowsThatMayNotReadThem) {
  for (DType dtype : {DType::kInt8, DType::kInt4}) {
    for (bool exact : {false, true}) {
      for (const char* attend : {"window(17)", "window(9)+global(25)"}) {
        Case clean;
        clean.shape = {"heads", 4, 2, 32, 64};
        clean.kv_dtype = dtype;
        clean.attend = cases::unions(attend, true, 4);
        clean.sequences = {whole(50)};
        clean = filled(std::move(clean));
        Case spoiled = clean;
        spoiled.k[0].at(25, 0, 7) = spoiled.k[0].at(25, 1, 7) = HUGE_VAL;
        spoiled.v[0].at(25, 0, 40) = spoiled.v[0].at(25, 1, 3) = std::nan("");
        cases::for_each_isa([&](const std::string& isa) {
          How how = how_in(isa);
          how.exact_kv = exact;
          const Answer want = cases::answer(clean, how);
          const Answer got = cases::answer(spoiled, how);
          const oracle::Matrix reads = cases::reads_of(clean, 0)[0];
          for (std::int64_t row = 0; row < 50; ++row) {
            if (!reads[idx(row)][25]) {
              ASSERT_EQ(cases::other_bits(got, row, want, row, 1), "") << row;
              continue;
            }
            for (std::int64_t h = 0; h < 4; ++h) {
              EXPECT_TRUE(std::isnan(got.lse[idx(row * 4 + h)])) << row;
              EXPECT_TRUE(std::isnan(got.out.at(row, h, 40))) << row;
            }
          }
        });
      }
    }
  }
}

TEST(IsaQuantizedKv, GivesNanForARowOfQThatIsNotFiniteAndNoOther) {
  Case c = case_of({DType::kInt8, 40, 40}, "full");
  const Case clean = c;
  c.q.at(5, 2, 3) = -HUGE_VAL;
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer(clean, how_in(isa));
    const Answer got = cases::answer(c, how_in(isa));
    for (std::int64_t row = 0; row < c.num_rows(); ++row) {
      for (std::int64_t h = 0; h < 4; ++h) {
        const bool bad = row == 5 && h == 2;
        EXPECT_EQ(std::isnan(got.lse[idx(row * 4 + h)]), bad);
        EXPECT_EQ(std::isnan(got.out.at(row, h, 0)), bad);
        if (!bad) {
          EXPECT_EQ(got.out.at(row, h, 0), want.out.at(row, h, 0));
        }
      }
    }
  });
}

TEST(IsaQuantizedKv, ReadsVectorsOfZerosAndScalesOfNothingAsZeros) {
  for (DType dtype : {DType::kInt8, DType::kInt4}) {
    Case c = case_of({dtype, 32, 32}, "full");
    for (oracle::Values* x : {&c.q, &c.k[0], &c.v[1]}) std::fill(x->data.begin(), x->data.end(), 0);
    const BoundsOfCase allowed(c);
    cases::for_each_isa([&](const std::string& isa) {
      const Worst worst = worst_of(allowed, cases::answer(c, how_in(isa)));
      EXPECT_LE(worst.lse, 1);
      EXPECT_LE(worst.out, 1);
    });
  }
}

// ---- Ledger and mass ----------------------------------------------------------------------------

TEST(IsaQuantizedKv, CountsTheBytesThatAreStoredScalesIncluded) {
  cases::for_each_isa([&](const std::string& isa) {
    for (bool exact : {false, true}) {
      How how = how_in(isa);
      how.exact_kv = exact;
      const Ledger int8 = cases::answer(case_of({DType::kInt8, 64, 40}, "full"), how).ledger;
      EXPECT_EQ(int8.loaded_bytes, int8.loaded_keys * (64 + 2 + 40 + 2));
      const Ledger int4 = cases::answer(case_of({DType::kInt4, 64, 32}, "full"), how).ledger;
      EXPECT_EQ(int4.loaded_bytes, int4.loaded_keys * (32 + 4 + 16 + 2));
      EXPECT_GT(int4.distinct_bytes, 0);
    }
  });
}

TEST(IsaQuantizedKv, GivesAMassOfOneARow) {
  for (const Dims& dims : {kDims[3], kDims[7]}) {
    for (const char* attend : kAttends) {
      const Case c = case_of(dims, attend);
      const cases::KvMemory memory(c, {});
      const Plan plan = cases::plan_of(c);
      const stored::Tensor q(c.q, c.q_dtype);
      cases::for_each_isa([&](const std::string& isa) {
        AttentionOptions options;
        options.isa = isa;
        cases::Workspace workspace(workspace_bytes(plan, q.view(), memory.view(), options));
        const Answer got = cases::answer(c, how_in(isa));
        std::vector<float> mass(4 * (300 + 33 + 17 + 5));
        column_mass(mass, plan, q.view(), memory.view(), got.lse, workspace.span(), options);
        double sum = 0;
        for (float x : mass) sum += static_cast<double>(x);
        double rows = 0;
        for (float lse : got.lse) rows += std::isinf(lse) ? 0 : 1;
        EXPECT_NEAR(sum, rows, 1e-4 * rows);
      });
    }
  }
}

}  // namespace
}  // namespace lacuna

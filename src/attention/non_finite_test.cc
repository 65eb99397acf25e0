#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"

// Non-finite numbers: without effect in keys that no row reads, and without effect on the rows that
// may not read them where others may.

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

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = oracle::kInfinity;

enum class Where { kKeys, kValues, kBoth };

// Puts `number` into every dim of the key for every KV head.
void poison(Case& c, std::size_t sequence, std::int64_t key, double number, Where where) {
  for (std::int64_t head = 0; head < c.shape.num_kv_heads; ++head) {
    for (std::int64_t d = 0; where != Where::kValues && d < c.shape.head_dim; ++d) {
      c.k[sequence].at(key, head, d) = number;
    }
    for (std::int64_t d = 0; where != Where::kKeys && d < c.shape.v_head_dim; ++d) {
      c.v[sequence].at(key, head, d) = number;
    }
  }
}

// Whether any head of the row reads the key.
bool reads(const std::vector<oracle::Matrix>& matrices, std::int64_t row, std::int64_t key) {
  for (const oracle::Matrix& matrix : matrices) {
    if (matrix[idx(row)][idx(key)]) return true;
  }
  return false;
}

Case some_case(const char* attend, DType dtype, SequenceRows rows, bool causal = true) {
  Case c;
  c.shape = {"heads", 4, 2, 12, 20};
  c.q_dtype = c.kv_dtype = dtype;
  c.causal = causal;
  c.attend = cases::unions(attend, causal, 4);
  c.sequences = {rows};
  return filled(std::move(c), 31);
}

// ---- Keys that no row reads ---------------------------------------------------------------------

// The answer must have the bits that it has with zeros there.
void expect_unread_keys_have_no_effect(const Case& c) {
  const oracle::Row read = cases::read_by_any(c, 0);
  for (double number : {kNan, kInf, -kInf}) {
    Case poisoned = c;
    Case zeroed = c;
    for (std::int64_t key = 0; key < c.sequences[0].length; ++key) {
      if (read[idx(key)]) continue;
      poison(poisoned, 0, key, number, Where::kBoth);
      poison(zeroed, 0, key, 0, Where::kBoth);
    }
    cases::for_each_isa([&](const std::string& isa) {
      for (std::int64_t page_size : {0, 7}) {
        const Answer want = cases::answer(zeroed, how_in(isa, page_size));
        EXPECT_EQ(cases::other_bits(cases::answer(poisoned, how_in(isa, page_size)), want), "")
            << number << ", pages of " << page_size;
        EXPECT_EQ(cases::difference(want, cases::definition(zeroed), cases::tolerance_of(c, isa)),
                  "");
      }
    });
  }
}

TEST(IsaNonFinite, KeysThatNoRowReadsHaveNoEffect) {
  for (DType dtype : kDTypes) {
    SCOPED_TRACE(to_string(dtype));
    expect_unread_keys_have_no_effect(some_case("window(7)", dtype, last_rows(11, 50)));
    expect_unread_keys_have_no_effect(some_case("window(3)+sink(2)", dtype, last_rows(1, 37)));
    expect_unread_keys_have_no_effect(some_case("dilated(6,5)", dtype, last_rows(1, 49)));
    expect_unread_keys_have_no_effect(some_case("window(4)+global(9,25)", dtype, last_rows(3, 60)));
    expect_unread_keys_have_no_effect(
        some_case("heads(0: window(3); 1-2: sink(4); 3: window(2)+global(every=20))", dtype,
                  last_rows(2, 55)));
    expect_unread_keys_have_no_effect(some_case("window(2,3)", dtype, {{20, 25}, 60}, false));
  }
}

TEST(IsaNonFinite, KeysThatNoRowReadsNeedNoPage) {
  for (const auto& [attend, rows] :
       {std::pair("window(7)", last_rows(2, 60)), std::pair("window(3)+sink(2)", last_rows(2, 60)),
        std::pair("window(4)+global(9,25)", last_rows(2, 60)),
        std::pair("dilated(6,5)", last_rows(1, 60)),
        std::pair("window(4)+global(9,25,40)", SequenceRows{{20, 24}, 60}),
        std::pair("window(2)+global(every=16)", SequenceRows{{20, 24}, 90})}) {
    SCOPED_TRACE(attend);
    const Case c = some_case(attend, DType::kF32, rows);
    for (std::int64_t page_size : {1, 4, 7, 16}) {
      SCOPED_TRACE(page_size);
      cases::for_each_isa([&](const std::string& isa) {
        How how = how_in(isa, page_size);
        const Answer want = cases::answer(c, how);
        how.kv.null_unread = true;
        EXPECT_EQ(cases::other_bits(cases::answer(c, how), want), "");
      });
    }
  }
}

// Slots past the last key of a page, pages of others and rows between sequences are NaN in every
// test; here the same question with nothing around it.
TEST(IsaNonFinite, NumbersAroundTheKeysHaveNoEffect) {
  for (std::int64_t length : {5, 13, 17}) {
    for (DType dtype : kDTypes) {
      const Case c = some_case("full", dtype, whole(length));
      cases::for_each_isa([&](const std::string& isa) {
        const Answer contiguous = cases::answer(c, how_in(isa));
        for (std::int64_t page_size : {4, 8, 16}) {
          EXPECT_EQ(cases::other_bits(cases::answer(c, how_in(isa, page_size)), contiguous), "");
        }
        EXPECT_EQ(cases::difference(contiguous, cases::definition(c), cases::tolerance_of(c, isa)),
                  "");
      });
    }
  }
}

TEST(IsaNonFinite, ASequenceWithoutTokensTouchesNoPage) {
  Case c;
  c.shape = {"heads", 2, 1, 8, 8};
  c.sequences = {whole(0), whole(17), whole(0)};
  c = filled(std::move(c));
  Case alone = c;
  alone.sequences = {whole(17)};
  alone.k = {c.k[1]};
  alone.v = {c.v[1]};
  cases::for_each_isa([&](const std::string& isa) {
    const Answer got = cases::answer(c, how_in(isa, 8));
    EXPECT_EQ(cases::other_bits(got, cases::answer(alone, how_in(isa, 8))), "");
  });
}

// ---- Keys that some rows read -------------------------------------------------------------------

// Rows that may not read the poisoned key keep their bits; the others are what the definition
// says.
void expect_only_readers_see(const Case& clean, std::int64_t key, double number, Where where) {
  Case c = clean;
  poison(c, 0, key, number, where);
  const auto matrices = cases::reads_of(c, 0);
  const oracle::Attended want = cases::definition(c);
  const std::int64_t heads = c.shape.num_q_heads;
  const std::int64_t dims = c.shape.v_head_dim;
  cases::for_each_isa([&](const std::string& isa) {
    const Answer before = cases::answer(clean, how_in(isa));
    const Answer after = cases::answer(c, how_in(isa));
    for (std::int64_t row = 0; row < after.out.tokens; ++row) {
      if (!reads(matrices, row, key)) {
        ASSERT_EQ(cases::other_bits(after, row, before, row, 1), "")
            << "row " << row << " may not read key " << key << " that holds " << number;
        continue;
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t d = 0; d < dims; ++d) {
          const double definition = want.out.at(row, head, d);
          const double got = after.out.at(row, head, d);
          ASSERT_TRUE(cases::close(got, definition, 1e-2 * std::abs(definition) + 2e-2))
              << "row " << row << " head " << head << " reads key " << key << " that holds "
              << number << ": " << got << ", by definition " << definition;
        }
      }
    }
  });
}

TEST(IsaNonFinite, InAKeyOfSomeRowsReachesThoseRowsAlone) {
  for (DType dtype : kDTypes) {
    for (double number : {kNan, kInf, -kInf}) {
      for (Where where : {Where::kKeys, Where::kValues, Where::kBoth}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + " where " +
                     std::to_string(static_cast<int>(where)));
        expect_only_readers_see(some_case("full", dtype, whole(40)), 20, number, where);
        expect_only_readers_see(some_case("window(7)", dtype, whole(50)), 16, number, where);
        expect_only_readers_see(some_case("window(7)+global(5,30)", dtype, whole(50)), 33, number,
                                where);
      }
    }
  }
}

TEST(IsaNonFinite, InAGatheredGlobalReachesItsReadersAlone) {
  for (double number : {kNan, kInf}) {
    expect_only_readers_see(some_case("window(3)+global(5,30)", DType::kF32, whole(50)), 30, number,
                            Where::kBoth);
    expect_only_readers_see(
        some_case("window(3)+global(every=16,offset=8)", DType::kBf16, whole(70)), 24, number,
        Where::kBoth);
  }
}

TEST(IsaNonFinite, InAKeyBeforeAWindowReachesNoLaterRow) {
  for (std::int64_t key : {0, 15, 16, 31}) {
    expect_only_readers_see(some_case("window(5)", DType::kF32, whole(64)), key, kNan,
                            Where::kBoth);
    expect_only_readers_see(some_case("chunk(20)", DType::kF32, whole(64)), key, kNan,
                            Where::kBoth);
  }
}

TEST(IsaNonFinite, StaysNonFiniteInA16BitOut) {
  for (DType dtype : {DType::kBf16, DType::kF16}) {
    for (double number : {kNan, kInf, -kInf}) {
      Case c = some_case("full", dtype, whole(20));
      poison(c, 0, 9, number, Where::kValues);
      cases::for_each_isa([&](const std::string& isa) {
        How how = how_in(isa);
        how.out_dtype = dtype;
        const Answer got = cases::answer(c, how);
        for (std::int64_t d = 0; d < 20; ++d) {
          EXPECT_TRUE(std::isfinite(got.out.at(8, 1, d)));
          if (std::isnan(number)) {
            EXPECT_TRUE(std::isnan(got.out.at(12, 1, d)));
          } else {
            EXPECT_EQ(got.out.at(12, 1, d), number);
          }
        }
      });
    }
  }
}

// One number of one dim: the other dims of the value do not know.
TEST(IsaNonFinite, InOneDimOfAValueStaysInThatDim) {
  for (DType dtype : kDTypes) {
    const Case clean = some_case("full", dtype, whole(40));
    Case c = clean;
    c.v[0].at(20, 0, 3) = kNan;
    cases::for_each_isa([&](const std::string& isa) {
      const Answer got = cases::answer(c, how_in(isa));
      const oracle::Attended want = cases::definition(c);
      EXPECT_EQ(cases::difference(got, want, cases::tolerance_of(c, isa)), "");
      EXPECT_TRUE(std::isnan(got.out.at(20, 1, 3)));
      EXPECT_FALSE(std::isnan(got.out.at(20, 2, 3)));
    });
  }
}

// Another KV head's numbers, in the same call.
TEST(IsaNonFinite, InOneKvHeadLeavesTheOthersAlone) {
  const Case clean = some_case("full", DType::kF32, whole(20));
  Case c = clean;
  for (std::int64_t d = 0; d < c.shape.head_dim; ++d) c.k[0].at(0, 1, d) = kNan;
  cases::for_each_isa([&](const std::string& isa) {
    const Answer before = cases::answer(clean, how_in(isa));
    const Answer after = cases::answer(c, how_in(isa));
    for (std::int64_t row = 0; row < 20; ++row) {
      for (std::int64_t head = 0; head < 4; ++head) {
        const double got = after.out.at(row, head, 0);
        if (head < 2) {
          EXPECT_EQ(got, before.out.at(row, head, 0));
        } else {
          EXPECT_TRUE(std::isnan(got));
        }
      }
    }
  });
}

// A query that is not a number spoils its own row of its own head: not those computed beside it.
TEST(IsaNonFinite, InAQueryStaysInItsRow) {
  for (DType dtype : kDTypes) {
    for (double number : {kNan, kInf}) {
      const Case clean = some_case("window(20)+sink(2)", dtype, whole(40));
      Case c = clean;
      for (std::int64_t d = 0; d < c.shape.head_dim; ++d) c.q.at(18, 1, d) = number;
      cases::for_each_isa([&](const std::string& isa) {
        const Answer before = cases::answer(clean, how_in(isa));
        const Answer after = cases::answer(c, how_in(isa));
        for (std::int64_t row = 0; row < 40; ++row) {
          for (std::int64_t head = 0; head < 4; ++head) {
            if (row == 18 && head == 1) {
              EXPECT_TRUE(std::isnan(after.out.at(row, head, 0)));
              continue;
            }
            ASSERT_EQ(after.lse[idx(row * 4 + head)], before.lse[idx(row * 4 + head)])
                << row << " " << head;
            for (std::int64_t d = 0; d < 20; ++d) {
              ASSERT_EQ(after.out.at(row, head, d), before.out.at(row, head, d))
                  << row << " " << head;
            }
          }
        }
      });
    }
  }
}

// A score of −inf is a key without weight, and the softcap makes an infinite one finite again.
TEST(IsaNonFinite, ScoresThatTheDefinitionMakesFiniteAreFinite) {
  Case c = some_case("full", DType::kF32, whole(40));
  for (double& q : c.q.data) q = std::abs(q) + 0.5;
  for (double& q : c.q.data) q = static_cast<float>(q);
  Case lower = c;
  poison(lower, 0, 20, -kInf, Where::kKeys);
  cases::expect_definition(lower);
  for (double number : {kInf, -kInf}) {
    Case capped = c;
    capped.softcap = 2;
    poison(capped, 0, 20, number, Where::kKeys);
    const oracle::Attended want = cases::definition(capped);
    cases::for_each_isa([&](const std::string& isa) {
      const Answer got = cases::answer(capped, how_in(isa));
      for (std::size_t i = 0; i < want.out.data.size(); ++i) {
        ASSERT_NEAR(got.out.data[i], want.out.data[i], 1e-5) << number;
      }
    });
  }
}

// A masked pair's weight is not 0 times something: its value is not looked at.
TEST(IsaNonFinite, InTheValueOfAMaskedKeyBesideTheDiagonalHasNoEffect) {
  for (DType dtype : kDTypes) {
    const Case clean = some_case("full", dtype, whole(33));
    for (std::int64_t key = 1; key < 33; key += 5) {
      Case c = clean;
      poison(c, 0, key, kInf, Where::kValues);
      cases::for_each_isa([&](const std::string& isa) {
        EXPECT_EQ(cases::other_bits(cases::answer(c, how_in(isa)), 0,
                                    cases::answer(clean, how_in(isa)), 0, key),
                  "");
      });
    }
  }
}

}  // namespace
}  // namespace lacuna

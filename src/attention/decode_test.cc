#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"
#include "lacuna/kernels.h"

// Calls of a few rows on keys that lie packed on pages, and rows whose keys are cut among threads.

namespace lacuna {
namespace {

using cases::Answer;
using cases::Case;
using cases::filled;
using cases::How;
using cases::how_in;
using cases::last_rows;

How packed_in(const std::string& isa, std::int64_t page_size = 16, std::int64_t num_tables = 1) {
  How how = how_in(isa, page_size);
  how.kv.packed = true;
  how.kv.num_tables = num_tables;
  how.kv.null_unread = true;
  return how;
}

Case case_of(const char* attend, DType dtype, const AttentionShape& shape,
             std::vector<SequenceRows> sequences, std::uint64_t seed = 51) {
  Case c;
  c.shape = shape;
  c.q_dtype = c.kv_dtype = dtype;
  c.attend = cases::unions(attend, true, shape.num_q_heads);
  c.sequences = std::move(sequences);
  return filled(std::move(c), seed);
}

constexpr AttentionShape kGroupOf3 = {"group_of_3", 6, 2, 20, 12};
constexpr AttentionShape kGroupOf7 = {"group_of_7", 7, 1, 24, 40};
constexpr AttentionShape kSmall = {"small", 2, 1, 5, 3};

void expect_definition_and_bits(const Case& c, std::int64_t page_size, std::int64_t num_tables) {
  const oracle::Attended want = cases::definition(c);
  cases::for_each_isa([&](const std::string& isa) {
    const Answer strided = cases::answer(c, how_in(isa));
    const Answer packed = cases::answer(c, packed_in(isa, page_size, num_tables));
    EXPECT_EQ(cases::difference(packed, want, cases::tolerance_of(c, isa)), "");
    EXPECT_EQ(cases::other_bits(packed, strided), "");
    EXPECT_EQ(packed.ledger, strided.ledger);
  });
}

TEST(IsaDecode, OnPackedPagesOfEveryLengthFollowsTheDefinition) {
  for (std::int64_t page_size : {16, 48}) {
    for (const char* attend : {"full", "window(33)", "window(20)+sink(3)"}) {
      for (std::int64_t length : {1, 15, 16, 17, 32, 33, 34, 47, 48, 49, 64, 65, 255, 256, 257}) {
        SCOPED_TRACE(std::string(attend) + " of " + std::to_string(length) + ", pages of " +
                     std::to_string(page_size));
        expect_definition_and_bits(case_of(attend, DType::kBf16, kGroupOf3, {last_rows(1, length)}),
                                   page_size, 1);
      }
    }
  }
}

TEST(IsaDecode, OfARaggedBatchFollowsTheDefinitionForEveryDtypeAndGroup) {
  const std::vector<SequenceRows> sequences = {last_rows(1, 100), {{0, 0}, 0},
                                               last_rows(3, 17),  {{40, 40}, 40},
                                               last_rows(1, 1),   last_rows(64, 300)};
  for (const AttentionShape& shape : {kGroupOf3, kGroupOf7}) {
    for (DType dtype : kDTypes) {
      for (const char* attend : {"full", "window(40)+sink(4)", "window(20)+global(3,40,41,90)"}) {
        SCOPED_TRACE(std::string(shape.name) + " " + std::string(to_string(dtype)) + " " + attend);
        expect_definition_and_bits(case_of(attend, dtype, shape, sequences), 64,
                                   shape.num_kv_heads);
      }
    }
  }
}

// An unwritten slot, of K or of V, is NaN here as on all packed pages of these tests.
TEST(IsaDecode, DoesNotSeeUnwrittenSlots) {
  for (std::int64_t length : {5, 13}) {
    for (DType dtype : kDTypes) {
      const Case c = case_of("full", dtype, kGroupOf3, {last_rows(1, length)});
      cases::for_each_isa([&](const std::string& isa) {
        const Answer got = cases::answer(c, packed_in(isa));
        EXPECT_EQ(cases::difference(got, cases::definition(c), cases::tolerance_of(c, isa)), "");
      });
    }
  }
}

TEST(IsaDecode, ReadsItsSinksAndItsWindowAndNoOtherPage) {
  const Case c = case_of("window(8)+sink(4)", DType::kF32, kGroupOf3, {last_rows(1, 200)});
  cases::for_each_isa([&](const std::string& isa) {
    const Answer got = cases::answer(c, packed_in(isa));  // pages in between are null
    EXPECT_EQ(cases::difference(got, cases::definition(c), cases::tolerance_of(c, isa)), "");
    EXPECT_EQ(got.ledger.needed_pairs, 12 * 6);
  });
}

TEST(IsaDecode, RefusesANullPageItNeedsInATableOfItsHead) {
  Case c = case_of("window(40)", DType::kF32, kGroupOf3, {last_rows(1, 100)});
  const Plan plan = cases::plan_of(c);
  for (std::int64_t table : {0, 1}) {
    cases::KvMemory kv(c, packed_in("", 16, 2).kv);
    const KvView view = kv.view();
    kv.block_table()[static_cast<std::size_t>(table * view.table_columns + 5)] = KvView::kNullPage;
    const stored::Tensor q(c.q, c.q_dtype, {});
    stored::Tensor out(stored::Tensor::Shape{1, 6, 12}, DType::kF32, {});
    cases::Workspace workspace(workspace_bytes(plan, q.view(), view));
    try {
      run(out.mutable_view(), {}, plan, q.view(), view, workspace.span());
      ADD_FAILURE() << "table " << table;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("page 5 of sequence 0 is null"), std::string::npos)
          << error.what();
    }
  }
}

// ---- Keys cut among threads ---------------------------------------------------------------------

constexpr std::int64_t kSplit = kSplitTokens;

// Bits of a plan for one thread, which cuts nothing, on contiguous rows.
void expect_bits_of_uncut(const Case& c) {
  ThreadPool two(2), three(3), five(5);
  const Plan uncut = cases::plan_of(c, {.num_threads = 1});
  EXPECT_TRUE(uncut.cuts.empty());
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer_with(uncut, c, how_in(isa));
    for (std::int64_t num_threads : {2, 3, 4, 5, 64}) {
      const Plan plan = cases::plan_of(c, {.num_threads = num_threads});
      EXPECT_FALSE(plan.cuts.empty());
      for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), &two, &three, &five}) {
        How how = packed_in(isa, 64);
        how.pool = pool;
        const Answer got = cases::answer_with(plan, c, how);
        ASSERT_EQ(cases::other_bits(got, want), "") << "cut for " << num_threads;
        EXPECT_EQ(got.ledger, want.ledger);
      }
    }
  });
}

TEST(IsaCutDecode, HasTheSameBitsHoweverItsKeysAreCut) {
  for (DType dtype : kDTypes) {
    for (std::int64_t length : {kSplit + 1, 2 * kSplit, 3 * kSplit + 17}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(length));
      expect_bits_of_uncut(case_of("full", dtype, kSmall, {last_rows(1, length)}));
    }
  }
}

TEST(IsaCutDecode, HasTheSameBitsWhereSplitsAreEmptyOrGathered) {
  for (const char* attend : {"window(4200)+sink(4)", "window(5000)+global(every=1000)",
                             "dilated(3,5000)", "heads(0: full; 1: window(4100))"}) {
    SCOPED_TRACE(attend);
    expect_bits_of_uncut(case_of(attend, DType::kBf16, kSmall, {last_rows(3, 4 * kSplit + 5)}));
  }
}

TEST(IsaCutDecode, HasTheSameBitsInABatchWithEveryOption) {
  Case c = case_of("full", DType::kF32, kSmall,
                   {last_rows(1, 2 * kSplit + 9), {{0, 0}, 0}, last_rows(20, kSplit + 40)});
  c.softcap = 3;
  c.alibi_slopes = {0.001F, 0.0F};
  c.sink_logits = {1, -2};
  expect_bits_of_uncut(c);
}

TEST(IsaCutDecode, OfQuantizedKeysHasTheSameBitsHoweverTheyAreCut) {
  for (DType dtype : {DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(dtype));
    Case c =
        case_of("full", DType::kF32, {"one_group", 2, 1, 32, 32}, {last_rows(2, 2 * kSplit + 17)});
    c.kv_dtype = dtype;
    expect_bits_of_uncut(filled(std::move(c), 51));
  }
}

// A row alone has the bits it has among the rows of a longer verification.
void expect_bits_of_rows_alone(const Case& all, std::int64_t num_rows, std::int64_t length) {
  cases::for_each_isa([&](const std::string& isa) {
    const Answer together = cases::answer(all, packed_in(isa, 64));
    for (std::int64_t row : {std::int64_t{0}, num_rows / 2 - 1, num_rows / 2, num_rows - 1}) {
      Case one = all;
      const std::int64_t keys = length - num_rows + 1 + row;
      one.sequences = {last_rows(1, keys)};
      one.q = cases::rows_of(all.q, row, row + 1);
      one.k = {cases::rows_of(all.k[0], 0, keys)};
      one.v = {cases::rows_of(all.v[0], 0, keys)};
      ASSERT_EQ(cases::other_bits(cases::answer(one, packed_in(isa, 64)), 0, together, row, 1), "")
          << row;
    }
  });
}

TEST(IsaCutDecode, OfADraftedRowHasTheBitsOfTheRowAlone) {
  expect_bits_of_rows_alone(case_of("full", DType::kBf16, kSmall, {last_rows(18, kSplit + 9)}), 18,
                            kSplit + 9);
}

// Few rows read V in another order than many: dims of several of its blocks, and one more.
TEST(IsaCutDecode, OfADraftedRowOverQuantizedKeysHasTheBitsOfTheRowAlone) {
  for (DType dtype : {DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(dtype));
    const int dims = dtype == DType::kInt8 ? 144 : 160;
    Case c = case_of("full", DType::kF32, {"nine_blocks", 2, 1, dims, dims}, {last_rows(18, 600)});
    c.kv_dtype = dtype;
    expect_bits_of_rows_alone(filled(std::move(c), 51), 18, 600);
  }
}

// Every key of a cut row and no other, by the definition.
TEST(IsaCutDecode, CutFollowsTheDefinition) {
  for (DType dtype : kDTypes) {
    const Case c = case_of("window(6000)+sink(5)", dtype, kSmall, {last_rows(2, 3 * kSplit + 1)});
    const oracle::Attended want = cases::definition(c);
    cases::for_each_isa([&](const std::string& isa) {
      EXPECT_EQ(cases::difference(cases::answer(c, packed_in(isa, 256)), want,
                                  cases::tolerance_of(c, isa)),
                "");
    });
  }
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"

// A row's bits depend on its own keys alone: not on the other rows of the call, on how the rows
// are cut into calls, on pages, on the other sequences, on threads.

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

struct Topic {
  const char* attend;
  bool causal;
};
constexpr Topic kTopics[] = {
    {"full", true},
    {"full", false},
    {"window(20)", true},
    {"window(12)+sink(3)", true},
    {"window(10)+sink(2)+global(every=20)+random(3,5)", true},
    {"window(5)+global(7,30,31,90)", true},
    {"chunk(24)+dilated(5,9)", true},
    {"heads(0: full; 1: window(9); 2: window(9)+global(every=16); 3: sink(2))", true},
    {"window(9,14)+global(first=2)+global(50)", false},
};

Case case_of(const Topic& topic, DType dtype, std::vector<SequenceRows> sequences) {
  Case c;
  c.shape = {"heads", 4, 2, dtype == DType::kInt4 ? 64 : 20, dtype == DType::kInt4 ? 32 : 12};
  c.q_dtype = is_quantized(dtype) ? DType::kBf16 : dtype;
  c.kv_dtype = dtype;
  c.causal = topic.causal;
  c.attend = cases::unions(topic.attend, topic.causal, 4);
  c.sequences = std::move(sequences);
  return filled(std::move(c), 41);
}

// Rows begin .. end-1 of a case's only sequence as a call of its own. A causal row needs no later
// key: the chunk's sequence ends with it, as it does in a prefill by chunks.
Case chunk_of(const Case& all, std::int64_t begin, std::int64_t end) {
  Case c = all;
  const std::int64_t first = all.sequences[0].rows.begin;
  const std::int64_t length = all.causal ? end : all.sequences[0].length;
  c.sequences = {{{begin, end}, length}};
  c.q = cases::rows_of(all.q, begin - first, end - first);
  c.k = {cases::rows_of(all.k[0], 0, length)};
  c.v = {cases::rows_of(all.v[0], 0, length)};
  return c;
}

void expect_same_in_chunks(const Case& all, std::int64_t size, How how) {
  const Answer want = cases::answer(all, how);
  const Range rows = all.sequences[0].rows;
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += size) {
    const std::int64_t end = std::min(begin + size, rows.end);
    const Answer got = cases::answer(chunk_of(all, begin, end), how);
    ASSERT_EQ(cases::other_bits(got, 0, want, begin - rows.begin, end - begin), "")
        << "rows " << begin << ".." << end - 1 << " alone";
  }
}

TEST(IsaSameBits, InChunksOfAnySize) {
  for (const Topic& topic : kTopics) {
    for (DType dtype : {DType::kF32, DType::kBf16, DType::kInt8, DType::kInt4}) {
      const Case all = case_of(topic, dtype, {whole(99)});
      cases::for_each_isa([&](const std::string& isa) {
        for (std::int64_t size : {1, 2, 3, 5, 16, 17}) {
          if (is_quantized(dtype) && size % 2 == 0) continue;  // less of what is long
          SCOPED_TRACE(std::string(topic.attend) + " " + std::string(to_string(dtype)) +
                       " in chunks of " + std::to_string(size));
          expect_same_in_chunks(all, size, how_in(isa));
        }
      });
    }
  }
}

TEST(IsaSameBits, InChunksWithEveryOption) {
  for (DType dtype : {DType::kF16, DType::kInt8, DType::kInt4}) {
    Case all = case_of({"window(30)+sink(2)+global(40)", true}, dtype, {whole(75)});
    all.softcap = 4;
    all.alibi_slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
    all.sink_logits = {1, -2, 0, 3};
    cases::for_each_isa([&](const std::string& isa) {
      for (std::int64_t size : {1, 7, 16, 31}) expect_same_in_chunks(all, size, how_in(isa));
    });
  }
}

TEST(IsaSameBits, InChunksThatMixSizes) {
  const Case all = case_of(kTopics[5], DType::kF32, {whole(96)});
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer(all, how_in(isa));
    std::int64_t begin = 0;
    for (std::int64_t size : {11, 5, 5, 32, 1, 1, 41}) {
      const Answer got = cases::answer(chunk_of(all, begin, begin + size), how_in(isa));
      ASSERT_EQ(cases::other_bits(got, 0, want, begin, size), "") << begin;
      begin += size;
    }
  });
}

// A prompt longer than its window in chunks, then decoding until the window has passed over every
// place where chunks met.
TEST(IsaSameBits, ThroughAPrefillInChunksAndTheWholeDecodeAfterIt) {
  for (DType dtype : kStoredDTypes) {
    const Case all = case_of({"window(8)", true}, dtype, {whole(23)});
    cases::for_each_isa([&](const std::string& isa) {
      const Answer want = cases::answer(all, how_in(isa));
      std::int64_t begin = 0;
      for (std::int64_t size : {5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}) {
        const Answer got = cases::answer(chunk_of(all, begin, begin + size), how_in(isa, 4));
        ASSERT_EQ(cases::other_bits(got, 0, want, begin, size), "") << begin;
        begin += size;
      }
      ASSERT_EQ(begin, 23);
    });
  }
}

TEST(IsaSameBitsLong, OfADecodedTokenAndOfItsRowInAPrefillAcrossSplits) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kInt8}) {
    Case all = case_of({"full", true}, dtype, {last_rows(70, kSplitTokens + 30)});
    cases::for_each_isa([&](const std::string& isa) {
      const Answer want = cases::answer(all, how_in(isa));
      for (std::int64_t row : {0, 37, 38, 39, 40, 41, 55, 69}) {
        const std::int64_t position = all.sequences[0].rows.begin + row;
        const Answer got = cases::answer(chunk_of(all, position, position + 1), how_in(isa));
        ASSERT_EQ(cases::other_bits(got, 0, want, row, 1), "") << position;
      }
      expect_same_in_chunks(all, 33, how_in(isa, 64));
    });
  }
}

TEST(IsaSameBits, WithPagesOfAnySize) {
  for (const Topic& topic : kTopics) {
    for (DType dtype : kStoredDTypes) {
      SCOPED_TRACE(std::string(topic.attend) + " " + std::string(to_string(dtype)));
      const Case c =
          case_of(topic, dtype, {last_rows(21, 90), whole(35), whole(0), last_rows(1, 64)});
      cases::for_each_isa([&](const std::string& isa) {
        const Answer contiguous = cases::answer(c, how_in(isa));
        for (std::int64_t page_size : {1, 7, 16, 64, 256}) {
          ASSERT_EQ(cases::other_bits(cases::answer(c, how_in(isa, page_size)), contiguous), "")
              << page_size;
        }
      });
    }
  }
}

// A window one token past its width, in pages: the keys are visited in their order, not the pages'.
TEST(IsaSameBits, WhereAWindowJustMovedOn) {
  for (std::int64_t length : {8, 9}) {
    const Case c = case_of({"window(8)", true}, DType::kF32, {last_rows(1, length)});
    cases::for_each_isa([&](const std::string& isa) {
      EXPECT_EQ(cases::other_bits(cases::answer(c, how_in(isa, 4)), cases::answer(c, how_in(isa))),
                "");
    });
  }
}

TEST(IsaSameBits, WithAnyNumberOfThreads) {
  ThreadPool one(1), two(2), three(3);
  for (const Topic& topic : kTopics) {
    for (DType dtype : {DType::kBf16, DType::kInt8, DType::kInt4}) {
      SCOPED_TRACE(std::string(topic.attend) + " " + std::string(to_string(dtype)));
      const Case c = case_of(topic, dtype, {whole(120), last_rows(3, 70), whole(9)});
      cases::for_each_isa([&](const std::string& isa) {
        const Answer alone = cases::answer(c, how_in(isa));
        for (ThreadPool* pool : {&one, &two, &three}) {
          for (std::int64_t tiles_per_item : {0, 1, 3}) {
            How how = how_in(isa, 16);
            how.pool = pool;
            how.plan.tiles_per_item = tiles_per_item;
            const Answer got = cases::answer(c, how);
            EXPECT_EQ(cases::other_bits(got, alone), "") << pool->num_threads() << " threads";
            EXPECT_EQ(got.ledger.executed_pairs, alone.ledger.executed_pairs);
            EXPECT_EQ(got.ledger.needed_pairs, alone.ledger.needed_pairs);
            EXPECT_EQ(got.ledger.distinct_bytes, alone.ledger.distinct_bytes);
          }
        }
      });
    }
  }
}

TEST(IsaSameBits, OfEachSequenceInABatchAndAlone) {
  for (const Topic& topic : kTopics) {
    SCOPED_TRACE(topic.attend);
    const std::vector<SequenceRows> sequences = {whole(1),         whole(33), {{5, 5}, 9},
                                                 last_rows(2, 80), whole(0),  {{16, 40}, 50}};
    for (DType dtype : {DType::kF32, DType::kInt8, DType::kInt4}) {
      const Case batch = case_of(topic, dtype, sequences);
      cases::for_each_isa([&](const std::string& isa) {
        const Answer all = cases::answer(batch, how_in(isa));
        std::int64_t row = 0;
        for (std::size_t s = 0; s < sequences.size(); ++s) {
          const std::int64_t count = sequences[s].rows.end - sequences[s].rows.begin;
          Case alone = batch;
          alone.sequences = {sequences[s]};
          alone.q = cases::rows_of(batch.q, row, row + count);
          alone.k = {batch.k[s]};
          alone.v = {batch.v[s]};
          const Answer one = cases::answer(alone, how_in(isa));
          ASSERT_EQ(cases::other_bits(one, 0, all, row, count), "") << "sequence " << s;
          row += count;
        }
      });
    }
  }
}

// The heads of a group are computed side by side: who stands beside a head must not show.
TEST(IsaSameBits, OfAHeadWhateverTheOtherHeadsOfItsGroupRead) {
  const Case group =
      case_of({"heads(0: full; 1: window(9); 2: window(9)+global(every=16); 3: sink(2))", true},
              DType::kF32, {whole(60)});
  cases::for_each_isa([&](const std::string& isa) {
    const Answer together = cases::answer(group, how_in(isa));
    for (std::int64_t head = 0; head < 4; ++head) {
      Case alone = group;
      alone.shape.num_q_heads = alone.shape.num_kv_heads = 1;
      alone.attend = {group.attend[idx(head)]};
      const auto only = [](const oracle::Values& values, std::int64_t one) {
        oracle::Values part(values.tokens, 1, values.dims);
        for (std::int64_t t = 0; t < values.tokens; ++t) {
          for (std::int64_t d = 0; d < values.dims; ++d) part.at(t, 0, d) = values.at(t, one, d);
        }
        return part;
      };
      alone.q = only(group.q, head);
      alone.k = {only(group.k[0], head / 2)};
      alone.v = {only(group.v[0], head / 2)};
      const Answer one = cases::answer(alone, how_in(isa));
      for (std::int64_t row = 0; row < 60; ++row) {
        for (std::int64_t d = 0; d < 12; ++d) {
          ASSERT_EQ(together.out.at(row, head, d), one.out.at(row, 0, d)) << head << " " << row;
        }
      }
    }
  });
}

TEST(IsaSameBits, OfOutWhateverTheMemoryAroundIt) {
  const Case c = case_of(kTopics[3], DType::kF32, {whole(50)});
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer(c, how_in(isa));
    EXPECT_EQ(cases::other_bits(cases::answer(c, how_in(isa)), want), "");
    How how = how_in(isa);
    how.q.lead = how.kv.k.lead = how.kv.v.lead = how.out.lead = 1;
    EXPECT_EQ(cases::other_bits(cases::answer(c, how), want), "");
  });
}

}  // namespace
}  // namespace lacuna

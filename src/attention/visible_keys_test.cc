#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

// Which keys the kernels really read, shown by what comes out: with q = 0 every key that a row
// reads weighs the same, and with the value of key j a 1 in dim j the output names the keys.

namespace lacuna {
namespace {

using cases::Case;
using cases::How;
using cases::how_in;
using cases::idx;
using cases::last_rows;
using cases::whole;

using Keys = std::vector<std::int64_t>;

Keys keys(std::int64_t first, std::int64_t last) {
  Keys result;
  for (std::int64_t key = first; key <= last; ++key) result.push_back(key);
  return result;
}

// One query and one KV head unless the case says otherwise.
Case marked(Case c) {
  std::int64_t longest = 1;
  for (const SequenceRows& s : c.sequences) longest = std::max(longest, s.length);
  c.shape.head_dim = 3;
  c.shape.v_head_dim = longest;
  c = cases::filled(std::move(c));
  std::fill(c.q.data.begin(), c.q.data.end(), 0);
  for (oracle::Values& v : c.v) {
    std::fill(v.data.begin(), v.data.end(), 0);
    for (std::int64_t key = 0; key < v.tokens; ++key) {
      for (std::int64_t head = 0; head < v.heads; ++head) v.at(key, head, key) = 1;
    }
  }
  return c;
}

Case marked(Union attend, std::vector<SequenceRows> sequences, bool causal = true) {
  Case c;
  c.attend = {std::move(attend)};
  c.causal = causal;
  c.sequences = std::move(sequences);
  return marked(std::move(c));
}

// For each row the keys in its output; they must weigh the same and 1 together.
std::vector<Keys> keys_read(const Case& c, const How& how) {
  const auto got = cases::answer(c, how);
  std::vector<Keys> result;
  for (std::int64_t row = 0; row < got.out.tokens; ++row) {
    Keys read;
    for (std::int64_t key = 0; key < got.out.dims; ++key) {
      if (got.out.at(row, 0, key) != 0) read.push_back(key);
    }
    for (std::int64_t key : read) {
      EXPECT_NEAR(got.out.at(row, 0, key), 1.0 / static_cast<double>(read.size()), 1e-7);
    }
    result.push_back(std::move(read));
  }
  return result;
}

// ---- Windows ------------------------------------------------------------------------------------

TEST(IsaWindow, LastTokenSeesExactlyWindowKeys) {
  const Case c = marked({Window{2, 0}}, {whole(6)});
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {keys(0, 0), keys(0, 1), keys(0, 2),
                                    keys(1, 3), keys(2, 4), keys(3, 5)};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
  });
}

TEST(IsaWindow, LosesItsFirstKeyOnlyOnceItIsFull) {
  const Case c = marked({Window{3, 0}}, {whole(8)});
  cases::for_each_isa([&](const std::string& isa) {
    const auto read = keys_read(c, how_in(isa));
    EXPECT_EQ(read[3], keys(0, 3));
    EXPECT_EQ(read[4], keys(1, 4));
    EXPECT_EQ(read[7], keys(4, 7));
  });
}

TEST(IsaWindow, DecodeSeesTheKeysThatPrefillSees) {
  const Case prefill = marked({Window{3, 0}}, {whole(9)});
  const Case decode = marked({Window{3, 0}}, {last_rows(1, 9)});
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_EQ(keys_read(prefill, how_in(isa)).back(), keys(5, 8));
    EXPECT_EQ(keys_read(decode, how_in(isa)), std::vector<Keys>{keys(5, 8)});
  });
}

TEST(IsaWindow, KeepsItsWidthFromPrefillToDecode) {
  const std::vector<Keys> want = {keys(4, 7), keys(5, 8), keys(6, 9)};
  cases::for_each_isa([&](const std::string& isa) {
    for (std::int64_t token = 7; token < 10; ++token) {
      const Case step = marked({Window{3, 0}}, {last_rows(1, token + 1)});
      EXPECT_EQ(keys_read(step, how_in(isa))[0], want[idx(token - 7)]);
    }
    EXPECT_EQ(keys_read(marked({Window{3, 0}}, {last_rows(3, 10)}), how_in(isa)), want);
  });
}

TEST(IsaWindow, ComputesEveryRowOfAPromptThatIsLongerThanIt) {
  const Case c = marked({Window{3, 0}}, {whole(10)});
  cases::for_each_isa([&](const std::string& isa) {
    const auto read = keys_read(c, how_in(isa));
    ASSERT_EQ(read.size(), 10U);
    for (std::int64_t row = 0; row < 10; ++row) {
      EXPECT_EQ(read[idx(row)], keys(std::max<std::int64_t>(row - 3, 0), row));
    }
  });
}

TEST(IsaWindow, IsTheSameInChunksOfAnySize) {
  const Union attend = {Window{1, 0}};
  cases::for_each_isa([&](const std::string& isa) {
    for (std::int64_t size : {1, 2, 3, 5}) {
      for (std::int64_t begin = 0; begin < 5; begin += size) {
        const std::int64_t end = std::min<std::int64_t>(begin + size, 5);
        const auto read = keys_read(marked(attend, {{{begin, end}, end}}), how_in(isa));
        for (std::int64_t row = begin; row < end; ++row) {
          EXPECT_EQ(read[idx(row - begin)], keys(std::max<std::int64_t>(row - 1, 0), row));
        }
      }
    }
  });
}

// A window whose right side is open: its span must not be estimated from the left side alone.
TEST(IsaWindow, ReadsEveryKeyToItsRightWhereThatSideIsOpen) {
  Case c = marked({Window{37, 512}}, {{{212, 512}, 512}}, false);
  cases::for_each_isa([&](const std::string& isa) {
    const auto read = keys_read(c, how_in(isa, 16));
    for (std::int64_t row = 212; row < 512; ++row) {
      ASSERT_EQ(read[idx(row - 212)], keys(row - 37, 511)) << row;
    }
  });
}

TEST(IsaWindow, OverPagesReadsNoOtherKeys) {
  const Case c = marked({Window{7, 0}}, {whole(40)});
  cases::for_each_isa([&](const std::string& isa) {
    const auto read = keys_read(c, how_in(isa, 16));
    for (std::int64_t row = 0; row < 40; ++row) {
      EXPECT_EQ(read[idx(row)], keys(std::max<std::int64_t>(row - 7, 0), row));
    }
  });
}

// The table is indexed by the absolute position; before the window stand null pages.
TEST(IsaWindow, NeedsNoPageBeforeItself) {
  const Case c = marked({Window{7, 0}}, {last_rows(1, 13)});
  cases::for_each_isa([&](const std::string& isa) {
    How how = how_in(isa, 4);
    how.kv.null_unread = true;
    EXPECT_EQ(keys_read(c, how), std::vector<Keys>{keys(5, 12)});
  });
}

TEST(IsaWindow, ReadsItsSinksAtTheirAbsolutePositions) {
  const Keys want = {0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 18, 19};
  cases::for_each_isa([&](const std::string& isa) {
    for (bool null_unread : {false, true}) {
      How how = how_in(isa, 4);
      how.kv.null_unread = null_unread;
      EXPECT_EQ(keys_read(marked({Window{7, 0}, Sink{4}}, {last_rows(1, 20)}), how),
                std::vector<Keys>{want});
      EXPECT_EQ(keys_read(marked({Window{3, 0}, Sink{2}}, {last_rows(1, 9)}), how),
                (std::vector<Keys>{{0, 1, 5, 6, 7, 8}}));
    }
  });
}

TEST(IsaWindow, HoldsThreeToSixForTheSeventhToken) {
  const Case c = marked({Window{3, 0}}, {last_rows(2, 8)});
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {keys(3, 6), keys(4, 7)};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
  });
}

// A chunk as long as twice the window: its first rows still need the keys before it.
TEST(IsaWindow, ReadsBackFromTheFirstRowsOfALongChunk) {
  const Case c = marked({Window{3, 0}}, {last_rows(8, 16)});
  cases::for_each_isa([&](const std::string& isa) {
    const auto read = keys_read(c, how_in(isa, 4));
    EXPECT_EQ(read[0], keys(5, 8));
    EXPECT_EQ(read[1], keys(6, 9));
    EXPECT_EQ(read[2], keys(7, 10));
  });
}

TEST(IsaWindow, MeasuresDistancesFromAbsolutePositionsInAChunk) {
  const Case c = marked({Window{2, 0}}, {last_rows(4, 8)});
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {keys(2, 4), keys(3, 5), keys(4, 6), keys(5, 7)};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
  });
}

TEST(IsaWindow, GivesEveryRowItsOwnKeyInAChunkBehindALongHistory) {
  for (const auto& [width, offset, chunk] :
       {std::tuple(512, 2048, 153), std::tuple(512, 768, 768), std::tuple(4, 1024, 20)}) {
    Case c;
    c.shape = {"small", 2, 1, 8, 4};
    c.attend = {{Window{width - 1, 0}}};
    c.sequences = {last_rows(chunk, offset + chunk)};
    cases::expect_definition(cases::filled(std::move(c)));
  }
}

// ---- Causality ----------------------------------------------------------------------------------

TEST(IsaCausal, IsAlignedToTheLastKey) {
  const Case c = marked({Full{}}, {last_rows(2, 5)});
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {keys(0, 3), keys(0, 4)};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
  });
}

TEST(IsaCausal, RowsBeforeTheFirstKeyAreRefused) {
  EXPECT_THROW(make_plan(std::vector{Topology({Full{}}, true)},
                         std::vector{SequenceRows{{-3, 2}, 2}}, {1, 1}),
               Error);
}

TEST(IsaCausal, EarlierRowsOfAChunkDoNotDependOnLaterOnes) {
  for (std::int64_t history : {63, 64, 65}) {
    Case c;
    c.shape = {"heads", 4, 2, 32, 32};
    c.sequences = {last_rows(5, history + 5)};
    c = cases::filled(std::move(c));
    Case other = c;
    std::mt19937_64 random(99);
    for (oracle::Values* values : {&other.q, &other.k[0], &other.v[0]}) {
      const oracle::Values before = *values;
      stored::randomize(*values, DType::kF32, random);
      const std::int64_t kept = values == &other.q ? 1 : history + 1;
      std::copy_n(before.data.begin(), kept * before.heads * before.dims, values->data.begin());
    }
    cases::for_each_isa([&](const std::string& isa) {
      const auto a = cases::answer(c, how_in(isa));
      const auto b = cases::answer(other, how_in(isa));
      EXPECT_EQ(cases::other_bits(a, 0, b, 0, 1), "") << history;
      EXPECT_NE(cases::other_bits(a, b), "");
    });
  }
}

// ---- Packed sequences ---------------------------------------------------------------------------

TEST(IsaPacked, NoRowReadsAnotherSequence) {
  const Case c = marked({Full{}}, {whole(3), whole(2), whole(4)});
  cases::for_each_isa([&](const std::string& isa) {
    for (std::int64_t page_size : {0, 2}) {
      const std::vector<Keys> want = {keys(0, 0), keys(0, 1), keys(0, 2), keys(0, 0), keys(0, 1),
                                      keys(0, 0), keys(0, 1), keys(0, 2), keys(0, 3)};
      EXPECT_EQ(keys_read(c, how_in(isa, page_size)), want);
    }
  });
}

TEST(IsaPacked, AnotherFirstSequenceChangesNoBitOfTheOthers) {
  Case c;
  c.shape = {"heads", 4, 2, 16, 16};
  c.sequences = {whole(3), whole(2), whole(4)};
  c = cases::filled(std::move(c));
  Case other = c;
  for (double& value : other.k[0].data) value = -value;
  for (double& value : other.v[0].data) value += 1;
  cases::for_each_isa([&](const std::string& isa) {
    const auto a = cases::answer(c, how_in(isa));
    const auto b = cases::answer(other, how_in(isa));
    EXPECT_NE(cases::other_bits(a, 0, b, 0, 3), "");
    EXPECT_EQ(cases::other_bits(a, 3, b, 3, 6), "");
  });
}

TEST(IsaPacked, ADocumentAfterAnotherIsAsIfItWereAlone) {
  Case c;
  c.shape = {"heads", 2, 1, 16, 16};
  c.attend = {{Window{2, 0}}};
  c.sequences = {whole(6), whole(6)};
  c = cases::filled(std::move(c));
  Case alone = c;
  alone.sequences = {whole(6)};
  alone.q = cases::rows_of(c.q, 6, 12);
  alone.k = {c.k[1]};
  alone.v = {c.v[1]};
  cases::for_each_isa([&](const std::string& isa) {
    const auto both = cases::answer(c, how_in(isa));
    const auto one = cases::answer(alone, how_in(isa));
    EXPECT_EQ(cases::other_bits(both, 6, one, 0, 6), "");
  });
}

TEST(IsaPacked, SequencesWithoutKeysOrRowsGiveNothing) {
  Case c;
  c.shape = {"heads", 2, 1, 16, 16};
  c.causal = true;
  c.sequences = {whole(0), last_rows(1, 3), {{4, 4}, 4}, whole(0), whole(2)};
  c = cases::filled(std::move(c));
  cases::expect_definition(c);
  for (std::int64_t page_size : {0, 4}) {
    How how;
    how.kv.page_size = page_size;
    cases::expect_definition(c, how);
  }
}

TEST(IsaPacked, OneLongAndManyShortSequencesFollowTheDefinition) {
  Case c;
  c.shape = {"heads", 3, 1, 16, 16};
  c.attend = {{Window{19, 0}, Sink{2}}};
  c.sequences = {whole(150)};
  for (std::int64_t length = 0; length < 40; ++length) c.sequences.push_back(whole(length % 7));
  cases::expect_definition(cases::filled(std::move(c)));
}

TEST(IsaPacked, EveryGlobalAndSinkCountsFromItsOwnSequence) {
  const Case c = marked({Window{0, 0}, GlobalPositions{{2}}}, {whole(5), whole(3), whole(4)});
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {{0}, {1},       {0, 1, 2}, {2, 3}, {2, 4},    {0},
                                    {1}, {0, 1, 2}, {0},       {1},    {0, 1, 2}, {2, 3}};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
  });
}

// ---- Rows without keys --------------------------------------------------------------------------

KeyRanges ranges_of(const std::vector<Ranges>& rows) {
  KeyRanges csr;
  for (const Ranges& row : rows) csr.append_row(row);
  return csr;
}

TEST(IsaKeyRanges, ARowWithoutKeysGivesZeroAndLeavesTheOthersAlone) {
  Case c;
  c.sequences = {whole(4)};
  c.key_ranges = {ranges_of({{{0, 4}}, {}, {{1, 3}}, {{0, 1}, {3, 4}}})};
  c = marked(std::move(c));
  cases::for_each_isa([&](const std::string& isa) {
    const std::vector<Keys> want = {keys(0, 3), {}, keys(1, 2), {0, 3}};
    EXPECT_EQ(keys_read(c, how_in(isa)), want);
    const auto got = cases::answer(c, how_in(isa));
    EXPECT_EQ(got.lse[1], -std::numeric_limits<float>::infinity());
    for (std::int64_t d = 0; d < got.out.dims; ++d) EXPECT_EQ(got.out.at(1, 0, d), 0);
  });
}

TEST(IsaKeyRanges, NoRowReadsAnyKey) {
  Case c;
  c.shape = {"heads", 4, 2, 8, 8};
  c.sequences = {whole(20)};
  c.key_ranges = {ranges_of(std::vector<Ranges>(20)), ranges_of(std::vector<Ranges>(20))};
  cases::expect_definition(cases::filled(std::move(c)));
}

TEST(IsaKeyRanges, EachKvHeadReadsItsOwn) {
  Case c;
  c.shape = {"heads", 6, 2, 8, 8};
  c.sequences = {whole(3), last_rows(2, 40)};
  c.key_ranges = {ranges_of({{{0, 1}}, {}, {{2, 3}}}), ranges_of({{{0, 3}}, {{1, 2}}, {}}),
                  ranges_of({{{3, 20}, {38, 40}}, {{0, 40}}}), ranges_of({{{17, 18}}, {{16, 32}}})};
  cases::expect_definition(cases::filled(std::move(c)));
}

// The first tile of a row is masked whole for it, because only the row beside it reads there.
TEST(IsaKeyRanges, ARowWhoseFirstTilesAreMaskedIsFinite) {
  Case c;
  c.shape = {"heads", 2, 1, 8, 8};
  c.sequences = {last_rows(2, 48)};
  c.key_ranges = {ranges_of({{{0, 48}}, {{36, 40}}})};
  cases::expect_definition(cases::filled(std::move(c)));
}

TEST(IsaKeyRanges, AskTheSameBitsAsTheTopologyTheyComeFrom) {
  Case c;
  c.shape = {"heads", 4, 2, 24, 24};
  c.attend = {{Window{20, 0}, Sink{3}, Chunk{40}}};
  c.sequences = {whole(90)};
  c = cases::filled(std::move(c));
  Case ranges = c;
  ranges.key_ranges.assign(2, cases::topologies(c)[0].key_ranges(0, 90, 90));
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_EQ(cases::other_bits(cases::answer(c, how_in(isa)), cases::answer(ranges, how_in(isa))),
              "");
  });
}

// ---- Query heads on KV heads --------------------------------------------------------------------

TEST(IsaHeads, EachQueryHeadReadsItsOwnKvHead) {
  for (const HeadCounts heads :
       {HeadCounts{4, 2}, HeadCounts{12, 12}, HeadCounts{32, 8}, HeadCounts{28, 4},
        HeadCounts{64, 8}, HeadCounts{6, 2}, HeadCounts{6, 3}, HeadCounts{9, 3}, HeadCounts{4, 1},
        HeadCounts{7, 7}}) {
    const auto [q, kv] = std::pair(heads.num_q_heads, heads.num_kv_heads);
    Case c;
    c.shape = {"heads", q, kv, 5, 2};
    c.sequences = {whole(3)};
    c = cases::filled(std::move(c));
    for (std::int64_t key = 0; key < 3; ++key) {
      for (std::int64_t head = 0; head < kv; ++head) {
        c.v[0].at(key, head, 0) = c.v[0].at(key, head, 1) = static_cast<double>(head);
      }
    }
    cases::for_each_isa([&](const std::string& isa) {
      const auto got = cases::answer(c, how_in(isa));
      for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t head = 0; head < heads.num_q_heads; ++head) {
          ASSERT_NEAR(got.out.at(row, head, 1),
                      static_cast<double>(head * heads.num_kv_heads / heads.num_q_heads), 1e-5)
              << heads.num_q_heads << " on " << heads.num_kv_heads << ", head " << head;
        }
      }
    });
  }
}

TEST(IsaHeads, EveryRatioFollowsTheDefinition) {
  for (const auto& [q, kv] :
       {std::pair(1, 1), std::pair(5, 1), std::pair(6, 2), std::pair(6, 3), std::pair(17, 1),
        std::pair(34, 2), std::pair(33, 3), std::pair(64, 1)}) {
    SCOPED_TRACE(std::to_string(q) + " on " + std::to_string(kv));
    Case c;
    c.shape = {"heads", q, kv, 9, 9};
    c.sequences = {whole(21)};
    cases::expect_definition(cases::filled(std::move(c)));
  }
}

TEST(IsaHeads, KvHeadsThatDoNotDivideTheQueryHeadsAreRefused) {
  const std::vector topology = {Topology({Full{}}, true)};
  const std::vector rows = {whole(4)};
  EXPECT_THROW(make_plan(topology, rows, {6, 4}), Error);
  EXPECT_THROW(make_plan(topology, rows, {4, 6}), Error);
}

}  // namespace
}  // namespace lacuna

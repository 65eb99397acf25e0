#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

// Σ over rows of e^(s - lse) for each key, against the definition.

namespace lacuna {
namespace {

using cases::Case;
using cases::filled;
using cases::How;
using cases::idx;
using cases::last_rows;
using cases::whole;

struct Mass {
  std::vector<float> mass;  // [head, key of all sequences]
  Ledger ledger;
};

std::int64_t num_keys(const Case& c) {
  std::int64_t keys = 0;
  for (const SequenceRows& s : c.sequences) keys += s.length;
  return keys;
}

Mass mass_of(const Case& c, const How& how) {
  const Plan plan = cases::plan_of(c, how.plan);
  const auto forward = cases::answer_with(plan, c, how);
  const stored::Tensor q(c.q, c.q_dtype, how.q);
  const cases::KvMemory kv(c, how.kv);
  const AttentionOptions options = cases::options_of(c, how);
  cases::Workspace workspace(workspace_bytes(plan, q.view(), kv.view(), options));
  Mass result;
  result.mass.assign(idx(c.shape.num_q_heads * num_keys(c)),
                     std::numeric_limits<float>::quiet_NaN());
  const auto ledger =
      column_mass(result.mass, plan, q.view(), kv.view(), forward.lse, workspace.span(), options);
  EXPECT_TRUE(workspace.guard_is_untouched());
  EXPECT_TRUE(ledger.has_value());
  result.ledger = ledger.value_or(Ledger{});
  EXPECT_EQ(result.ledger.executed_pairs, forward.ledger.executed_pairs);
  EXPECT_EQ(result.ledger.needed_pairs, forward.ledger.needed_pairs);
  return result;
}

void expect_mass_by_definition(const Case& c, How how = {}) {
  cases::for_each_isa([&](const std::string& isa) {
    how.isa = isa;
    const std::vector<float> got = mass_of(c, how).mass;
    std::int64_t row = 0;
    std::int64_t first_key = 0;
    for (std::size_t s = 0; s < c.sequences.size(); ++s) {
      const Range rows = c.sequences[s].rows;
      const oracle::Values q = cases::rows_of(c.q, row, row + rows.end - rows.begin);
      const auto want = oracle::column_mass_by_definition({q, c.k[s], c.v[s], rows.begin},
                                                          cases::reads_of(c, s), cases::rule_of(c));
      for (std::size_t head = 0; head < want.size(); ++head) {
        for (std::size_t key = 0; key < want[head].size(); ++key) {
          const float mass = got[head * idx(num_keys(c)) + idx(first_key) + key];
          ASSERT_NEAR(mass, want[head][key], 2e-5 * (1 + want[head][key]))
              << "head " << head << " key " << key << " of sequence " << s;
          if (want[head][key] == 0) {
            ASSERT_EQ(mass, 0);
          }
        }
      }
      row += rows.end - rows.begin;
      first_key += c.sequences[s].length;
    }
  });
}

Case case_of(const char* attend, DType dtype, std::vector<SequenceRows> sequences) {
  Case c;
  c.shape = {"heads", 4, 2, 14, 6};
  c.q_dtype = c.kv_dtype = dtype;
  c.attend = cases::unions(attend, true, 4);
  c.sequences = std::move(sequences);
  return filled(std::move(c), 71);
}

TEST(IsaColumnMass, FollowsTheDefinition) {
  for (const char* attend :
       {"full", "window(20)", "window(8)+sink(3)+global(every=19)", "dilated(5,7)",
        "window(5)+global(9,33)", "heads(0: full; 1-2: window(9); 3: sink(2))"}) {
    for (DType dtype : kDTypes) {
      SCOPED_TRACE(std::string(attend) + " " + std::string(to_string(dtype)));
      expect_mass_by_definition(
          case_of(attend, dtype, {whole(61), last_rows(5, 40), whole(0), last_rows(1, 33)}));
    }
  }
}

TEST(IsaColumnMass, FollowsTheDefinitionWithEveryOption) {
  Case c = case_of("window(20)+sink(2)", DType::kF32, {whole(50)});
  c.softcap = 2;
  c.alibi_slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  c.sink_logits = {0, 2, -1, 1};
  c.sm_scale = 0.7F;
  expect_mass_by_definition(c);
  How how;
  how.kv.page_size = 7;
  expect_mass_by_definition(c, how);
}

TEST(IsaColumnMass, FollowsTheDefinitionInBothDirections) {
  Case c;
  c.shape = {"heads", 3, 1, 14, 6};
  c.causal = false;
  c.attend = {{Window{5, 9}, GlobalFirst{2}, GlobalPositions{{40}}}};
  c.sequences = {whole(55)};
  expect_mass_by_definition(filled(std::move(c), 72));
}

TEST(IsaColumnMassLong, FollowsTheDefinitionOverSplits) {
  Case c;
  c.shape = {"heads", 2, 1, 8, 4};
  c.sequences = {last_rows(5, kSplitTokens + 3)};
  expect_mass_by_definition(filled(std::move(c), 73));
}

TEST(IsaColumnMass, SumsToTheNumberOfRowsOfEachHead) {
  const Case c = case_of("window(20)+sink(3)", DType::kF32, {whole(100)});
  cases::for_each_isa([&](const std::string& isa) {
    How how;
    how.isa = isa;
    const auto mass = mass_of(c, how).mass;
    for (std::ptrdiff_t head = 0; head < 4; ++head) {
      const auto begin = mass.begin() + head * 100;
      EXPECT_NEAR(std::accumulate(begin, begin + 100, 0.0), 100, 1e-3);
    }
  });
}

TEST(IsaColumnMass, OfRowsWithoutKeysIsZero) {
  Case c;
  c.shape = {"heads", 2, 1, 8, 4};
  c.sequences = {whole(3)};
  KeyRanges csr;
  for (int row = 0; row < 3; ++row) csr.append_row({});
  c.key_ranges = {csr};
  expect_mass_by_definition(filled(c, 74));
  c.sink_logits = {1, 2};
  expect_mass_by_definition(filled(std::move(c), 74));
}

TEST(IsaColumnMass, HasTheSameBitsForAnyNumberOfThreadsAndPages) {
  ThreadPool two(2), three(3);
  for (const char* attend : {"full", "window(20)+global(every=16)"}) {
    const Case c = case_of(attend, DType::kBf16, {whole(130), last_rows(3, 70)});
    cases::for_each_isa([&](const std::string& isa) {
      How how;
      how.isa = isa;
      const auto want = mass_of(c, how).mass;
      for (ThreadPool* pool : {&two, &three}) {
        for (std::int64_t page_size : {0, 16}) {
          how.pool = pool;
          how.kv.page_size = page_size;
          const auto got = mass_of(c, how).mass;
          EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
              << attend << ", " << pool->num_threads() << " threads, pages of " << page_size;
        }
      }
    });
  }
}

TEST(IsaColumnMass, IsNotTouchedByNumbersThatNoRowReads) {
  Case c = case_of("window(7)", DType::kF32, {last_rows(11, 50)});
  const oracle::Row read = cases::read_by_any(c, 0);
  for (std::int64_t key = 0; key < 50; ++key) {
    for (std::int64_t head = 0; !read[idx(key)] && head < 2; ++head) {
      c.k[0].at(key, head, 0) = std::numeric_limits<double>::quiet_NaN();
    }
  }
  expect_mass_by_definition(c);
}

// A key that is not a number spoils its own mass, through rows whose lse it spoiled; where rows
// cannot read it their part in other keys' mass stays.
TEST(IsaColumnMass, OfKeysThatNoSpoiledRowReadsStays) {
  const Case clean = case_of("chunk(20)", DType::kF32, {whole(60)});
  Case c = clean;
  c.k[0].at(25, 0, 3) = std::numeric_limits<double>::quiet_NaN();
  cases::for_each_isa([&](const std::string& isa) {
    How how;
    how.isa = isa;
    const auto before = mass_of(clean, how).mass;
    const auto after = mass_of(c, how).mass;
    for (std::size_t head = 0; head < 4; ++head) {
      for (std::size_t key = 0; key < 60; ++key) {
        const std::size_t at = head * 60 + key;
        const bool spoiled = head < 2 && key >= 20 && key < 40;
        if (!spoiled) {
          EXPECT_EQ(after[at], before[at]) << head << " " << key;
        }
      }
      EXPECT_EQ(std::isnan(after[head * 60 + 25]), head < 2);
    }
  });
}

TEST(ColumnMass, RefusesWhatDoesNotFitAndStopsWhenAsked) {
  const Case c = case_of("full", DType::kF32, {whole(20)});
  const Plan plan = cases::plan_of(c);
  const stored::Tensor q(c.q, c.q_dtype);
  const cases::KvMemory kv(c, {});
  std::vector<float> mass(80, 5);
  const std::vector<float> lse(80, 0);
  AttentionOptions options;
  cases::Workspace workspace(workspace_bytes(plan, q.view(), kv.view(), options));
  const auto call = [&](std::span<float> to, std::span<const float> with) {
    return column_mass(to, plan, q.view(), kv.view(), with, workspace.span(), options);
  };
  EXPECT_THROW(call(std::span(mass).first(79), lse), Error);
  EXPECT_THROW(call(mass, std::span(lse).first(79)), Error);
  EXPECT_THROW(call(mass, {}), Error);
  EXPECT_THROW(
      column_mass(mass, plan, q.view(), kv.view(), lse, workspace.span().first(0), options), Error);
  EXPECT_EQ(mass, std::vector<float>(80, 5)) << "wrote before it refused";
  std::stop_source stop;
  stop.request_stop();
  options.stop = stop.get_token();
  EXPECT_EQ(call(mass, lse), std::nullopt);
}

}  // namespace
}  // namespace lacuna

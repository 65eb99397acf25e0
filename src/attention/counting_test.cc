#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "kernels/kernel_table.h"
#include "lacuna/executed.h"
#include "problems.h"

// The counting build of the kernels' source, whose numbers count what is done with them, against
// cost's count. The kernels' own ledger takes no part.

namespace lacuna {
namespace {

using cases::Case;
using cases::How;

constexpr AttentionShape kShape = {"four heads on one", 4, 1, 24, 32};

// What the counting build did for one call, each tile an item of its own.
KernelWork counted(const Case& c) {
  static const bool added = [] {
    add_kernel_table(kKernelTableCounting);
    return true;
  }();
  EXPECT_TRUE(added);
  const std::vector<Topology> topologies = cases::topologies(c);
  PlanOptions options;
  options.tiles_per_item = 1;
  const Plan plan =
      make_plan(topologies, c.sequences, {c.shape.num_q_heads, c.shape.num_kv_heads}, options);
  take_counted_work();
  How how;
  how.isa = "counting";
  cases::answer_with(plan, c, how);
  return take_counted_work();
}

Executed predicted_of_heads(const Case& c) {
  std::vector<Topology> heads = cases::topologies(c);
  heads.resize(static_cast<std::size_t>(c.shape.num_q_heads), heads[0]);
  Executed sum;
  for (const SequenceRows& s : c.sequences) {
    for (const Topology& head : heads) {
      sum.pairs += executed(head, s.rows, s.length, kernel_tile()).pairs;
    }
    const Topology merged = Topology::merged(heads);
    sum.loaded_keys += executed(merged, s.rows, s.length, kernel_tile()).loaded_keys;
  }
  return sum;
}

void expect_counts(const Case& c, std::int64_t dims, std::int64_t lanes_of_key) {
  const Executed want = predicted_of_heads(c);
  const KernelWork got = counted(c);
  EXPECT_EQ(Int128{got.multiply_adds}, want.pairs * dims);
  EXPECT_EQ(Int128{got.exponentials}, want.pairs);
  EXPECT_EQ(Int128{got.loaded_lanes}, want.loaded_keys * lanes_of_key);
}

Case case_of(const Problem& problem, std::vector<SequenceRows> sequences) {
  Case c;
  c.shape = kShape;
  c.causal = problem.causal;
  c.attend = cases::unions(problem.attend, problem.causal, kShape.num_q_heads);
  c.sequences = std::move(sequences);
  return c;
}

TEST(CountingKernel, DoesExactlyWhatCostPredictsOnEveryListedTopology) {
  for (const Problem& problem : kProblems) {
    if (problem.lengths.data() != kSmallLengths) continue;
    for (std::int64_t length : problem.lengths) {
      SCOPED_TRACE(std::string(problem.name) + " of " + std::to_string(length));
      const Case c = cases::filled(case_of(problem, {{{0, length}, length}}));
      expect_counts(c, kShape.head_dim + kShape.v_head_dim, kShape.head_dim + kShape.v_head_dim);
    }
  }
}

TEST(CountingKernel, DoesExactlyWhatCostPredictsForPairsOfBfloat16) {
  for (const Problem& problem : kProblems) {
    if (problem.lengths.data() != kSmallLengths) continue;
    SCOPED_TRACE(problem.name);
    Case c = case_of(problem, {{{0, 65}, 65}});
    c.q_dtype = c.kv_dtype = DType::kBf16;
    c = cases::filled(std::move(c));
    expect_counts(c, kShape.head_dim + kShape.v_head_dim,
                  (kShape.head_dim + kShape.v_head_dim) / 2);
  }
}

TEST(CountingKernel, DoesExactlyWhatCostPredictsForWholeNumbers) {
  for (const Problem& problem : kProblems) {
    if (problem.lengths.data() != kSmallLengths) continue;
    SCOPED_TRACE(problem.name);
    Case c = case_of(problem, {{{0, 65}, 65}});
    c.shape = {"groups", 4, 1, 32, 64};
    c.kv_dtype = DType::kInt8;
    c = cases::filled(std::move(c));
    expect_counts(c, 32 + 64, (32 + 64) / 4);
    c.kv_dtype = DType::kInt4;
    c = cases::filled(std::move(c));
    expect_counts(c, 32 + 64, (32 + 64) / 8);
  }
}

TEST(CountingKernel, PadsDimsAsTheKernelsSay) {
  Case c = case_of(kProblems[0], {{{0, 33}, 33}});
  c.shape = {"odd", 3, 1, 7, 19};
  c = cases::filled(std::move(c));
  expect_counts(c, 7 + 32, 7 + 32);
  c.q_dtype = c.kv_dtype = DType::kBf16;
  c = cases::filled(std::move(c));
  expect_counts(c, 8 + 32, (8 + 32) / 2);
  c.kv_dtype = DType::kInt8;
  c = cases::filled(std::move(c));
  expect_counts(c, 8 + 32, (8 + 32) / 4);
}

TEST(CountingKernel, DoesExactlyWhatCostPredictsForChunks) {
  for (const Problem& problem : kProblems) {
    if (problem.lengths.data() != kSmallLengths || !problem.causal) continue;
    SCOPED_TRACE(problem.name);
    const Case c = cases::filled(case_of(problem, {{{37, 120}, 120}}));
    expect_counts(c, kShape.head_dim + kShape.v_head_dim, kShape.head_dim + kShape.v_head_dim);
  }
}

}  // namespace
}  // namespace lacuna

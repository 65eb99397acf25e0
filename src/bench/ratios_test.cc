#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/kernel_bench.h"

namespace lacuna {
namespace {

// A row whose calls took `seconds`, one a round, on a machine of 100 GFLOP/s a thread.
KernelRow row_of(const KernelProblem& problem, const std::vector<double>& seconds,
                 std::int64_t needed_pairs = 1000) {
  KernelRow row;
  row.problem = problem;
  row.needed_pairs = needed_pairs;
  for (std::size_t idx = 0; idx < seconds.size(); ++idx) {
    row.rounds.push_back({.round = static_cast<std::int64_t>(idx),
                          .plan_seconds = 0,
                          .planned_seconds = seconds[idx],
                          .whole_seconds = seconds[idx],
                          .f32_flops_per_s = 1e11 * static_cast<double>(problem.threads),
                          .bf16_flops_per_s = 0});
  }
  return row;
}

KernelProblem problem_of(const char* attend) {
  KernelProblem problem;
  problem.attend = attend;
  return problem;
}

KernelRatio find(const std::vector<KernelRatio>& ratios, const std::string& what) {
  const auto found = std::ranges::find(ratios, what, &KernelRatio::what);
  if (found == ratios.end()) throw Error("no ratio " + what);
  return *found;
}

TEST(KernelRatios, AreTakenRoundByRoundAndNotOfMedians) {
  // The machine slows down by ten in the second and third round: the ratio does not notice.
  const std::vector<KernelRow> rows = {row_of(problem_of("full"), {1, 10, 10}),
                                       row_of(problem_of("window(8)"), {0.5, 5, 5}, 250)};
  const KernelRatio ratio = find(kernel_ratios(rows), "useful rate over the dense rate");
  EXPECT_DOUBLE_EQ(ratio.value.p50, 0.5);
  EXPECT_DOUBLE_EQ(ratio.value.max, 0.5);
  EXPECT_EQ(ratio.value.num_runs, 3);
  EXPECT_EQ(ratio.base, rows[0].problem.name());
}

TEST(KernelRatios, RoundsThatOnlyOneRowHasAreLeftOut) {
  const std::vector<KernelRow> rows = {row_of(problem_of("full"), {1}),
                                       row_of(problem_of("window(8)"), {2, 9, 9})};
  EXPECT_EQ(find(kernel_ratios(rows), "useful rate over the dense rate").value.num_runs, 1);
  std::vector<KernelRow> apart = rows;
  apart[0].rounds[0].round = 7;
  EXPECT_TRUE(kernel_ratios(apart).empty());
}

TEST(KernelRatios, CompareOnlyWhatIsOtherwiseAlike) {
  KernelProblem other = problem_of("window(8)");
  other.dtype = DType::kBf16;
  const std::vector<KernelRow> rows = {row_of(problem_of("full"), {1}), row_of(other, {1})};
  EXPECT_TRUE(kernel_ratios(rows).empty());
}

TEST(KernelRatios, AUnionIsComparedWithItsFirstTermAndWithDense) {
  const std::vector<KernelRow> rows = {row_of(problem_of("window(8)"), {1}),
                                       row_of(problem_of("window(8)+sink(2)"), {2}),
                                       row_of(problem_of("full"), {4})};
  const std::vector<KernelRatio> ratios = kernel_ratios(rows);
  EXPECT_DOUBLE_EQ(find(ratios, "useful rate over its first term's").value.p50, 0.5);
  EXPECT_EQ(ratios.size(), 3U);  // two over dense
}

TEST(KernelRatios, ThreadsAreHeldAgainstOneThreadAndAgainstTheProbe) {
  KernelProblem two = problem_of("full");
  two.threads = 2;
  const std::vector<KernelRow> rows = {row_of(problem_of("full"), {1.0}), row_of(two, {0.625})};
  const std::vector<KernelRatio> ratios = kernel_ratios(rows);
  EXPECT_DOUBLE_EQ(find(ratios, "rate over one thread's").value.p50, 1.6);
  EXPECT_DOUBLE_EQ(find(ratios, "gain by threads over the probe's own").value.p50, 0.8);
}

TEST(KernelRatios, FewRowsAreComparedByTheTimeOfARow) {
  KernelProblem few = problem_of("full");
  few.rows = 16;
  KernelProblem many = few;
  many.rows = 64;
  const std::vector<KernelRow> rows = {row_of(few, {1}), row_of(many, {2})};
  const KernelRatio ratio = find(kernel_ratios(rows), "time a row over that of 64 rows");
  EXPECT_DOUBLE_EQ(ratio.value.p50, 2);
}

TEST(KernelRatios, AMaskWithoutSkippingIsComparedWithRun) {
  KernelProblem masked = problem_of("window(8)");
  masked.path = KernelPath::kMaskedDense;
  const std::vector<KernelRow> rows = {row_of(problem_of("window(8)"), {1}), row_of(masked, {12})};
  const std::vector<KernelRatio> ratios = kernel_ratios(rows);
  ASSERT_EQ(ratios.size(), 1U);
  EXPECT_DOUBLE_EQ(ratios[0].value.p50, 12);
}

TEST(KernelRow, TheLimitOfSixteenBitInputsIsTheFasterProduct) {
  KernelRow row = row_of(problem_of("full"), {1});
  row.needed_pairs = 1'000'000;
  const double f32 = row.share_of_limit(&KernelRound::whole_seconds).p50;
  EXPECT_DOUBLE_EQ(f32, 512e6 / 1e11);
  row.problem.dtype = DType::kBf16;
  row.rounds[0].bf16_flops_per_s = 2e11;
  EXPECT_DOUBLE_EQ(row.share_of_limit(&KernelRound::whole_seconds).p50, 512e6 / 1.9e11);
  row.rounds[0].bf16_flops_per_s = 0.5e11;  // slower than f32 on some machines
  EXPECT_DOUBLE_EQ(row.share_of_limit(&KernelRound::whole_seconds).p50, f32);
}

TEST(KernelRow, CountsBothWidthsAsUseful) {
  KernelRow row = row_of(problem_of("full"), {1}, 10);
  row.problem.head_dim = 576;
  row.problem.v_head_dim = 512;
  EXPECT_DOUBLE_EQ(row.useful_flops(), 2.0 * (576 + 512) * 10);
}

TEST(KernelRow, IsAsPredictedOnlyWhereBothCountsAre) {
  KernelRow row = row_of(problem_of("full"), {1}, 10);
  row.predicted_pairs = 16;
  row.ledger.needed_pairs = 10;
  row.ledger.executed_pairs = 16;
  EXPECT_TRUE(row.as_predicted());
  EXPECT_DOUBLE_EQ(row.executed_per_needed(), 1.6);
  row.ledger.executed_pairs = 32;
  EXPECT_FALSE(row.as_predicted());
  row.ledger = {.executed_pairs = 16, .needed_pairs = 9};
  EXPECT_FALSE(row.as_predicted());
}

}  // namespace
}  // namespace lacuna

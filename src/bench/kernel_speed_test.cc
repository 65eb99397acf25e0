#include "lacuna/kernel_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "lacuna/error.h"
#include "problems.h"

namespace lacuna {
namespace {

KernelRow row_of(const KernelProblem& problem, double seconds, double f32_flops_per_s = 1e9) {
  KernelRow row;
  row.problem = problem;
  row.needed_pairs = 1'000'000;
  row.ledger.needed_pairs = 1'000'000;
  row.ledger.executed_pairs = 1'050'000;
  row.ledger.distinct_bytes = 1 << 20;
  row.rounds = {{.round = 0,
                 .plan_seconds = 0,
                 .planned_seconds = seconds,
                 .whole_seconds = seconds,
                 .f32_flops_per_s = f32_flops_per_s,
                 .bf16_flops_per_s = 0}};
  return row;
}

KernelGoal goal_of(const std::vector<KernelGoal>& goals, const std::string& what) {
  const auto found = std::ranges::find_if(
      goals, [&](const KernelGoal& goal) { return goal.what.find(what) != std::string::npos; });
  if (found == goals.end()) throw Error("no goal " + what);
  return *found;
}

TEST(SpeedProblems, EveryRowHasANameOfItsOwn) {
  std::set<std::string> names;
  const std::vector<KernelProblem> problems = speed_problems(2);
  for (const KernelProblem& problem : problems) names.insert(problem.name());
  EXPECT_EQ(names.size(), problems.size());
}

TEST(SpeedProblems, OneCpuHasNoRowOfTwoThreads) {
  const auto has_two = [](const std::vector<KernelProblem>& problems) {
    return std::ranges::any_of(problems, [](const KernelProblem& p) { return p.threads > 1; });
  };
  EXPECT_FALSE(has_two(speed_problems(1)));
  EXPECT_TRUE(has_two(speed_problems(2)));
}

TEST(SpeedProblems, EveryLineOfTheTableIsMetOrMissedOnceItsRowsAreTimed) {
  KernelBenchResult result;
  std::vector<LongPlan> plans;
  for (const KernelGoal& goal : speed_goals(result, plans)) EXPECT_FALSE(goal.value) << goal.what;
  for (const KernelProblem& problem : speed_problems(2)) {
    result.rows.push_back(row_of(problem, 0.01));
  }
  result.ratios = kernel_ratios(result.rows);
  result.bandwidth = {{1, 1 << 24, 1e10}};
  LongPlan plan;
  plan.plan_seconds.p50 = 0.01;
  plan.run_seconds_estimate = 1;
  plan.workspace_bytes = 3 << 20;
  plans.push_back(plan);
  const std::vector<KernelGoal> goals = speed_goals(result, plans);
  EXPECT_EQ(goals.size(), 27U);
  for (const KernelGoal& goal : goals) EXPECT_TRUE(goal.value) << goal.what;
  EXPECT_DOUBLE_EQ(*goal_of(goals, "forward workspace").value, 3);
  EXPECT_DOUBLE_EQ(*goal_of(goals, "plan for 131072").value, 0.01);
}

TEST(SpeedGoals, AShareIsTheUsefulRateOverTheLimit) {
  KernelBenchResult result;
  KernelProblem problem;
  result.rows = {row_of(problem, 1, 512e6 / 0.9)};
  const KernelGoal goal = goal_of(speed_goals(result, {}), "dense causal, f32, D 128");
  EXPECT_NEAR(goal.value.value(), 0.9, 1e-12);
  EXPECT_TRUE(goal.met());
  result.rows = {row_of(problem, 1.2, 512e6 / 0.9)};
  EXPECT_FALSE(goal_of(speed_goals(result, {}), "dense causal, f32, D 128").met());
}

TEST(SpeedGoals, ExecutedPairsAreAtMost) {
  KernelBenchResult result;
  KernelProblem problem;
  problem.attend = "window(512)";
  result.rows = {row_of(problem, 1)};
  EXPECT_TRUE(goal_of(speed_goals(result, {}), "window 512, executed").met());
  result.rows[0].ledger.executed_pairs = 1'090'000;
  EXPECT_FALSE(goal_of(speed_goals(result, {}), "window 512, executed").met());
}

TEST(SpeedGoals, FewRowsMayCostWhatReadingKAndVCosts) {
  constexpr const char* kPackedInTheCall = "2..63 rows over 4096 keys packed in the call";
  KernelProblem few;
  few.rows = 2;
  KernelProblem many;
  many.rows = 64;
  KernelBenchResult result;
  result.rows = {row_of(few, 0.5), row_of(many, 1)};  // 16 times as much a row
  result.ratios = kernel_ratios(result.rows);
  result.bandwidth = {{1, 1 << 24, 1e12}};
  EXPECT_NEAR(goal_of(speed_goals(result, {}), kPackedInTheCall).value.value(), 16 / 1.5, 1e-9);
  EXPECT_FALSE(goal_of(speed_goals(result, {}), "2..63 rows over 4096 keys, worst").value);
  result.bandwidth = {{1, 1 << 24, double{1 << 20} / 0.5}};  // K and V alone take all of it
  EXPECT_NEAR(goal_of(speed_goals(result, {}), kPackedInTheCall).value.value(), 1, 1e-9);
}

TEST(ListedProblems, HoldEveryTopologyThatHasAShortLength) {
  const std::vector<KernelProblem> problems = listed_problems(257);
  for (const Problem& listed : kProblems) {
    if (*std::ranges::min_element(listed.lengths) > 257) continue;
    EXPECT_TRUE(std::ranges::any_of(problems, [&](const KernelProblem& problem) {
      return problem.attend == listed.attend && problem.causal == listed.causal &&
             problem.length == 257;
    })) << listed;
  }
}

TEST(ScanProblems, DoubleTheLengthAndEndAtTheLastThatFits) {
  const std::vector<KernelProblem> problems = scan_problems({}, 100, 799);
  ASSERT_EQ(problems.size(), 6U);
  EXPECT_EQ(problems[0].length, 100);
  EXPECT_EQ(problems[4].length, 400);
  EXPECT_EQ(problems[4].attend, "full");
  EXPECT_EQ(problems[5].attend, "window(512)");
  EXPECT_THROW(scan_problems({}, 8, 4), Error);
  EXPECT_THROW(scan_problems({}, 0, 4), Error);
}

TEST(ScanCurves, TheHybridIsFiveWindowsAndOneFull) {
  std::vector<KernelRow> rows;
  double seconds = 6;
  for (const KernelProblem& problem : scan_problems({}, 1024, 2048)) {
    rows.push_back(row_of(problem, seconds));
    seconds *= 2;
  }
  const std::vector<ScanCurve> curves = scan_curves(rows);
  ASSERT_EQ(curves.size(), 3U);
  EXPECT_EQ(curves[0].seconds, (std::vector<double>{6, 24}));
  EXPECT_EQ(curves[1].seconds, (std::vector<double>{12, 48}));
  EXPECT_EQ(curves[2].name, "window(512)*5, full: mean layer");
  EXPECT_DOUBLE_EQ(curves[2].seconds[0], 11);
  EXPECT_EQ(curves[2].lengths, (std::vector<double>{1024, 2048}));
}

TEST(ScanCurves, AnInterruptedScanHasNoHybridOfHalfARow) {
  const std::vector<KernelRow> rows = {row_of(scan_problems({}, 1024, 1024)[0], 1)};
  EXPECT_EQ(scan_curves(rows).size(), 1U);
}

TEST(LongPlans, SayMemoryAndTheTimeOfARunAtTheRateOf4096Tokens) {
  KernelProblem problem;
  problem.attend = "window(512)";
  const std::vector<KernelRow> rows = {row_of(problem, 0.5)};
  const std::vector<LongPlan> plans = time_long_plans(rows, 1, {});
  ASSERT_EQ(plans.size(), 6U);
  int estimates = 0;
  for (const LongPlan& plan : plans) {
    EXPECT_GT(plan.workspace_bytes, 0) << plan.problem.name();
    EXPECT_GT(plan.plan_seconds.p50, 0);
    if (!plan.run_seconds_estimate) continue;
    ++estimates;
    EXPECT_EQ(plan.rate_of, problem.name());
    const double pairs = static_cast<double>(plan.needed_pairs);
    EXPECT_NEAR(*plan.run_seconds_estimate, 0.5 * pairs / 1e6, 1e-6 * pairs);
  }
  EXPECT_EQ(estimates, 1);
}

}  // namespace
}  // namespace lacuna

#include "cli/bench_kernels.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lacuna/error.h"

namespace lacuna::cli {
namespace {

std::string refusal(const BenchKernelsFlags& flags) {
  try {
    problems_of(flags);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BenchProblems, AreEveryCombinationOfWhatWasGiven) {
  BenchKernelsFlags flags;
  flags.lengths = {64, 128};
  flags.attends = {"full", "window( 8 )", "sink(2)"};
  flags.dtypes = {"f32", "bf16"};
  flags.threads = {1, 2};
  flags.rows = {1, 2, 3};
  flags.masked_dense = true;
  const std::vector<KernelProblem> problems = problems_of(flags);
  EXPECT_EQ(problems.size(), 2U * 3 * 2 * 2 * 3 * 2);
  std::set<std::string> names;
  std::set<std::string> attends;
  for (const KernelProblem& problem : problems) {
    names.insert(problem.name());
    attends.insert(problem.attend);
  }
  EXPECT_EQ(names.size(), problems.size());
  EXPECT_EQ(attends, (std::set<std::string>{"full", "window(8)", "sink(2)"}));
}

TEST(BenchProblems, WithoutAFlagThatSaysOneAreTheTableOfSpeeds) {
  EXPECT_EQ(problems_of({}), speed_problems(num_allowed_cpus()));
  BenchKernelsFlags flags;
  flags.repetitions = 3;
  flags.json = true;
  EXPECT_EQ(problems_of(flags), problems_of({}));
  flags.cpu_time = true;  // of one thread only
  EXPECT_EQ(problems_of(flags), speed_problems(1));
  flags.list = "problems";
  EXPECT_EQ(problems_of(flags), listed_problems(8192));
}

TEST(BenchProblems, ValueHeadsAreAsWideAsKeysUnlessTheyAreSaid) {
  BenchKernelsFlags flags;
  flags.head_dim = 96;
  EXPECT_EQ(problems_of(flags).front().v_head_dim, 96);
  flags.v_head_dim = 64;
  EXPECT_EQ(problems_of(flags).front().v_head_dim, 64);
}

TEST(BenchProblems, FewQueryHeadsNeedNoOtherFlag) {
  BenchKernelsFlags flags;
  flags.num_q_heads = 1;
  EXPECT_EQ(problems_of(flags).front().heads, (HeadCounts{1, 1}));
}

TEST(BenchProblems, OnlyThoseWhoseNameHoldsTheTextAreLeft) {
  BenchKernelsFlags flags;
  flags.only = "d256 bf16";
  for (const KernelProblem& problem : problems_of(flags)) {
    EXPECT_EQ(problem.head_dim, 256);
    EXPECT_EQ(problem.dtype, DType::kBf16);
  }
  flags.only = "d257";
  EXPECT_NE(refusal(flags).find("'d257', which is in no row's name; allowed: such as full"),
            std::string::npos);
}

TEST(BenchProblems, AScanTakesEachDTypeAndThreads) {
  BenchKernelsFlags flags;
  flags.scan = "64..256";
  flags.dtypes = {"bf16"};
  flags.threads = {2};
  const std::vector<KernelProblem> problems = problems_of(flags);
  ASSERT_EQ(problems.size(), 6U);
  EXPECT_EQ(problems[0].dtype, DType::kBf16);
  EXPECT_EQ(problems[0].threads, 2);
  EXPECT_EQ(problems[5].length, 256);
}

TEST(BenchProblems, FlagsThatExcludeEachOtherAreNamed) {
  const auto says = [](auto change, const char* words) {
    BenchKernelsFlags flags;
    change(flags);
    EXPECT_NE(refusal(flags).find(words), std::string::npos) << refusal(flags);
  };
  says([](auto& f) { f.list = "sped"; }, "did you mean 'speed'?");
  says([](auto& f) { f.list = "speed", f.lengths = {64}; }, "--list is given beside");
  says([](auto& f) { f.scan = "1024"; }, "--scan is '1024'; allowed: FROM..TO");
  says([](auto& f) { f.scan = "64..32"; }, "the scan is 64..32");
  says([](auto& f) { f.scan = "0..32"; }, "--scan's FROM");
  says([](auto& f) { f.scan = "1..8", f.attends = {"full"}; }, "--scan is given beside");
  says([](auto& f) { f.svg = "x.svg"; }, "--svg is given without --scan");
  says([](auto& f) { f.dump_dir = "x", f.lengths = {1, 2}; }, "2 rows; allowed: one row");
  says([](auto& f) { f.dump_dir = "x", f.on_request = true; }, "--on-request and --dump-dir");
  says([](auto& f) { f.dtypes = {"f31"}; }, "f31");
  says([](auto& f) { f.attends = {"widow(3)"}; }, "widow");
}

TEST(BenchFaults, NameTheRowAndWhatWasExpected) {
  KernelRow row;
  row.needed_pairs = 10;
  row.predicted_pairs = 16;
  row.ledger = {.executed_pairs = 16, .needed_pairs = 10};
  EXPECT_TRUE(faults_of(std::span(&row, 1)).empty());
  row.ledger.executed_pairs = 32;
  ASSERT_EQ(faults_of(std::span(&row, 1)).size(), 1U);
  EXPECT_NE(faults_of(std::span(&row, 1))[0].find("executed 32 pairs, predicted 16"),
            std::string::npos);
  row.check.worst = 2.5;
  row.check.max_error = 0.125;
  ASSERT_EQ(faults_of(std::span(&row, 1)).size(), 2U);
  EXPECT_NE(faults_of(std::span(&row, 1))[1].find("off by up to 0.125"), std::string::npos);
}

}  // namespace
}  // namespace lacuna::cli

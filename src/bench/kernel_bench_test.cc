#include "lacuna/kernel_bench.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna {
namespace {

KernelProblem tiny(const char* attend = "window(9)+sink(2)") {
  KernelProblem problem;
  problem.attend = attend;
  problem.length = 48;
  problem.heads = {4, 2};
  problem.head_dim = 24;
  problem.v_head_dim = 16;
  return problem;
}

// One short round: nothing here is about speed.
KernelBenchOptions quick() {
  KernelBenchOptions options;
  options.repetitions = 1;
  options.run_ns = 1;
  return options;
}

std::string refusal(KernelProblem problem) {
  try {
    KernelBench bench(std::span(&problem, 1), quick());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KernelBench, EveryKindOfRowIsAsPredictedAndRight) {
  std::vector<KernelProblem> problems = {tiny(), tiny("full"), tiny("global(every=8)+window(3)"),
                                         tiny("heads(0-1: full; 2-3: window(5))")};
  problems.push_back(tiny());
  problems.back().learned_sinks = true;
  problems.push_back(tiny());
  problems.back().path = KernelPath::kMaskedDense;
  problems.push_back(tiny());
  problems.back().path = KernelPath::kPrepacked;
  problems.push_back(tiny());
  problems.back().rows = 3;
  problems.push_back(tiny("window(4,4)"));
  problems.back().causal = false;
  problems.push_back(tiny());
  problems.back().threads = 2;
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    problems.push_back(tiny());
    problems.back().dtype = dtype;
    problems.push_back(problems.back());
    problems.back().path = KernelPath::kPrepacked;
  }
  const KernelBenchResult result = run_kernel_bench(problems, quick());
  ASSERT_EQ(result.rows.size(), problems.size());
  EXPECT_FALSE(result.interrupted);
  for (const KernelRow& row : result.rows) {
    EXPECT_TRUE(row.as_predicted()) << row.problem.name();
    EXPECT_TRUE(row.check.agrees()) << row.problem.name() << ": " << row.check.worst;
    ASSERT_EQ(row.rounds.size(), 1U);
    EXPECT_GT(row.rounds[0].whole_seconds, 0);
    EXPECT_GT(row.rounds[0].planned_seconds, 0);
    EXPECT_GT(row.rounds[0].f32_flops_per_s, 0);
    EXPECT_GE(row.rounds[0].cpu_share, 0);
    EXPECT_LE(row.rounds[0].cpu_share, 1);
  }
}

TEST(KernelBench, RoundsGoOverAllRows) {
  const std::vector<KernelProblem> problems = {tiny(), tiny("full")};
  KernelBenchOptions options = quick();
  options.repetitions = 3;
  std::vector<std::string> order;
  options.progress = [&](std::int64_t, std::int64_t, std::string_view next) {
    order.emplace_back(next);
  };
  const KernelBenchResult result = run_kernel_bench(problems, options);
  EXPECT_EQ(result.rows[0].rounds.size(), 3U);
  EXPECT_EQ(result.rows[1].rounds.back().round, 2);
  const auto size = order.size();
  ASSERT_GE(size, 6U);
  for (std::size_t idx = 0; idx < 6; ++idx) {
    EXPECT_EQ(order[size - 6 + idx], problems[idx % 2].name());
  }
}

TEST(KernelBench, ARowThatTookLongIsLeftOutOfLaterRounds) {
  const std::vector<KernelProblem> problems = {tiny()};
  KernelBenchOptions options = quick();
  options.repetitions = 5;
  options.row_ns = 1;
  EXPECT_EQ(run_kernel_bench(problems, options).rows[0].rounds.size(), 1U);
}

TEST(KernelBench, AStopBeforeTheStartGivesNoRow) {
  std::stop_source source;
  source.request_stop();
  KernelBenchOptions options = quick();
  options.stop = source.get_token();
  const std::vector<KernelProblem> problems = {tiny()};
  const KernelBenchResult result = run_kernel_bench(problems, options);
  EXPECT_TRUE(result.interrupted);
  EXPECT_TRUE(result.rows.empty());
}

TEST(KernelBench, AStopInTheMiddleLeavesWhatIsDone) {
  std::stop_source source;
  KernelBenchOptions options = quick();
  options.repetitions = 4;
  options.stop = source.get_token();
  const std::vector<KernelProblem> problems = {tiny(), tiny("full")};
  options.progress = [&](std::int64_t done, std::int64_t total, std::string_view) {
    if (total == 8 && done == 3) source.request_stop();  // two rows, four rounds
  };
  const KernelBenchResult result = run_kernel_bench(problems, options);
  EXPECT_TRUE(result.interrupted);
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.rows[0].rounds.size(), 2U);
  EXPECT_EQ(result.rows[1].rounds.size(), 1U);
}

TEST(KernelBench, NamesWhatIsOutOfRange) {
  const auto changed = [](auto change) {
    KernelProblem problem = tiny();
    change(problem);
    return refusal(problem);
  };
  EXPECT_NE(changed([](auto& p) { p.length = 0; }).find("length is 0; allowed: 1.."),
            std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.rows = 49; }).find("rows is 49; allowed: 0..48"),
            std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.heads = {4, 3}; }).find("num_q_heads is 4"), std::string::npos);
  EXPECT_NE(changed([](auto& p) {
              p.heads = {4, 0};
            }).find("num_kv_heads is 0"),
            std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.head_dim = 577; }).find("head_dim is 577; allowed: 1..576"),
            std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.threads = 0; }).find("threads is 0"), std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.attend = "windw(3)"; }).find("windw"), std::string::npos);
  EXPECT_NE(changed([](auto& p) { p.attend = "heads(0: full)"; }).find("head"), std::string::npos);
  const std::string isa = changed([](auto& p) { p.isa = "portabel"; });
  EXPECT_NE(isa.find("isa is 'portabel'"), std::string::npos);
  EXPECT_NE(isa.find("did you mean 'portable'?"), std::string::npos);
}

TEST(KernelBench, RefusesOptionsAndRowsOutOfRange) {
  const KernelProblem problem = tiny();
  const std::span<const KernelProblem> one(&problem, 1);
  KernelBenchOptions options = quick();
  options.repetitions = 0;
  EXPECT_THROW(run_kernel_bench(one, options), Error);
  options = quick();
  options.run_ns = 0;
  EXPECT_THROW(run_kernel_bench(one, options), Error);
  KernelBench bench(one, quick());
  EXPECT_TRUE(bench.time_once(0, 5));
  EXPECT_EQ(bench.rows()[0].rounds.back().round, 5);
  EXPECT_THROW(bench.time_once(1, 0), Error);
}

TEST(KernelBench, CpuTimeIsForRowsOfOneThread) {
  std::vector<KernelProblem> problems = {tiny()};
  KernelBenchOptions options = quick();
  options.cpu_time = true;
  options.run_ns = 1'000'000;
  EXPECT_GT(run_kernel_bench(problems, options).rows.at(0).rounds.at(0).whole_seconds, 0);
  problems[0].threads = 2;
  EXPECT_THROW(run_kernel_bench(problems, options), Error);
}

TEST(KernelProblem, TheNameSaysWhatIsNotUsual) {
  KernelProblem problem;
  EXPECT_EQ(problem.name(), "full n4096 h8/2 d128 f32 t1");
  problem = {.attend = "window(4,4)",
             .causal = false,
             .length = 64,
             .rows = 2,
             .heads = {9, 3},
             .head_dim = 576,
             .v_head_dim = 512,
             .dtype = DType::kF16,
             .learned_sinks = true,
             .threads = 2,
             .isa = "avx2",
             .path = KernelPath::kMaskedDense};
  EXPECT_EQ(problem.name(),
            "window(4,4) bidirectional n64 h9/3 d576/512 f16 t2 rows 2 sinks avx2 masked_dense");
}

TEST(DumpKernelProblem, WritesEveryTensorWithItsBytes) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "lacuna-kernel-dump";
  std::filesystem::create_directories(folder);
  KernelProblem problem = tiny();
  problem.dtype = DType::kBf16;
  problem.learned_sinks = true;
  problem.rows = 10;
  dump_kernel_problem(problem, 3, folder.string());
  const auto size = [&](const char* name) { return std::filesystem::file_size(folder / name); };
  EXPECT_EQ(size("q.bin"), 10U * 4 * 24 * 2);
  EXPECT_EQ(size("k.bin"), 48U * 2 * 24 * 2);
  EXPECT_EQ(size("v.bin"), 48U * 2 * 16 * 2);
  EXPECT_EQ(size("out.bin"), 10U * 4 * 16 * 2);
  EXPECT_EQ(size("lse.bin"), 10U * 4 * 4);
  EXPECT_EQ(size("sinks.bin"), 4U * 4);
  const std::string json = read_file((folder / "problem.json").string(), 1 << 20);
  EXPECT_NE(json.find("\"attend\": \"window(9)+sink(2)\""), std::string::npos);
  std::filesystem::remove_all(folder);
  EXPECT_THROW(dump_kernel_problem(problem, 3, folder.string()), Error);
}

}  // namespace
}  // namespace lacuna

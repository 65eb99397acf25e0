#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lacuna/cpu.h"
#include "lacuna/kernel_bench.h"
#include "lacuna/kernel_speed.h"
#include "lacuna/svg.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed. What says a problem is empty unless given: then the list is used.
struct BenchKernelsFlags {
  std::string list;  // "speed", "problems"
  std::string only;
  std::vector<std::int64_t> lengths;
  std::vector<std::string> attends;
  std::vector<std::string> dtypes;
  std::vector<std::int64_t> threads;
  std::vector<std::int64_t> rows;
  std::optional<std::int64_t> num_q_heads;
  std::optional<std::int64_t> num_kv_heads;
  std::optional<std::int64_t> head_dim;
  std::optional<std::int64_t> v_head_dim;
  bool bidirectional = false;
  bool learned_sinks = false;
  bool masked_dense = false;
  bool prepacked = false;
  std::string isa;
  std::string scan;
  std::string svg;
  std::int64_t repetitions = 7;
  std::int64_t min_time_ms = 10;
  std::int64_t row_seconds = 20;
  std::int64_t seed = 1;
  bool cpu_time = false;
  std::string dump_dir;
  bool on_request = false;
  bool json = false;
};

void add_bench_kernels_flags(CLI::App& app, BenchKernelsFlags& flags);

// The problems that the flags ask for. Throws Error where flags exclude each other, a text is none
// of those allowed, or no problem is left.
std::vector<KernelProblem> problems_of(const BenchKernelsFlags& flags);

struct BenchReport {
  BenchKernelsFlags flags;
  CpuInfo cpu;
  KernelBenchResult result;
  std::vector<LongPlan> long_plans;
  std::vector<KernelGoal> goals;
  std::vector<ScanCurve> curves;
};
Chart chart_of(std::span<const ScanCurve> curves);
std::string bench_text(const BenchReport& report);
// With the keys of docs/schema/bench_kernels.schema.json.
std::string bench_json(const BenchReport& report);
// The rows before they are timed, in one line; and one timed figure of one of them.
std::string bench_rows_line(std::span<const KernelRow> rows);
std::string bench_round_line(const KernelRow& row, std::size_t row_idx);

// What must never be: a row that executed other pairs than predicted, or that is wrong.
std::vector<std::string> faults_of(std::span<const KernelRow> rows);

// Measures and prints; returns the faults. Progress goes to the standard error stream.
std::vector<std::string> bench_kernels(const BenchKernelsFlags& flags,
                                       const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli

#include "cli/bench_kernels.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/integer.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kLongestListed = 8192;  // of --list problems
constexpr std::int64_t kMostTokens = 1 << 24;

const std::vector<std::string> kLists = {"speed", "problems"};

bool says_problem(const BenchKernelsFlags& flags) {
  return !flags.lengths.empty() || !flags.attends.empty() || !flags.dtypes.empty() ||
         !flags.threads.empty() || !flags.rows.empty() || flags.num_q_heads || flags.num_kv_heads ||
         flags.head_dim || flags.v_head_dim || flags.bidirectional || flags.learned_sinks ||
         flags.masked_dense || flags.prepacked || !flags.isa.empty() || !flags.scan.empty();
}

// The values that were given, or the one that stands for none.
template <typename Value>
std::vector<Value> given_or(const std::vector<Value>& given, Value otherwise) {
  return given.empty() ? std::vector<Value>{std::move(otherwise)} : given;
}

KernelProblem base_problem(const BenchKernelsFlags& flags) {
  KernelProblem base;
  base.causal = !flags.bidirectional;
  base.heads.num_q_heads = static_cast<int>(flags.num_q_heads.value_or(base.heads.num_q_heads));
  // Fewer query heads than the usual KV heads must not need a second flag.
  base.heads.num_kv_heads = static_cast<int>(
      flags.num_kv_heads.value_or(std::min(base.heads.num_kv_heads, base.heads.num_q_heads)));
  base.head_dim = flags.head_dim.value_or(base.head_dim);
  base.v_head_dim = flags.v_head_dim.value_or(base.head_dim);
  base.learned_sinks = flags.learned_sinks;
  base.isa = flags.isa;
  return base;
}

void add_with_paths(std::vector<KernelProblem>& problems, KernelProblem problem,
                    const BenchKernelsFlags& flags) {
  problems.push_back(problem);
  const auto add = [&](KernelPath path) {
    problem.path = path;
    problems.push_back(problem);
  };
  if (flags.prepacked) add(KernelPath::kPrepacked);
  if (flags.masked_dense) add(KernelPath::kMaskedDense);
}

std::vector<KernelProblem> scanned(const BenchKernelsFlags& flags, const KernelProblem& base) {
  if (!flags.lengths.empty() || !flags.rows.empty() || !flags.attends.empty()) {
    throw Error(
        "--scan is given beside --length, --rows or --attend; allowed: one way to say the lengths "
        "and topologies");
  }
  const auto [from, to] = parse_span(flags.scan, "--scan", kMostTokens);
  std::vector<KernelProblem> problems;
  for (const KernelProblem& problem : scan_problems(base, from, to)) {
    add_with_paths(problems, problem, flags);
  }
  return problems;
}

// Every combination of what was given more than once.
std::vector<KernelProblem> combined(const BenchKernelsFlags& flags) {
  std::vector<KernelProblem> problems;
  KernelProblem problem = base_problem(flags);
  const KernelProblem usual;
  for (const std::string& dtype : given_or(flags.dtypes, std::string("f32"))) {
    problem.dtype = parse_dtype(dtype);
    for (const std::int64_t threads : given_or(flags.threads, usual.threads)) {
      problem.threads = threads;
      if (!flags.scan.empty()) {
        std::ranges::copy(scanned(flags, problem), std::back_inserter(problems));
        continue;
      }
      for (const std::int64_t length : given_or(flags.lengths, usual.length)) {
        for (const std::string& attend : given_or(flags.attends, usual.attend)) {
          for (const std::int64_t rows : given_or(flags.rows, usual.rows)) {
            problem.length = length;
            // In the text's one form, so that rows of one topology are known to be alike.
            problem.attend = to_text(parse_attend(attend, problem.causal), problem.causal);
            problem.rows = rows;
            add_with_paths(problems, problem, flags);
          }
        }
      }
    }
  }
  return problems;
}

std::vector<KernelProblem> listed(const BenchKernelsFlags& flags) {
  const std::int64_t max_threads = flags.cpu_time ? 1 : num_allowed_cpus();
  if (flags.list.empty() || flags.list == "speed") return speed_problems(max_threads);
  if (flags.list == "problems") return listed_problems(kLongestListed);
  throw Error("--list is '" + flags.list + "'; allowed: speed, problems" +
              did_you_mean(flags.list, kLists));
}

bool is_speed_list(const BenchKernelsFlags& flags) {
  return !says_problem(flags) && (flags.list.empty() || flags.list == "speed");
}

KernelBenchOptions options_of(const BenchKernelsFlags& flags) {
  KernelBenchOptions options;
  options.repetitions = flags.repetitions;
  options.run_ns = flags.min_time_ms * 1'000'000;
  options.row_ns = flags.row_seconds * 1'000'000'000;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  options.cpu_time = flags.cpu_time;
  options.progress = Progress("bench kernels");
  return options;
}

BenchReport measure(const BenchKernelsFlags& flags, std::span<const KernelProblem> problems) {
  const Interrupt interrupt;
  KernelBenchOptions options = options_of(flags);
  options.stop = interrupt.token();
  BenchReport report;
  report.flags = flags;
  report.cpu = read_cpu_info();
  report.result = run_kernel_bench(problems, options);
  if (is_speed_list(flags)) {
    report.long_plans = time_long_plans(report.result.rows, flags.repetitions, options.stop);
    report.goals = speed_goals(report.result, report.long_plans);
  }
  if (!flags.scan.empty()) report.curves = scan_curves(report.result.rows);
  report.result.interrupted = options.stop.stop_requested();
  return report;
}

// Rows in one line; then for each line with a row's number one timed figure of it, in one line.
std::vector<std::string> serve_requests(const BenchKernelsFlags& flags,
                                        std::span<const KernelProblem> problems,
                                        const std::function<void(const std::string&)>& print) {
  KernelBench bench(problems, options_of(flags));
  print(bench_rows_line(bench.rows()));
  std::int64_t round = 0;
  for (std::string line; std::getline(std::cin, line); ++round) {
    const auto last = static_cast<std::int64_t>(bench.rows().size()) - 1;
    const auto row_idx = static_cast<std::size_t>(parse_int64(line, "the row asked for", 0, last));
    bench.time_once(row_idx, round);
    print(bench_round_line(bench.rows()[row_idx], row_idx));
  }
  return faults_of(bench.rows());
}

void check_outputs(const BenchKernelsFlags& flags, std::size_t num_problems) {
  if (!flags.svg.empty() && flags.scan.empty()) {
    throw Error("--svg is given without --scan, whose curves it draws");
  }
  if (flags.on_request && !flags.dump_dir.empty()) {
    throw Error("--on-request and --dump-dir are both given; allowed: one of them");
  }
  if (!flags.dump_dir.empty() && num_problems != 1) {
    throw Error("--dump-dir is given with " + std::to_string(num_problems) +
                " rows; allowed: one row");
  }
}

}  // namespace

std::vector<KernelProblem> problems_of(const BenchKernelsFlags& flags) {
  if (says_problem(flags) && !flags.list.empty()) {
    throw Error("--list is given beside flags that say a problem; allowed: one way to say rows");
  }
  std::vector<KernelProblem> problems = says_problem(flags) ? combined(flags) : listed(flags);
  std::erase_if(problems, [&](const KernelProblem& problem) {
    return problem.name().find(flags.only) == std::string::npos;
  });
  if (problems.empty()) {
    throw Error("--only is '" + flags.only + "', which is in no row's name; allowed: such as " +
                (says_problem(flags) ? combined(flags) : listed(flags)).front().name());
  }
  check_outputs(flags, problems.size());
  return problems;
}

std::vector<std::string> faults_of(std::span<const KernelRow> rows) {
  std::vector<std::string> faults;
  for (const KernelRow& row : rows) {
    const Ledger& ledger = row.ledger;
    if (!row.as_predicted()) {
      faults.push_back(fmt::format(
          "{}: executed {} pairs, predicted {}; {} were inside the masks, {} are needed",
          row.problem.name(), ledger.executed_pairs, row.predicted_pairs, ledger.needed_pairs,
          row.needed_pairs));
    }
    if (!row.check.agrees()) {
      faults.push_back(fmt::format(
          "{}: the result is off by up to {:.3g}, its lse by {:.3g}: {:.3g} times what is allowed",
          row.problem.name(), row.check.max_error, row.check.max_lse_error, row.check.worst));
    }
  }
  return faults;
}

std::vector<std::string> bench_kernels(const BenchKernelsFlags& flags,
                                       const std::function<void(const std::string&)>& print) {
  const std::vector<KernelProblem> problems = problems_of(flags);
  if (!flags.dump_dir.empty()) {
    dump_kernel_problem(problems.front(), static_cast<std::uint64_t>(flags.seed), flags.dump_dir);
    print("wrote " + flags.dump_dir + "/problem.json and what it names\n");
    return {};
  }
  if (flags.on_request) return serve_requests(flags, problems, print);
  const BenchReport report = measure(flags, problems);
  if (!flags.svg.empty() && !report.curves.empty()) {
    write_file(flags.svg, chart_svg(chart_of(report.curves)));
  }
  print(flags.json ? bench_json(report) : bench_text(report));
  return faults_of(report.result.rows);
}

void add_bench_kernels_flags(CLI::App& app, BenchKernelsFlags& flags) {
  app.add_option("--list", flags.list,
                 "speed (default): the table of speeds; problems: every topology of the tests");
  app.add_option("--only", flags.only, "rows whose name holds this text");
  add_numbers(app, "--length", flags.lengths, 1, kMostTokens, "tokens of the sequence (4096)");
  app.add_option("--attend", flags.attends, "topology as text (full); may be repeated")
      ->allow_extra_args(false);
  app.add_option("--dtype", flags.dtypes, "f32 (default), bf16 or f16; may be repeated")
      ->allow_extra_args(false);
  add_numbers(app, "--threads", flags.threads, 1, 4096, "threads (1)");
  add_numbers(app, "--rows", flags.rows, 1, kMostTokens,
              "query rows, the last of the sequence (all)");
  add_number(app, "--num-q-heads", flags.num_q_heads, 1, 65536, "query heads (8)");
  add_number(app, "--num-kv-heads", flags.num_kv_heads, 1, 65536, "KV heads (2)");
  add_number(app, "--head-dim", flags.head_dim, 1, 576, "width of a head (128)");
  add_number(app, "--v-head-dim", flags.v_head_dim, 1, 576,
             "width of a value head (as --head-dim)");
  app.add_flag("--bidirectional", flags.bidirectional, "not causal");
  app.add_flag("--learned-sinks", flags.learned_sinks, "one more logit a row and head");
  app.add_flag("--prepacked", flags.prepacked,
               "beside each row also with K and V packed before the call");
  app.add_flag("--masked-dense", flags.masked_dense,
               "beside each row also masked_dense: a mask without skipping");
  app.add_option("--isa", flags.isa, "instruction set of the kernels (the library's choice)");
  app.add_option("--scan", flags.scan,
                 "FROM..TO: lengths FROM, 2·FROM, … for full, window(512) and their hybrid");
  app.add_option("--svg", flags.svg, "file to draw the scan's curves into");
  add_number(app, "--repetitions", flags.repetitions, 1, 1000, "rounds over all rows (7)");
  add_number(app, "--min-time-ms", flags.min_time_ms, 1, 10000,
             "a call is repeated until a timed figure takes so long (10)");
  add_number(app, "--row-seconds", flags.row_seconds, 1, 1'000'000,
             "a row that took so long is left out of later rounds (20)");
  add_number(app, "--seed", flags.seed, 0, std::int64_t{1} << 62, "of the drawn tensors (1)");
  app.add_flag("--cpu-time", flags.cpu_time,
               "times are CPU time: one thread on a machine that other work shares");
  app.add_option("--dump-dir", flags.dump_dir,
                 "folder to write the tensors of one row into, instead of timing it");
  app.add_flag("--on-request", flags.on_request,
               "print the rows, then time one for each row number read from standard input");
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli

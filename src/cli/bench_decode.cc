#include "cli/bench_decode.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/integer.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 24;

bool says_problem(const BenchDecodeFlags& flags) {
  return !flags.model.model.empty() || !flags.model.attend.empty() || !flags.model.layers.empty();
}

// Flags that the list of speeds has no use for.
bool shapes_problem(const BenchDecodeFlags& flags) {
  const ModelFlags& model = flags.model;
  return !flags.lengths.empty() || !flags.scan.empty() || flags.batch != 1 || flags.rows != 1 ||
         !flags.kv_dtype.empty() || flags.exact_kv || flags.page_size != 64 || flags.threads != 0 ||
         !model.size_flags_given.empty() || !model.assume.empty() || model.bidirectional;
}

std::vector<std::int64_t> scanned_lengths(const std::string& text) {
  const auto [from, to] = parse_span(text, "--scan", kMostTokens);
  if (to < from) throw Error("--scan is '" + text + "'; allowed: FROM no larger than TO");
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = from; length <= to; length *= 2) lengths.push_back(length);
  return lengths;
}

std::vector<DecodeProblem> asked_problems(const BenchDecodeFlags& flags) {
  if (!flags.scan.empty() && !flags.lengths.empty()) {
    throw Error("--scan and --length are both given; allowed: one way to say the lengths");
  }
  std::vector<std::int64_t> lengths = flags.lengths;
  if (!flags.scan.empty()) lengths = scanned_lengths(flags.scan);
  if (lengths.empty()) lengths = {32768};
  const Subject subject = make_subject(flags.model);
  std::vector<DecodeProblem> problems;
  for (const std::int64_t length : lengths) {
    DecodeProblem problem;
    problem.table = subject.table;
    problem.shape = subject.shape;
    problem.lengths.assign(static_cast<std::size_t>(flags.batch), length);
    problem.rows = flags.rows;
    problem.kv_dtype = parse_kv_dtype(flags.kv_dtype.empty() ? "bf16" : flags.kv_dtype);
    problem.exact_kv = flags.exact_kv;
    problem.page_size = flags.page_size;
    problem.threads = flags.threads > 0 ? flags.threads : num_allowed_cpus();
    problem.name = fmt::format("kv {}, {}", length, to_string(problem.kv_dtype));
    if (flags.exact_kv) problem.name += ", exact";
    if (flags.batch > 1) problem.name += fmt::format(", batch of {}", flags.batch);
    if (flags.rows > 1) problem.name += fmt::format(", {} rows", flags.rows);
    problems.push_back(std::move(problem));
  }
  return problems;
}

DecodeReport measure(const BenchDecodeFlags& flags, std::span<const DecodeProblem> problems) {
  const Interrupt interrupt;
  DecodeBenchOptions options;
  options.repetitions = flags.repetitions;
  options.run_ns = flags.min_time_ms * 1'000'000;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  options.progress = Progress("bench decode");
  options.stop = interrupt.token();
  DecodeReport report;
  report.flags = flags;
  report.cpu = read_cpu_info();
  report.result = run_decode_bench(problems, options);
  if (!says_problem(flags) && !report.result.interrupted) {
    report.prefix_hit = time_prefix_hit(flags.repetitions);
    report.goals = decode_goals(report.result, *report.prefix_hit);
  }
  return report;
}

}  // namespace

std::vector<DecodeProblem> decode_problems(const BenchDecodeFlags& flags) {
  const bool asked = says_problem(flags);
  if (!asked && shapes_problem(flags)) {
    throw Error(
        "a size, length, batch, rows, dtype or number of threads is given without a table; "
        "allowed: with --model, --attend or --layers");
  }
  if (!flags.svg.empty() && flags.scan.empty()) {
    throw Error("--svg is given without --scan, whose curve it draws");
  }
  std::vector<DecodeProblem> problems =
      asked ? asked_problems(flags) : decode_speed_problems(num_allowed_cpus());
  const std::string first = problems.front().name;
  std::erase_if(problems, [&](const DecodeProblem& problem) {
    return problem.name.find(flags.only) == std::string::npos;
  });
  if (problems.empty()) {
    throw Error("--only is '" + flags.only + "', which is in no row's name; allowed: such as " +
                first);
  }
  return problems;
}

std::vector<std::string> faults_of(std::span<const DecodeRow> rows) {
  std::vector<std::string> faults;
  for (const DecodeRow& row : rows) {
    const std::int64_t held = row.sum(&DecodeKind::predicted_held_bytes);
    if (!row.as_predicted()) {
      faults.push_back(fmt::format(
          "{}: holds {} bytes ({} live in the pool), predicted {}; read {} bytes, predicted {}",
          row.problem.name, row.sum(&DecodeKind::held_bytes), row.live_bytes, held,
          row.sum(&DecodeKind::read_bytes), row.sum(&DecodeKind::predicted_read_bytes)));
    }
    if (!row.agrees()) {
      faults.push_back(
          fmt::format("{}: the result is off by up to {:.3g}: {:.3g} times what is "
                      "allowed",
                      row.problem.name, row.max_error, row.worst));
    }
  }
  return faults;
}

std::vector<std::string> bench_decode(const BenchDecodeFlags& flags,
                                      const std::function<void(const std::string&)>& print) {
  const DecodeReport report = measure(flags, decode_problems(flags));
  if (!flags.svg.empty() && !report.result.rows.empty()) {
    write_file(flags.svg, chart_svg(decode_chart(report)));
  }
  print(flags.json ? decode_json(report) : decode_text(report));
  return faults_of(report.result.rows);
}

void add_bench_decode_flags(CLI::App& app, BenchDecodeFlags& flags) {
  add_model_flags(app, flags.model);
  app.add_option("--only", flags.only, "rows whose name holds this text");
  add_numbers(app, "--length", flags.lengths, 1, kMostTokens,
              "tokens before the first step (32768)");
  app.add_option("--scan", flags.scan, "FROM..TO: lengths FROM, 2·FROM, …");
  app.add_option("--svg", flags.svg, "file to draw the scan's step times into");
  add_number(app, "--batch", flags.batch, 1, 65536, "sequences of that length (1)");
  add_number(app, "--rows", flags.rows, 1, 4096, "rows of a step: one token and drafts (1)");
  app.add_option("--kv-dtype", flags.kv_dtype, "bf16 (default), f32, f16, int8 or int4");
  app.add_flag("--exact-kv", flags.exact_kv, "widen quantized keys instead of quantizing queries");
  add_number(app, "--page-size", flags.page_size, 16, 256, "tokens of a page (64)");
  add_number(app, "--threads", flags.threads, 0, 4096, "threads (0: all CPUs)");
  add_number(app, "--repetitions", flags.repetitions, 1, 1000, "rounds over all rows (7)");
  add_number(app, "--min-time-ms", flags.min_time_ms, 1, 10000,
             "steps of a round take so long (100)");
  add_number(app, "--seed", flags.seed, 0, std::int64_t{1} << 62, "of the drawn tensors (1)");
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli

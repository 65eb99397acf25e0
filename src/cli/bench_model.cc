#include "cli/bench_model.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/system_memory.h"

namespace lacuna::cli {
namespace {

// 512, 1024, … 32768, and where the context ends before that, as much as it has room for.
std::vector<std::int64_t> default_lengths(const ModelShape& shape, std::int64_t generate) {
  constexpr std::int64_t kMost = 32768;
  const std::int64_t room = shape.context_length.value_or(kMost + generate) - generate;
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 512; length <= std::min(room, kMost); length *= 2) {
    lengths.push_back(length);
  }
  if (room > 0 && room < kMost && (lengths.empty() || lengths.back() < room)) {
    lengths.push_back(room);
  }
  return lengths;
}

ModelBenchOptions bench_options(const BenchModelFlags& flags) {
  ModelBenchOptions options;
  options.transformer = transformer_options(flags.runner);
  options.chunk = flags.runner.chunk;
  options.repetitions = flags.repetitions;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  return options;
}

std::vector<ModelProblem> problems_of(const BenchModelFlags& flags, const Subject& subject) {
  std::vector<std::int64_t> lengths = flags.lengths;
  if (lengths.empty()) lengths = default_lengths(subject.shape, flags.generate);
  const std::vector<LayerTable> tables = tables_of(subject, flags.runner.model, flags.against);
  std::vector<ModelProblem> problems;
  for (const std::int64_t length : lengths) {
    for (const LayerTable& table : tables) {
      problems.push_back({table, length, flags.generate, {}});
    }
  }
  return problems;
}

}  // namespace

std::vector<std::string> faults_of(std::span<const ModelRow> rows) {
  std::vector<std::string> faults;
  for (const ModelRow& row : rows) {
    for (const ModelFault& fault : row.faults()) {
      faults.push_back(fmt::format("{} at {} tokens, {}", to_text(row.problem.table),
                                   row.problem.prompt_tokens, fault.text));
    }
  }
  return faults;
}

std::vector<std::string> bench_model(const BenchModelFlags& flags,
                                     const std::function<void(const std::string&)>& print) {
  const Interrupt interrupt;
  ModelReport report;
  report.flags = flags;
  report.runner.subject = make_subject(flags.runner.model);
  ModelBenchOptions options = bench_options(flags);
  const std::vector<ModelProblem> problems = problems_of(flags, report.runner.subject);
  ThreadPool pool(flags.runner.threads);
  const Model model = load_model(report.runner, flags.runner, pool);
  if (!flags.file.empty()) {
    options.text = model.tokenizer().encode(read_file(flags.file, kLongestText));
  }
  options.stop = interrupt.token();
  options.progress = Progress("bench model");
  report.result = run_model_bench(model, problems, pool, options);
  report.runner.peak_memory_bytes = peak_memory_bytes();
  print(flags.json ? model_json(report) : model_text(report));
  return faults_of(report.result.rows);
}

void add_bench_model_flags(CLI::App& app, BenchModelFlags& flags) {
  add_table_flags(app, flags.runner.model);
  add_against_flag(app, flags.against);
  add_numbers(app, "--length", flags.lengths, 1, 1 << 24,
              "tokens of the prompt (512, 1024, … 32768, within the context)");
  add_number(app, "--generate", flags.generate, 1, 1 << 20, "tokens of the answer (64)");
  app.add_option("--file", flags.file,
                 "text whose beginning is the prompts (tokens drawn from the seed)");
  add_runner_flags(app, flags.runner);
  add_exact_flags(app, flags.runner);
  add_number(app, "--repetitions", flags.repetitions, 1, 1000, "rounds over all rows (3)");
  add_number(app, "--seed", flags.seed, 0, std::int64_t{1} << 62, "of the drawn tokens (1)");
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli

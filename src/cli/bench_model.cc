#include "cli/bench_model.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/run_model.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/kernels.h"
#include "lacuna/stopwatch.h"
#include "lacuna/system_memory.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kLongestText = std::int64_t{64} << 20;  // bytes

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

std::vector<LayerTable> tables_of(const BenchModelFlags& flags, const Subject& subject) {
  std::vector<LayerTable> tables = {subject.table};
  for (const std::string& text : flags.against) {
    ModelFlags other;
    other.model = flags.model;
    other.attend = text;
    tables.push_back(make_subject(other).table);
  }
  return tables;
}

ModelBenchOptions bench_options(const BenchModelFlags& flags) {
  ModelBenchOptions options;
  options.transformer = transformer_options(flags.kv_dtype, flags.exact, flags.exact_kv);
  options.transformer.page_size = flags.page_size;
  options.chunk = flags.chunk;
  options.repetitions = flags.repetitions;
  options.seed = static_cast<std::uint64_t>(flags.seed);
  return options;
}

std::vector<ModelProblem> problems_of(const BenchModelFlags& flags, const Subject& subject) {
  std::vector<std::int64_t> lengths = flags.lengths;
  if (lengths.empty()) lengths = default_lengths(subject.shape, flags.generate);
  std::vector<ModelProblem> problems;
  for (const std::int64_t length : lengths) {
    for (const LayerTable& table : tables_of(flags, subject)) {
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
  report.cpu = read_cpu_info();
  ModelFlags model_flags;
  model_flags.model = flags.model;
  model_flags.attend = flags.attend;
  model_flags.layers = flags.layers;
  report.subject = make_subject(model_flags);
  ModelBenchOptions options = bench_options(flags);
  const std::vector<ModelProblem> problems = problems_of(flags, report.subject);
  report.threads = flags.threads > 0 ? flags.threads : num_allowed_cpus();
  ThreadPool pool(report.threads);
  const Stopwatch loading;
  ModelOptions model_options;
  model_options.products = flags.exact ? DenseType::kF32 : DenseType::kInt8;
  const Model model(flags.model, model_options, &pool);
  report.load_seconds = loading.seconds();
  report.products = to_string(model_options.products);
  report.kv_dtype = to_string(options.transformer.kv_dtype);
  report.isa = transformer_isa(options.transformer);
  if (!flags.file.empty()) {
    options.text = model.tokenizer().encode(read_file(flags.file, kLongestText));
  }
  options.stop = interrupt.token();
  options.progress = Progress("bench model");
  report.result = run_model_bench(model, problems, pool, options);
  report.peak_memory_bytes = peak_memory_bytes();
  print(flags.json ? model_json(report) : model_text(report));
  return faults_of(report.result.rows);
}

void add_bench_model_flags(CLI::App& app, BenchModelFlags& flags) {
  app.add_option("--model", flags.model, ".gguf file")->required();
  app.add_option("--attend", flags.attend, "layer table as text in place of the model's own");
  app.add_option("--layers", flags.layers, "layer table from a file, in place of the model's own");
  app.add_option("--against", flags.against, "layer table as text beside it; may be repeated")
      ->allow_extra_args(false);
  add_numbers(app, "--length", flags.lengths, 1, 1 << 24,
              "tokens of the prompt (512, 1024, … 32768, within the context)");
  add_number(app, "--generate", flags.generate, 1, 1 << 20, "tokens of the answer (64)");
  app.add_option("--file", flags.file,
                 "text whose beginning is the prompts (tokens drawn from the seed)");
  add_number(app, "--chunk", flags.chunk, 1, 1 << 16, "tokens of the prompt at a time (1024)");
  app.add_flag("--exact", flags.exact, "f32 products of the file's weights");
  app.add_option("--kv-dtype", flags.kv_dtype,
                 "bf16 (default), f32 (with --exact), f16, int8, int4");
  app.add_flag("--exact-kv", flags.exact_kv, "widen quantized keys in place of rounding queries");
  add_number(app, "--page-size", flags.page_size, 16, 256, "tokens of a page (64)");
  add_number(app, "--threads", flags.threads, 0, 4096, "threads (0: all CPUs)");
  add_number(app, "--repetitions", flags.repetitions, 1, 1000, "rounds over all rows (3)");
  add_number(app, "--seed", flags.seed, 0, std::int64_t{1} << 62, "of the drawn tokens (1)");
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli

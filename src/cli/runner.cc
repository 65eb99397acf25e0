#include "cli/runner.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "lacuna/error.h"
#include "lacuna/kernels.h"
#include "lacuna/stopwatch.h"

namespace lacuna::cli {

std::string refuse_empty(const std::string& value) {
  return value.empty() ? "it is empty; allowed: a text" : "";
}

void add_table_flags(CLI::App& app, ModelFlags& flags, const std::string& more) {
  app.add_option("--model", flags.model, ".gguf file")->required();
  app.add_option("--attend", flags.attend, "layer table as text in place of the model's own" + more)
      ->check(refuse_empty);
  app.add_option("--layers", flags.layers, "layer table from a file, in place of the model's own")
      ->check(refuse_empty);
}

void add_against_flag(CLI::App& app, std::vector<std::string>& against) {
  app.add_option("--against", against, "layer table as text beside it; may be repeated")
      ->allow_extra_args(false);
}

void add_runner_flags(CLI::App& app, RunnerFlags& flags) {
  add_number(app, "--chunk", flags.chunk, 1, 1 << 16, "tokens of the prompt at a time (1024)");
  app.add_option("--kv-dtype", flags.kv_dtype, "bf16 (default), f32, f16, int8 or int4")
      ->check(refuse_empty);
  add_number(app, "--page-size", flags.page_size, 16, 256, "tokens of a page (64)");
  add_number(app, "--threads", flags.threads, 0, 4096, "threads (0: all CPUs)");
}

void add_exact_flags(CLI::App& app, RunnerFlags& flags) {
  app.add_flag("--exact", flags.exact,
               "f32 products of the file's weights, f32 keys without --kv-dtype");
  app.add_flag("--exact-kv", flags.exact_kv, "widen quantized keys in place of rounding queries");
}

TransformerOptions transformer_options(const RunnerFlags& flags) {
  TransformerOptions options;
  if (flags.exact) options.kv_dtype = DType::kF32;
  if (!flags.kv_dtype.empty()) options.kv_dtype = parse_kv_dtype(flags.kv_dtype);
  options.exact_kv = flags.exact_kv;
  if (flags.exact_kv && !is_quantized(options.kv_dtype)) {
    throw Error(fmt::format("--exact-kv is given with {} keys; allowed: with int8 and int4",
                            to_string(options.kv_dtype)));
  }
  options.page_size = flags.page_size;
  return options;
}

std::vector<LayerTable> tables_of(const Subject& subject, const ModelFlags& model,
                                  const std::vector<std::string>& against) {
  std::vector<LayerTable> tables = {subject.table};
  ModelFlags other = model;
  other.layers.clear();
  for (const std::string& text : against) {
    other.attend = text;
    tables.push_back(make_subject(other).table);
  }
  return tables;
}

Model load_model(RunnerReport& report, const RunnerFlags& flags, ThreadPool& pool) {
  const Stopwatch loading;
  ModelOptions options;
  options.products = flags.exact ? DenseType::kF32 : DenseType::kInt8;
  options.assume = assumptions_of(flags.model.assume);
  Model model(flags.model.model, options, &pool);
  report.load_seconds = loading.seconds();
  // What no figure of cost depends on: the forward pass reads or refuses each key of its
  // architecture, and the tokenizer reads its own.
  std::erase_if(report.subject.ignored_keys, [&](const std::string& key) {
    return key.starts_with(report.subject.shape.name + ".") || key.starts_with("tokenizer.");
  });
  report.cpu = read_cpu_info();
  report.threads = pool.num_threads();
  report.products = to_string(options.products);
  const DType keys = transformer_options(flags).kv_dtype;
  report.kv_dtype = to_string(keys);
  report.isa = kernel_isa(keys == DType::kBf16 ? DType::kBf16 : DType::kF32, keys);
  return model;
}

}  // namespace lacuna::cli

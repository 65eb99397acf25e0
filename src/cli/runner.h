#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lacuna/cpu.h"
#include "lacuna/model.h"
#include "lacuna/transformer.h"

namespace lacuna::cli {

// Which model runs and how, of every verb that runs one.
struct RunnerFlags {
  ModelFlags model;  // its file and its table
  std::int64_t chunk = kPassTokens;
  std::string kv_dtype;
  std::int64_t page_size = 64;
  std::int64_t threads = 0;
  bool exact = false;
  bool exact_kv = false;
};

inline constexpr std::int64_t kLongestText = std::int64_t{64} << 20;  // bytes of --file

// --model, --attend and --layers; `more` ends the help of --attend.
void add_table_flags(CLI::App& app, ModelFlags& flags, const std::string& more = "");
void add_against_flag(CLI::App& app, std::vector<std::string>& against);
void add_runner_flags(CLI::App& app, RunnerFlags& flags);
// --exact and --exact-kv, of verbs that leave the choice.
void add_exact_flags(CLI::App& app, RunnerFlags& flags);
// For CLI::Option::check(): an unset variable of a shell must not run the default in silence.
std::string refuse_empty(const std::string& value);

// Keys are bf16 by default, f32 with --exact. Throws Error for an unknown type and for --exact-kv
// with keys that are not quantized.
TransformerOptions transformer_options(const RunnerFlags& flags);
// The model's table, or what --attend or --layers has in its place, and those of --against.
std::vector<LayerTable> tables_of(const Subject& subject, const ModelFlags& model,
                                  const std::vector<std::string>& against);

// What a report says of the model and of how it ran.
struct RunnerReport {
  CpuInfo cpu;
  Subject subject;
  std::int64_t threads = 1;
  std::string products;
  std::string kv_dtype;
  std::string isa;  // of the attention kernels
  double load_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
};
// Fills in all but the subject and the peak of memory; the subject's keys that a model reads are
// not ignored ones any more.
Model load_model(RunnerReport& report, const RunnerFlags& flags, ThreadPool& pool);

}  // namespace lacuna::cli

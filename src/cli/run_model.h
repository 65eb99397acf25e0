#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lacuna/cpu.h"
#include "lacuna/generate.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed.
struct RunFlags {
  std::string model;
  std::vector<std::string> assume;
  std::string attend;
  std::string layers;
  bool decode_only = false;
  std::string prompt;
  std::string file;  // "-": standard input
  bool chat = false;
  std::string system;
  bool no_special = false;
  std::int64_t max_tokens = 256;
  std::int64_t chunk = kPassTokens;
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::int64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_end = false;
  std::string overflow = "error";
  bool exact = false;
  std::string kv_dtype;
  bool exact_kv = false;
  std::int64_t page_size = 64;
  std::int64_t threads = 0;
  bool json = false;
};

void add_run_flags(CLI::App& app, RunFlags& flags);

// What the flags of the verbs that run a model say of keys: bf16 by default, f32 with --exact.
// Throws Error for an unknown type and for --exact-kv with keys that are not quantized.
TransformerOptions transformer_options(const std::string& kv_dtype, bool exact, bool exact_kv);
// Of the attention kernels that serve them.
std::string transformer_isa(const TransformerOptions& options);

struct RunReport {
  RunFlags flags;
  CpuInfo cpu;
  Subject subject;
  std::int64_t threads = 1;
  std::string products;
  std::string kv_dtype;
  std::string isa;
  double load_seconds = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t predicted_held_bytes = 0;
  std::int64_t peak_memory_bytes = 0;
  Generated result;
};
std::string run_text(const RunReport& report);  // the figures, not the answer
std::string run_json(const RunReport& report);

// Runs the model; `print` gets the answer as it comes, or one JSON document. The figures of text go
// to the standard error stream. Ctrl-C ends the answer, not the report: what was done until then is
// printed, as the other long verbs do, and says that it was interrupted. Throws Error where flags
// exclude each other, before the model is loaded, and as the library does.
void run_model(const RunFlags& flags, const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli

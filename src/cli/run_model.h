#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/runner.h"
#include "lacuna/generate.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed.
struct RunFlags {
  RunnerFlags runner;
  bool decode_only = false;
  std::string prompt;
  std::string file;  // "-": standard input
  bool chat = false;
  std::string system;
  bool no_special = false;
  std::int64_t max_tokens = 256;
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::int64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_end = false;
  std::string overflow = "error";
  bool json = false;
};

void add_run_flags(CLI::App& app, RunFlags& flags);

struct RunReport {
  RunFlags flags;
  RunnerReport runner;
  std::int64_t weight_bytes = 0;
  std::int64_t predicted_held_bytes = 0;
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

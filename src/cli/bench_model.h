#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/runner.h"
#include "lacuna/model_bench.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed.
struct BenchModelFlags {
  RunnerFlags runner;
  std::vector<std::string> against;  // further tables, as text
  std::vector<std::int64_t> lengths;
  std::int64_t generate = 64;
  std::string file;  // text whose beginning is the prompts
  std::int64_t repetitions = 3;
  std::int64_t seed = 1;
  bool json = false;
};

void add_bench_model_flags(CLI::App& app, BenchModelFlags& flags);

struct ModelReport {
  BenchModelFlags flags;
  RunnerReport runner;
  ModelBenchResult result;
};
std::string model_text(const ModelReport& report);
// With the keys of docs/schema/bench_model.schema.json.
std::string model_json(const ModelReport& report);

// A row, and the exact figures of a layer, as that document and an audit's have them.
Json model_row_json(const ModelRow& row);
Json model_layer_json(const ModelLayer& layer);

// What must never be: pairs, pages or reads other than predicted.
std::vector<std::string> faults_of(std::span<const ModelRow> rows);

// Measures and prints; returns the faults. Progress goes to the standard error stream.
std::vector<std::string> bench_model(const BenchModelFlags& flags,
                                     const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli

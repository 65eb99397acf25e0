#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lacuna/cpu.h"
#include "lacuna/decode_bench.h"
#include "lacuna/decode_speed.h"
#include "lacuna/svg.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed. Without --model, --attend or --layers the list of speeds runs.
struct BenchDecodeFlags {
  ModelFlags model;
  std::string only;
  std::vector<std::int64_t> lengths;
  std::string scan;
  std::string svg;
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::string kv_dtype;
  bool exact_kv = false;
  std::int64_t page_size = 64;
  std::int64_t threads = 0;
  std::int64_t repetitions = 7;
  std::int64_t min_time_ms = 100;
  std::int64_t seed = 1;
  bool json = false;
};

void add_bench_decode_flags(CLI::App& app, BenchDecodeFlags& flags);

struct DecodeReport {
  BenchDecodeFlags flags;
  CpuInfo cpu;
  DecodeBenchResult result;
  // Of the list of speeds.
  std::optional<PrefixHitFigure> prefix_hit;
  std::vector<KernelGoal> goals;
};
std::string decode_text(const DecodeReport& report);
// With the keys of docs/schema/bench_decode.schema.json.
std::string decode_json(const DecodeReport& report);
// Step time over position, for rows that differ in length alone.
Chart decode_chart(const DecodeReport& report);

// Throws Error where flags exclude each other or no problem is left.
std::vector<DecodeProblem> decode_problems(const BenchDecodeFlags& flags);

// What must never be: pages or reads other than predicted, or a wrong result.
std::vector<std::string> faults_of(std::span<const DecodeRow> rows);

// Measures and prints; returns the faults. Progress goes to the standard error stream.
std::vector<std::string> bench_decode(const BenchDecodeFlags& flags,
                                      const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/layer_table.h"
#include "lacuna/shape.h"
#include "lacuna/statistics.h"
#include "lacuna/tensor.h"

namespace lacuna {

// One row of `lacuna bench decode`: steps of a batch over a real cache, attention only. A plain
// value.
struct DecodeProblem {
  std::string name;
  LayerTable table;
  ModelShape shape;
  std::vector<std::int64_t> lengths;  // tokens of each sequence before the first step, >= 1
  std::int64_t rows = 1;              // of each sequence in a step: 1 committed, the others drafts
  DType kv_dtype = DType::kBf16;
  bool exact_kv = false;  // quantized keys are widened, queries stay as they are
  std::int64_t page_size = 64;
  std::int64_t threads = 1;  // 1..4096

  DType q_dtype() const { return is_quantized(kv_dtype) ? DType::kBf16 : kv_dtype; }
};

// Layers of one topology in a row. Predicted figures come from the topology and cost alone.
struct DecodeKind {
  std::string attend;
  std::int64_t num_layers = 0;
  std::int64_t predicted_held_bytes = 0;  // paged(page_size, in_flight=rows), during a step
  std::int64_t held_bytes = 0;            // summed from the tables' pages
  std::int64_t predicted_read_bytes = 0;  // K and V of executed tiles, a step
  std::int64_t read_bytes = 0;            // what the kernels' ledger counted
  std::int64_t pairs = 0;                 // executed, over all query heads
  double pair_flops = 0;                  // of them
};

// Means over the steps of one round, in seconds a step; and what the machine could do beside it.
struct DecodeRound {
  std::int64_t round = 0;
  double plan_seconds = 0;
  double cache_seconds = 0;  // pages taken, committed and freed
  double append_seconds = 0;
  double attend_seconds = 0;
  std::vector<double> kind_seconds;  // [kinds] of attend_seconds
  double step_seconds = 0;           // all of it
  double read_bytes_per_s = 0;       // the probe's, at bandwidth_set_bytes and these threads
  double f32_flops_per_s = 0;
  double bf16_flops_per_s = 0;  // 0: not measured, or no such product
  double cpu_share = 0;         // as in KernelRound
};
using DecodeStage = double DecodeRound::*;

struct DecodeRow {
  DecodeProblem problem;
  std::string isa;
  std::vector<DecodeKind> kinds;  // of the first step
  std::int64_t live_bytes = 0;    // of the pool, during that step
  std::int64_t bandwidth_set_bytes = 0;
  std::int64_t steps_per_round = 1;
  std::int64_t fill_tokens = 0;  // appended before the first step, and how long it took
  double fill_seconds = 0;
  double max_error = 0;  // of checked outputs, over those by definition in double
  double worst = 0;      // the largest error over what is allowed there
  std::vector<DecodeRound> rounds;

  std::int64_t sum(std::int64_t DecodeKind::*figure) const;
  // Pages, reads and results are what they must be.
  bool as_predicted() const;
  bool agrees() const { return worst <= 1; }
  double flops() const;        // of executed pairs, a step
  double total_bytes() const;  // read a step
  // The statistics are over the rounds. REQUIRES: there is one.
  Statistics seconds(DecodeStage stage) const;
  Statistics share_of_bandwidth(DecodeStage stage) const;
  Statistics overhead() const;  // plan, cache and append over the step
  // max(bytes over bandwidth, FLOPs over limit(bf16)), seconds.
  Statistics bound() const;
};

struct DecodeBenchOptions {
  std::int64_t repetitions = 7;       // rounds over all rows, 1..1000
  std::int64_t run_ns = 100'000'000;  // of steps in a round
  std::uint64_t seed = 1;
  std::stop_token stop = {};
  // On the caller's thread: so many timed figures are done, of how many, and what comes.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view next)> progress = {};
};

struct DecodeBenchResult {
  std::vector<DecodeRow> rows;
  bool interrupted = false;
};

// Makes each row's cache, fills it to its lengths, checks a step's outputs, and then times all
// rows round by round, the probe's read bandwidth beside each. A step appends every layer's rows,
// plans once a topology, attends layer by layer, commits one row of each sequence and frees what
// no later query reads; so positions go on. Once stop is requested, what is done is returned.
// Throws Error naming what a problem or an option has out of range, or memory that is not there.
DecodeBenchResult run_decode_bench(std::span<const DecodeProblem> problems,
                                   const DecodeBenchOptions& options = {});

}  // namespace lacuna

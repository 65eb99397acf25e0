#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/attention.h"
#include "lacuna/plan.h"
#include "lacuna/statistics.h"
#include "lacuna/tensor.h"

namespace lacuna {

enum class KernelPath {
  kRun,          // run() of attention.h
  kMaskedDense,  // masked_dense(): what a mask without skipping costs
  kPrepacked,    // run() on K and V packed before it, as a cache holds them
};
std::string_view to_string(KernelPath path);  // "run", "masked_dense", "prepacked"

// One row of `lacuna bench kernels`: one sequence, one layer. A plain value.
struct KernelProblem {
  std::string attend = "full";  // text of parse_attend
  bool causal = true;
  std::int64_t length = 4096;  // tokens of the sequence, 1..2^24
  std::int64_t rows = 0;       // query rows, the last ones of the sequence; 0: all
  HeadCounts heads = {8, 2};
  std::int64_t head_dim = 128;  // 1..576, as v_head_dim
  std::int64_t v_head_dim = 128;
  DType dtype = DType::kF32;  // of q, k, v and out
  bool learned_sinks = false;
  std::int64_t threads = 1;  // 1..4096
  std::string isa = {};      // "": the library's own choice
  KernelPath path = KernelPath::kRun;
  friend bool operator==(const KernelProblem&, const KernelProblem&) = default;

  std::int64_t num_rows() const { return rows > 0 ? rows : length; }
  // "window(512) n4096 h8/2 d128 bf16 t1", then what is not usual: "rows 64", "sinks".
  std::string name() const;
};

// Figures of one call in one round, and what the machine's products reached just before it with as
// many threads.
struct KernelRound {
  std::int64_t round = 0;
  double plan_seconds = 0;  // make_plan
  // run with a plan that was made before. A call of over a second is not made twice for it: then it
  // is the run of the whole call.
  double planned_seconds = 0;
  double whole_seconds = 0;  // make_plan and run, from row-major tensors: what peers are timed at
  double f32_flops_per_s = 0;
  double bf16_flops_per_s = 0;  // 0: not measured, or this machine has no such product
  // Share of the whole call's time in which its threads had a CPU, 0..1. Well below 1: other work
  // shared the machine, or threads waited for one another.
  double cpu_share = 0;
};
using KernelStage = double KernelRound::*;

// Some rows and heads computed by definition, in double, from the tensors that the kernel read.
struct SpotCheck {
  std::int64_t num_rows = 0;  // (row, query head) pairs that were looked at
  double max_error = 0;       // of out
  double max_lse_error = 0;
  double worst = 0;  // the largest error over what tests/problems.h allows there
  bool agrees() const { return worst <= 1; }
};

struct KernelRow {
  KernelProblem problem;
  std::string isa;  // the kernels that ran
  Tile tile;        // their smallest executed unit
  // Counted from the topology alone, over all query heads.
  std::int64_t needed_pairs = 0;
  std::int64_t predicted_pairs = 0;  // by cost's executed()
  Ledger ledger;                     // what the kernels counted
  std::int64_t workspace_bytes = 0;
  double first_plan_seconds = 0;  // the first of all calls
  double first_run_seconds = 0;
  std::int64_t calls_per_run = 1;  // a timed figure is the mean of so many calls
  SpotCheck check;
  std::vector<KernelRound> rounds;

  // The ledger counted what the topology and cost predict.
  bool as_predicted() const;
  double executed_per_needed() const;
  // 2·(head_dim + v_head_dim) for each needed pair.
  double useful_flops() const;
  // The statistics are over the rounds. REQUIRES: there is one.
  Statistics seconds(KernelStage stage) const;
  // Useful rate over limit(f32) = peak_f32, for 16-bit inputs over limit(bf16) = max(peak_f32,
  // 0.95·peak_bf16).
  Statistics share_of_limit(KernelStage stage) const;
};

// One figure of a row over the same figure of another, round by round.
struct KernelRatio {
  std::string what;  // "useful rate over the dense rate"
  std::string row;   // names of problems
  std::string base;
  Statistics value;
};

// What follows from rows that were timed together: a topology's rate over the dense one, a union's
// over its first term's, many threads over one (and over the probe's own gain), the time of a row
// of few over that of 64, masked_dense over run. Rows that share no round have no ratio.
std::vector<KernelRatio> kernel_ratios(std::span<const KernelRow> rows);

// Read bandwidth, as the probe measures it.
struct BandwidthFigure {
  std::int64_t threads = 0;
  std::int64_t working_set_bytes = 0;
  double bytes_per_s = 0;
};

struct KernelBenchOptions {
  std::int64_t repetitions = 7;          // rounds over all rows, 1..1000
  std::int64_t run_ns = 10'000'000;      // calls are repeated until a timed figure takes so long
  std::int64_t row_ns = 20'000'000'000;  // a row that took so long is left out of later rounds
  std::uint64_t seed = 1;                // of the inputs
  // All times are the process's CPU time, and what products reach is corrected likewise: on a
  // machine that other work shares, figures of one thread are then what a quiet machine gives.
  // Refused with rows of more threads, whose waiting it would not see.
  bool cpu_time = false;
  std::stop_token stop = {};
  // On the caller's thread: so many timed figures are done, of how many, and what comes.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view next)> progress = {};
};

// Rows made ready to be timed: inputs drawn from the seed, planned, run once and checked. One
// mutator at a time. The constructor throws Error naming what a problem or an option has out of
// range, and as make_plan and run do; where options.stop is requested it leaves rows out.
class KernelBench {
 public:
  KernelBench(std::span<const KernelProblem> problems, const KernelBenchOptions& options);
  ~KernelBench();
  KernelBench(const KernelBench&) = delete;
  KernelBench& operator=(const KernelBench&) = delete;

  const std::vector<KernelRow>& rows() const;
  // Times one row once and appends the figures. False, and nothing appended, once stop is asked.
  bool time_once(std::size_t row_idx, std::int64_t round);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct KernelBenchResult {
  std::vector<KernelRow> rows;  // those with a round
  std::vector<KernelRatio> ratios;
  std::vector<BandwidthFigure> bandwidth;
  bool interrupted = false;
};

// All rows, round by round, so that rows that are compared share the machine's good and bad
// moments; then their ratios. Bandwidth is probed at working sets up to the largest K and V. Once
// options.stop is requested it returns what is done.
KernelBenchResult run_kernel_bench(std::span<const KernelProblem> problems,
                                   const KernelBenchOptions& options = {});

// Runs one problem and writes its tensors as raw little-endian files q, k, v, out, lse and sinks
// into `folder`, which must exist, with problem.json saying their shapes: for a judge outside.
// Throws Error naming the file that cannot be written.
void dump_kernel_problem(const KernelProblem& problem, std::uint64_t seed,
                         const std::string& folder);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/layer_table.h"
#include "lacuna/pass_times.h"
#include "lacuna/statistics.h"
#include "lacuna/transformer.h"

namespace lacuna {

// One row of `lacuna bench model`: a prompt through one layer table and the answer after it. The
// model reads the prompt in chunks, takes the first token from its logits, and makes a step for
// each later one. A plain value.
struct ModelProblem {
  LayerTable table;
  std::int64_t prompt_tokens = 1;
  std::int64_t generate_tokens = 64;     // generate_tokens − 1 steps
  std::optional<LayerTable> claim = {};  // what is predicted instead; absent: the table
  std::int64_t num_steps() const { return generate_tokens - 1; }
};

// What one layer did, beside what the topology and cost alone predict. Every figure is exact.
struct ModelLayer {
  std::string attend;
  // Rows of the prompt that it attends for: all, in the last layer the one that logits are wanted
  // of.
  std::int64_t prompt_rows = 0;
  std::int64_t predicted_pairs = 0;  // executed for the prompt, over all query heads
  std::int64_t pairs = 0;
  std::int64_t predicted_needed_pairs = 0;  // that the topology has: what masks let through
  std::int64_t needed_pairs = 0;
  std::int64_t predicted_step_pairs = 0;  // executed, over all steps
  std::int64_t step_pairs = 0;
  std::int64_t predicted_step_needed_pairs = 0;
  std::int64_t step_needed_pairs = 0;
  std::int64_t predicted_read_bytes = 0;  // K and V of executed tiles, over all steps
  std::int64_t read_bytes = 0;
  // K and V on pages with a key that a step reads, whole pages, over all steps. Kernels read less:
  // whole tiles of 16 keys.
  std::int64_t page_bytes = 0;
  // [1 + steps]: held after the prompt and after each step, summed from the pages.
  std::vector<std::int64_t> predicted_held_bytes;
  std::vector<std::int64_t> held_bytes;
  // What would explain another figure than predicted. Not in sums.
  int num_q_heads = 0;
  std::int64_t dense_pairs = 0;  // executed for the prompt if a mask stood over all keys
  std::int64_t dense_step_pairs = 0;
  std::vector<std::int64_t> whole_held_bytes;  // as held_bytes, if nothing were freed

  bool as_predicted() const;
  ModelLayer& operator+=(const ModelLayer& other);  // `attend` stays
};

// What an exact figure is a figure of.
enum class Quantity { kPairs, kState, kBytes };

// Figures of a layer that must be as predicted, by their names in JSON.
struct ExactFigure {
  Quantity quantity;
  std::string_view name;
  std::int64_t ModelLayer::*predicted;
  std::int64_t ModelLayer::*measured;
};
std::span<const ExactFigure> exact_figures();  // held bytes aside

// One that is not as predicted, in one line with its layer and both values.
struct ModelFault {
  Quantity quantity;
  std::string text;
};

// Layers of a row that read alike.
struct ModelKind {
  std::vector<std::int64_t> layers;
  ModelLayer sum;
  Statistics prefill_seconds;  // attention in all of them
  Statistics step_seconds;     // of a step; all zero where there is none
};

// One round of a row. Seconds.
struct ModelRound {
  std::int64_t round = 0;
  double first_token_seconds = 0;             // TTFT: the whole prompt and the choice of a token
  PassTimes prefill;                          // of it
  std::vector<double> layer_prefill_seconds;  // [layers] of prefill.attention
  std::vector<double> step_seconds;           // [steps] TPOT: a pass and the choice of a token
  PassTimes step;                             // of a step, means
  double sampling_seconds = 0;                // of a step
  std::vector<double> layer_step_seconds;     // [layers] of step.attention
  double read_bytes_per_s = 0;                // the probe's, at bandwidth_set_bytes
  double cpu_share = 0;                       // of the steps, as in KernelRound
  double caller_cpu_share = 0;                // of all CPU time of the steps, the caller's thread's

  double mean_step_seconds() const;
};

struct ModelRow {
  ModelProblem problem;
  std::vector<ModelLayer> layers;
  std::vector<std::int64_t> live_bytes;     // [1 + steps]: all pages of the cache's pool
  std::vector<std::int64_t> summary_bytes;  // [1 + steps]: more, if the pages held had summaries
  std::int64_t file_weight_bytes = 0;       // of what a step reads, as the file stores it
  std::int64_t weight_bytes = 0;            // as it is read
  std::int64_t bandwidth_set_bytes = 0;     // file_weight_bytes and K and V of a step
  std::vector<TokenId> tokens;              // of the first round's answer
  std::vector<ModelRound> rounds;

  bool as_predicted() const;
  std::vector<ModelFault> faults() const;
  ModelLayer sum() const;
  double step_read_bytes() const;  // K and V, the mean over the steps
  // The statistics are over the rounds, those of steps over all steps of all rounds. REQUIRES: a
  // round, and for steps a step.
  Statistics first_token_seconds() const;
  Statistics step_seconds() const;
  double unattributed_share() const;  // of the whole of a step, that no part covers; the median
  // A step's bytes over the probe's bandwidth: weights as they are read,
  Statistics predicted_step_seconds() const;
  // and as the file stores them.
  Statistics bound_seconds() const;
  Statistics over_rounds(const std::function<double(const ModelRound&)>& figure) const;
  std::vector<ModelKind> kinds() const;
};

struct ModelBenchOptions {
  TransformerOptions transformer;  // table and cache_bytes are the bench's own
  std::int64_t chunk = kPassTokens;
  std::int64_t repetitions = 3;  // rounds over all rows, 1..1000
  // The prompts begin it; empty: tokens drawn from the seed.
  std::vector<TokenId> text;
  std::uint64_t seed = 1;
  std::stop_token stop = {};
  // On the caller's thread, after each chunk: so much of all is done, and what is at hand.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view next)> progress = {};
};

struct ModelBenchResult {
  std::vector<ModelRow> rows;
  bool interrupted = false;
};

// The rows without a round: what is predicted of them. Throws Error as run_model_bench().
std::vector<ModelRow> predict_model_bench(const Model& model,
                                          std::span<const ModelProblem> problems, ThreadPool& pool,
                                          const ModelBenchOptions& options = {});

// Times all rows round by round, each with a cache of its own that is empty before, greedy, past
// end-of-text tokens; the probe's read bandwidth beside each row's steps. Once stop is requested,
// what is done is returned. Throws Error naming what a problem or an option has out of range: a
// prompt and answer beyond the model's context, a text that is too short, memory that is not there.
ModelBenchResult run_model_bench(const Model& model, std::span<const ModelProblem> problems,
                                 ThreadPool& pool, const ModelBenchOptions& options = {});

}  // namespace lacuna

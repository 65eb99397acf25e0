#include "lacuna/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <random>

#include "bench/model_row.h"
#include "bench/problem.h"
#include "bench/timed_row.h"
#include "lacuna/error.h"
#include "lacuna/generate.h"

namespace lacuna {
namespace {

using bench::ModelTimer;
using bench::Stopped;

void add(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
  to.resize(std::max(to.size(), from.size()), 0);
  for (std::size_t idx = 0; idx < from.size(); ++idx) to[idx] += from[idx];
}

void check(const Model& model, const ModelProblem& problem, const ModelBenchOptions& options) {
  bench::require("prompt_tokens", problem.prompt_tokens, 1, 1 << 24);
  bench::require("generate_tokens", problem.generate_tokens, 1, 1 << 20);
  require_context(model, problem.prompt_tokens, problem.generate_tokens);
  if (!options.text.empty() && std::ssize(options.text) < problem.prompt_tokens) {
    throw Error(fmt::format("the text has {} tokens; allowed: at least {}, the prompt's",
                            options.text.size(), problem.prompt_tokens));
  }
}

// Of so many bytes of weights, and of K and V, over the probe's bandwidth.
Statistics step_seconds_with(const ModelRow& row, std::int64_t weight_bytes) {
  const double bytes = static_cast<double>(weight_bytes) + row.step_read_bytes();
  return row.over_rounds([&](const ModelRound& round) { return bytes / round.read_bytes_per_s; });
}

std::vector<TokenId> prompt_of(const Model& model, std::int64_t tokens,
                               const ModelBenchOptions& options) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(tokens));
  if (!options.text.empty()) {
    std::copy_n(options.text.begin(), prompt.size(), prompt.begin());
    return prompt;
  }
  std::mt19937_64 random(options.seed);
  const auto vocab = static_cast<std::uint64_t>(model.tokenizer().vocab_size());
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % vocab);
  return prompt;
}

}  // namespace

bool ModelLayer::as_predicted() const {
  return held_bytes == predicted_held_bytes &&
         std::ranges::all_of(exact_figures(), [&](const ExactFigure& figure) {
           return this->*figure.measured == this->*figure.predicted;
         });
}

std::span<const ExactFigure> exact_figures() {
  static constexpr std::array<ExactFigure, 5> kFigures = {{
      {Quantity::kPairs, "needed_pairs", &ModelLayer::predicted_needed_pairs,
       &ModelLayer::needed_pairs},
      {Quantity::kPairs, "executed_pairs", &ModelLayer::predicted_pairs, &ModelLayer::pairs},
      {Quantity::kPairs, "step_needed_pairs", &ModelLayer::predicted_step_needed_pairs,
       &ModelLayer::step_needed_pairs},
      {Quantity::kPairs, "step_executed_pairs", &ModelLayer::predicted_step_pairs,
       &ModelLayer::step_pairs},
      {Quantity::kBytes, "read_bytes", &ModelLayer::predicted_read_bytes, &ModelLayer::read_bytes},
  }};
  return kFigures;
}

ModelLayer& ModelLayer::operator+=(const ModelLayer& other) {
  for (const ExactFigure& figure : exact_figures()) {
    this->*figure.predicted += other.*figure.predicted;
    this->*figure.measured += other.*figure.measured;
  }
  page_bytes += other.page_bytes;
  add(predicted_held_bytes, other.predicted_held_bytes);
  add(held_bytes, other.held_bytes);
  return *this;
}

double ModelRound::mean_step_seconds() const {
  return std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0) /
         static_cast<double>(step_seconds.size());
}

bool ModelRow::as_predicted() const { return faults().empty(); }

ModelLayer ModelRow::sum() const {
  ModelLayer all;
  for (const ModelLayer& layer : layers) all += layer;
  return all;
}

std::vector<ModelFault> ModelRow::faults() const {
  std::vector<ModelFault> faults;
  const auto differs = [&](Quantity of, std::string_view what, std::int64_t measured,
                           std::int64_t predicted) {
    faults.push_back({of, fmt::format("{} is {}, predicted {}", what, measured, predicted)});
  };
  for (std::size_t idx = 0; idx < layers.size(); ++idx) {
    const ModelLayer& layer = layers[idx];
    for (const ExactFigure& figure : exact_figures()) {
      if (layer.*figure.measured == layer.*figure.predicted) continue;
      differs(figure.quantity, fmt::format("layer {}: {}", idx, figure.name),
              layer.*figure.measured, layer.*figure.predicted);
    }
    const auto [held, predicted] =
        std::ranges::mismatch(layer.held_bytes, layer.predicted_held_bytes);
    if (held == layer.held_bytes.end()) continue;
    differs(
        Quantity::kState,
        fmt::format("layer {}: held_bytes after {} steps", idx, held - layer.held_bytes.begin()),
        *held, *predicted);
  }
  const std::vector<std::int64_t> all = sum().predicted_held_bytes;
  const auto [live, predicted] = std::ranges::mismatch(live_bytes, all);
  if (live != live_bytes.end()) {
    differs(Quantity::kState,
            fmt::format("live_bytes of the pool after {} steps", live - live_bytes.begin()), *live,
            *predicted);
  }
  return faults;
}

double ModelRow::step_read_bytes() const {
  return static_cast<double>(sum().predicted_read_bytes) / static_cast<double>(problem.num_steps());
}

Statistics ModelRow::over_rounds(const std::function<double(const ModelRound&)>& figure) const {
  std::vector<double> samples;
  for (const ModelRound& round : rounds) samples.push_back(figure(round));
  return statistics_of(samples);
}

std::vector<ModelKind> ModelRow::kinds() const {
  std::vector<ModelKind> kinds;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const auto known = std::ranges::find_if(
        kinds, [&](const ModelKind& kind) { return kind.sum.attend == layers[layer].attend; });
    ModelKind& kind = known == kinds.end() ? kinds.emplace_back() : *known;
    kind.layers.push_back(static_cast<std::int64_t>(layer));
    kind.sum.attend = layers[layer].attend;
    kind.sum += layers[layer];
  }
  for (ModelKind& kind : kinds) {
    const auto seconds = [&](std::vector<double> ModelRound::*of_layer) {
      return over_rounds([&](const ModelRound& round) {
        double all = 0;
        for (const std::int64_t layer : kind.layers) {
          all += (round.*of_layer)[static_cast<std::size_t>(layer)];
        }
        return all;
      });
    };
    kind.prefill_seconds = seconds(&ModelRound::layer_prefill_seconds);
    kind.step_seconds = seconds(&ModelRound::layer_step_seconds);
  }
  return kinds;
}

Statistics ModelRow::first_token_seconds() const {
  return over_rounds([](const ModelRound& round) { return round.first_token_seconds; });
}

Statistics ModelRow::step_seconds() const {
  std::vector<double> samples;
  for (const ModelRound& round : rounds) {
    samples.insert(samples.end(), round.step_seconds.begin(), round.step_seconds.end());
  }
  return statistics_of(samples);
}

double ModelRow::unattributed_share() const {
  return over_rounds([](const ModelRound& round) {
           return 1 - (round.step.sum() + round.sampling_seconds) / round.mean_step_seconds();
         })
      .p50;
}

Statistics ModelRow::predicted_step_seconds() const {
  return step_seconds_with(*this, weight_bytes);
}

Statistics ModelRow::bound_seconds() const { return step_seconds_with(*this, file_weight_bytes); }

std::vector<ModelRow> predict_model_bench(const Model& model,
                                          std::span<const ModelProblem> problems, ThreadPool& pool,
                                          const ModelBenchOptions& options) {
  std::vector<ModelRow> rows;
  for (const ModelProblem& problem : problems) {
    check(model, problem, options);
    rows.push_back(ModelTimer(model, problem, {}, pool, options).row());
  }
  return rows;
}

ModelBenchResult run_model_bench(const Model& model, std::span<const ModelProblem> problems,
                                 ThreadPool& pool, const ModelBenchOptions& options) {
  bench::require("repetitions", options.repetitions, 1, 1000);
  bench::require("chunk", options.chunk, 1, 1 << 16);
  for (const ModelProblem& problem : problems) check(model, problem, options);
  std::deque<ModelTimer> timers;  // which never moves its rows
  std::int64_t total = 0;
  for (const ModelProblem& problem : problems) {
    timers.emplace_back(model, problem, prompt_of(model, problem.prompt_tokens, options), pool,
                        options);
    total += (problem.prompt_tokens + problem.num_steps()) * options.repetitions;
  }
  ModelBenchResult result;
  std::int64_t done = 0;
  try {
    for (std::int64_t round = 0; round < options.repetitions; ++round) {
      for (ModelTimer& timer : timers) {
        timer.time_once(round, [&](std::int64_t tokens) {
          done += tokens;
          if (options.progress) options.progress(done, total, "tokens");
        });
      }
    }
  } catch (const Stopped&) {
    result.interrupted = true;
  }
  for (const ModelTimer& timer : timers) {
    if (!timer.row().rounds.empty()) result.rows.push_back(timer.row());
  }
  return result;
}

}  // namespace lacuna

// How near the two test models come to transformers over the whole reference, which
// tools/make_model_reference.py makes: 6676 positions, prompts up to 4096 tokens. The time of all
// of it is shown too; --benchmark_counters_tabular=true makes a table.
//   same, near       % of positions with the reference's best token, and with another one that is
//                    less than 1e-3 behind it
//   off, off_behind  positions with another best token, and how far it is behind the reference's
//                    best there, at most: by the reference, whose top two are no farther apart
//   logit_off        largest difference of a logit among the reference's top 64
//   kl, nll          mean divergence from the reference, mean negative log-likelihood
//   kl_most          the largest divergence of one position
//   nll_off          by how many % the latter lies over the reference's
//   nll_off_error    the standard error of that
//   longest_off      the same % of the longest prompt alone
//   off_exact        positions whose best token is not that of exact numbers; margin_mean and
//                    margin_most: how far the best one led there, with exact numbers
//   margin_below     % of all positions that have no greater margin than margin_most
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lacuna/file.h"
#include "lacuna/model.h"
#include "model/model_reference.h"

namespace lacuna {
namespace {

using model_test::PositionScore;

constexpr float kTie = 1e-3F;

struct Numbers {
  DenseType products = DenseType::kInt8;
  DType kv = DType::kBf16;
  friend bool operator==(const Numbers&, const Numbers&) = default;
};
constexpr Numbers kExact = {DenseType::kF32, DType::kF32};

using Scores = std::vector<PositionScore>;

Scores scores_with(const model_test::ModelReference& reference, const Numbers& numbers) {
  ThreadPool pool;
  const Model model(default_cache_dir() + "/models/" + reference.file,
                    {.products = numbers.products}, &pool);
  TransformerOptions options;
  options.kv_dtype = numbers.kv;
  Transformer transformer(model, options, pool);
  return model_test::scores_of(transformer, reference, pool);
}

// The exact scores of a model, computed once.
const Scores& exact_scores(const std::string& name, const model_test::ModelReference& reference) {
  static std::map<std::string, Scores> known;
  Scores& scores = known[name];
  if (scores.empty()) scores = scores_with(reference, kExact);
  return scores;
}

void count_against_exact(benchmark::State& state, const Scores& scores, const Scores& exact) {
  double count = 0;
  double sum = 0;
  float most = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].best == exact[i].best) continue;
    count += 1;
    sum += exact[i].margin;
    most = std::max(most, exact[i].margin);
  }
  const auto below = std::ranges::count_if(
      exact, [&](const PositionScore& score) { return score.margin <= most; });
  state.counters["off_exact"] = count;
  state.counters["margin_mean"] = count == 0 ? 0 : sum / count;
  state.counters["margin_most"] = most;
  state.counters["margin_below"] =
      100 * static_cast<double>(below) / static_cast<double>(exact.size());
}

model_test::Agreement longest_prompt(const Scores& scores,
                                     const model_test::ModelReference& reference) {
  std::span<const PositionScore> rest = scores;
  std::span<const PositionScore> longest;
  for (const model_test::ReferencePrompt& prompt : reference.prompts) {
    const auto own = rest.first(prompt.lse.size());
    if (own.size() > longest.size()) longest = own;
    rest = rest.subspan(own.size());
  }
  return model_test::agreement(longest, kTie);
}

void BM_ModelReference(benchmark::State& state, const std::string& name, const Numbers& numbers) {
  const std::string path = default_cache_dir() + "/reference/" + name + ".reference";
  if (!std::filesystem::exists(path)) {
    state.SkipWithError((path + " is absent: tools/make_model_reference.py makes it").c_str());
    return;
  }
  const model_test::ModelReference reference = model_test::read_model_reference(path);
  if (!std::filesystem::exists(default_cache_dir() + "/models/" + reference.file)) {
    state.SkipWithError((reference.file + " is absent: ./dev model brings it").c_str());
    return;
  }
  Scores scores;
  for (auto _ : state) {
    scores = numbers == kExact ? exact_scores(name, reference) : scores_with(reference, numbers);
  }
  const model_test::Agreement agreed = model_test::agreement(scores, kTie);
  state.counters["positions"] = agreed.positions;
  state.counters["same"] = 100 * agreed.same_best;
  state.counters["near"] = 100 * agreed.near_best;
  state.counters["off"] = agreed.off;
  state.counters["off_behind"] = agreed.most_behind;
  state.counters["logit_off"] = agreed.most_difference;
  state.counters["kl"] = agreed.divergence;
  state.counters["kl_most"] = agreed.most_divergence;
  state.counters["nll"] = agreed.nll;
  state.counters["nll_off"] = 100 * agreed.nll_difference();
  state.counters["nll_off_error"] = 100 * agreed.nll_error();
  state.counters["longest_off"] = 100 * longest_prompt(scores, reference).nll_difference();
  if (numbers != kExact) count_against_exact(state, scores, exact_scores(name, reference));
}

#define LACUNA_REFERENCE(model, name)                               \
  BENCHMARK_CAPTURE(BM_ModelReference, model##_exact, name, kExact) \
      ->Iterations(1)                                               \
      ->Unit(benchmark::kSecond);                                   \
  BENCHMARK_CAPTURE(BM_ModelReference, model##_int8_bf16, name,     \
                    Numbers{DenseType::kInt8, DType::kBf16})        \
      ->Iterations(1)                                               \
      ->Unit(benchmark::kSecond);                                   \
  BENCHMARK_CAPTURE(BM_ModelReference, model##_int8_int8, name,     \
                    Numbers{DenseType::kInt8, DType::kInt8})        \
      ->Iterations(1)                                               \
      ->Unit(benchmark::kSecond)

LACUNA_REFERENCE(smollm2, "smollm2-135m");
LACUNA_REFERENCE(gemma3, "gemma-3-270m");

}  // namespace
}  // namespace lacuna

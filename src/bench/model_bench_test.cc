#include "lacuna/model_bench.h"

#include <gtest/gtest.h>

#include <stop_token>
#include <string>

#include "lacuna/error.h"
#include "lacuna/generate.h"

namespace lacuna {
namespace {

const std::string kFolder = std::string(LACUNA_TEST_DATA) + "/models/tiny-";

ModelProblem problem(const Model& model, const std::string& layers, std::int64_t prompt,
                     std::int64_t generate) {
  const auto num_layers = static_cast<int>(model.config().table.layers.size());
  return {layers.empty() ? model.config().table : parse_layers(layers, num_layers, true),
          prompt,
          generate,
          {}};
}

ModelBenchOptions few(std::int64_t chunk = 13) {
  ModelBenchOptions options;
  options.transformer.page_size = 16;
  options.chunk = chunk;
  options.repetitions = 2;
  return options;
}

std::vector<std::string> names() {
  return {"gemma2", "gemma3", "mistral", "llama-5-on-1", "llama-6-on-3"};
}

// Every count of the kernels and every live page, against topology and cost alone.
void expect_as_predicted(const Model& model, ThreadPool& pool, DType kv_dtype,
                         const std::vector<std::string>& tables) {
  std::vector<ModelProblem> problems;
  for (const std::string& layers : tables) {
    for (const std::int64_t prompt : {1, 17, 40}) {
      problems.push_back(problem(model, layers, prompt, 9));
    }
  }
  ModelBenchOptions options = few();
  options.repetitions = 1;
  options.transformer.kv_dtype = kv_dtype;
  const ModelBenchResult result = run_model_bench(model, problems, pool, options);
  ASSERT_EQ(result.rows.size(), problems.size());
  for (const ModelRow& row : result.rows) {
    EXPECT_TRUE(row.as_predicted())
        << model.path() << ' ' << to_text(row.problem.table) << ' ' << row.problem.prompt_tokens;
    for (const ModelLayer& layer : row.layers) {
      EXPECT_GT(layer.pairs, 0);
      EXPECT_EQ(layer.held_bytes.size(), 9U);
    }
  }
}

TEST(ModelBench, FindsEveryExactFigureAsPredicted) {
  ThreadPool pool(2);
  for (const std::string& name : names()) {
    const Model model(kFolder + name + ".gguf", {}, &pool);
    expect_as_predicted(model, pool, DType::kBf16, {""});
    if (name != "gemma3") continue;
    expect_as_predicted(model, pool, DType::kBf16, {"full", "window(8)", "window(17)+sink(3)"});
    expect_as_predicted(model, pool, DType::kF32, {""});
    expect_as_predicted(model, pool, DType::kInt8, {""});
  }
}

// Faults on purpose: each moves the figure that it must, in every layer that it touches.
TEST(ModelBench, SeesEveryExactFault) {
  ThreadPool pool(1);
  const Model model(kFolder + "gemma3.gguf", {}, &pool);
  const auto faults = [&](const ModelProblem& asked, const PlantedFaults& planted) {
    ModelBenchOptions options = few();
    options.repetitions = 1;
    options.transformer.planted = planted;
    const ModelBenchResult result = run_model_bench(model, {&asked, 1}, pool, options);
    std::string all;
    for (const ModelFault& fault : result.rows.at(0).faults()) all += fault.text + "\n";
    return all;
  };
  const ModelProblem own = problem(model, "", 60, 9);
  EXPECT_EQ(faults(own, {}), "");
  const auto says = [&](const ModelProblem& asked, const PlantedFaults& planted,
                        const std::string& words) {
    EXPECT_NE(faults(asked, planted).find(words), std::string::npos) << faults(asked, planted);
  };
  says(own, {.masked_dense = true}, "layer 0: executed_pairs");
  says(own, {.keep_all = true}, "layer 0: held_bytes");
  says(own, {.leak = true}, "live_bytes of the pool after 0 steps");
  says(own, {.count_twice = true}, "layer 0: needed_pairs");
  says(own, {.summaries = true}, "live_bytes of the pool after 0 steps");
  // A window of one key more executes the same tiles.
  ModelProblem window = problem(model, "window(17)", 60, 9);
  window.claim = problem(model, "window(16)", 60, 9).table;
  says(window, {}, "layer 0: needed_pairs");
}

TEST(ModelBench, AnswersAsGenerateDoes) {
  ThreadPool pool(1);
  const Model model(kFolder + "gemma3.gguf", {}, &pool);
  ModelBenchOptions options = few();
  const ModelProblem asked = problem(model, "", 23, 12);
  options.text = {5,  3,  9,  1,  4,  7,  8,  2,  6,  11, 13, 12,
                  10, 15, 14, 16, 18, 17, 20, 19, 22, 21, 24};
  const ModelBenchResult result = run_model_bench(model, {&asked, 1}, pool, options);
  ASSERT_EQ(result.rows.size(), 1U);
  Transformer transformer(model, options.transformer, pool);
  GenerateOptions generating;
  generating.max_tokens = 12;
  generating.ignore_end = true;
  EXPECT_EQ(result.rows[0].tokens, generate(transformer, model, options.text, generating).tokens);
}

TEST(ModelBench, PartsOfARoundAreNeverMoreThanTheWhole) {
  ThreadPool pool(2);
  const Model model(kFolder + "mistral.gguf", {}, &pool);
  const ModelProblem asked = problem(model, "", 40, 20);
  const ModelBenchResult result = run_model_bench(model, {&asked, 1}, pool, few());
  ASSERT_EQ(result.rows.size(), 1U);
  const ModelRow& row = result.rows[0];
  ASSERT_EQ(row.rounds.size(), 2U);
  for (const ModelRound& round : row.rounds) {
    EXPECT_EQ(round.step_seconds.size(), 19U);
    EXPECT_LE(round.prefill.sum(), round.first_token_seconds);
    EXPECT_LE(round.step.sum() + round.sampling_seconds, round.mean_step_seconds());
    EXPECT_GT(round.read_bytes_per_s, 0);
    EXPECT_GT(round.cpu_share, 0);
  }
  EXPECT_EQ(row.step_seconds().num_runs, 38);
  EXPECT_GT(row.bound_seconds().p50, 0);
}

TEST(ModelBench, AnAnswerOfOneTokenHasNoSteps) {
  ThreadPool pool(1);
  const Model model(kFolder + "llama-6-on-3.gguf", {}, &pool);
  const ModelProblem asked = problem(model, "", 5, 1);
  const ModelBenchResult result = run_model_bench(model, {&asked, 1}, pool, few());
  ASSERT_EQ(result.rows.size(), 1U);
  EXPECT_TRUE(result.rows[0].as_predicted());
  EXPECT_EQ(result.rows[0].tokens.size(), 1U);
  EXPECT_TRUE(result.rows[0].rounds[0].step_seconds.empty());
}

TEST(ModelBench, GivesWhatIsDoneWhenItIsStopped) {
  ThreadPool pool(1);
  const Model model(kFolder + "llama-6-on-3.gguf", {}, &pool);
  const std::vector<ModelProblem> problems = {problem(model, "", 20, 5),
                                              problem(model, "window(8)", 20, 5)};
  std::stop_source stop;
  ModelBenchOptions options = few();
  options.stop = stop.get_token();
  options.progress = [&](std::int64_t done, std::int64_t, std::string_view) {
    if (done > 24) stop.request_stop();
  };
  const ModelBenchResult result = run_model_bench(model, problems, pool, options);
  EXPECT_TRUE(result.interrupted);
  ASSERT_EQ(result.rows.size(), 1U);
  EXPECT_TRUE(result.rows[0].as_predicted());
}

TEST(ModelBench, RefusesWhatIsOutOfRange) {
  ThreadPool pool(1);
  const Model model(kFolder + "llama-6-on-3.gguf", {}, &pool);
  const auto refused = [&](const ModelProblem& asked, const ModelBenchOptions& options) {
    EXPECT_THROW(run_model_bench(model, {&asked, 1}, pool, options), Error);
  };
  refused(problem(model, "", 0, 4), few());
  refused(problem(model, "", 4, 0), few());
  refused(problem(model, "", 1 << 23, 4), few());
  refused(problem(model, "", 4, 4), few(0));
  ModelBenchOptions short_text = few();
  short_text.text = {1, 2, 3};
  refused(problem(model, "", 4, 4), short_text);
}

}  // namespace
}  // namespace lacuna

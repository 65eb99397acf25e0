#include "lacuna/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/kernels.h"
#include "lacuna/stopwatch.h"

namespace lacuna {
namespace {

const std::string kFolder = std::string(LACUNA_TEST_DATA) + "/models/";

// A model that transformers made, and what it answers at each position of one prompt.
struct TinyModel {
  std::string name;
  std::vector<TokenId> prompt;
  std::size_t vocab_size = 0;
  std::vector<float> logits;  // [prompt, vocab_size]
};

std::vector<TinyModel> tiny_models() {
  std::vector<TinyModel> models;
  const auto json = nlohmann::json::parse(read_file(kFolder + "tiny-models.json", 1 << 20));
  for (const auto& entry : json.at("models")) {
    TinyModel model = {entry.at("name"), entry.at("prompt"), entry.at("vocab_size"), {}};
    const std::string bytes = read_file(kFolder + model.name + ".logits", 1 << 24);
    model.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(model.logits.data(), bytes.data(), bytes.size());
    EXPECT_EQ(model.logits.size(), model.prompt.size() * model.vocab_size) << model.name;
    models.push_back(std::move(model));
  }
  return models;
}

const ModelOptions kExact = {.products = DenseType::kF32};
TransformerOptions exact_options() {
  TransformerOptions options;
  options.kv_dtype = DType::kF32;
  options.page_size = 16;
  options.cache_bytes = 64 << 20;
  return options;
}

using Logits = std::vector<float>;

// Logits of all positions, `chunk` tokens at a time.
Logits logits_of(Transformer& transformer, std::span<const TokenId> tokens, std::size_t chunk) {
  Logits all;
  const SequenceId sequence = transformer.cache().create();
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    const auto part = tokens.subspan(first, std::min(chunk, tokens.size() - first));
    const NewTokens batch[] = {{sequence, part}};
    auto pass = transformer.forward(batch, LogitRows::kAll);
    EXPECT_TRUE(pass.has_value());
    for (std::int64_t row = 0; row < pass->num_logits(); ++row) {
      const auto logits = pass->logits(row);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    pass->commit();
  }
  transformer.cache().free(sequence);
  return all;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largest_difference(const Logits& a, const Logits& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  }
  return largest;
}

double largest_size(const Logits& a) {
  double largest = 0;
  for (const float x : a) largest = std::max(largest, std::abs(double{x}));
  return largest;
}

TEST(IsaTransformer, AnswersAsTransformersDoesForEveryKindOfModel) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    for (const std::string& isa : kernel_isas()) {
      TransformerOptions options = exact_options();
      options.isa = isa;
      Transformer transformer(model, options, pool);
      const Logits logits = logits_of(transformer, tiny.prompt, tiny.prompt.size());
      ASSERT_EQ(logits.size(), tiny.logits.size());
      EXPECT_LT(largest_difference(logits, tiny.logits), 1e-4 * largest_size(tiny.logits))
          << tiny.name << ' ' << isa;
    }
  }
}

TEST(Transformer, AWindowThatIsOffByOneIsFarFromTransformers) {
  ThreadPool pool(2);
  int windows = 0;
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    const LayerTable& own = model.config().table;
    for (const char* const other : {"window(7)", "window(9)"}) {
      const std::string window = "window(8)";
      std::string planted = to_text(own);
      for (std::size_t at = 0; (at = planted.find(window, at)) != std::string::npos; ++at) {
        planted.replace(at, window.size(), other);
      }
      if (planted == to_text(own)) continue;
      ++windows;
      TransformerOptions options = exact_options();
      options.table = parse_layers(planted, static_cast<int>(own.layers.size()), true);
      Transformer transformer(model, options, pool);
      const Logits logits = logits_of(transformer, tiny.prompt, tiny.prompt.size());
      EXPECT_GT(largest_difference(logits, tiny.logits), 1e-2 * largest_size(tiny.logits))
          << tiny.name << ' ' << other;
    }
  }
  EXPECT_EQ(windows, 2 * 3) << "two Gemmas and Mistral";
}

TEST(Transformer, GivesTheSameBitsForAnyChunksPagesAndThreads) {
  for (const TinyModel& tiny : tiny_models()) {
    ThreadPool one(1);
    const Model model(kFolder + tiny.name + ".gguf", kExact, &one);
    Transformer whole(model, exact_options(), one);
    const Logits expected = logits_of(whole, tiny.prompt, tiny.prompt.size());
    ThreadPool three(3);
    for (const std::int64_t page_size : {16, 64}) {
      TransformerOptions options = exact_options();
      options.page_size = page_size;
      Transformer transformer(model, options, three);
      for (const std::size_t chunk : std::vector<std::size_t>{1, 2, 7, 8, 9, 16, 39}) {
        EXPECT_TRUE(same_bits(logits_of(transformer, tiny.prompt, chunk), expected))
            << tiny.name << ", chunks of " << chunk << ", pages of " << page_size;
      }
    }
  }
}

TEST(Transformer, GivesTheSameBitsAloneAndInABatch) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    Transformer transformer(model, exact_options(), pool);
    const Logits expected = logits_of(transformer, tiny.prompt, tiny.prompt.size());
    const std::span<const TokenId> prompt = tiny.prompt;
    const NewTokens batch[] = {{transformer.cache().create(), prompt.first(5)},
                               {transformer.cache().create(), prompt},
                               {transformer.cache().create(), prompt.first(1)}};
    auto pass = transformer.forward(batch, LogitRows::kAll);
    ASSERT_TRUE(pass.has_value());
    ASSERT_EQ(pass->num_logits(), 5 + std::ssize(prompt) + 1);
    Logits batched;
    for (std::int64_t row = 5; row < 5 + std::ssize(prompt); ++row) {
      batched.insert(batched.end(), pass->logits(row).begin(), pass->logits(row).end());
    }
    EXPECT_TRUE(same_bits(batched, expected)) << tiny.name;
  }
}

TEST(Transformer, LeavesNoTraceOfDraftsThatWereRejected) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    TransformerOptions options = exact_options();
    Transformer transformer(model, options, pool);
    const Logits expected = logits_of(transformer, tiny.prompt, tiny.prompt.size());
    const std::span<const TokenId> prompt = tiny.prompt;
    const SequenceId sequence = transformer.cache().create();
    Logits drafted;
    for (std::size_t at = 0; at < prompt.size(); ++at) {
      const std::vector<TokenId> tokens = {prompt[at], 5, 6, 7};  // one and three drafts
      const NewTokens batch[] = {{sequence, tokens}};
      auto pass = transformer.forward(batch, LogitRows::kAll);
      ASSERT_TRUE(pass.has_value());
      drafted.insert(drafted.end(), pass->logits(0).begin(), pass->logits(0).end());
      pass->commit(std::vector<std::int64_t>{1});
    }
    EXPECT_TRUE(same_bits(drafted, expected)) << tiny.name;
  }
}

TEST(Transformer, APassThatIsDroppedLeavesTheCacheAsItWas) {
  ThreadPool pool(1);
  const TinyModel tiny = tiny_models().front();
  const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
  Transformer transformer(model, exact_options(), pool);
  const SequenceId sequence = transformer.cache().create();
  const NewTokens batch[] = {{sequence, tiny.prompt}};
  { const auto pass = transformer.forward(batch); }
  EXPECT_EQ(transformer.cache().length(sequence), 0);
  EXPECT_EQ(transformer.cache().live_bytes(), 0);
}

TEST(Transformer, LastLogitsAreThoseOfTheLastRow) {
  ThreadPool pool(1);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    Transformer transformer(model, exact_options(), pool);
    const Logits all = logits_of(transformer, tiny.prompt, tiny.prompt.size());
    const NewTokens batch[] = {{transformer.cache().create(), tiny.prompt}};
    const auto pass = transformer.forward(batch);
    ASSERT_TRUE(pass.has_value());
    ASSERT_EQ(pass->num_logits(), 1);
    EXPECT_TRUE(same_bits({pass->logits(0).begin(), pass->logits(0).end()},
                          {all.end() - static_cast<std::ptrdiff_t>(tiny.vocab_size), all.end()}));
  }
}

TEST(Transformer, PartsOfAPassAreTimedAndNeverMoreThanTheWhole) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    Transformer transformer(model, exact_options(), pool);
    const NewTokens batch[] = {{transformer.cache().create(), tiny.prompt}};
    const Stopwatch whole;
    auto pass = transformer.forward(batch);
    ASSERT_TRUE(pass.has_value());
    const double before_commit = pass->times().scheduling;
    pass->commit();
    const PassTimes times = pass->times();
    EXPECT_LE(times.sum(), whole.seconds());
    EXPECT_GT(times.scheduling, before_commit);
    double attention = 0;
    Ledger executed;
    for (const LayerPass& layer : pass->layers()) {
      attention += layer.seconds;
      executed += layer.ledger;
      EXPECT_GT(layer.ledger.executed_pairs, 0);
    }
    EXPECT_EQ(executed, pass->ledger());
    EXPECT_NEAR(attention, times.attention, 0.1 * times.attention);
    for (const PassPart& part : pass_parts()) {
      EXPECT_GT(times.*part.seconds, 0) << part.name;
    }
  }
}

// Beyond keys and values, the last layer computes nothing for them.
TEST(Transformer, RowsWithoutLogitsCostTheLastLayerNoPairs) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    const auto pairs = [&](LogitRows wanted, bool observed) {
      Transformer transformer(model, exact_options(), pool);
      if (observed) transformer.observe([](std::int64_t, std::span<const float>) {});
      const NewTokens batch[] = {{transformer.cache().create(), tiny.prompt},
                                 {transformer.cache().create(), std::span(tiny.prompt).first(3)}};
      const auto pass = transformer.forward(batch, wanted);
      const auto [rows, expected] =
          std::pair(pass->num_logits(), wanted == LogitRows::kNone   ? 0
                                        : wanted == LogitRows::kLast ? 2
                                                                     : std::ssize(tiny.prompt) + 3);
      EXPECT_EQ(rows, expected);
      std::vector<std::int64_t> needed;
      for (const LayerPass& layer : pass->layers()) needed.push_back(layer.ledger.needed_pairs);
      return needed;
    };
    const std::vector<std::int64_t> all = pairs(LogitRows::kAll, false);
    EXPECT_EQ(pairs(LogitRows::kNone, true), all);
    for (const LogitRows wanted : {LogitRows::kNone, LogitRows::kLast}) {
      const std::vector<std::int64_t> some = pairs(wanted, false);
      EXPECT_TRUE(std::equal(some.begin(), some.end() - 1, all.begin()));
      EXPECT_EQ(some.back() == 0, wanted == LogitRows::kNone);
      EXPECT_LT(some.back(), all.back());
    }
  }
}

// A wider window than the prompt is the same as none; a narrower one is not.
TEST(Transformer, RunsWithAnyLayerTable) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    const auto num_layers = static_cast<int>(model.config().table.layers.size());
    const auto with = [&](const std::string& attend) {
      TransformerOptions options = exact_options();
      options.table = parse_layers(attend, num_layers, true);
      Transformer transformer(model, options, pool);
      return logits_of(transformer, tiny.prompt, 7);
    };
    const Logits full = with("full");
    EXPECT_TRUE(same_bits(with("window(40)"), full)) << tiny.name;
    EXPECT_FALSE(same_bits(with("window(39)"), full)) << tiny.name;
    EXPECT_TRUE(same_bits(with("window(20)+sink(20)"), full)) << tiny.name;
  }
}

TEST(Transformer, GoesOnWithAnotherTableWhoseKeysAreThere) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    const auto num_layers = static_cast<int>(model.config().table.layers.size());
    const auto table = [&](const char* text) { return parse_layers(text, num_layers, true); };
    TransformerOptions options = exact_options();
    options.table = table("full");
    Transformer transformer(model, options, pool);
    const std::span<const TokenId> prompt = tiny.prompt;
    const SequenceId sequence = transformer.cache().create();
    const NewTokens first[] = {{sequence, prompt.first(39)}};
    transformer.forward(first)->commit();
    const SequenceId other = transformer.cache().fork(sequence);
    const auto last_logits = [&](SequenceId of) {
      const NewTokens batch[] = {{of, prompt.last(1)}};
      auto pass = transformer.forward(batch);
      Logits logits(pass->logits(0).begin(), pass->logits(0).end());
      pass->commit();
      return logits;
    };
    const Logits full = last_logits(sequence);
    transformer.use(table("window(40)"));
    EXPECT_TRUE(same_bits(last_logits(other), full)) << tiny.name;
    transformer.use(table("window(4)"));
    EXPECT_FALSE(same_bits(last_logits(sequence), full)) << tiny.name;
    transformer.use(table("full"));
    EXPECT_THROW(last_logits(sequence), Error) << "keys of the first page are gone";
  }
}

TEST(Transformer, HoldsWhatTheTablePredicts) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
    const auto num_layers = static_cast<int>(model.config().table.layers.size());
    TransformerOptions options = exact_options();
    options.table = parse_layers("window(8)", num_layers, true);
    Transformer transformer(model, options, pool);
    const SequenceId sequence = transformer.cache().create();
    for (const TokenId token : tiny.prompt) {
      const std::vector<TokenId> tokens = {token};
      const NewTokens batch[] = {{sequence, tokens}};
      transformer.forward(batch)->commit();
    }
    // Of 40 tokens in pages of 16, a window of 8 needs 33..39: the last page alone.
    for (const Ranges& held : transformer.cache().held(sequence)) {
      EXPECT_EQ(held, (Ranges{{32, 40}})) << tiny.name;
    }
  }
}

double root_mean_square(const Logits& a, const Logits& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Random weights make sharp softmaxes, which enlarge a rounding; a wrong scale or a lost bias gives
// logits of another model, √2 away.
TEST(Transformer, WholeNumbersAndHalvesStayNearTheExactAnswer) {
  ThreadPool pool(2);
  for (const TinyModel& tiny : tiny_models()) {
    const Model model(kFolder + tiny.name + ".gguf", {}, &pool);
    const double size = root_mean_square(tiny.logits, Logits(tiny.logits.size(), 0.0F));
    TransformerOptions options = exact_options();
    for (const DType dtype : {DType::kBf16, DType::kF16, DType::kInt8}) {
      options.kv_dtype = dtype;
      Transformer transformer(model, options, pool);
      const Logits logits = logits_of(transformer, tiny.prompt, 8);
      const double difference = root_mean_square(logits, tiny.logits);
      EXPECT_LT(difference, 0.2 * size) << tiny.name << ' ' << to_string(dtype);
      EXPECT_GT(difference, 0) << tiny.name;
    }
  }
}

TEST(Transformer, RefusesTokensAndTablesThatDoNotFit) {
  ThreadPool pool(1);
  const TinyModel tiny = tiny_models().front();
  const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
  Transformer transformer(model, exact_options(), pool);
  const SequenceId sequence = transformer.cache().create();
  for (const TokenId token : {-1, static_cast<TokenId>(tiny.vocab_size)}) {
    const std::vector<TokenId> tokens = {token};
    const NewTokens batch[] = {{sequence, tokens}};
    EXPECT_THROW(static_cast<void>(transformer.forward(batch)), Error);
  }
  EXPECT_THROW(static_cast<void>(transformer.forward({})), Error);
  TransformerOptions options = exact_options();
  options.table = parse_layers("full", 3, true);
  EXPECT_THROW(Transformer(model, options, pool), Error);
}

TEST(Transformer, SaysWhenTheCacheHasNoRoom) {
  ThreadPool pool(1);
  const TinyModel tiny = tiny_models().front();
  const Model model(kFolder + tiny.name + ".gguf", kExact, &pool);
  TransformerOptions options = exact_options();
  options.cache_bytes = 4 << 20;
  Transformer transformer(model, options, pool);
  std::vector<TokenId> tokens(20000, 3);
  const NewTokens batch[] = {{transformer.cache().create(), tokens}};
  EXPECT_FALSE(transformer.forward(batch).has_value());
  EXPECT_EQ(transformer.cache().live_bytes(), 0);
}

}  // namespace
}  // namespace lacuna

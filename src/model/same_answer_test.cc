// The bits of a position's logits depend on the tokens before it alone: not on how their keys and
// values came to be in the cache. With exact numbers, and with those that are fast.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache_rig.h"
#include "lacuna/offload.h"
#include "lacuna/sequence_file.h"
#include "lacuna/transformer.h"
#include "model/model_reference.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;

struct Numbers {
  DenseType products;
  DType kv;
};
constexpr Numbers kExact = {DenseType::kF32, DType::kF32};
constexpr Numbers kUsual = {DenseType::kInt8, DType::kBf16};
constexpr Numbers kSmallest = {DenseType::kInt8, DType::kInt8};

std::string to_string(const Numbers& numbers) {
  return fmt::format("{}_{}", lacuna::to_string(numbers.products), lacuna::to_string(numbers.kv));
}

struct Case {
  std::string model;
  std::string attend;  // "": the model's own
  Numbers numbers;
  friend std::ostream& operator<<(std::ostream& out, const Case& of) {
    return out << of.model << ", " << of.attend << ", " << to_string(of.numbers);
  }
};

const std::string kReal = "smollm2-135m";
constexpr std::int64_t kTinyWindow = 8;
const std::string kIdentity = "a model, its table and its numbers";

using Tokens = std::span<const TokenId>;
using Logits = std::vector<float>;

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class SameAnswer : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const bool real = GetParam().model == kReal;
    std::string path = std::string(LACUNA_TEST_DATA) + "/models/" + GetParam().model + ".gguf";
    if (real) {
      const auto reference = model_test::read_model_reference(std::string(LACUNA_TEST_DATA) +
                                                              "/reference/" + kReal + ".reference");
      path = default_cache_dir() + "/models/" + reference.file;
      if (rig::kSanitized) GTEST_SKIP() << "sanitizers run on tiny models";
      if (!fs::exists(path)) GTEST_SKIP() << path << " is absent: ./dev model brings it";
      const auto& tokens = reference.prompts.back().tokens;
      prompt_.assign(tokens.begin(), tokens.begin() + 130);
      cuts_ = {63, 64, 129};
    } else {
      prompt_ = {1};
      while (prompt_.size() < 40) {
        prompt_.push_back(static_cast<TokenId>(3 + 37 * prompt_.size() % 285));
      }
      cuts_ = {1, 2, kTinyWindow - 1, kTinyWindow, kTinyWindow + 1, 15, 16, 17, 24, 31, 32, 33, 39};
    }
    options_.kv_dtype = GetParam().numbers.kv;
    options_.page_size = real ? 64 : 16;
    options_.cache_bytes = 64 << 20;
    model_.emplace(path, ModelOptions{.products = GetParam().numbers.products}, &pool_);
    if (!GetParam().attend.empty()) {
      const auto layers = static_cast<int>(model_->config().table.layers.size());
      options_.table = parse_layers(GetParam().attend, layers, true);
    }
    transformer_.emplace(*model_, options_, pool_);
    plain_ = answers(*transformer_, transformer_->cache().create(), prompt_);
  }

  // Logits of all these tokens, which the sequence goes on with, some at a time.
  Logits answers(Transformer& with, SequenceId sequence, Tokens tokens, std::size_t chunk = 64) {
    Logits all;
    while (!tokens.empty()) {
      const Tokens part = tokens.first(std::min(chunk, tokens.size()));
      const NewTokens batch[] = {{sequence, part}};
      auto pass = with.forward(batch, LogitRows::kAll);
      if (!pass) throw Error("the cache has no room");
      append(all, *pass, 0, pass->num_logits());
      pass->commit();
      tokens = tokens.subspan(part.size());
    }
    return all;
  }

  static void append(Logits& to, const Transformer::Pass& pass, std::int64_t row,
                     std::int64_t count) {
    for (; count > 0; --count) {
      const auto logits = pass.logits(row++);
      to.insert(to.end(), logits.begin(), logits.end());
    }
  }

  // Of the plain run, from this position on.
  Logits plain_from(std::size_t position) const {
    return {plain_.begin() + static_cast<std::ptrdiff_t>(position * vocab_size()), plain_.end()};
  }
  std::size_t vocab_size() const { return plain_.size() / prompt_.size(); }

  Tokens prompt() const { return prompt_; }
  Tokens first(std::size_t count) const { return prompt().first(count); }
  Tokens from(std::size_t position) const { return prompt().subspan(position); }
  SequenceId begun(Transformer& with, std::size_t count) {
    const SequenceId sequence = with.cache().create();
    answers(with, sequence, first(count), 9);
    return sequence;
  }

  // Adopts what the cache has of the prompt, which is to be `hit` tokens, and goes on.
  Logits after_hit(Transformer& with, Tokens tokens, std::size_t hit) {
    const Retention retention(with.table(), model_->config().shape);
    const PrefixMatch match = with.cache().match(kIdentity, tokens);
    const std::int64_t length = hit_length(match, retention, std::ssize(tokens));
    EXPECT_EQ(length, static_cast<std::int64_t>(hit));
    const SequenceId sequence =
        with.cache().adopt(kIdentity, tokens.first(hit), retention.kept(length, length));
    Logits rest = answers(with, sequence, tokens.subspan(hit), 7);
    with.cache().free(sequence);
    return rest;
  }

  ThreadPool pool_{2};
  std::optional<Model> model_;
  TransformerOptions options_;
  std::optional<Transformer> transformer_;
  std::vector<TokenId> prompt_;
  std::vector<std::size_t> cuts_;
  Logits plain_;  // all of the prompt, in an empty cache, chunks of 64
};

TEST_P(SameAnswer, InAnyChunksAndPagesByAnyThreads) {
  ThreadPool three(3);
  for (const std::int64_t page_size : {16, 64}) {
    TransformerOptions options = options_;
    options.page_size = page_size;
    Transformer transformer(*model_, options, three);
    for (const std::size_t chunk : cuts_) {
      const SequenceId sequence = transformer.cache().create();
      EXPECT_TRUE(same_bits(answers(transformer, sequence, prompt_, chunk), plain_))
          << "chunks of " << chunk << ", pages of " << page_size;
      transformer.cache().free(sequence);
    }
  }
}

TEST_P(SameAnswer, AfterAPrefixThatAnotherSequenceComputed) {
  for (const std::size_t cut : cuts_) {
    KvCache& cache = transformer_->cache();
    const SequenceId before = begun(*transformer_, cut);
    cache.publish(before, kIdentity, first(cut));
    cache.free(before);
    EXPECT_TRUE(same_bits(after_hit(*transformer_, prompt_, cut), plain_from(cut))) << cut;
    cache.clear_prefixes();
  }
}

// Another prompt, which parts from the published one anywhere in its pages.
TEST_P(SameAnswer, AfterAHitThatEndsWherePromptsPart) {
  TransformerOptions options = options_;
  options.rollback = std::ssize(prompt_);  // keeps what windows have passed
  Transformer transformer(*model_, options, pool_);
  const SequenceId before = begun(transformer, prompt_.size());
  transformer.cache().publish(before, kIdentity, prompt());
  for (const std::size_t cut : cuts_) {
    std::vector<TokenId> other = prompt_;
    for (std::size_t at = cut; at < other.size(); ++at) other[at] = other[at] == 5 ? 6 : 5;
    Logits wanted = answers(*transformer_, transformer_->cache().create(), other);
    wanted.erase(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(cut * vocab_size()));
    EXPECT_TRUE(same_bits(after_hit(transformer, other, cut), wanted)) << cut;
  }
  EXPECT_TRUE(same_bits(after_hit(transformer, prompt_, prompt_.size() - 1),
                        plain_from(prompt_.size() - 1)))
      << "no hit wrote on shared pages";
}

TEST_P(SameAnswer, AfterPassesThatWereStoppedOrDropped) {
  std::stop_source stopped;
  stopped.request_stop();
  for (const std::size_t chunk : cuts_) {
    const SequenceId sequence = transformer_->cache().create();
    Logits all;
    for (std::size_t at = 0; at < prompt_.size(); at += chunk) {
      const Tokens part = from(at).first(std::min(chunk, prompt_.size() - at));
      const std::vector<TokenId> wrong(part.size() + 3, 7);
      const NewTokens dropped[] = {{sequence, wrong}};
      EXPECT_FALSE(transformer_->forward(dropped, LogitRows::kAll, stopped.get_token()));
      EXPECT_TRUE(transformer_->forward(dropped));
      const Logits more = answers(*transformer_, sequence, part, chunk);
      all.insert(all.end(), more.begin(), more.end());
    }
    EXPECT_TRUE(same_bits(all, plain_)) << chunk;
    transformer_->cache().free(sequence);
  }
}

TEST_P(SameAnswer, FromAFileInAnotherTransformer) {
  std::string name = testing::TempDir() + "lacuna_answer_XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  const std::string path = folder / "sequence";
  ThreadPool three(3);
  for (const std::size_t cut : cuts_) {
    const SequenceId sequence = begun(*transformer_, cut);
    save_sequence(transformer_->cache(), sequence, kIdentity, first(cut), path);
    Transformer other(*model_, options_, three);
    const auto loaded = load_sequence(other.cache(), path, kIdentity);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_TRUE(std::ranges::equal(loaded->tokens, first(cut)));
    EXPECT_TRUE(same_bits(answers(other, loaded->sequence, from(cut), 7), plain_from(cut))) << cut;
    EXPECT_TRUE(same_bits(answers(*transformer_, sequence, from(cut), 7), plain_from(cut))) << cut;
  }
  fs::remove_all(folder);
}

TEST_P(SameAnswer, AfterASleepInWhichOthersUsedTheMemory) {
  std::string name = testing::TempDir() + "lacuna_sleep_XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  {
    KvOffload offload(transformer_->cache(), folder / "pages", std::int64_t{64} << 20);
    for (const std::size_t cut : cuts_) {
      const SequenceId sequence = begun(*transformer_, cut);
      ASSERT_TRUE(offload.sleep(sequence));
      const SequenceId other = transformer_->cache().create();
      answers(*transformer_, other, std::vector<TokenId>(prompt_.size(), 7));
      transformer_->cache().free(other);
      ASSERT_TRUE(offload.wake(sequence));
      EXPECT_TRUE(same_bits(answers(*transformer_, sequence, from(cut), 7), plain_from(cut)))
          << cut;
    }
  }
  fs::remove_all(folder);
}

// Each pass has a token and drafts, of which the first `right` are those that come.
TEST_P(SameAnswer, WithAnyNumberOfDraftsAccepted) {
  for (std::size_t right = 0; right <= 4; ++right) {
    const SequenceId sequence = transformer_->cache().create();
    Logits all;
    for (std::size_t at = 0; at < prompt_.size();) {
      const std::size_t good = std::min(1 + right, prompt_.size() - at);
      std::vector<TokenId> tokens(from(at).begin(), from(at + good).begin());
      tokens.resize(good + 4 - right, 7);
      const NewTokens batch[] = {{sequence, tokens}};
      auto pass = transformer_->forward(batch, LogitRows::kAll);
      ASSERT_TRUE(pass.has_value());
      append(all, *pass, 0, static_cast<std::int64_t>(good));
      pass->commit(std::vector<std::int64_t>{static_cast<std::int64_t>(good)});
      at += good;
    }
    EXPECT_TRUE(same_bits(all, plain_)) << right;
    transformer_->cache().free(sequence);
  }
}

TEST_P(SameAnswer, AfterTokensThatWereTakenBack) {
  TransformerOptions options = options_;
  options.rollback = kTinyWindow + 1;
  Transformer transformer(*model_, options, pool_);
  const Retention retention(transformer.table(), model_->config().shape);
  const SequenceId sequence = transformer.cache().create();
  Logits all;
  for (std::size_t at = 0; at < prompt_.size(); at += 5) {
    const Logits more = answers(transformer, sequence,
                                from(at).first(std::min<std::size_t>(5, prompt_.size() - at)));
    all.insert(all.end(), more.begin(), more.end());
    const std::int64_t length = transformer.cache().length(sequence);
    answers(transformer, sequence, std::vector<TokenId>(1 + at % 9, 7));
    transformer.cache().truncate(sequence, length, retention.kept(length, length));
  }
  EXPECT_TRUE(same_bits(all, plain_));
}

TEST_P(SameAnswer, OfForksThatGoOnInOneBatch) {
  for (const std::size_t cut : cuts_) {
    const SequenceId sequence = begun(*transformer_, cut);
    const SequenceId fork = transformer_->cache().fork(sequence);
    const std::vector<TokenId> other(prompt_.size() - cut + 2, 7);
    const NewTokens batch[] = {{fork, other}, {sequence, from(cut)}};
    auto pass = transformer_->forward(batch, LogitRows::kAll);
    ASSERT_TRUE(pass.has_value());
    Logits rest;
    append(rest, *pass, std::ssize(other), std::ssize(from(cut)));
    EXPECT_TRUE(same_bits(rest, plain_from(cut))) << cut;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* tiny :
       {"tiny-gemma2", "tiny-gemma3", "tiny-llama-5-on-1", "tiny-llama-6-on-3", "tiny-mistral"}) {
    for (const Numbers& numbers : {kExact, kUsual, kSmallest}) all.push_back({tiny, "", numbers});
    all.push_back({tiny, "window(8)+sink(3)", kExact});
  }
  all.push_back({kReal, "", kExact});
  all.push_back({kReal, "", kUsual});
  all.push_back({kReal, "window(63)+sink(4)", kSmallest});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, SameAnswer, testing::ValuesIn(cases()), [](const auto& of) {
  std::string name =
      of.param.model + (of.param.attend.empty() ? "_" : "_sinks_") + to_string(of.param.numbers);
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace lacuna

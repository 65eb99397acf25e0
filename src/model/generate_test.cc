#include "lacuna/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cache/refusal.h"
#include "lacuna/error.h"
#include "model/tiny_model.h"

namespace lacuna {
namespace {

using model_test::drawn;
using model_test::kContext;
using model_test::kEndToken;
using model_test::kNames;
using model_test::some_prompt;
using model_test::Tiny;
using model_test::tokens;
using rig::expect_refused;

TokenId likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

TEST(Generate, EachTokenIsTheLikeliestAfterAllBeforeIt) {
  for (const std::string& name : kNames) {
    Tiny tiny(name);
    const Generated found = tiny.generate(tokens(12));
    EXPECT_EQ(found.ended, Ended::kMaxTokens);
    std::vector<TokenId> all = some_prompt();
    for (const TokenId token : found.tokens) {  // each from a cache that is empty
      const SequenceId sequence = tiny.transformer.cache().create();
      const NewTokens batch[] = {{sequence, all}};
      const auto pass = tiny.transformer.forward(batch);
      ASSERT_TRUE(pass.has_value());
      EXPECT_EQ(token, likeliest(pass->logits(0))) << name << " after " << all.size();
      all.push_back(token);
    }
    EXPECT_EQ(all.size(), 52U);
  }
}

TEST(Generate, GivesAsManyTokensAsAskedAndTimesEachStep) {
  Tiny tiny("tiny-mistral");
  for (const std::int64_t count : {1, 2, 15, 16, 17, 88}) {
    const Generated found = tiny.generate(tokens(count));
    EXPECT_EQ(std::ssize(found.tokens), count);
    EXPECT_EQ(std::ssize(found.step_seconds), count - 1);
    EXPECT_EQ(found.held_tokens, 40 + count - 1);
    EXPECT_EQ(found.prompt_tokens, 40);
    EXPECT_EQ(found.ended, Ended::kMaxTokens);
    EXPECT_GT(found.first_token_seconds, 0);
  }
}

TEST(Generate, GivesTheSameTokensForAnyChunks) {
  for (const std::string& name : kNames) {
    Tiny tiny(name);
    const Generated whole = tiny.generate(drawn(1, 20));
    for (const std::int64_t chunk : {1, 2, 7, 8, 9, 15, 16, 17, 39, 40, 41}) {
      GenerateOptions options = drawn(1, 20);
      options.chunk = chunk;
      std::vector<std::int64_t> done;
      options.progress = [&](std::int64_t now, std::int64_t total) {
        EXPECT_EQ(total, 40);
        done.push_back(now);
      };
      const Generated found = tiny.generate(options);
      EXPECT_EQ(found.tokens, whole.tokens) << name << ", chunks of " << chunk;
      EXPECT_EQ(found.text, whole.text);
      EXPECT_EQ(std::ssize(done), (40 + chunk - 1) / chunk);
      EXPECT_EQ(done.back(), 40);
      EXPECT_TRUE(std::ranges::is_sorted(done));
    }
  }
}

TEST(Generate, PrefillCountsThePromptAlone) {
  Tiny tiny("tiny-llama-6-on-3");
  const Generated few = tiny.generate(tokens(1));
  const Generated more = tiny.generate(tokens(30));
  EXPECT_GT(few.prefill.executed_pairs, 0);
  EXPECT_EQ(few.prefill.executed_pairs, more.prefill.executed_pairs);
}

TEST(Generate, EndsBeforeAnEndTokenUnlessToldNotTo) {
  Tiny tiny("tiny-llama-5-on-1");
  int ended = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::vector<TokenId> all = tiny.generate(drawn(seed, 88)).tokens;
    EXPECT_EQ(all.size(), 88U);
    GenerateOptions options = drawn(seed, 88);
    options.ignore_end = false;
    const Generated found = tiny.generate(options);
    const auto end = std::ranges::find(all, kEndToken);
    EXPECT_EQ(found.tokens, std::vector<TokenId>(all.begin(), end)) << seed;
    EXPECT_EQ(found.ended, end == all.end() ? Ended::kMaxTokens : Ended::kEndToken) << seed;
    ended += end == all.end() ? 0 : 1;
  }
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, 60);
}

// Whether each character is whole: by its first byte's count of those that follow.
bool is_whole(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t size = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                                            : 4;
    if (size == 0 || at + size > text.size()) return false;
    for (std::size_t i = 1; i < size; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    }
    at += size;
  }
  return true;
}

TEST(Generate, StreamsWholeCharactersThatTogetherAreTheText) {
  Tiny tiny("tiny-gemma3");
  int joined = 0;  // characters of two tokens
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::string streamed;
    GenerateOptions options = drawn(seed);
    options.text = [&](std::string_view text) {
      EXPECT_TRUE(is_whole(text)) << seed;
      EXPECT_FALSE(text.empty());
      streamed += text;
    };
    const Generated found = tiny.generate(options);
    EXPECT_EQ(streamed, found.text);
    TextStream stream(tiny.model.tokenizer());
    std::string wanted;
    for (std::size_t i = 0; i < found.tokens.size(); ++i) {
      const std::string bytes = tiny.model.tokenizer().bytes_of(found.tokens[i]);
      const std::string text = stream.push(found.tokens[i]);
      joined += text.size() > bytes.size() && text.find("\uFFFD") == std::string::npos ? 1 : 0;
      wanted += text;
    }
    EXPECT_EQ(found.text, wanted + stream.finish());
  }
  EXPECT_GT(joined, 0);
}

// All characters of a text, as views into it.
std::vector<std::size_t> character_begins(std::string_view text) {
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) begins.push_back(at);
  }
  begins.push_back(text.size());
  return begins;
}

// The answer with stop texts against the whole answer, cut by std::string::find.
void expect_cut(Tiny& tiny, const GenerateOptions& options, const std::string& whole) {
  std::size_t cut = std::string::npos;
  for (const std::string& stop : options.stop_texts) cut = std::min(cut, whole.find(stop));
  std::string streamed;
  GenerateOptions streaming = options;
  streaming.text = [&](std::string_view text) { streamed += text; };
  const Generated found = tiny.generate(streaming);
  EXPECT_EQ(found.text, whole.substr(0, cut));
  EXPECT_EQ(streamed, found.text);
  EXPECT_EQ(found.ended, cut == std::string::npos ? Ended::kMaxTokens : Ended::kStopText);
}

TEST(Generate, EndsBeforeAStopTextWhereverItsTokensLie) {
  Tiny tiny("tiny-llama-5-on-1");
  const std::string whole = tiny.generate(drawn(3, 30)).text;
  const std::vector<std::size_t> begins = character_begins(whole);
  ASSERT_GT(begins.size(), 20U);
  for (std::size_t first = 0; first + 1 < begins.size(); ++first) {
    for (const std::size_t count : {1U, 2U, 4U}) {
      const std::size_t end = begins[std::min(first + count, begins.size() - 1)];
      GenerateOptions options = drawn(3, 30);
      options.stop_texts = {whole.substr(begins[first], end - begins[first])};
      expect_cut(tiny, options, whole);
    }
  }
}

TEST(Generate, OfSeveralStopTextsTheFirstEndsIt) {
  Tiny tiny("tiny-llama-5-on-1");
  const std::string whole = tiny.generate(drawn(4, 30)).text;
  const std::vector<std::size_t> begins = character_begins(whole);
  ASSERT_GT(begins.size(), 12U);
  const auto part = [&](std::size_t first, std::size_t count) {
    return whole.substr(begins[first], begins[first + count] - begins[first]);
  };
  for (const std::size_t at : {2U, 5U, 8U}) {
    GenerateOptions options = drawn(4, 30);
    options.stop_texts = {"not in there", part(at + 2, 2), part(at, 1)};
    expect_cut(tiny, options, whole);
  }
}

TEST(Generate, ABeginningOfAStopTextIsGivenOnceItCannotBecomeOne) {
  Tiny tiny("tiny-llama-5-on-1");
  const std::string whole = tiny.generate(drawn(5, 30)).text;
  const std::vector<std::size_t> begins = character_begins(whole);
  for (std::size_t first = 0; first + 1 < begins.size(); ++first) {
    GenerateOptions options = drawn(5, 30);
    options.stop_texts = {whole.substr(begins[first]) + "!", whole.substr(begins[first]) + "?!"};
    expect_cut(tiny, options, whole);
  }
}

TEST(Generate, AStopThatIsAskedForEndsItWithAnEmptyCache) {
  Tiny tiny("tiny-gemma3");
  const std::vector<TokenId> all = tiny.generate(drawn(6, 40)).tokens;
  for (const std::int64_t chunks : {0, 1, 3}) {  // while the prompt is read
    std::stop_source stop;
    if (chunks == 0) stop.request_stop();
    GenerateOptions options = drawn(6, 40);
    options.chunk = 8;
    options.stop = stop.get_token();
    options.progress = [&](std::int64_t done, std::int64_t) {
      if (done == 8 * chunks) stop.request_stop();
    };
    const Generated found = tiny.generate(options);
    EXPECT_EQ(found.ended, Ended::kInterrupted);
    EXPECT_TRUE(found.tokens.empty());
    EXPECT_EQ(found.held_tokens, 8 * chunks);
  }
  std::stop_source stop;  // while it answers
  GenerateOptions options = drawn(6, 40);
  options.stop = stop.get_token();
  int pieces = 0;
  std::string streamed;
  options.text = [&](std::string_view text) {
    streamed += text;
    if (++pieces == 5) stop.request_stop();
  };
  const Generated found = tiny.generate(options);
  EXPECT_EQ(found.ended, Ended::kInterrupted);
  EXPECT_GE(found.tokens.size(), 5U);
  EXPECT_LT(found.tokens.size(), 40U);
  EXPECT_TRUE(std::ranges::equal(found.tokens, std::span(all).first(found.tokens.size())));
  EXPECT_EQ(found.text, streamed);
}

TEST(Generate, HoldsTheBytesThatThePolicyPredicts) {
  for (const std::string& name : kNames) {
    for (const std::string attend : {"", "window(8)", "window(20)+sink(3)", "full"}) {
      Tiny tiny(name, attend);
      for (const std::size_t prompt : {1U, 8U, 15U, 16U, 17U}) {
        for (const std::int64_t count : {1, 2, 9, 25}) {
          GenerateOptions options = tokens(count);
          options.chunk = 13;
          const Generated found = tiny.generate(options, prompt);
          const LayerTable& table = tiny.transformer.table();
          const auto predicted = [&](std::int64_t in_flight) {
            return predicted_kv(table, tiny.model.config().shape, tiny.options, found.held_tokens,
                                in_flight)
                .bytes.value();
          };
          EXPECT_EQ(found.held_bytes, predicted(0))
              << name << ' ' << attend << ' ' << prompt << ' ' << count;
          // With a chunk in flight it is what a cache must have room for.
          EXPECT_LE(found.held_bytes, predicted(13));
        }
      }
    }
  }
}

TEST(Generate, AnotherTableMayReadTheAnswerAlone) {
  Tiny tiny("tiny-llama-6-on-3", "full");
  const auto num_layers = static_cast<int>(tiny.transformer.table().layers.size());
  const std::vector<TokenId> own = tiny.generate(tokens(30)).tokens;
  GenerateOptions options = tokens(30);
  options.decode_table = parse_layers("window(80)", num_layers, true);
  EXPECT_EQ(tiny.generate(options).tokens, own) << "it reads all keys";
  options.decode_table = parse_layers("window(2)", num_layers, true);
  const std::vector<TokenId> other = tiny.generate(options).tokens;
  EXPECT_EQ(other.front(), own.front()) << "the prompt was read with the own table";
  EXPECT_NE(other, own);
  EXPECT_EQ(tiny.generate(tokens(30)).tokens, own) << "the own table is back";
}

TEST(Generate, RefusesATableWhoseKeysThePromptFreesBeforeItReadsThePrompt) {
  Tiny tiny("tiny-mistral", "window(8)");
  const auto num_layers = static_cast<int>(tiny.transformer.table().layers.size());
  GenerateOptions options = tokens(5);
  bool has_begun = false;
  options.progress = [&](std::int64_t, std::int64_t) { has_begun = true; };
  options.decode_table = parse_layers("full", num_layers, true);
  expect_refused([&] { tiny.generate(options); }, {"table of the answer", "0..39"});
  EXPECT_FALSE(has_begun);
  options.decode_table = parse_layers("window(7)", num_layers, true);
  EXPECT_EQ(tiny.generate(options).tokens.size(), 5U);
}

TEST(Generate, SaysThatTheCacheHasNoRoomAndLeavesWhatWasThere) {
  Tiny tiny("tiny-gemma2", "full", 4 << 20);
  KvCache& cache = tiny.transformer.cache();
  const SequenceId other = cache.create();
  const auto grow = [&](std::size_t count) {
    const std::vector<TokenId> more(count, 3);
    const NewTokens batch[] = {{other, more}};
    auto pass = tiny.transformer.forward(batch);
    if (pass) pass->commit();
    return pass.has_value();
  };
  while (grow(256)) continue;
  while (grow(16)) continue;
  const std::int64_t length = cache.length(other);
  const std::int64_t bytes = cache.live_bytes();
  expect_refused([&] { lacuna::generate(tiny.transformer, tiny.model, some_prompt(), tokens(5)); },
                 {"no room for 40 tokens after 0"});
  EXPECT_EQ(cache.length(other), length);
  EXPECT_EQ(cache.live_bytes(), bytes);
  cache.free(other);
  EXPECT_EQ(tiny.generate(tokens(5)).tokens.size(), 5U);
}

TEST(Generate, ATextCallbackThatThrowsLeavesTheCacheEmpty) {
  Tiny tiny("tiny-mistral");
  GenerateOptions options = tokens(20);
  options.text = [](std::string_view) { throw Error("the output is closed"); };
  expect_refused([&] { tiny.generate(options); }, {"the output is closed"});
  EXPECT_EQ(tiny.transformer.cache().live_bytes(), 0);
}

TEST(Generate, RefusesWhatCannotBe) {
  Tiny tiny("tiny-mistral");
  const auto refused = [&](GenerateOptions options, const std::vector<std::string>& words) {
    expect_refused([&] { tiny.generate(options); }, words);
    EXPECT_EQ(tiny.transformer.cache().live_bytes(), 0);
  };
  expect_refused([&] { lacuna::generate(tiny.transformer, tiny.model, {}, tokens(1)); },
                 {"prompt has no tokens"});
  refused(tokens(0), {"max_tokens 0", "1 and more"});
  GenerateOptions options = tokens(1);
  options.chunk = 0;
  refused(options, {"chunk is 0"});
  options = tokens(1);
  options.stop_texts = {"a", ""};
  refused(options, {"stop text is empty"});
  options = tokens(1);
  options.sampler.temperature = -1;
  refused(options, {"temperature is -1"});
}

TEST(Generate, WordsForEveryEnd) {
  EXPECT_EQ(to_string(Ended::kEndToken), "end token");
  EXPECT_EQ(to_string(Ended::kStopText), "stop text");
  EXPECT_EQ(to_string(Ended::kMaxTokens), "max tokens");
  EXPECT_EQ(to_string(Ended::kContext), "context");
  EXPECT_EQ(to_string(Ended::kInterrupted), "interrupted");
}

}  // namespace
}  // namespace lacuna

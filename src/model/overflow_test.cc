// What happens at the end of the model's context.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "cache/refusal.h"
#include "model/tiny_model.h"

namespace lacuna {
namespace {

using model_test::drawn;
using model_test::kContext;
using model_test::kNames;
using model_test::some_prompt;
using model_test::Tiny;
using model_test::tokens;
using rig::expect_refused;

TEST(Overflow, TheContextIsNeverLeft) {
  Tiny tiny("tiny-gemma2");
  EXPECT_EQ(tiny.generate(tokens(kContext - 40)).ended, Ended::kMaxTokens);
  for (const std::int64_t too_many : {kContext - 39, std::numeric_limits<std::int64_t>::max()}) {
    expect_refused([&] { tiny.generate(tokens(too_many)); },
                   {"40 tokens", std::to_string(too_many), "context of 128"});
  }
  GenerateOptions stopping = tokens(1000);
  stopping.overflow = Overflow::kStop;
  const Generated found = tiny.generate(stopping);
  EXPECT_EQ(found.ended, Ended::kContext);
  EXPECT_EQ(std::ssize(found.tokens), kContext - 40);
  EXPECT_EQ(found.tokens, tiny.generate(tokens(kContext - 40)).tokens);
  stopping.max_tokens = kContext - 40;
  EXPECT_EQ(tiny.generate(stopping).ended, Ended::kMaxTokens);
}

// The tokens that a sequence goes on with after `all`, as the header says.
std::vector<TokenId> most_recent(const std::vector<TokenId>& all) {
  std::vector<TokenId> kept(all.end() - kContext / 2, all.end());
  kept.front() = 1;  // the beginning of text, which every prompt here has
  return kept;
}

GenerateOptions evicting(GenerateOptions options) {
  options.overflow = Overflow::kEvict;
  return options;
}

// What it is to be: answers to prompts of the kept tokens, none of which evicts anything.
struct Pieced {
  std::vector<TokenId> all;
  std::vector<std::int64_t> positions;  // of evictions
};
Pieced pieced_answer(Tiny& tiny, std::size_t prompt, std::size_t count) {
  Pieced result = {some_prompt(prompt), {}};
  while (result.all.size() < prompt + count) {
    std::vector<TokenId> kept = result.all;
    if (kept.size() > prompt) {
      result.positions.push_back(std::ssize(result.all));
      kept = most_recent(result.all);
    }
    // What fits, and the one token that is not read any more.
    const auto most = std::min(prompt + count - result.all.size(), kContext - kept.size() + 1);
    const Generated part = lacuna::generate(tiny.transformer, tiny.model, kept,
                                            evicting(tokens(static_cast<std::int64_t>(most))));
    EXPECT_TRUE(part.evictions.empty());
    result.all.insert(result.all.end(), part.tokens.begin(), part.tokens.end());
  }
  return result;
}

TEST(Overflow, EvictionGoesOnAsAfterAPromptOfTheTokensThatAreKept) {
  for (const std::string& name : kNames) {
    for (const std::size_t prompt : {1U, 40U, 127U, 128U}) {
      Tiny tiny(name);
      GenerateOptions options = evicting(tokens(300));
      options.chunk = 13;
      const Generated found = tiny.generate(options, prompt);
      EXPECT_EQ(found.ended, Ended::kMaxTokens);
      const Pieced wanted = pieced_answer(tiny, prompt, 300);
      EXPECT_TRUE(std::ranges::equal(found.tokens, std::span(wanted.all).subspan(prompt)))
          << name << ' ' << prompt;
      EXPECT_EQ(wanted.positions.front(), kContext + 1) << "not before it must be";
      ASSERT_EQ(found.evictions.size(), wanted.positions.size());
      for (std::size_t i = 0; i < found.evictions.size(); ++i) {
        EXPECT_EQ(found.evictions[i].position, wanted.positions[i]);
        EXPECT_EQ(found.evictions[i].kept_tokens, kContext / 2);
        EXPECT_GT(found.evictions[i].seconds, 0);
      }
      EXPECT_LE(found.held_tokens, kContext);
      options.max_tokens = 1;
      const Generated first = tiny.generate(options, prompt);
      EXPECT_EQ(found.prefill.executed_pairs, first.prefill.executed_pairs);
    }
  }
}

TEST(Overflow, EvictionChangesNothingWhereTheContextIsEnough) {
  Tiny tiny("tiny-gemma3");
  GenerateOptions options = evicting(drawn(7, kContext - 40 + 1));  // the last one is not read
  const Generated found = tiny.generate(options);
  EXPECT_TRUE(found.evictions.empty());
  EXPECT_EQ(std::ssize(found.tokens), kContext - 40 + 1);
  GenerateOptions within = drawn(7, kContext - 40);
  EXPECT_TRUE(std::ranges::equal(tiny.generate(within).tokens,
                                 std::span(found.tokens).first(kContext - 40)));
  ++options.max_tokens;
  EXPECT_EQ(tiny.generate(options).evictions.size(), 1U);
}

TEST(Overflow, EvictionReadsWhatIsKeptWithThePromptsTable) {
  Tiny tiny("tiny-llama-6-on-3", "full");
  const auto num_layers = static_cast<int>(tiny.transformer.table().layers.size());
  GenerateOptions options = evicting(tokens(kContext - 40 + 2));
  options.decode_table = parse_layers("window(2)", num_layers, true);
  const Generated found = tiny.generate(options);
  ASSERT_EQ(found.evictions.size(), 1U);
  std::vector<TokenId> all = some_prompt();
  all.insert(all.end(), found.tokens.begin(), found.tokens.end() - 1);
  const Generated anew =
      lacuna::generate(tiny.transformer, tiny.model, most_recent(all), tokens(1));
  EXPECT_EQ(found.tokens.back(), anew.tokens.front());
}

TEST(Overflow, EvictionIsForAnswersNotForPrompts) {
  Tiny tiny("tiny-mistral");
  expect_refused([&] { tiny.generate(evicting(tokens(5)), kContext + 1); },
                 {"129 tokens", "context of 128"});
}

TEST(Overflow, AStopWhileTokensAreComputedAgainEndsIt) {
  Tiny tiny("tiny-mistral");
  int stopped_there = 0;
  for (int pieces = 40; pieces < 90; ++pieces) {
    std::stop_source stop;
    GenerateOptions options = evicting(drawn(8, 300));
    options.stop = stop.get_token();
    int given = 0;
    options.text = [&](std::string_view) {
      if (++given == pieces) stop.request_stop();
    };
    const Generated found = tiny.generate(options);
    EXPECT_EQ(found.ended, Ended::kInterrupted);
    if (found.evictions.empty()) continue;
    stopped_there += found.held_tokens == 0 ? 1 : 0;
  }
  EXPECT_EQ(stopped_there, 1);
}

TEST(Overflow, APromptThatFillsTheContextLeavesRoomForNothing) {
  Tiny tiny("tiny-mistral");
  GenerateOptions stopping = tokens(5);
  stopping.overflow = Overflow::kStop;
  const Generated found = tiny.generate(stopping, kContext);
  EXPECT_EQ(found.ended, Ended::kContext);
  EXPECT_TRUE(found.tokens.empty());
  EXPECT_EQ(found.text, "");
  expect_refused([&] { tiny.generate(stopping, kContext + 1); }, {"129 tokens", "context of 128"});
}

}  // namespace
}  // namespace lacuna

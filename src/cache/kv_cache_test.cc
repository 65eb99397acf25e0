#include "lacuna/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cache/cache_rig.h"
#include "lacuna/error.h"
#include "lacuna/policy.h"

namespace lacuna {
namespace {

using rig::Answer;
using rig::Tokens;

Tokens tokens(std::int64_t count, std::int32_t first = 0) {
  Tokens all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

PoolOptions small_pool() {
  return {.budget_bytes = 8 << 20, .slab_bytes = 1 << 16, .poison = true};
}

class Hybrid : public testing::Test {
 protected:
  rig::Model model =
      rig::model("window(40), full, window(24) + sink(4)", 3, rig::sizes(4, 2, 16, 16));
  Retention retention{model.table, model.shape};
  CacheShape shape = rig::cache_shape(retention, 16, DType::kF32);
  KvCache cache{shape, small_pool()};

  // The whole prompt in chunks of this size, and then tokens one by one; each token's answers.
  std::vector<std::vector<Answer>> run(SequenceId id, const Tokens& all, std::int64_t chunk) {
    std::vector<std::vector<Answer>> answers;
    for (std::int64_t begin = 0; begin < std::ssize(all); begin += chunk) {
      const std::int64_t count = std::min(chunk, std::ssize(all) - begin);
      const rig::StepTokens of = {id, std::span(all).subspan(static_cast<std::size_t>(begin),
                                                             static_cast<std::size_t>(count))};
      answers.push_back(*rig::step(cache, model, retention, {{of}}));
    }
    return answers;
  }
};

std::vector<Answer> joined(const std::vector<std::vector<Answer>>& steps) {
  std::vector<Answer> layers(steps.front().size());
  for (const auto& step : steps) {
    for (std::size_t layer = 0; layer < step.size(); ++layer) {
      auto& [out, lse] = layers[layer];
      out.insert(out.end(), step[layer].out.begin(), step[layer].out.end());
      lse.insert(lse.end(), step[layer].lse.begin(), step[layer].lse.end());
    }
  }
  return layers;
}

TEST_F(Hybrid, AnyChunkingGivesTheSameBits) {
  const Tokens all = tokens(150);
  const auto whole = joined(run(cache.create(), all, 150));
  for (const std::int64_t chunk : {1, 15, 16, 17, 64}) {
    EXPECT_EQ(joined(run(cache.create(), all, chunk)), whole) << chunk;
  }
}

TEST_F(Hybrid, HoldsWhatPagedPredictsDuringEveryStep) {
  const SequenceId id = cache.create();
  for (std::int64_t length = 1; length <= 130; ++length) {
    const Tokens one = tokens(1, static_cast<std::int32_t>(length));
    const StepRows rows = {id, 1};
    const std::int64_t before = cache.live_bytes();
    const std::int64_t reserved = cache.step_bytes({{rows}});
    {
      auto step = cache.begin({{rows}});
      ASSERT_TRUE(step);
      EXPECT_EQ(cache.live_bytes(), before + reserved);
      const Held predicted = held(parse_policy("paged(P=16)"), model.table, model.shape,
                                  {length, length, kv_dtype("f32")});
      EXPECT_EQ(cache.live_bytes(), to_int64(predicted.bytes.value(), "bytes"));
    }
    EXPECT_EQ(cache.live_bytes(), before);
    ASSERT_TRUE(rig::step(cache, model, retention, {{{id, one}}}));
  }
}

// Pages are longer than a chunk, so a page is freed and taken again for the rest of its tokens.
TEST(Truncate, RefusesPositionsThatAPageNeverHeld) {
  const rig::Model model = rig::model("chunk(16)", 1, rig::sizes(1, 1, 16, 16));
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 64, DType::kF32), small_pool());
  const SequenceId id = cache.create();
  for (const std::int64_t count : {16, 4}) {
    ASSERT_TRUE(rig::step(cache, model, retention, {{{id, tokens(count)}}}));
  }
  EXPECT_EQ(cache.held(id), std::vector<Ranges>{(Ranges{{16, 20}})});
  EXPECT_THROW(cache.truncate(id, 10, retention.kept(10, 10)), Error);
  cache.truncate(id, 18, retention.kept(18, 18));
  EXPECT_EQ(cache.held(id), std::vector<Ranges>{(Ranges{{16, 18}})});
}

TEST(Truncate, DropsAPageThatHoldsOnlyWhatIsTakenBack) {
  const rig::Model model = rig::model("window(1)", 1, rig::sizes(1, 1, 16, 16));
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 64, DType::kF32), small_pool());
  const SequenceId id = cache.create();
  ASSERT_TRUE(rig::step(cache, model, retention, {{{id, tokens(20)}}}));
  ASSERT_TRUE(rig::step(cache, model, retention, {{{id, tokens(1)}}}, {}, 1));
  EXPECT_EQ(cache.held(id), std::vector<Ranges>{(Ranges{{20, 21}})});
  cache.truncate(id, 10, retention.kept(10, 10));
  EXPECT_EQ(cache.live_bytes(), 0);
}

}  // namespace
}  // namespace lacuna

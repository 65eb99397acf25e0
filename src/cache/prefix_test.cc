// What a hit gives: the same bits as a run that computes everything.
#include "lacuna/prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cache/cache_rig.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

using rig::Answer;
using rig::Tokens;

constexpr char kIdentity[] = "model=small;salt=";

Tokens tokens(std::int64_t count, std::int32_t first = 0) {
  Tokens all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

Tokens first_of(const Tokens& all, std::int64_t count) {
  return {all.begin(), all.begin() + count};
}

// As many tokens of `all`, and then other ones.
Tokens diverging(const Tokens& all, std::int64_t common, std::int64_t count) {
  Tokens result = first_of(all, common);
  while (std::ssize(result) < count) {
    result.push_back(1000 + static_cast<std::int32_t>(result.size()));
  }
  return result;
}

struct Fixture {
  rig::Model model;
  Retention retention{model.table, model.shape};
  KvCache cache;

  Fixture(const rig::Model& of, std::int64_t page_size, DType dtype = DType::kF32)
      : model(of),
        cache(rig::cache_shape(retention, page_size, dtype),
              {.budget_bytes = 32 << 20, .slab_bytes = 1 << 16, .poison = true}) {}

  // Computes what the sequence does not have yet; the answers of the last `count` tokens.
  std::vector<Answer> go_on(SequenceId id, const Tokens& all, std::int64_t count) {
    const std::int64_t length = cache.length(id);
    const std::int64_t last = std::ssize(all) - count;
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      return std::span(all).subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(end - begin));
    };
    if (last > length) {
      EXPECT_TRUE(rig::step(cache, model, retention, {{{id, part(length, last)}}}));
    }
    return *rig::step(cache, model, retention,
                      {{{id, part(std::max(last, length), std::ssize(all))}}});
  }

  SequenceId built(const Tokens& all) {
    const SequenceId id = cache.create();
    go_on(id, all, 0 < std::ssize(all) ? std::ssize(all) : 1);
    return id;
  }

  void publish(const Tokens& all) {
    const SequenceId id = built(all);
    cache.publish(id, kIdentity, all);
    cache.free(id);
  }

  std::int64_t hit(const Tokens& prompt) {
    return hit_length(cache.match(kIdentity, prompt), retention, std::ssize(prompt));
  }

  SequenceId adopt(const Tokens& prompt, std::int64_t length) {
    return cache.adopt(kIdentity, first_of(prompt, length), retention.kept(length, length));
  }
};

rig::Model small(const std::string& layers, int num_layers) {
  return rig::model(layers, num_layers, rig::sizes(4, 2, 16, 16));
}

// The first two query heads, which read one KV head, attend as the first layer's, the others as the
// second layer's.
rig::Model per_head() {
  rig::Model model = small("window(20), full, window(33)", 3);
  std::vector<Layer>& layers = model.table.layers;
  layers[0].attend.groups[0].heads = {0, 1};
  layers[0].attend.groups.push_back(layers[1].attend.groups[0]);
  layers[0].attend.groups[1].heads = {2, 3};
  return model;
}

// The last layer reads the keys of the first with a longer window than its own.
rig::Model sharing() {
  rig::Model model = small("window(10), window(24) + sink(4), window(30)", 3);
  model.table.layers[2].kv_from = 0;
  return model;
}

struct Case {
  std::string name;
  rig::Model model;
};

std::vector<Case> cases() {
  std::vector<Case> all = {{"per head", per_head()}, {"kv_from", sharing()}};
  for (const auto& [layers, count] :
       {std::pair{"full", 1}, std::pair{"window(24)", 1}, std::pair{"window(1), full", 2},
        std::pair{"window(40), full, window(24) + sink(4)", 3}, std::pair{"chunk(32), full", 2},
        std::pair{"chunk(24), window(8)", 2}}) {
    all.push_back({layers, small(layers, count)});
  }
  return all;
}

// The answers to a prompt's last tokens and to some more, chunk by chunk.
std::vector<std::vector<Answer>> tail(Fixture& on, SequenceId id, const Tokens& prompt) {
  std::vector<std::vector<Answer>> answers;
  answers.push_back(on.go_on(id, prompt, 1));
  Tokens more = prompt;
  for (int step = 0; step < 24; ++step) {
    more.push_back(7 + step);
    answers.push_back(on.go_on(id, more, 1));
  }
  return answers;
}

TEST(Hit, GivesTheBitsOfAColdRunAtEveryLength) {
  for (const Case& of : cases()) {
    for (const std::int64_t page_size : {16, 64}) {
      for (const std::int64_t shared :
           {std::int64_t{1}, page_size - 1, page_size, page_size + 1, page_size + page_size / 2,
            2 * page_size, std::int64_t{100}}) {
        Fixture warm(of.model, page_size);
        Fixture cold(of.model, page_size);
        // Published where the hit ends, and so with what windows need there.
        const Tokens published = tokens(shared);
        warm.publish(published);
        const Tokens prompt = diverging(published, shared, shared + 30);
        ASSERT_EQ(warm.hit(prompt), shared) << of.name << " " << page_size;
        const SequenceId id = warm.adopt(prompt, shared);
        EXPECT_EQ(tail(warm, id, prompt), tail(cold, cold.cache.create(), prompt))
            << of.name << ", pages of " << page_size << ", hit of " << shared;
      }
    }
  }
}

TEST(Hit, MayEndAtAnyTokenOfAPublication) {
  for (const Case& of : cases()) {
    Fixture warm(of.model, 16);
    const Tokens published = tokens(75);
    warm.publish(published);
    for (const std::int64_t shared :
         {1, 2, 7, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 64, 70, 75}) {
      const Tokens prompt = diverging(published, shared, shared + 20);
      EXPECT_EQ(warm.cache.match(kIdentity, prompt).matched, shared);
      const std::int64_t length = warm.hit(prompt);
      EXPECT_LE(length, shared);
      Fixture cold(of.model, 16);
      const SequenceId id = warm.adopt(prompt, length);
      ASSERT_EQ(tail(warm, id, prompt), tail(cold, cold.cache.create(), prompt))
          << of.name << ", " << shared << " shared, hit of " << length;
      warm.cache.free(id);
    }
  }
}

}  // namespace
}  // namespace lacuna

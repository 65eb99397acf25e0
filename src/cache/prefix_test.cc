// What a hit gives: the same bits as a run that computes everything.
#include "lacuna/prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cache/prefix_rig.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

using rig::Answer;
using rig::Tokens;
using rig::tokens;

constexpr char kIdentity[] = "model=small;salt=";

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
  std::int64_t rollback = 0;

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
      EXPECT_TRUE(rig::step(cache, model, retention, {{{id, part(length, last)}}}, {}, rollback));
    }
    return *rig::step(cache, model, retention,
                      {{{id, part(std::max(last, length), std::ssize(all))}}}, {}, rollback);
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
    for (const std::int64_t shared : {1, 7, 16, 24, 31, 33, 48, 64, 75}) {
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

TEST(Hit, LeavesAtLeastOneTokenToCompute) {
  Fixture on(small("window(24), full", 2), 16);
  on.publish(tokens(40));
  EXPECT_EQ(on.hit(tokens(40)), 39);
  EXPECT_EQ(on.hit(tokens(41)), 40);
  EXPECT_EQ(on.hit(tokens(1)), 0);
  EXPECT_EQ(on.hit({}), 0);
  EXPECT_EQ(on.hit(tokens(40, 1)), 0);
}

// A token more than the continuation needs is kept for a prompt that comes again as it is: its last
// token is computed a second time.
TEST(Hit, GivesTheSameAnswersHoweverOftenAPromptRan) {
  for (const std::int64_t rollback : {0, 1}) {
    for (const std::int64_t length : {52, 48, 49, 47, 100}) {
      Fixture on(small("window(32), full", 2), 16, DType::kBf16);
      on.rollback = rollback;
      const Tokens prompt = tokens(length);
      std::vector<std::vector<Answer>> first;
      for (int run = 0; run < 4; ++run) {
        const std::int64_t hit = on.hit(prompt);
        EXPECT_TRUE(hit == (run == 0 ? 0 : length - 1) || (run > 0 && rollback == 0)) << hit;
        const SequenceId id = on.adopt(prompt, hit);
        on.go_on(id, prompt, length - hit);
        on.cache.publish(id, kIdentity, prompt);
        Tokens more = prompt;
        std::vector<std::vector<Answer>> answers;
        for (int step = 0; step < 40; ++step) {
          more.push_back(7 + step);
          answers.push_back(on.go_on(id, more, 1));
        }
        if (run == 0) first = answers;
        EXPECT_EQ(answers, first) << "run " << run << " of " << length;
        on.cache.free(id);
      }
    }
  }
}

// A cache of these layers in which each table holds the columns marked T of a published prompt.
struct Columns {
  Fixture on;
  Tokens all;
  Columns(const std::string& layers, const std::vector<std::string>& marks)
      : on(small(layers, static_cast<int>(marks.size())), 16),
        all(tokens(std::ssize(marks.front()) * 16)) {
    const SequenceId id = on.cache.create();
    auto step = on.cache.begin({{StepRows{id, std::ssize(all)}}});
    const std::array<std::int64_t, 3> shape = {std::ssize(all), 2, 16};
    const std::vector<float> zeros(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]), 0);
    std::vector<Ranges> kept;
    for (std::size_t table = 0; table < marks.size(); ++table) {
      const TensorView rows = tensor_view(zeros.data(), DType::kF32, shape);
      step->append(static_cast<int>(table), rows, rows);
      std::vector<Range> parts;
      for (std::int64_t column = 0; column < std::ssize(marks[table]); ++column) {
        if (marks[table][static_cast<std::size_t>(column)] == 'T') {
          parts.push_back({column * 16, column * 16 + 16});
        }
      }
      kept.emplace_back(std::move(parts));
    }
    step->commit();
    on.cache.retain(id, kept);
    on.cache.publish(id, kIdentity, all);
    on.cache.free(id);
  }
  std::int64_t hit() {
    Tokens prompt = all;
    prompt.push_back(-1);
    const std::int64_t length = on.hit(prompt);
    on.cache.free(on.adopt(prompt, length));
    return length;
  }
};

// Of a window of two pages: a hit needs the page it ends in and the one before, or the start.
TEST(Hit, OfAWindowNeedsTheLastPagesWithoutAGap) {
  for (const auto& [marks, pages] : {std::pair{"TTFTFFTTFTTT", 12},
                                     {"TTFTFFTTFFF", 8},
                                     {"TTFTFFTFFFF", 2},
                                     {"TFTFTFTF", 1},
                                     {"FFTT", 4},
                                     {"FFFT", 0},
                                     {"FTFTFT", 0},
                                     {"TTTT", 4}}) {
    EXPECT_EQ(Columns("window(32)", {marks}).hit(), pages * 16) << marks;
    const std::string full(std::string(marks).size(), 'T');
    EXPECT_EQ(Columns("window(32), full", {marks, full}).hit(), pages * 16) << marks;
  }
}

// A page that was freed at a chunk's end and taken again for the next chunk holds only that one.
TEST(Hit, NeverGivesSlotsThatAPageDoesNotHold) {
  Fixture on(small("chunk(16)", 1), 64);
  const Tokens all = tokens(20);
  const SequenceId id = on.cache.create();
  on.go_on(id, all, 4);
  on.cache.publish(id, kIdentity, all);
  EXPECT_EQ(on.cache.match(kIdentity, all).present, std::vector<Ranges>{(Ranges{{16, 20}})});
  EXPECT_EQ(on.hit(diverging(all, 10, 30)), 0);
  EXPECT_THROW(on.adopt(all, 10), Error);
  EXPECT_THROW(on.cache.adopt(kIdentity, all, {{Ranges{{10, 20}}}}), Error);
  on.go_on(id, tokens(21), 1);  // into a copy of the page
  EXPECT_EQ(on.cache.held(id), std::vector<Ranges>{(Ranges{{16, 21}})});
  const Tokens prompt = diverging(all, 18, 30);
  ASSERT_EQ(on.hit(prompt), 18);
  Fixture cold(on.model, 64);
  EXPECT_EQ(tail(on, on.adopt(prompt, 18), prompt), tail(cold, cold.cache.create(), prompt));
  // One that holds all of the page's tokens takes its place.
  on.publish(all);
  EXPECT_EQ(on.hit(diverging(all, 10, 30)), 10);
}

TEST(Hit, OfAWindowOfOneNeedsNothingOfItsTable) {
  EXPECT_EQ(Columns("window(1), full", {"FFFF", "TTTT"}).hit(), 64);
  EXPECT_EQ(Columns("window(1), full", {"FFFF", "TTFF"}).hit(), 32);
}

TEST(Hit, IsOneLengthThatServesEveryLayer) {
  EXPECT_EQ(Columns("full, window(32)", {"TTTTTTTTFF", "TTFTFFTTTT"}).hit(), 128);
  EXPECT_EQ(Columns("full, window(32)", {"TTTTTTTFFF", "TTFTFFTTTT"}).hit(), 32);
  EXPECT_EQ(Columns("window(32), window(128)", {"TTTTTTFFFFTT", "TTTTTTTTTTTT"}).hit(), 192);
  EXPECT_EQ(Columns("window(32), window(128)", {"TTTTTTFFFFTT", "TTTTTTTTTTFT"}).hit(), 96);
  EXPECT_EQ(Columns("window(32), window(128)", {"FFFFFFFFFFTT", "FFFFTTTTTTTT"}).hit(), 192);
  EXPECT_EQ(Columns("window(32), window(128)", {"FFFFFFFFFFTT", "FFFFFTTTTTTT"}).hit(), 0);
}

// A window keeps what continuing from the published end needs; to serve prompts that part from it
// earlier, the sequence keeps so many tokens more before it is published.
TEST(Hit, EndsInsideTheLastPageAsFarBackAsTheWindowWasKept) {
  const Tokens all = tokens(64);
  for (const std::int64_t rollback : {0, 1, 15, 16, 17}) {
    for (std::int64_t shared = 40; shared <= 64; ++shared) {
      Fixture on(small("window(33)", 1), 16);
      const SequenceId id = on.cache.create();
      ASSERT_TRUE(rig::step(on.cache, on.model, on.retention, {{{id, all}}}, {}, rollback));
      on.cache.publish(id, kIdentity, all);
      // Whole pages are kept: 64 - 32 - rollback, down to the start of its page.
      const std::int64_t first_kept = (64 - 32 - rollback) / 16 * 16;
      const bool hit = shared - 32 >= first_kept;
      EXPECT_EQ(on.hit(diverging(all, shared, 70)), hit ? shared : 0) << rollback << " " << shared;
    }
  }
}

// The tables, the answers and the memory of a sequence that shared its pages, when it drafts, is
// forked, cut and freed, are those of one that did not.
TEST(Shared, PagesBehaveInDraftsForksAndCuts) {
  for (const Case& of : cases()) {
    Fixture warm(of.model, 16);
    Fixture cold(of.model, 16);
    const Tokens prompt = tokens(53);
    const SequenceId first = warm.built(prompt);
    warm.cache.publish(first, kIdentity, prompt);
    const SequenceId id = warm.adopt(prompt, 53);
    const SequenceId alone = cold.built(prompt);
    const SequenceId other = warm.cache.fork(id);
    // Five drafts of which two stay, in each.
    for (auto [on, of_it] : {std::pair{&warm, id}, {&warm, first}, {&cold, alone}}) {
      const Tokens drafts = tokens(5, 300);
      ASSERT_TRUE(rig::step(on->cache, on->model, on->retention, {{{of_it, drafts}}}, {{2}}));
    }
    Tokens longer = prompt;
    longer.insert(longer.end(), {300, 301, 5});
    const auto want = tail(cold, alone, longer);
    EXPECT_EQ(tail(warm, id, longer), want) << of.name;
    EXPECT_EQ(tail(warm, first, longer), want) << of.name;
    EXPECT_EQ(warm.cache.held(id), cold.cache.held(alone)) << of.name;
    // The fork was not touched, and cut into the middle of a shared page it goes on alone.
    const std::int64_t cut = warm.hit(first_of(prompt, 53));
    const auto needed = warm.retention.kept(cut, cut);
    warm.cache.truncate(other, cut, needed);
    Fixture again(of.model, 16);
    const Tokens branch = diverging(prompt, cut, 60);
    EXPECT_EQ(tail(warm, other, branch), tail(again, again.cache.create(), branch)) << of.name;
    for (const SequenceId each : {id, first, other}) warm.cache.free(each);
    EXPECT_EQ(warm.cache.live_bytes(), warm.cache.prefix_statistics().cached_bytes);
    warm.cache.clear_prefixes();
    EXPECT_EQ(warm.cache.live_bytes(), 0);
  }
}

// The window's page of a prompt of 43 tokens ends at slot 10; a longer prompt, whose window has
// gone on, gives the page's tokens an end that this page lacks.
TEST(Shared, APageThatEndsEarlyServesNoLongerPrefix) {
  Fixture on(small("window(8), full", 2), 16);
  const Tokens longer = tokens(94);
  on.publish(first_of(longer, 43));
  on.publish(longer);
  const PrefixMatch match = on.cache.match(kIdentity, longer);
  EXPECT_EQ(match.matched, 94);
  EXPECT_EQ(match.short_pages[0], (std::vector<Range>{{32, 43}}));
  EXPECT_TRUE(match.short_pages[1].empty());
  // A prompt that parts at token 47 finds keys 36..42 of the window, but not 43..46.
  EXPECT_EQ(on.hit(diverging(longer, 47, 60)), 43);
  // Nor may a caller who keeps other positions have that page for a prefix past its end.
  try {
    on.cache.adopt(kIdentity, longer, {{Ranges{{36, 40}, {87, 94}}, Ranges{{0, 94}}}});
    FAIL() << "adopted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a prefix of 94 tokens cannot be adopted: layer 0 no longer holds position 36");
  }
}

TEST(Shared, RetainingDropsOnlyTheSequencesReference) {
  Fixture on(small("window(24)", 1), 16);
  const Tokens prompt = tokens(40);
  const SequenceId id = on.built(prompt);
  on.cache.publish(id, kIdentity, prompt);
  const std::int64_t live = on.cache.live_bytes();
  on.cache.retain(id, {{Ranges()}});
  EXPECT_EQ(on.cache.held(id), std::vector<Ranges>(1));
  EXPECT_EQ(on.cache.live_bytes(), live);
  EXPECT_EQ(on.cache.prefix_statistics().cached_bytes, live);
  on.cache.free(on.adopt(prompt, 40));
}

}  // namespace
}  // namespace lacuna

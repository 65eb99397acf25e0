// Who owns which page: publishing, adopting and evicting, without attention.
#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

#include "cache/prefix_rig.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

using rig::kPage;
using rig::Store;
using rig::Tokens;
using rig::tokens;

Store one_table(std::int64_t num_pages) { return {{16}, num_pages / 2, 4096}; }

TEST(Publish, KeepsPagesAfterTheSequenceIsFreed) {
  Store store = one_table(20);
  store.publish(tokens(40));
  EXPECT_EQ(store.num_live(), 3);
  const SequenceId id = store.adopt(tokens(40));
  EXPECT_EQ(store.num_live(), 3);
  store.check();
  store.cache.clear_prefixes();
  EXPECT_EQ(store.there(tokens(40)), 0);
  store.check();
  store.free(id);
  EXPECT_EQ(store.num_live(), 0);
}

TEST(Publish, MatchesAtEveryTokenAndNoFurther) {
  Store store = one_table(20);
  store.publish(tokens(40));
  for (std::int64_t common = 0; common <= 40; ++common) {
    Tokens prompt = tokens(common);
    EXPECT_EQ(store.there(prompt), common);
    prompt.push_back(-1);
    EXPECT_EQ(store.there(prompt), common);
  }
  EXPECT_EQ(store.there(tokens(60)), 40);
}

TEST(Publish, TwoThatComputedTheSameKeepOneSetOfPagesInEitherFinishingOrder) {
  for (const bool first_ends_first : {true, false}) {
    Store store = one_table(20);
    const SequenceId a = store.make(tokens(40));
    const SequenceId b = store.make(tokens(40));
    store.cache.publish(a, "a", tokens(40));
    store.cache.publish(b, "a", tokens(40));
    EXPECT_EQ(store.cache.prefix_statistics().published_pages, 3);
    store.check();
    store.free(first_ends_first ? a : b);
    store.check();
    EXPECT_EQ(store.there(tokens(40)), 40);
    store.free(first_ends_first ? b : a);
    store.check();
    EXPECT_EQ(store.num_live(), 3);
    // All can be evicted, and no more than there are.
    const SequenceId last = store.make(tokens(20 * kPage, 1000));
    EXPECT_EQ(store.cache.prefix_statistics().evicted_pages, 3);
    store.free(last);
    EXPECT_EQ(store.num_live(), 0);
  }
}

TEST(Publish, LongerPageReplacesTheShorterOne) {
  Store store = one_table(20);
  store.publish(tokens(35));
  store.publish(tokens(50));
  EXPECT_EQ(store.num_live(), 4);
  EXPECT_EQ(store.there(tokens(50)), 50);
  store.publish(tokens(35));
  EXPECT_EQ(store.num_live(), 4);
  // Other tokens in the page: a page of its own.
  Tokens other = tokens(33);
  other.resize(40, -1);
  store.publish(other);
  EXPECT_EQ(store.num_live(), 5);
  EXPECT_EQ(store.there(other), 40);
  store.check();
}

// A window's table has no early pages by the time the longer one is published.
TEST(Publish, ShorterPageStaysWhereTheLongerSequenceHasNone) {
  Store store({16, 16}, 20, 4096);
  store.publish(tokens(40));
  const SequenceId id = store.make(tokens(80));
  store.cache.retain(id, {{Ranges{{0, 80}}, Ranges{{64, 80}}}});
  store.cache.publish(id, "a", tokens(80));
  store.free(id);
  Tokens prompt = tokens(40);
  prompt.push_back(-1);
  EXPECT_EQ(store.cache.match("a", prompt).present[1], (Ranges{{0, 40}}));
  EXPECT_EQ(store.cache.match("a", tokens(80)).present[1], (Ranges{{0, 40}, {64, 80}}));
  EXPECT_EQ(store.cache.match("a", tokens(80)).present[0], (Ranges{{0, 80}}));
  store.check();
}

TEST(Publish, FindsATablesPageWithAnySiblingThatAgreesAsLong) {
  Store store({16, 16}, 40, 4096);
  for (const std::int32_t branch : {100, 300, 200}) {
    Tokens of = tokens(20);
    of.resize(40, branch);
    const SequenceId id = store.make(of);
    // Only one of the three has the second table's pages, the middle one in the siblings' order.
    if (branch != 200) store.cache.retain(id, {{Ranges{{0, 40}}, Ranges()}});
    store.cache.publish(id, "a", of);
    store.free(id);
  }
  for (const std::int32_t other : {0, 150, 250, 400}) {
    Tokens prompt = tokens(20);
    prompt.push_back(other);
    EXPECT_EQ(store.cache.match("a", prompt).matched, 20);
    EXPECT_EQ(store.there(prompt), 20);
    store.adopt(tokens(20));
  }
  store.check();
}

TEST(Publish, SequenceThatGoesOnWritesACopy) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(20));
  store.cache.publish(id, "a", tokens(20));
  const StepRows rows = {id, 1};
  EXPECT_EQ(store.cache.step_bytes({{rows}}), 2048);
  ASSERT_TRUE(store.append(id, {77}));
  EXPECT_EQ(store.num_live(), 3);
  store.check();
  store.adopt(tokens(20));
  store.check();
}

TEST(Publish, RefusesAnotherNumberOfTokens) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(20));
  EXPECT_THROW(store.cache.publish(id, "a", tokens(19)), Error);
  EXPECT_THROW(store.cache.publish(id, "a", tokens(21)), Error);
  EXPECT_EQ(store.cache.prefix_statistics().published_pages, 0);
}

TEST(Adopt, NamesWhatIsNotThereAndTakesNothing) {
  Store store({16, 16}, 20, 4096);
  const SequenceId id = store.make(tokens(40));
  store.cache.retain(id, {{Ranges{{0, 40}}, Ranges{{32, 40}}}});
  store.cache.publish(id, "a", tokens(40));
  const std::vector<Ranges> late = {Ranges{{0, 40}}, Ranges{{33, 40}}};
  EXPECT_NO_THROW(store.cache.free(store.cache.adopt("a", tokens(40), late)));
  const std::vector<Ranges> early = {Ranges{{0, 40}}, Ranges{{31, 40}}};
  try {
    store.cache.adopt("a", tokens(40), early);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a prefix of 40 tokens cannot be adopted: layer 1 no longer holds position 31");
  }
  EXPECT_THROW(store.cache.adopt("a", tokens(41), store.whole(41)), Error);
  EXPECT_THROW(store.cache.adopt("b", tokens(4), store.whole(4)), Error);
  store.check();
}

TEST(Identity, TellsFieldsOfOneValueApart) {
  Store store = one_table(40);
  store.publish(tokens(20), "adapter=X;salt=");
  EXPECT_EQ(store.there(tokens(20), "adapter=;salt=X"), 0);
  EXPECT_EQ(store.there(tokens(20), "adapter=X;salt=X"), 0);
  EXPECT_EQ(store.there(tokens(20), "adapter=X"), 0);
  EXPECT_EQ(store.there(tokens(20), ""), 0);
  EXPECT_EQ(store.there(tokens(20), "adapter=X;salt="), 20);
  store.publish(tokens(30), "adapter=;salt=X");
  EXPECT_EQ(store.there(tokens(30), "adapter=X;salt="), 20);
  store.check();
}

TEST(Identity, OfAPageIsTheFirstItWasPublishedUnder) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(20));
  store.cache.publish(id, "a", tokens(20));
  store.cache.publish(id, "b", tokens(20));
  EXPECT_EQ(store.there(tokens(20), "b"), 0);
  store.free(id);
  store.check();
  // So nothing keeps it from being evicted.
  store.make(tokens(20 * kPage, 1000));
  store.check();
}

// Whatever could be made of ids but the ids themselves: sums, exclusive ors, lengths, order.
TEST(Identity, OfTokensIsTheTokensThemselves) {
  Store store = one_table(80);
  Tokens of(40, 5);
  store.publish(of);
  for (std::size_t place : {0u, 15u, 16u, 31u, 39u}) {
    Tokens other = of;
    other[place] += 1;
    if (place > 0) other[place - 1] -= 1;
    const auto first = static_cast<std::int64_t>(place == 0 ? 0 : place - 1);
    EXPECT_EQ(store.there(other), first);
    other = of;
    other[place] += 65536;
    EXPECT_EQ(store.there(other), static_cast<std::int64_t>(place));
    other[place] = -5;
    store.publish(other);
    EXPECT_EQ(store.there(other), 40);
  }
  EXPECT_EQ(store.there(of), 40);
  store.check();
}

TEST(Evict, TakesTheLeastRecentlyUsedFirstAndTailsBeforeHeads) {
  Store store = one_table(6);
  const Tokens a = tokens(3 * kPage);
  const Tokens b = tokens(3 * kPage, 100);
  store.publish(a);
  store.publish(b);
  store.free(store.adopt(a));
  const SequenceId id = store.cache.create();
  store.all[id] = {};
  for (const auto& [left_of_a, left_of_b] :
       {std::pair{48, 32}, {48, 16}, {48, 0}, {32, 0}, {16, 0}, {0, 0}}) {
    ASSERT_TRUE(store.append(id, Tokens(kPage, 7)));
    EXPECT_EQ(store.there(a), left_of_a);
    EXPECT_EQ(store.there(b), left_of_b);
    store.check();
  }
  EXPECT_FALSE(store.append(id, {1}));
}

TEST(Evict, LooksUpAreNoUse) {
  Store store = one_table(4);
  store.publish(tokens(kPage));
  store.publish(tokens(kPage, 100));
  EXPECT_EQ(store.there(tokens(kPage)), kPage);
  store.make(tokens(3 * kPage, 1000));
  EXPECT_EQ(store.there(tokens(kPage)), 0);
  EXPECT_EQ(store.there(tokens(kPage, 100)), kPage);
}

TEST(Evict, PublishingAgainIsAUse) {
  Store store = one_table(4);
  store.publish(tokens(kPage));
  store.publish(tokens(kPage, 100));
  store.publish(tokens(kPage));
  store.make(tokens(3 * kPage, 1000));
  EXPECT_EQ(store.there(tokens(kPage)), kPage);
  EXPECT_EQ(store.there(tokens(kPage, 100)), 0);
}

TEST(Evict, NeverTakesPagesOfSequencesAndNothingWhereItWouldNotDo) {
  Store store = one_table(10);
  const SequenceId a = store.make(tokens(3 * kPage));
  store.cache.publish(a, "a", tokens(3 * kPage));
  store.publish(tokens(3 * kPage, 100));
  const SequenceId id = store.cache.create();
  store.all[id] = {};
  EXPECT_FALSE(store.append(id, tokens(8 * kPage, 1000)));
  EXPECT_EQ(store.cache.prefix_statistics().evicted_pages, 0);
  EXPECT_TRUE(store.append(id, tokens(7 * kPage, 1000)));
  EXPECT_EQ(store.cache.prefix_statistics().evicted_pages, 3);
  EXPECT_EQ(store.there(tokens(3 * kPage)), 3 * kPage);
  store.check();
  store.free(a);
  EXPECT_TRUE(store.append(id, tokens(2 * kPage, 2000)));
  EXPECT_EQ(store.there(tokens(3 * kPage)), kPage);
  store.check();
}

TEST(Evict, TakesTablesOneByOneAndPublishingFillsThemIn) {
  Store store({16, 16}, 3, 4096);
  const Tokens a = tokens(3 * kPage);
  store.publish(a);
  store.free(store.make(tokens(kPage, 1000)));
  EXPECT_EQ(store.there(a), 2 * kPage);
  Store one({16, 16}, 3, 4096);
  const SequenceId half = one.make(tokens(kPage, 1000));
  one.cache.retain(half, {{Ranges{{0, kPage}}, Ranges()}});
  one.publish(tokens(2 * kPage));
  ASSERT_TRUE(one.append(half, {5}));
  const PrefixMatch match = one.cache.match("a", tokens(2 * kPage));
  EXPECT_EQ(match.present, (std::vector<Ranges>{Ranges{{0, kPage}}, Ranges{{0, 2 * kPage}}}));
  EXPECT_EQ(match.matched, 2 * kPage);
  one.free(half);
  one.publish(tokens(2 * kPage));
  EXPECT_EQ(one.there(tokens(2 * kPage)), 2 * kPage);
  one.check();
}

TEST(Evict, TakesOtherSizesOnlyWhereTheSameSizeDoesNotDo) {
  const std::vector<std::int64_t> page_bytes = {1024, 2048};
  PagePool pool(page_bytes, {4 * 4096, 4096, true});
  PrefixIndex index(pool, 1, {0, 1});
  const auto publish = [&](std::int32_t token, int table) {
    std::vector<HeldPage> pages(2);
    const PageId page = pool.take(table).value();
    pages[static_cast<std::size_t>(table)] = {page, {0, 1}};
    index.publish("a", std::vector{token}, pages, 0);
    pool.drop(page);
  };
  for (std::int32_t token = 0; token < 8; ++token) publish(token, 0);   // two slabs
  for (std::int32_t token = 8; token < 12; ++token) publish(token, 1);  // two slabs
  const auto matched = [&] {
    std::vector<std::int32_t> there;
    for (std::int32_t token = 0; token < 12; ++token) {
      if (index.find("a", std::vector{token}, {}).matched == 1) there.push_back(token);
    }
    return there;
  };
  EXPECT_TRUE(index.make_room(std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(matched(), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11}));
  // Four of the larger are there; a fifth takes the slab of small ones that was used longest ago.
  EXPECT_FALSE(index.make_room(std::vector<std::int64_t>{0, 9}));
  EXPECT_EQ(matched().size(), 11u);
  EXPECT_TRUE(index.make_room(std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(matched(), (std::vector<std::int32_t>{4, 5, 6, 7}));
}

// A free slab may serve either size; only one choice serves both.
TEST(Evict, MakesRoomForSeveralSizesAtOnce) {
  const std::vector<std::int64_t> page_bytes = {2048, 4096};
  PagePool pool(page_bytes, {2 * 4096, 4096, true});
  PrefixIndex index(pool, 1, {0, 1});
  const PageId kept = pool.take(0).value();
  const PageId cached = pool.take(0).value();
  index.publish("a", std::vector{1}, std::vector<HeldPage>{{cached, {0, 1}}, {}}, 0);
  pool.drop(cached);
  EXPECT_FALSE(index.make_room(std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(pool.references(cached), 1);
  ASSERT_TRUE(index.make_room(std::vector<std::int64_t>{1, 1}));
  EXPECT_TRUE(pool.take(0));
  EXPECT_TRUE(pool.take(1));
  EXPECT_EQ(pool.references(kept), 1);
}

TEST(Evict, ForgetsNodesThatHoldNothing) {
  Store store = one_table(4);
  for (std::int32_t first = 0; first < 2000; first += 100) {
    store.publish(tokens(4 * kPage, first), "identity " + std::to_string(first));
  }
  for (std::int32_t first = 0; first < 1900; first += 100) {
    const PrefixMatch match =
        store.cache.match("identity " + std::to_string(first), tokens(kPage, first));
    EXPECT_EQ(match.matched, 0);
  }
  EXPECT_EQ(store.cache.prefix_statistics().cached_pages, 4);
}

TEST(Evict, LeavesNothingThatNamesAPageWhichIsSomeoneElsesNow) {
  Store store = one_table(4);
  const Tokens a = tokens(3 * kPage);
  store.publish(a);
  const SequenceId id = store.make(tokens(3 * kPage, 1000));  // takes two of its pages
  EXPECT_EQ(store.there(a), kPage);
  Tokens other = tokens(kPage);
  other.push_back(-1);
  store.free(id);
  store.publish(other);
  const SequenceId again = store.make(tokens(2 * kPage, 1000));
  store.adopt(other);
  EXPECT_EQ(store.there(a), kPage);
  store.adopt(tokens(kPage));
  store.check();
  store.free(again);
  store.check();
}

TEST(Siblings, ThousandsUnderOneParentAreAllFound) {
  Store store({16}, 512, 1 << 14);
  constexpr std::int32_t kCount = 2000;
  const auto of = [](std::int32_t child) {
    Tokens result = tokens(kPage + 8);
    result.insert(result.end(), {child * 7919 % kCount, child});
    return result;
  };
  for (std::int32_t child = 0; child < kCount; ++child) store.publish(of(child));
  for (std::int32_t child = 0; child < kCount; ++child) {
    EXPECT_EQ(store.there(of(child)), kPage + 10);
    Tokens other = of(child);
    other.back() = -1;
    EXPECT_EQ(store.there(other), kPage + 9);
  }
  store.cache.clear_prefixes();
  EXPECT_EQ(store.num_live(), 0);
}

TEST(Statistics, CountWhatWasFoundBuiltAndSaved) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(40));
  store.cache.publish(id, "a", tokens(40), 2.0);
  store.cache.publish(id, "a", tokens(40), 3.0);  // nothing new was built
  PrefixStatistics now = store.cache.prefix_statistics();
  EXPECT_EQ(now.built_tokens, 40);
  EXPECT_EQ(now.built_bytes, 3 * 2048);
  EXPECT_EQ(now.built_seconds, 2.0);
  EXPECT_EQ(now.published_pages, 3);
  EXPECT_EQ(now.shared_pages, 3);
  EXPECT_EQ(now.shared_bytes, 3 * 2048);
  EXPECT_EQ(now.cached_pages, 0);
  store.free(id);
  EXPECT_EQ(store.there(tokens(50)), 40);
  EXPECT_EQ(store.there(tokens(5, 70)), 0);
  store.adopt(tokens(20));
  now = store.cache.prefix_statistics();
  EXPECT_EQ(now.lookups, 2);
  EXPECT_EQ(now.hits, 1);
  EXPECT_EQ(now.saved_tokens, 20);
  EXPECT_EQ(now.shared_bytes, 2 * 2048);
  EXPECT_EQ(now.cached_bytes, 2048);
  store.make(tokens(18 * kPage, 1000));
  EXPECT_EQ(store.cache.prefix_statistics().evicted_pages, 1);
}

}  // namespace
}  // namespace lacuna

// Who owns which page: publishing and adopting, without attention.
#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <string>

#include "cache/prefix_rig.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

using rig::kPage;
using rig::one_table;
using rig::Store;
using rig::Tokens;
using rig::tokens;

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

// What follows the page elsewhere is not what follows its first half.
TEST(Publish, MatchEndsWhereAPromptLeavesAPage) {
  Store store = one_table(20);
  Tokens of = tokens(kPage, 10);
  const Tokens next = tokens(kPage, 5);
  of.insert(of.end(), next.begin(), next.end());
  store.publish(of);
  Tokens prompt = tokens(8, 10);
  prompt.insert(prompt.end(), next.begin(), next.end());
  EXPECT_EQ(store.cache.match("a", prompt).matched, 8);
}

TEST(Publish, OfNoPagesLeavesNothing) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(40));
  store.cache.retain(id, {{Ranges()}});
  store.cache.publish(id, "a", tokens(40));
  EXPECT_EQ(store.cache.match("a", tokens(40)).matched, 0);
  store.publish(tokens(20));
  store.cache.publish(id, "a", tokens(40));
  EXPECT_EQ(store.there(tokens(20)), 20);
  store.check();
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

TEST(Publish, FindsNoTablesPageWithASiblingThatAgreesLessLong) {
  Store store({16, 16}, 40, 4096);
  for (const std::int64_t common : {20, 18}) {
    Tokens of = tokens(common);
    of.resize(40, 900);
    const SequenceId id = store.make(of);
    if (common == 20) store.cache.retain(id, {{Ranges{{0, 40}}, Ranges()}});
    store.cache.publish(id, "a", of);
    store.free(id);
  }
  for (const std::int32_t other : {50, 950}) {
    Tokens prompt = tokens(20);
    prompt.push_back(other);
    const PrefixMatch match = store.cache.match("a", prompt);
    EXPECT_EQ(match.present, (std::vector<Ranges>{Ranges{{0, 20}}, Ranges{{0, 16}}}));
  }
  EXPECT_EQ(store.there(tokens(18)), 18);
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

// A fork that was cut publishes the beginning of a page that its parent has more of.
TEST(Publish, PageThatWasPublishedShortGrows) {
  for (const bool sibling : {false, true}) {
    Store store({16, 16}, 20, 4096);
    if (sibling) {
      // A page that begins as the short one does, without the second table: it takes that one in.
      Tokens of = tokens(18);
      of.push_back(-1);
      const SequenceId other = store.make(of);
      store.cache.retain(other, {{Ranges{{0, 19}}, Ranges()}});
      store.cache.publish(other, "a", of);
      store.free(other);
    }
    const SequenceId id = store.make(tokens(20));
    const SequenceId fork = store.cache.fork(id);
    store.all[fork] = tokens(18);
    store.cache.truncate(fork, 18, {{Ranges{{0, 18}}, Ranges{{0, 18}}}});
    store.cache.publish(fork, "a", tokens(18));
    EXPECT_EQ(store.there(tokens(18)), 18);
    store.cache.publish(id, "a", tokens(20));
    EXPECT_EQ(store.there(tokens(20)), 20);
    EXPECT_EQ(store.there(tokens(18)), 18);
    store.check();
  }
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

// What a longer prompt found must be there for its beginning, too: a page with more of the
// beginning, but without the positions asked for, does not stand in its way.
TEST(Adopt, TakesThePageThatHoldsWhatIsNeeded) {
  Store store({16, 16}, 40, 4096);
  store.publish(tokens(5));
  Tokens without = tokens(12);
  without.push_back(100);
  const SequenceId first = store.make(without);
  store.cache.retain(first, {{Ranges{{0, 13}}, Ranges()}});
  store.cache.publish(first, "a", without);  // beside the second table's slots 0..4
  const SequenceId second = store.make(tokens(4));
  store.cache.retain(second, {{Ranges{{0, 4}}, Ranges()}});
  Tokens rest = tokens(8, 4);
  rest.push_back(200);
  ASSERT_TRUE(store.append(second, rest));
  store.cache.publish(second, "a", store.all[second]);  // slots 4..12
  EXPECT_EQ(store.cache.match("a", tokens(12)).present[1], (Ranges{{4, 12}}));
  const std::vector<Ranges> needed = {Ranges{{0, 7}}, Ranges{{5, 7}}};
  const SequenceId id = store.cache.adopt("a", tokens(7), needed);
  store.all[id] = tokens(7);
  EXPECT_EQ(store.cache.held(id)[1], (Ranges{{4, 7}}));
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

TEST(Identity, ThatAPageIsTakenFromKeepsNoTokensWithoutPages) {
  Store store = one_table(20);
  const SequenceId id = store.make(tokens(20));
  const SequenceId fork = store.cache.fork(id);
  store.all[fork] = tokens(18);
  store.cache.truncate(fork, 18, {{Ranges{{0, 18}}}});
  store.cache.publish(fork, "b", tokens(18));
  store.cache.publish(id, "a", tokens(20));  // has more of the second page
  EXPECT_EQ(store.cache.match("b", tokens(20)).matched, 16);
  EXPECT_EQ(store.cache.match("a", tokens(20)).present[0], (Ranges{{16, 20}}));
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

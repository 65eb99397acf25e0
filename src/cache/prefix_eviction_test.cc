// Which published pages go where memory is short.
#include <gtest/gtest.h>

#include <string>

#include "cache/prefix_index.h"
#include "cache/prefix_rig.h"

namespace lacuna {
namespace {

using rig::kPage;
using rig::one_table;
using rig::Store;
using rig::Tokens;
using rig::tokens;

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

TEST(Evict, BeingFoundInUseIsAUse) {
  Store store = one_table(6);
  const SequenceId a = store.make(tokens(kPage));
  store.cache.publish(a, "a", tokens(kPage));
  store.publish(tokens(kPage, 100));
  store.publish(tokens(kPage, 200));
  const SequenceId id = store.make(tokens(4 * kPage, 1000));
  EXPECT_EQ(store.there(tokens(kPage, 100)), 0);
  store.free(a);
  ASSERT_TRUE(store.append(id, {1}));
  EXPECT_EQ(store.there(tokens(kPage, 200)), 0);
  EXPECT_EQ(store.there(tokens(kPage)), kPage);
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

// Pages beside one that is in use make no slab free, however long ago they were used.
TEST(Evict, LeavesPagesOfOtherSizesWhoseSlabWouldNotBecomeFree) {
  const std::vector<std::int64_t> page_bytes = {1024, 4096};
  PagePool pool(page_bytes, {2 * 4096, 4096, true});
  PrefixIndex index(pool, 1, {0, 1});
  const PageId in_use = pool.take(0).value();
  for (std::int32_t token = 1; token < 8; ++token) {  // three beside it, four in the other slab
    const PageId page = pool.take(0).value();
    index.publish("a", std::vector{token}, std::vector<HeldPage>{{page, {0, 1}}, {}}, 0);
    pool.drop(page);
  }
  ASSERT_TRUE(index.make_room(std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(pool.take(1));
  for (std::int32_t token = 1; token < 8; ++token) {
    EXPECT_EQ(index.find("a", std::vector{token}, {}).matched, token < 4 ? 1 : 0) << token;
  }
  EXPECT_EQ(pool.references(in_use), 1);
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

}  // namespace
}  // namespace lacuna

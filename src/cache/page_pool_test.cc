#include "lacuna/page_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "cache/refusal.h"

namespace lacuna {
namespace {

using rig::expect_refused;

constexpr std::int64_t kSizes[] = {1280, 96, 4096};

TEST(PagePool, UsesWholeSlabsOfItsBudgetForAnyMixOfSizes) {
  PagePool pool(kSizes, {.budget_bytes = 4 * 8192 + 100, .slab_bytes = 8192});
  EXPECT_EQ(pool.num_slabs(), 4);
  EXPECT_EQ(pool.num_available(0), 4 * 6);
  std::vector<PageId> pages;
  for (int i = 0; i < 7; ++i) pages.push_back(*pool.take(0));  // two slabs
  pages.push_back(*pool.take(1));
  pages.push_back(*pool.take(2));
  EXPECT_EQ(pool.num_free_slabs(), 0);
  EXPECT_EQ(pool.num_available(0), 5);
  EXPECT_EQ(pool.num_available(1), 84);
  EXPECT_EQ(pool.num_available(2), 1);
  pages.push_back(*pool.take(2));
  EXPECT_EQ(pool.take(2), std::nullopt);
  for (const PageId page : pages) pool.drop(page);
  EXPECT_EQ(pool.num_free_slabs(), 4);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(pool.take(2));
  EXPECT_EQ(pool.take(2), std::nullopt);
}

TEST(PagePool, GivesPagesThatDoNotOverlapAndLieInTheirSlab) {
  PagePool pool(kSizes, {.budget_bytes = 8 * 8192, .slab_bytes = 8192});
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  for (int turn = 0; turn < 40; ++turn) {
    const std::optional<PageId> page = pool.take(turn % 3);
    if (!page) continue;
    const std::int64_t begin = *page * kPageUnitBytes;
    const std::int64_t end = begin + kSizes[turn % 3];
    EXPECT_EQ(begin / 8192, (end - 1) / 8192);
    for (const auto& [b, e] : places) EXPECT_TRUE(end <= b || e <= begin);
    places.insert({begin, end});
    EXPECT_EQ(pool.bytes(*page), pool.base() + begin);
    EXPECT_EQ(pool.size_class(*page), turn % 3);
  }
}

TEST(PagePool, FreesAPageWithItsLastReference) {
  PagePool pool(kSizes, {.budget_bytes = 8192, .slab_bytes = 8192});
  const PageId page = *pool.take(0);
  pool.share(page);
  pool.share(page);
  EXPECT_EQ(pool.references(page), 3);
  pool.drop(page);
  pool.drop(page);
  EXPECT_EQ(pool.references(page), 1);
  pool.drop(page);
  EXPECT_EQ(pool.num_free_slabs(), 1);
  expect_refused([&] { pool.drop(page); }, {"page is", "allowed: pages in use"});
}

TEST(PagePool, FillsPagesWithNaNWhereItIsToPoisonThem) {
  PagePool pool(kSizes, {.budget_bytes = 8192, .slab_bytes = 8192, .poison = true});
  const PageId page = *pool.take(0);
  const auto is_nan = [&] {
    for (std::int64_t at = 0; at < kSizes[0]; at += 4) {
      float x = 0;
      std::memcpy(&x, pool.base() + page * kPageUnitBytes + at, 4);
      if (!std::isnan(x)) return false;
    }
    return true;
  };
  EXPECT_TRUE(is_nan());
  std::memset(pool.bytes(page), 0, static_cast<std::size_t>(kSizes[0]));
  EXPECT_FALSE(is_nan());
  pool.drop(page);
  EXPECT_TRUE(is_nan());
}

TEST(PagePool, RefusesPagesThatAreNotInUse) {
  PagePool pool(kSizes, {.budget_bytes = 2 * 8192, .slab_bytes = 8192});
  const PageId page = *pool.take(0);
  constexpr PageId kMost = std::numeric_limits<PageId>::max();
  for (const PageId bad : {PageId{-1}, page + 1, page + 40, PageId{6 * 40}, PageId{256},
                           pool.num_units(), kMost, std::numeric_limits<PageId>::min()}) {
    const std::vector<std::string> words = {"page is " + std::to_string(bad),
                                            "allowed: pages in use"};
    expect_refused([&] { pool.share(bad); }, words);
    expect_refused([&] { pool.drop(bad); }, words);
    expect_refused([&] { static_cast<void>(pool.references(bad)); }, words);
    expect_refused([&] { pool.bytes(bad); }, words);
    expect_refused([&] { std::as_const(pool).bytes(bad); }, words);
    expect_refused([&] { static_cast<void>(pool.size_class(bad)); }, words);
  }
  EXPECT_EQ(pool.references(page), 1);
}

TEST(PagePool, RefusesClassesThatItDoesNotHave) {
  PagePool pool(kSizes, {.budget_bytes = 2 * 8192, .slab_bytes = 8192});
  for (const int bad : {-1, 3}) {
    const std::vector<std::string> words = {"size_class is " + std::to_string(bad),
                                            "allowed: 0..2"};
    expect_refused([&] { pool.take(bad); }, words);
    expect_refused([&] { static_cast<void>(pool.page_bytes(bad)); }, words);
    expect_refused([&] { static_cast<void>(pool.num_available(bad)); }, words);
    expect_refused([&] { static_cast<void>(pool.pages_per_slab(bad)); }, words);
  }
}

TEST(PagePool, RefusesSizesThatItCannotCutItsBudgetInto) {
  const auto made = [](std::vector<std::int64_t> sizes, std::int64_t budget, std::int64_t slab) {
    return [=] { PagePool(sizes, {.budget_bytes = budget, .slab_bytes = slab}); };
  };
  for (const std::int64_t slab : {-4096, 0, 100, 4097}) {
    expect_refused(made({96}, 1 << 20, slab),
                   {"slab_bytes is " + std::to_string(slab), "positive multiples of 4096"});
  }
  for (const std::int64_t budget : {-1, 0, 8191}) {
    expect_refused(made({96}, budget, 8192),
                   {"budget_bytes is " + std::to_string(budget), "one slab of 8192"});
  }
  for (const std::int64_t size : {-32, 0, 33, 8224}) {
    expect_refused(made({96, size}, 1 << 20, 8192),
                   {"page_bytes is " + std::to_string(size), "multiples of 32"});
  }
  expect_refused(made({96}, std::numeric_limits<std::int64_t>::max(), 8192), {"allowed"});
}

}  // namespace
}  // namespace lacuna

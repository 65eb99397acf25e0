#include "lacuna/ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace lacuna {
namespace {

std::set<std::int64_t> members(const Ranges& ranges) {
  std::set<std::int64_t> all;
  for (const Range& part : ranges) {
    for (std::int64_t p = part.begin; p < part.end; ++p) all.insert(p);
  }
  return all;
}

Ranges any_ranges() {
  std::vector<Range> parts;
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) {
    const auto begin = *rc::gen::inRange<std::int64_t>(0, 30);
    parts.push_back({begin, begin + *rc::gen::inRange<std::int64_t>(0, 8)});
  }
  return Ranges(parts);
}

TEST(Ranges, HasOneFormForEverySet) {
  EXPECT_EQ(Ranges({{3, 5}, {0, 2}, {5, 7}, {4, 4}}), Ranges({{0, 2}, {3, 7}}));
  EXPECT_EQ(Ranges({{0, 9}, {2, 3}}), Ranges({{0, 9}}));
  EXPECT_TRUE(Ranges({{5, 5}}).empty());
}

TEST(Ranges, OperationsAgreeWithSets) {
  EXPECT_TRUE(rc::check([] {
    const Ranges a = any_ranges();
    const Ranges b = any_ranges();
    const auto in_a = members(a);
    const auto in_b = members(b);
    for (std::int64_t p = -1; p < 40; ++p) {
      const bool x = in_a.contains(p);
      const bool y = in_b.contains(p);
      RC_ASSERT(a.contains(p) == x);
      RC_ASSERT(unite(a, b).contains(p) == (x || y));
      RC_ASSERT(intersect(a, b).contains(p) == (x && y));
      RC_ASSERT(subtract(a, b).contains(p) == (x && !y));
    }
    RC_ASSERT(a.size() == static_cast<std::int64_t>(in_a.size()));
    RC_ASSERT(subtract(unite(a, b), a) == subtract(b, a));
  }));
}

TEST(Ranges, TilesTouchedAreThoseThatHoldAPosition) {
  EXPECT_EQ(tiles_touched(Ranges({{0, 9}, {64, 72}}), 64), Ranges({{0, 2}}));
  EXPECT_EQ(tiles_touched(Ranges({{127, 3127}}), 128).size(), 25);
  EXPECT_TRUE(tiles_touched(Ranges(), 64).empty());
}

}  // namespace
}  // namespace lacuna

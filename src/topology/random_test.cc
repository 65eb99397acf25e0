#include "lacuna/random.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers published with the generator (Random123, kat_vectors).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(DrawDistinct, GivesSortedDistinctValuesOfThePopulation) {
  for (std::uint64_t row = 0; row < 200; ++row) {
    const auto drawn = draw_distinct({7, 1, 2, row}, 5, 12);
    ASSERT_EQ(drawn.size(), 5u);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_TRUE(drawn[i] >= 0 && drawn[i] < 12);
      if (i > 0) {
        EXPECT_LT(drawn[i - 1], drawn[i]);
      }
    }
  }
}

TEST(DrawDistinct, TakesAllWhereThePopulationIsSmaller) {
  EXPECT_EQ(draw_distinct({1, 0, 0, 0}, 5, 3), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(draw_distinct({1, 0, 0, 0}, 5, 0).empty());
}

// 6000 draws of 2 from 4: six subsets, 1000 expected each, standard deviation 29.
TEST(DrawDistinct, DrawsEverySubsetAboutEquallyOften) {
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::uint64_t row = 0; row < 6000; ++row) ++seen[draw_distinct({42, 0, 0, row}, 2, 4)];
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [subset, times] : seen) EXPECT_NEAR(times, 1000, 150);
}

TEST(DrawDistinct, DependsOnEveryPartOfItsKey) {
  const auto base = draw_distinct({1, 2, 3, 4}, 8, 1 << 20);
  EXPECT_NE(base, draw_distinct({2, 2, 3, 4}, 8, 1 << 20));
  EXPECT_NE(base, draw_distinct({1, 3, 3, 4}, 8, 1 << 20));
  EXPECT_NE(base, draw_distinct({1, 2, 4, 4}, 8, 1 << 20));
  EXPECT_NE(base, draw_distinct({1, 2, 3, 5}, 8, 1 << 20));
  EXPECT_NE(base, draw_distinct({1, 2, 3, 4 + (std::uint64_t{1} << 40)}, 8, 1 << 20));
}

TEST(DrawDistinct, RefusesAKeyThatDoesNotFit) {
  EXPECT_THROW(draw_distinct({1, 65536, 0, 0}, 1, 4), Error);
  EXPECT_THROW(draw_distinct({1, 0, 65536, 0}, 1, 4), Error);
  EXPECT_THROW(draw_distinct({1, 0, 0, std::uint64_t{1} << 48}, 1, 4), Error);
}

}  // namespace
}  // namespace lacuna

#include "cache/random_operations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace lacuna {
namespace {

using rig::Choices;
using rig::RandomOperations;

// LACUNA_TEST_SEED in the environment starts elsewhere; a failure names the seed to start from.
std::uint64_t first_seed() {
  const char* const set = std::getenv("LACUNA_TEST_SEED");
  return set == nullptr ? 20250117 : std::stoull(set);
}

constexpr std::int64_t kOfOneCache = 250;

void run(std::int64_t num_operations, std::uint64_t seed) {
  rig::Effects sum;
  for (std::int64_t done = 0; done < num_operations; done += kOfOneCache, ++seed) {
    Choices choices(seed);
    RandomOperations operations(choices);
    for (std::int64_t idx = 0; idx < kOfOneCache; ++idx) {
      try {
        operations.run_one();
      } catch (const std::exception& error) {
        FAIL() << error.what() << "\nafter operation " << idx << ", which was of kind "
               << static_cast<int>(operations.last()) << "; LACUNA_TEST_SEED=" << seed
               << " starts with it";
      }
    }
    const rig::Effects& effects = operations.effects();
    sum.steps += effects.steps;
    sum.refused += effects.refused;
    sum.hits += effects.hits;
    sum.evicted_pages += effects.evicted_pages;
    sum.loads += effects.loads;
    sum.wakes += effects.wakes;
  }
  // All of them happen often, or little was tested.
  EXPECT_GT(sum.steps, num_operations / 5);
  EXPECT_GT(sum.refused, num_operations / 400);
  EXPECT_GT(sum.hits, num_operations / 400);
  EXPECT_GT(sum.evicted_pages, num_operations / 500);
  EXPECT_GT(sum.loads, num_operations / 4000);
  EXPECT_GT(sum.wakes, num_operations / 400);
}

TEST(RandomOperations, LeaveTheCacheAsItsModelSays) {
  run(rig::kSanitized ? 20'000 : 100'000, first_seed());
}

// Ten million in all, each part of them in less time than a test may take.
class RandomOperationsLong : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomOperationsLong, LeaveTheCacheAsItsModelSays) {
  constexpr std::int64_t kOperations = 500'000;
  run(kOperations, first_seed() + 1'000 + GetParam() * (kOperations / kOfOneCache));
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomOperationsLong, testing::Range<std::uint64_t>(0, 20));

}  // namespace
}  // namespace lacuna

#include "cache/random_operations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "generate.h"

namespace lacuna {
namespace {

using rig::Choices;
using rig::RandomOperations;

// LACUNA_TEST_SEED in the environment starts elsewhere; a failure names the seed to start from.
std::uint64_t first_seed() {
  const char* const set = std::getenv("LACUNA_TEST_SEED");
  return set == nullptr ? 20250117 : std::stoull(set);
}

void run(std::int64_t num_operations) {
  constexpr std::int64_t kOfOneCache = 250;
  std::int64_t steps = 0;
  std::int64_t refused = 0;
  for (std::int64_t done = 0; done < num_operations; done += kOfOneCache) {
    const std::uint64_t seed = first_seed() + static_cast<std::uint64_t>(done / kOfOneCache);
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
    steps += operations.num_steps();
    refused += operations.num_refused();
  }
  // Both happen often, or little was tested.
  EXPECT_GT(steps, num_operations / 5);
  EXPECT_GT(refused, num_operations / 200);
}

TEST(RandomOperations, LeaveTheCacheAsItsModelSays) { run(generate::kSanitized ? 5'000 : 100'000); }

TEST(RandomOperationsLong, LeaveTheCacheAsItsModelSays) { run(10'000'000); }

}  // namespace
}  // namespace lacuna

#include "lacuna/system_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(SystemMemory, PeakCountsWhatWasWritten) {
  const std::int64_t before = peak_memory_bytes();
  std::vector<char> block(std::size_t{512} << 20);
  std::memset(block.data(), 1, block.size());
  EXPECT_GE(peak_memory_bytes(), std::int64_t{512} << 20);
  EXPECT_GE(peak_memory_bytes(), before);
}

TEST(SystemMemory, RefusesWhatTheSystemCannotGive) {
  const auto available = available_memory_bytes();
  if (!available) GTEST_SKIP() << "the system does not say what is available";
  EXPECT_GT(*available, 0);
  require_memory(0, "nothing");
  try {
    require_memory(std::int64_t{1} << 60, "a large cache");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a large cache"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
}

}  // namespace
}  // namespace lacuna

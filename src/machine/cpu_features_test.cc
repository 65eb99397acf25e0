#include "lacuna/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace lacuna {
namespace {

// The words of the first "flags" line of /proc/cpuinfo: what the kernel found, by its own names.
std::set<std::string> flags_of_the_system() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(CpuFeatures, AreThoseThatTheSystemLists) {
  const std::set<std::string> flags = flags_of_the_system();
  if (flags.empty()) GTEST_SKIP() << "this system lists no flags";
  const char* const preload = std::getenv("LD_PRELOAD");
  if (preload != nullptr && std::string(preload).find("vgpreload") != std::string::npos) {
    GTEST_SKIP() << "valgrind shows the program another processor";
  }
  const auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!flags.contains(name)) return false;
    }
    return true;
  };
  const CpuFeatures& features = cpu_features();
  const bool avx512 = all({"avx512f", "avx512bw", "avx512vl", "avx512dq"});
  EXPECT_EQ(features.avx2_fma_f16c, all({"avx2", "fma", "f16c"}));
  EXPECT_EQ(features.avx512, avx512);
  EXPECT_EQ(features.avx512_vnni, avx512 && all({"avx512_vnni"}));
  EXPECT_EQ(features.avx512_bf16, avx512 && all({"avx512_bf16"}));
}

TEST(CpuFeatures, ANarrowerGroupIsThereWithEachWiderOne) {
  const CpuFeatures& features = cpu_features();
  EXPECT_TRUE(features.avx512 || !features.avx512_vnni);
  EXPECT_TRUE(features.avx512 || !features.avx512_bf16);
  EXPECT_EQ(&features, &cpu_features());
}

}  // namespace
}  // namespace lacuna

#include "lacuna/cpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lacuna {
namespace {

// A folder that imitates /proc and /sys.
class Machine {
 public:
  Machine()
      : root_(std::filesystem::path(testing::TempDir()) /
              ("lacuna_cpu_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void file(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void cache(int cpu, int idx, const std::string& level, const std::string& size,
             const std::string& type, const std::string& shared) const {
    const std::string dir = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" +
                            std::to_string(idx) + "/";
    file(dir + "level", level + "\n");
    file(dir + "size", size + "\n");
    file(dir + "type", type + "\n");
    file(dir + "shared_cpu_list", shared + "\n");
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

TEST(Cpu, ThisMachineHasAtLeastOneAllowedCpu) {
  EXPECT_GE(num_allowed_cpus(), 1);
  EXPECT_EQ(read_cpu_info().num_allowed_cpus, num_allowed_cpus());
  EXPECT_FALSE(read_cpu_info().model_name.empty());
}

TEST(Cpu, WhatTheSystemDoesNotSayIsAbsent) {
  const Machine machine;
  const CpuInfo info = read_cpu_info(machine.root());
  EXPECT_EQ(info.model_name, "unknown");
  EXPECT_FALSE(info.l1_data_bytes || info.l2_bytes || info.last_level_bytes);
  const MemoryInfo memory = read_memory_info(machine.root());
  EXPECT_FALSE(memory.total_bytes || memory.available_bytes);
}

TEST(Cpu, QuotaOfTheUnifiedHierarchyIsRoundedUp) {
  const Machine machine;
  machine.file("proc/self/cgroup", "0::/a/b\n");
  machine.file("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  machine.file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(num_allowed_cpus(machine.root()), 1);
}

TEST(Cpu, QuotaOfTheOldHierarchyHolds) {
  const Machine machine;
  machine.file("proc/self/cgroup", "4:cpuacct,cpu:/x\n");
  machine.file("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n");
  machine.file("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(num_allowed_cpus(machine.root()), 1);
}

TEST(Cpu, AbsentQuotaLeavesTheAffinityMask) {
  const Machine machine;
  machine.file("sys/fs/cgroup/cpu.max", "max 100000\n");
  machine.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  machine.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  // This machine may have a quota of its own; the imitated one has none.
  EXPECT_GE(num_allowed_cpus(machine.root()), num_allowed_cpus());
}

TEST(Cpu, ModelNameAndCachesAreRead) {
  const Machine machine;
  machine.file("proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU @ 2 GHz\n");
  machine.cache(0, 0, "1", "32K", "Data", "0");
  machine.cache(0, 1, "1", "64K", "Instruction", "0");
  machine.cache(0, 2, "2", "1024K", "Unified", "0");
  machine.cache(0, 3, "3", "260M", "Unified", "0-2047");
  // Whichever CPUs the test may run on, they have the same caches and share the last level.
  const std::filesystem::path cpus =
      std::filesystem::path(machine.root()) / "sys/devices/system/cpu";
  for (int cpu = 1; cpu < 2048; ++cpu) {
    std::filesystem::create_directory_symlink("cpu0", cpus / ("cpu" + std::to_string(cpu)));
  }
  const CpuInfo info = read_cpu_info(machine.root());
  EXPECT_EQ(info.model_name, "Some CPU @ 2 GHz");
  EXPECT_EQ(info.l1_data_bytes, 32 * 1024);
  EXPECT_EQ(info.l2_bytes, 1024 * 1024);
  EXPECT_EQ(info.last_level_bytes, std::int64_t{260} << 20);
  EXPECT_EQ(info.last_level_total_bytes, std::int64_t{260} << 20);
}

TEST(Cpu, MemoryIsLoweredToTheControlGroup) {
  const Machine machine;
  machine.file("proc/meminfo", "MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n");
  EXPECT_EQ(read_memory_info(machine.root()).total_bytes, 2048 * 1024);
  EXPECT_EQ(read_memory_info(machine.root()).available_bytes, 1024 * 1024);
  machine.file("sys/fs/cgroup/memory.max", "1000000\n");
  machine.file("sys/fs/cgroup/memory.current", "400000\n");
  EXPECT_EQ(read_memory_info(machine.root()).total_bytes, 1000000);
  EXPECT_EQ(read_memory_info(machine.root()).available_bytes, 600000);
}

TEST(Cpu, NonsenseFilesAreIgnored) {
  const Machine machine;
  machine.file("proc/self/cgroup", "::::\nnothing\n0::relative\n");
  machine.file("proc/meminfo", "MemTotal: many\nMemAvailable: 99999999999999999999 kB\n");
  machine.file("sys/fs/cgroup/cpu.max", "0 0\n");
  machine.cache(0, 0, "x", "-5K", "Data", "0");
  EXPECT_GE(num_allowed_cpus(machine.root()), 1);
  EXPECT_FALSE(read_memory_info(machine.root()).total_bytes);
  EXPECT_FALSE(read_cpu_info(machine.root()).l1_data_bytes);
}

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lacuna {

// What the system says about the processor and memory this process may use. What it does not say
// stays absent or "unknown"; nothing is guessed. Plain data.
struct CpuInfo {
  std::string model_name = "unknown";
  std::int64_t num_allowed_cpus = 1;             // as num_allowed_cpus()
  std::optional<std::int64_t> l1_data_bytes;     // of one core
  std::optional<std::int64_t> l2_bytes;          // of one core, or of the cores that share one
  std::optional<std::int64_t> last_level_bytes;  // of one last-level cache
  // The different last-level caches of the allowed CPUs together.
  std::optional<std::int64_t> last_level_total_bytes;
};

struct MemoryInfo {
  // The machine's memory or the control group's limit, whichever is smaller.
  std::optional<std::int64_t> total_bytes;
  // What can be allocated without swapping, under the same limit.
  std::optional<std::int64_t> available_bytes;
};

// All three are thread-safe and throw nothing but std::bad_alloc. `root` stands before /proc and
// /sys: tests pass a folder that imitates a machine.

// CPUs this process may run on: the affinity mask, lowered to the control group's quota rounded up
// (a quota of 1.5 CPUs gives 2), at least 1.
std::int64_t num_allowed_cpus(const std::string& root = "");

CpuInfo read_cpu_info(const std::string& root = "");
MemoryInfo read_memory_info(const std::string& root = "");

}  // namespace lacuna

#include "lacuna/cpu.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lacuna {
namespace {

// Files of /proc and /sys state a size that is not theirs; they are read to their end, with a cap.
std::optional<std::string> system_text(const std::string& path) {
  constexpr std::size_t kLongestBytes = 4 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  char part[4096];
  while (text.size() < kLongestBytes) {
    file.read(part, sizeof(part));
    if (file.gcount() <= 0) break;
    text.append(part, static_cast<std::size_t>(file.gcount()));
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// The leading whole number of `text` times the unit after it (K, M, G or none).
std::optional<std::int64_t> leading_size(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const char unit = text.empty() ? '\0' : text.front();
  const int shift = unit == 'K' || unit == 'k' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
  if (value > std::numeric_limits<std::int64_t>::max() >> shift) return std::nullopt;
  return value << shift;
}

std::optional<std::int64_t> system_size(const std::string& path) {
  const std::optional<std::string> text = system_text(path);
  return text ? leading_size(*text) : std::nullopt;
}

// The text after "key<spaces>:" on the first line that begins with `key`.
std::optional<std::string> colon_value(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return std::nullopt;
}

// CPU numbers of the affinity mask; empty where the system does not say.
std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  // The kernel refuses a mask shorter than its own, so the mask grows until it is taken.
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(static_cast<std::size_t>(capacity));
    if (mask == nullptr) return cpus;
    const std::size_t mask_bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    const bool taken = ::sched_getaffinity(0, mask_bytes, mask) == 0;
    for (int cpu = 0; taken && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), mask_bytes, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (taken) break;
  }
#endif
  return cpus;
}

// The folders of the process's control group in hierarchy `controller` ("" is the unified one), the
// innermost first: a limit of any of them holds.
std::vector<std::string> control_group_dirs(const std::string& root,
                                            const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::string group;
  std::istringstream lines(system_text(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") == std::string::npos) continue;
    group = line.substr(second + 1);
    if (group.empty() || group.front() != '/') group.clear();
    break;
  }
  std::vector<std::string> dirs;
  while (group.size() > 1) {
    dirs.push_back(mount + group);
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
  dirs.push_back(mount);
  return dirs;
}

void lower(std::optional<std::int64_t>& limit, std::optional<std::int64_t> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// ceil(quota / period), or nothing where there is no quota.
std::optional<std::int64_t> whole_cpus(std::optional<std::int64_t> quota,
                                       std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period + (*quota % *period > 0 ? 1 : 0);
}

std::optional<std::int64_t> control_group_cpus(const std::string& root) {
  std::optional<std::int64_t> limit;
  for (const std::string& dir : control_group_dirs(root, "")) {
    const std::string text = system_text(dir + "/cpu.max").value_or("");  // "max 100000"
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) continue;
    lower(limit, whole_cpus(leading_size(text), leading_size(text.substr(space))));
  }
  for (const std::string& dir : control_group_dirs(root, "cpu")) {
    lower(limit, whole_cpus(system_size(dir + "/cpu.cfs_quota_us"),
                            system_size(dir + "/cpu.cfs_period_us")));
  }
  return limit;
}

struct Cache {
  std::int64_t level = 0;
  std::int64_t size_bytes = 0;
  std::string type;
  std::string shared_cpus;
};

std::vector<Cache> caches_of(const std::string& root, int cpu) {
  std::vector<Cache> caches;
  const std::string base =
      root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
  for (int idx = 0; idx < 16; ++idx) {
    const std::string dir = base + std::to_string(idx);
    const std::optional<std::int64_t> level = system_size(dir + "/level");
    const std::optional<std::int64_t> size = system_size(dir + "/size");
    if (!level || !size || *size == 0) continue;
    caches.push_back({*level, *size, system_text(dir + "/type").value_or(""),
                      system_text(dir + "/shared_cpu_list").value_or("")});
  }
  return caches;
}

void fill_caches(CpuInfo& info, const std::string& root, const std::vector<int>& cpus) {
  std::vector<std::string> counted;
  for (const int cpu : cpus) {
    Cache last;
    for (const Cache& cache : caches_of(root, cpu)) {
      if (cache.type == "Instruction") continue;
      if (cache.level == 1 && !info.l1_data_bytes) info.l1_data_bytes = cache.size_bytes;
      if (cache.level == 2 && !info.l2_bytes) info.l2_bytes = cache.size_bytes;
      if (cache.level > last.level) last = cache;
    }
    if (last.level < 2) continue;
    if (!info.last_level_bytes) info.last_level_bytes = last.size_bytes;
    if (std::find(counted.begin(), counted.end(), last.shared_cpus) != counted.end()) continue;
    counted.push_back(last.shared_cpus);
    info.last_level_total_bytes = info.last_level_total_bytes.value_or(0) + last.size_bytes;
  }
}

}  // namespace

std::int64_t num_allowed_cpus(const std::string& root) {
  std::int64_t allowed = static_cast<std::int64_t>(affinity_cpus().size());
  if (allowed == 0) allowed = std::thread::hardware_concurrency();
  if (const auto quota = control_group_cpus(root)) allowed = std::min(allowed, *quota);
  return std::max<std::int64_t>(allowed, 1);
}

CpuInfo read_cpu_info(const std::string& root) {
  CpuInfo info;
  const std::string text = system_text(root + "/proc/cpuinfo").value_or("");
  // x86 says "model name"; several Arm kernels say "Processor" or nothing.
  for (const char* key : {"model name", "Processor", "cpu model"}) {
    if (const auto name = colon_value(text, key)) {
      info.model_name = *name;
      break;
    }
  }
  info.num_allowed_cpus = num_allowed_cpus(root);
  std::vector<int> cpus = affinity_cpus();
  if (cpus.empty()) cpus.push_back(0);
  fill_caches(info, root, cpus);
  return info;
}

MemoryInfo read_memory_info(const std::string& root) {
  MemoryInfo info;
  const std::string text = system_text(root + "/proc/meminfo").value_or("");
  if (const auto total = colon_value(text, "MemTotal")) info.total_bytes = leading_size(*total);
  if (const auto free = colon_value(text, "MemAvailable"))
    info.available_bytes = leading_size(*free);
  const auto apply = [&info](std::optional<std::int64_t> limit, std::optional<std::int64_t> used) {
    lower(info.total_bytes, limit);
    if (limit && used) lower(info.available_bytes, std::max<std::int64_t>(*limit - *used, 0));
  };
  for (const std::string& dir : control_group_dirs(root, "")) {
    apply(system_size(dir + "/memory.max"), system_size(dir + "/memory.current"));
  }
  for (const std::string& dir : control_group_dirs(root, "memory")) {
    apply(system_size(dir + "/memory.limit_in_bytes"), system_size(dir + "/memory.usage_in_bytes"));
  }
  return info;
}

}  // namespace lacuna

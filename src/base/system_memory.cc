#include "lacuna/system_memory.h"

#include <sys/resource.h>

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "lacuna/error.h"

namespace lacuna {

std::optional<std::int64_t> available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

std::int64_t peak_memory_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

void require_memory(std::int64_t size_bytes, std::string_view what) {
  const std::optional<std::int64_t> available = available_memory_bytes();
  if (!available || size_bytes <= *available) return;
  throw Error(
      fmt::format("{} would take {} bytes of memory; available: {}", what, size_bytes, *available));
}

}  // namespace lacuna

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

// For fuzzers: a file in memory, which is mapped as any other.
namespace lacuna::model_test {

class MemoryFile {
 public:
  // Zeros stand behind the data, which cost nothing until they are read.
  MemoryFile(const std::uint8_t* data, std::size_t size, std::size_t zeros = 0)
      : file_(::memfd_create("fuzz", 0)) {
    const bool written = file_ >= 0 && ::write(file_, data, size) == static_cast<ssize_t>(size) &&
                         ::ftruncate(file_, static_cast<off_t>(size + zeros)) == 0;
    if (!written) std::abort();
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace lacuna::model_test

#include "lacuna/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "lacuna/error.h"

// The POSIX calls of the library stand in this file, and in cpu.cc what is asked about CPUs.
static_assert(std::endian::native == std::endian::little && sizeof(void*) == 8,
              "Lacuna runs on little-endian 64-bit machines only");

namespace lacuna {
namespace {

// O_NONBLOCK: opening a pipe must not wait for its other end; it is refused as no regular file.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : Descriptor(path, flags, 0, path) {}
  // Errors name `shown`.
  Descriptor(const std::string& path, int flags, mode_t mode, const std::string& shown)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode)) {
    if (fd_ < 0) throw Error("cannot open '" + shown + "': " + std::strerror(errno));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::int64_t regular_file_size(const Descriptor& file, const std::string& path) {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) {
    throw Error("cannot read '" + path + "': " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) throw Error("'" + path + "' is not a regular file");
  return info.st_size;
}

}  // namespace

std::string read_file(const std::string& path, std::int64_t max_bytes) {
  const Descriptor file(path, O_RDONLY);
  const std::int64_t size = regular_file_size(file, path);
  if (size > max_bytes) {
    throw Error("'" + path + "' has " + std::to_string(size) + " bytes; allowed: up to " +
                std::to_string(max_bytes));
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error("cannot read '" + path + "': " + std::strerror(errno));
    if (got == 0) throw Error("'" + path + "' became shorter while it was read");
    filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

namespace {

void write_all(const Descriptor& file, const std::string& bytes, const std::string& path) {
  ::fcntl(file.get(), F_SETFL, 0);  // a pipe that is full is waited for
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t put = ::write(file.get(), bytes.data() + written, bytes.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw Error("cannot write '" + path + "': " + std::strerror(errno));
    written += static_cast<std::size_t>(put);
  }
}

// Something that is there and is neither a file nor a folder: a device, a pipe.
bool is_special(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// What a link names, so that the link stays one; the path itself where nothing is there.
std::string link_target(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : real.get();
}

}  // namespace

void write_file(const std::string& path, const std::string& bytes) {
  if (is_special(path)) {
    write_all(Descriptor(path, O_WRONLY), bytes, path);
    return;
  }
  const std::string target = link_target(path);
  const std::string temporary = target + ".tmp" + std::to_string(::getpid());
  try {
    write_all(Descriptor(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644, path), bytes, path);
    if (::rename(temporary.c_str(), target.c_str()) != 0) {
      throw Error("cannot write '" + path + "': " + std::strerror(errno));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  size_ = regular_file_size(file, path);
  if (size_ == 0) return;
  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw Error("cannot map '" + path + "': " + std::strerror(errno));
  data_ = static_cast<const std::uint8_t*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::uint8_t*>(data_), static_cast<std::size_t>(size_));
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string default_cache_dir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/lacuna";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.cache/lacuna";
  }
  return ".cache/lacuna";
}

}  // namespace lacuna

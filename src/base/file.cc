#include "lacuna/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

[[noreturn]] void fail(const char* what, const std::string& path) {
  throw Error(std::string("cannot ") + what + " '" + path + "': " + std::strerror(errno));
}

void write_all(const Descriptor& file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

// Something that is there and is neither a file nor a folder: a device, a pipe.
bool is_special(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// The path, unless a rename to it would take a device or a pipe away.
const std::string& replaceable(const std::string& path) {
  if (is_special(path)) throw Error("'" + path + "' is not a regular file");
  return path;
}

// What a link names, so that the link stays one; the path itself where nothing is there.
std::string link_target(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : real.get();
}

// A rename is on the disk once its folder is. Where a file system cannot do that, the file is whole
// all the same.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

struct FileWriter::State {
  explicit State(const std::string& to)
      : path(replaceable(to)),
        target(link_target(to)),
        temporary(target + ".tmp" + std::to_string(::getpid())),
        file(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644, path) {}

  std::string path;
  std::string target;
  std::string temporary;
  Descriptor file;
  bool committed = false;
};

FileWriter::FileWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}

FileWriter::~FileWriter() {
  if (!state_->committed) ::unlink(state_->temporary.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  write_all(state_->file, bytes, state_->path);
}

void FileWriter::commit() {
  if (::fsync(state_->file.get()) != 0) fail("write", state_->path);
  if (::rename(state_->temporary.c_str(), state_->target.c_str()) != 0) {
    fail("write", state_->path);
  }
  state_->committed = true;
  sync_folder_of(state_->target);
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::span<const std::byte> all = std::as_bytes(std::span(bytes));
  if (is_special(path)) {
    const Descriptor file(path, O_WRONLY);
    ::fcntl(file.get(), F_SETFL, 0);  // a pipe that is full is waited for
    write_all(file, all, path);
    return;
  }
  FileWriter writer(path);
  writer.write(all);
  writer.commit();
}

struct ScratchFile::State {
  explicit State(const std::string& at)
      : path(at), file(at, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, at) {}
  std::string path;
  Descriptor file;
};

ScratchFile::ScratchFile(const std::string& path) : state_(std::make_unique<State>(path)) {
  ::unlink(path.c_str());
}

ScratchFile::~ScratchFile() = default;

const std::string& ScratchFile::path() const { return state_->path; }

void ScratchFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(state_->file.get(), bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", state_->path);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += put;
  }
}

void ScratchFile::read(std::span<std::byte> bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(state_->file.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", state_->path);
    if (got == 0) {
      throw Error("'" + state_->path + "' ends at offset " + std::to_string(offset) + "; " +
                  std::to_string(bytes.size()) + " bytes more were expected");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void ScratchFile::read_ahead(std::int64_t offset, std::int64_t size_bytes) const {
  // Linux reads no more for one call than the device's read-ahead, 128 KiB unless it was changed.
  constexpr std::int64_t kPieceBytes = 128 << 10;
  const std::int64_t end = offset + size_bytes;
  for (; offset < end; offset += kPieceBytes) {
    ::posix_fadvise(state_->file.get(), offset, std::min(kPieceBytes, end - offset),
                    POSIX_FADV_WILLNEED);
  }
}

void ScratchFile::drop_from_page_cache() const {
  if (::fdatasync(state_->file.get()) != 0) fail("write", state_->path);
  const int error = ::posix_fadvise(state_->file.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (error != 0) {
    errno = error;
    fail("drop from the page cache", state_->path);
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

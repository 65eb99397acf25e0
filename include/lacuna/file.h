#pragma once

#include <cstdint>
#include <string>

namespace lacuna {

// Whole file as bytes. Throws Error naming the path where it cannot be read, is a folder, or is
// longer than `max_bytes`.
std::string read_file(const std::string& path, std::int64_t max_bytes);

// Writes through a temporary file beside `path` and an atomic rename. Throws Error naming the path.
void write_file(const std::string& path, const std::string& bytes);

// A file mapped read-only. Move-only owner; the bytes are valid while it lives. An empty file has
// size 0 and data() == nullptr.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::uint8_t* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::int64_t size_ = 0;
};

// $XDG_CACHE_HOME/lacuna or ~/.cache/lacuna; not created.
std::string default_cache_dir();

}  // namespace lacuna

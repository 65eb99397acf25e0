#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lacuna {

// Whole file as bytes. Throws Error naming the path where it cannot be read, is a folder, or is
// longer than `max_bytes`.
std::string read_file(const std::string& path, std::int64_t max_bytes);

// A file that appears at `path` whole or not at all: it is written into a temporary file beside it,
// which commit() brings to the disk and renames, and which is removed without commit. What was
// there stays until the rename; a link stays one. A killed process leaves the temporary file, named
// <path>.tmp<process>. One writer of a path at a time. Every call throws Error naming the path; a
// device or a pipe is refused, since it would be replaced.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes the whole file through a FileWriter; into a device or a pipe directly.
void write_file(const std::string& path, const std::string& bytes);

// A file for reading and writing at any place. Its name is taken away as soon as it is open, so
// that it is gone with its owner or the process. Every call throws Error naming the path; calls for
// places that do not overlap may run together.
class ScratchFile {
 public:
  // Throws Error where something is at `path` already.
  explicit ScratchFile(const std::string& path);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const;
  void write(std::int64_t offset, std::span<const std::byte> bytes);
  void read(std::span<std::byte> bytes, std::int64_t offset) const;
  // Asks the system to bring the bytes into its page cache; does not wait for them.
  void read_ahead(std::int64_t offset, std::int64_t size_bytes) const;
  // Writes to the disk what is not there yet and takes the file out of the system's page cache, so
  // that the next read is a cold one.
  void drop_from_page_cache() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lacuna {

// Bytes from the system: zeros until they are written, aligned to 2 MiB from that size on, else to
// 4 KiB, so that large pieces may lie on huge pages. The system gives a page of memory only when it
// is first touched. Move-only owner.
class Memory {
 public:
  Memory() = default;
  // Throws Error naming the size where it is negative or the system refuses.
  explicit Memory(std::int64_t size_bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // The system gives all pages now, so that nothing waits for them later. They must be unwritten.
  void populate();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

// Pieces of large blocks of Memory, so that small ones lie on huge pages too. One user at a time.
class MemoryBlocks {
 public:
  // Zeros, aligned to 64 bytes. A block lives as long as a piece of it. Throws as Memory does.
  std::shared_ptr<std::byte> take(std::int64_t size_bytes);

 private:
  std::shared_ptr<Memory> block_;
  std::int64_t used_ = 0;
};

}  // namespace lacuna

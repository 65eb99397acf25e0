#include "lacuna/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

constexpr std::int64_t kSmallPage = 4096;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return ceil_div(value, unit) * unit;
}

std::byte* map(std::int64_t size_bytes) {
  void* const place = mmap(nullptr, static_cast<std::size_t>(size_bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return place == MAP_FAILED ? nullptr : static_cast<std::byte*>(place);
}

void unmap(std::byte* begin, std::int64_t size_bytes) {
  if (size_bytes > 0) munmap(begin, static_cast<std::size_t>(size_bytes));
}

// A mapping that begins at a multiple of 2 MiB: a larger one, cut on both sides.
std::byte* map_huge(std::int64_t size_bytes) {
  std::byte* const whole = map(size_bytes + kHugePage);
  if (whole == nullptr) return nullptr;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(whole) %
                                              static_cast<std::uintptr_t>(kHugePage));
  const std::int64_t skipped = past == 0 ? 0 : kHugePage - past;
  unmap(whole, skipped);
  unmap(whole + skipped + size_bytes, kHugePage - skipped);
  // Advice: where the system has no huge pages, small ones serve.
  madvise(whole + skipped, static_cast<std::size_t>(size_bytes), MADV_HUGEPAGE);
  return whole + skipped;
}

}  // namespace

Memory::Memory(std::int64_t size_bytes) : size_(size_bytes) {
  if (size_bytes < 0 || size_bytes > kMostBytes) {
    throw Error("size_bytes is " + std::to_string(size_bytes) + "; allowed: 0..2^46");
  }
  if (size_bytes == 0) return;
  const std::int64_t mapped = rounded_up(size_bytes, kSmallPage);
  data_ = size_bytes >= kHugePage ? map_huge(mapped) : map(mapped);
  if (data_ == nullptr) {
    throw Error("the system gives no " + std::to_string(size_bytes) + " bytes of memory");
  }
}

Memory::~Memory() { unmap(data_, rounded_up(size_, kSmallPage)); }

void Memory::populate() {
  for (std::int64_t at = 0; at < size_; at += kSmallPage) {
    *static_cast<volatile std::byte*>(data_ + at) = std::byte{};
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::shared_ptr<std::byte> MemoryBlocks::take(std::int64_t size_bytes) {
  constexpr std::int64_t kBlock = std::int64_t{64} << 20;
  constexpr std::int64_t kCacheLine = 64;
  if (block_ == nullptr || size_bytes > block_->size() - used_) {
    block_ = std::make_shared<Memory>(std::max(kBlock, size_bytes));
    used_ = 0;
  }
  std::byte* const piece = block_->data() + used_;
  used_ += std::min(rounded_up(size_bytes, kCacheLine), block_->size() - used_);
  return {block_, piece};
}

}  // namespace lacuna

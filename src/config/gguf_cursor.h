#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lacuna/error.h"

namespace lacuna::config {

// A checked reader over the bytes of a GGUF file: never past the end, never an unchecked size.
// Texts are views into the bytes. One mutator at a time.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::uint8_t> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  std::int64_t at() const { return at_; }
  std::int64_t left() const { return static_cast<std::int64_t>(bytes_.size()) - at_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: at byte {}: {:.240}", name_, at_, what));
  }

  std::uint8_t u8(std::string_view what) { return read<std::uint8_t>(what); }
  std::uint32_t u32(std::string_view what) { return read<std::uint32_t>(what); }
  std::uint64_t u64(std::string_view what) { return read<std::uint64_t>(what); }

  // A number of things of at least `least_bytes` each, which the bytes that are left can hold.
  std::int64_t count(std::int64_t least_bytes, const std::string& what) {
    const std::uint64_t number = u64(what);
    if (number > static_cast<std::uint64_t>(left() / least_bytes)) {
      fail(fmt::format("{} is {}: the {} bytes that are left cannot hold so many", what, number,
                       left()));
    }
    return static_cast<std::int64_t>(number);
  }

  // A text behind its 64-bit length.
  std::string_view text(std::int64_t max_bytes, std::string_view what) {
    const std::uint64_t length = u64(what);
    if (length > static_cast<std::uint64_t>(left())) {
      fail(fmt::format("{}: a text of {} bytes ends past the file", what, length));
    }
    if (length > static_cast<std::uint64_t>(max_bytes)) {
      fail(fmt::format("{}: a text of {} bytes; allowed are {}", what, length, max_bytes));
    }
    const auto* data = reinterpret_cast<const char*>(bytes_.data() + at_);
    at_ += static_cast<std::int64_t>(length);
    return {data, static_cast<std::size_t>(length)};
  }

  std::string magic() {
    if (left() < 4) fail("not a GGUF file: fewer than 4 bytes");
    const auto* data = reinterpret_cast<const char*>(bytes_.data());
    at_ += 4;
    return {data, 4};
  }

  // REQUIRES: bytes <= left().
  void skip(std::int64_t bytes) { at_ += bytes; }

 private:
  template <typename T>
  T read(std::string_view what) {
    if (left() < static_cast<std::int64_t>(sizeof(T))) {
      fail(fmt::format("{}: the file ends inside it", what));
    }
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += static_cast<std::int64_t>(sizeof(T));
    return value;
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  std::int64_t at_ = 0;
};

}  // namespace lacuna::config

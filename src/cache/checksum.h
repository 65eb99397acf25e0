#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lacuna {

// CRC-32 as zlib has it: of the bytes behind those that `before` is the checksum of.
inline std::int64_t checksum(std::span<const std::byte> bytes, std::int64_t before = 0) {
  return static_cast<std::int64_t>(::crc32_z(
      static_cast<uLong>(before), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace lacuna

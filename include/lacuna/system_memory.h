#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lacuna {

// Bytes of memory that the system says it can still give; nullopt where it does not say.
std::optional<std::int64_t> available_memory_bytes();
// The most that this process had in memory at a time.
std::int64_t peak_memory_bytes();
// Throws Error naming `what`, its bytes and those available where these are fewer.
void require_memory(std::int64_t size_bytes, std::string_view what);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lacuna {

// Where a measurement's inputs come from, so that another person can have the same ones.

// 64 hexadecimal digits.
std::string sha256(std::span<const std::uint8_t> bytes);

// Of an installed Debian package; nullopt where there is none, or no such system.
std::optional<std::string> package_version(const std::string& package,
                                           const std::string& status_file = "/var/lib/dpkg/status");

}  // namespace lacuna

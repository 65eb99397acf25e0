#include "lacuna/provenance.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>

#include "lacuna/error.h"

namespace lacuna {

std::string sha256(std::span<const std::uint8_t> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw Error("libcrypto has no SHA-256");
  }
  std::string text;
  for (unsigned int idx = 0; idx < size; ++idx) text += fmt::format("{:02x}", digest[idx]);
  return text;
}

// A paragraph a package, a field a line.
std::optional<std::string> package_version(const std::string& package,
                                           const std::string& status_file) {
  std::ifstream file(status_file);
  bool is_it = false;
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kVersion = "Version: ";
    if (line.empty()) is_it = false;
    if (line == "Package: " + package) is_it = true;
    if (is_it && line.starts_with(kVersion)) return line.substr(kVersion.size());
  }
  return {};
}

}  // namespace lacuna

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lacuna::model {

enum class Utf8Kind {
  kCharacter,
  kIncomplete,  // the text ends inside what may become a character
  kInvalid,     // no bytes after these make them a character
};

// What a text begins with. `size` of kInvalid is Unicode's maximal subpart: the bytes that one
// U+FFFD stands for.
struct Utf8Head {
  Utf8Kind kind = Utf8Kind::kIncomplete;
  std::size_t size = 0;
};

inline Utf8Head utf8_head(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (text.empty()) return {};
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::kCharacter, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Kind::kInvalid, 1};
  const std::size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Overlong forms, surrogates and what lies past U+10FFFF show in the second byte.
  std::uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  std::uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Kind::kInvalid, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Utf8Kind::kCharacter, size};
}

// The bytes at the beginning that are whole characters.
inline std::size_t utf8_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Head head = utf8_head(text.substr(at));
    if (head.kind != Utf8Kind::kCharacter) break;
    at += head.size;
  }
  return at;
}

}  // namespace lacuna::model

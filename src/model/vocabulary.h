#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lacuna/gguf.h"
#include "lacuna/tokenizer.h"

namespace lacuna::model {

// With their numbers in the file, which are SentencePiece's.
enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

enum class TokenizerFamily { kByteLevel, kSentencePiece };

constexpr TokenId kNoToken = -1;

// What a file's metadata say of its tokens, checked: pieces are UTF-8, not empty and unique; lists
// are as long as each other; ids are in range. Stays where it is: `ids` refers into `pieces`.
struct Vocabulary {
  Vocabulary(std::span<const std::uint8_t> bytes, const GgufHeader& header,
             const std::string& file);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::string file;
  TokenizerFamily family = TokenizerFamily::kByteLevel;
  std::string pre;                  // the pre-tokenizer's name; kByteLevel only
  std::vector<std::string> pieces;  // as in the file
  std::vector<PieceType> types;
  std::vector<float> scores;                          // finite; kSentencePiece only
  std::unordered_map<std::string_view, TokenId> ids;  // of pieces
  std::array<TokenId, 256> byte_ids{};                // kNoToken where a byte has no token
  std::optional<TokenId> beginning;
  std::optional<TokenId> end;
  std::vector<TokenId> ends;
  bool add_beginning = false;
  bool add_end = false;
  bool add_space_prefix = false;

  PieceType type(TokenId id) const { return types[static_cast<std::size_t>(id)]; }
  const std::string& piece(TokenId id) const { return pieces[static_cast<std::size_t>(id)]; }
  TokenId find(std::string_view piece) const;  // kNoToken where there is none
};

// Byte-level pieces write each byte as one visible character, as GPT-2 did.
const std::array<std::string, 256>& byte_level_characters();
// The bytes of such a piece; a character that stands for no byte stays as it is.
std::string byte_level_bytes(std::string_view piece);

// `from` replaced by `to` wherever it stands.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

constexpr std::string_view kVisibleSpace = "\u2581";  // what SentencePiece writes for a space

}  // namespace lacuna::model

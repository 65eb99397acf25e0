#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/gguf.h"
#include "lacuna/ranges.h"

namespace lacuna {

using TokenId = std::int32_t;

struct EncodeOptions {
  bool add_special = true;    // the beginning (and end) of text that the file asks for
  bool parse_special = true;  // texts of control tokens become those tokens; else they are text
  // Bytes of the text in which they stay text all the same, as what a user wrote in a chat.
  // Ascending; a control token's text that is partly in there is text.
  std::span<const Range> plain = {};
};

// Text to token ids and back, as a GGUF file's own metadata say: byte-pair encoding with the file's
// pre-tokenizer ("gpt2") or SentencePiece ("llama"). User-defined pieces are always found whole,
// the leftmost and of those the longest. Text is taken as it is: no Unicode normalization, also not
// the NFC that Qwen's own tokenizer does before it. Immutable; threads may share it.
class Tokenizer {
 public:
  // Metadata are hostile. Throws Error naming the file, the key, its value and what was allowed: an
  // unknown model or pre-tokenizer, lists of different lengths, merges of unknown pieces, an id out
  // of range, a piece that stands twice, a vocabulary without bytes. Keeps nothing of `bytes`.
  Tokenizer(std::span<const std::uint8_t> bytes, const GgufHeader& header, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Any bytes, 1 GiB at most, else throws Error. Those that are not UTF-8 go byte by byte. The
  // space that the file asks for stands before the text, not after a special token. A byte that has
  // no token is left out: SmolLM2 has none for some control characters and some that no
  // assigned character needs.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The bytes that a token stands for; control tokens stand for none unless `special`. Throws Error
  // where the id is out of range.
  std::string bytes_of(TokenId id, bool special = false) const;
  // All of them; SentencePiece's space before the text, where the file adds it, is taken off. Gives
  // back the text that was encoded, but for bytes that have no token and, with SentencePiece, for
  // U+2581, which is a space to it.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;

  std::int64_t vocab_size() const;
  std::optional<TokenId> beginning() const;  // of text, whether or not encode() adds it
  std::optional<TokenId> find(std::string_view piece) const;  // a token by its text in the file
  bool ends(TokenId id) const;                                // end of text, or of a turn

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Text out of tokens as they come: a character whose bytes are spread over tokens is held back
// until it is whole. Bytes that can be no character become U+FFFD. The text goes on from a prompt,
// so a space at its beginning stays. One user at a time; the tokenizer must outlive it.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool special = false);
  std::string push(TokenId id);  // what became whole
  std::string finish();          // what is left

 private:
  const Tokenizer* tokenizer_;
  bool special_ = false;
  std::string held_;
};

}  // namespace lacuna

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"

namespace lacuna::model {

// Google's SentencePiece library over a GGUF file's vocabulary. Immutable; threads may share it.
class SentencePieceEncoder {
 public:
  // Checks what the library would print or abort on. Throws Error naming the file and the key.
  explicit SentencePieceEncoder(const Vocabulary& vocabulary);
  ~SentencePieceEncoder();
  SentencePieceEncoder(SentencePieceEncoder&&) noexcept;

  // Appends the ids of the text as it is: no space is added, none taken off, nothing normalized.
  // REQUIRES: text is UTF-8; the library would replace other bytes.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace lacuna::model

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/vocabulary.h"

namespace lacuna::model {

// Byte-level byte-pair encoding. The pre-tokenizer's patterns cut the text into words; in a word,
// the pair of neighbours whose merge stands first in the file is joined, the leftmost one of equal
// ones, until no pair has a merge. Refers to the vocabulary. Immutable; threads may share it.
class BytePairEncoder {
 public:
  // Throws Error naming file and key where the pre-tokenizer is unknown or a merge is wrong.
  BytePairEncoder(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges);
  ~BytePairEncoder();
  BytePairEncoder(BytePairEncoder&&) noexcept;

  // Appends the ids. REQUIRES: text is UTF-8. A byte that has no token is left out.
  void encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  class Pattern;
  struct Merge {
    std::int32_t rank;
    TokenId id;  // of the pair
  };
  struct Word;

  void read_merges(const std::vector<std::string_view>& merges);
  void cut(std::string_view text, std::size_t pattern_idx, Word& word) const;
  void encode_word(std::string_view text, Word& word) const;
  void merge(Word& word) const;
  void push_pair(Word& word, std::int32_t left) const;

  const Vocabulary* vocabulary_;
  std::vector<Pattern> patterns_;  // each cuts what those before it left
  bool whole_words_ = false;       // a word that is a token is that token, whatever the merges say
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the ids of the pair
};

}  // namespace lacuna::model

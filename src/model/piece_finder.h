#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lacuna/tokenizer.h"

namespace lacuna::model {

// Finds pieces that stand whole in a text: the leftmost, and of those that begin at one place the
// longest. Refers to the pieces' texts, which must outlive it. Immutable; threads may share it.
class PieceFinder {
 public:
  // Texts are not empty and unique.
  explicit PieceFinder(std::vector<std::pair<std::string_view, TokenId>> pieces);

  struct Found {
    TokenId id;
    std::size_t begin;
    std::size_t end;
  };
  std::optional<Found> next(std::string_view text, std::size_t from) const;

 private:
  std::optional<Found> longest_at(std::string_view text, std::size_t begin) const;

  std::vector<std::pair<std::string_view, TokenId>> pieces_;  // sorted
  std::array<bool, 256> begins_{};                            // may a piece begin with this byte?
};

}  // namespace lacuna::model

#include "model/piece_finder.h"

#include <algorithm>
#include <cstdint>

namespace lacuna::model {

PieceFinder::PieceFinder(std::vector<std::pair<std::string_view, TokenId>> pieces)
    : pieces_(std::move(pieces)) {
  std::sort(pieces_.begin(), pieces_.end());
  for (const auto& [text, id] : pieces_) begins_[static_cast<std::uint8_t>(text[0])] = true;
}

std::optional<PieceFinder::Found> PieceFinder::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<std::uint8_t>(text[at])]) continue;
    if (auto found = longest_at(text, at)) return found;
  }
  return std::nullopt;
}

// Narrows the sorted pieces byte by byte to those that agree with the text so far; one that ends
// there stands before all that go on.
std::optional<PieceFinder::Found> PieceFinder::longest_at(std::string_view text,
                                                          std::size_t begin) const {
  auto low = pieces_.begin();
  auto high = pieces_.end();
  std::optional<Found> found;
  for (std::size_t depth = 0; low != high; ++depth) {
    if (low->first.size() == depth) {
      found = Found{low->second, begin, begin + depth};
      ++low;
    }
    if (begin + depth == text.size()) break;
    const auto byte = static_cast<std::uint8_t>(text[begin + depth]);
    const auto at_depth = [depth](const auto& piece) {
      return static_cast<std::uint8_t>(piece.first[depth]);
    };
    low = std::partition_point(low, high, [&](const auto& p) { return at_depth(p) < byte; });
    high = std::partition_point(low, high, [&](const auto& p) { return at_depth(p) == byte; });
  }
  return found;
}

}  // namespace lacuna::model

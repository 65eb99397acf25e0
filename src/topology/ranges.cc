#include "lacuna/ranges.h"

#include <algorithm>
#include <cstddef>

#include "lacuna/integer.h"

namespace lacuna {

Ranges::Ranges(std::vector<Range> parts) : parts_(std::move(parts)) {
  std::erase_if(parts_, [](const Range& part) { return part.begin >= part.end; });
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(parts_.begin(), parts_.end(), by_begin)) {
    std::sort(parts_.begin(), parts_.end(), by_begin);
  }
  std::size_t kept = 0;
  for (const Range& part : parts_) {
    if (kept > 0 && part.begin <= parts_[kept - 1].end) {
      parts_[kept - 1].end = std::max(parts_[kept - 1].end, part.end);
    } else {
      parts_[kept++] = part;
    }
  }
  parts_.resize(kept);
}

std::int64_t Ranges::size() const {
  std::int64_t total = 0;
  for (const Range& part : parts_) total += part.end - part.begin;
  return total;
}

bool Ranges::contains(std::int64_t position) const { return covers({position, position + 1}); }

bool Ranges::covers(Range part) const {
  if (part.begin >= part.end) return true;
  const auto after = std::upper_bound(
      parts_.begin(), parts_.end(), part.begin,
      [](std::int64_t position, const Range& candidate) { return position < candidate.begin; });
  return after != parts_.begin() && std::prev(after)->end >= part.end;
}

void KeyRanges::append_row(const Ranges& keys) {
  ranges.insert(ranges.end(), keys.begin(), keys.end());
  indptr.push_back(static_cast<std::int64_t>(ranges.size()));
}

Ranges unite(const Ranges& a, const Ranges& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::vector<Range> parts(a.parts().size() + b.parts().size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), parts.begin(),
             [](const Range& x, const Range& y) { return x.begin < y.begin; });
  return Ranges(std::move(parts));
}

Ranges intersect(const Ranges& a, const Ranges& b) {
  std::vector<Range> parts;
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() && y != b.end()) {
    const Range common = {std::max(x->begin, y->begin), std::min(x->end, y->end)};
    if (common.begin < common.end) parts.push_back(common);
    if (x->end < y->end) {
      ++x;
    } else {
      ++y;
    }
  }
  return Ranges(std::move(parts));
}

Ranges subtract(const Ranges& a, const Ranges& b) {
  std::vector<Range> parts;
  auto hole = b.begin();
  for (Range rest : a) {
    while (hole != b.end() && hole->end <= rest.begin) ++hole;
    for (auto cut = hole; cut != b.end() && cut->begin < rest.end; ++cut) {
      if (rest.begin < cut->begin) parts.push_back({rest.begin, cut->begin});
      rest.begin = std::max(rest.begin, cut->end);
    }
    if (rest.begin < rest.end) parts.push_back(rest);
  }
  return Ranges(std::move(parts));
}

Ranges clip(const Ranges& a, Range window) { return intersect(a, Ranges{window}); }

Ranges tiles_touched(const Ranges& a, std::int64_t tile) {
  std::vector<Range> tiles;
  tiles.reserve(a.parts().size());
  for (const Range& part : a) {
    tiles.push_back({floor_div(part.begin, tile), floor_div(part.end - 1, tile) + 1});
  }
  return Ranges(std::move(tiles));
}

}  // namespace lacuna

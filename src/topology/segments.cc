#include "lacuna/segments.h"

#include <algorithm>

#include "lacuna/error.h"

namespace lacuna {

Segments::Segments(std::span<const std::int64_t> lengths) : indptr_{0} {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > kMostTokens - indptr_.back()) {
      throw Error("length of segment " + std::to_string(num_segments()) + " is " +
                  std::to_string(length) + "; allowed: 0.." +
                  std::to_string(kMostTokens - indptr_.back()));
    }
    indptr_.push_back(indptr_.back() + length);
  }
}

std::int64_t Segments::segment_of(std::int64_t position) const {
  if (position < 0 || position >= num_tokens()) {
    throw Error("packed position is " + std::to_string(position) + "; allowed: 0.." +
                std::to_string(num_tokens() - 1));
  }
  return std::upper_bound(indptr_.begin(), indptr_.end(), position) - indptr_.begin() - 1;
}

Ranges Segments::row(const Topology& topology, std::int64_t query) const {
  const auto segment = static_cast<std::size_t>(segment_of(query));
  const std::int64_t first = indptr_[segment];
  std::vector<Range> keys;
  for (const Range& part : topology.row(query - first, indptr_[segment + 1] - first)) {
    keys.push_back({part.begin + first, part.end + first});
  }
  return Ranges(std::move(keys));
}

KeyRanges Segments::key_ranges(const Topology& topology, std::int64_t q_begin,
                               std::int64_t q_end) const {
  KeyRanges result;
  for (std::int64_t query = q_begin; query < q_end; ++query) {
    result.append_row(row(topology, query));
  }
  return result;
}

Int128 Segments::edges(const Topology& topology) const {
  Int128 sum = 0;
  for (std::size_t s = 0; s + 1 < indptr_.size(); ++s) {
    sum = checked_add(sum, topology.edges(indptr_[s + 1] - indptr_[s]));
  }
  return sum;
}

}  // namespace lacuna

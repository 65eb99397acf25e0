#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

// The one exception type at public borders: a caller's or a file's mistake.
// The message is one line: what was wrong, the value, what was allowed.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The candidate nearest to `word` by edit distance, or "" where none is close enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean 'X'?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lacuna

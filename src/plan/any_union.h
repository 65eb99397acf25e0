#pragma once

// For tests: unions of the vocabulary's terms for rapidcheck, with sizes below and above a tile's.

#include <rapidcheck.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/attend.h"

namespace lacuna::any_union {

// A term's text with N for sizes of 1 .. 40 and Z for 0 .. 40.
inline const std::vector<std::string>& terms(bool causal, bool irregular) {
  static const std::vector<std::string> kBoth = {"full",
                                                 "sink(N)",
                                                 "dilated(N,N)",
                                                 "chunk(N)",
                                                 "global(first=N)",
                                                 "global(every=N)",
                                                 "global(Z,60,61,99)"};
  static const std::vector<std::string> kCausal = {"window(N)",
                                                   "window(N)",
                                                   "strided(N)",
                                                   "fixed(40,N)",
                                                   "topk(N)",
                                                   "topk_blocks(2,N,0,1)",
                                                   "vertical_blocks(N,2,3,1)",
                                                   "window_blocks(Z,0,N)"};
  static const std::vector<std::string> kBidirectional = {"window(Z,Z)", "window(Z,Z)",
                                                          "window_blocks(1,2,N)", "global(last=N)"};
  static const std::vector<std::string> kIrregular = {"random(N,7)", "random_blocks(2,N,7)",
                                                      "random_blocks(2,N,7,outside=window)"};
  static const auto joined = [](const auto&... lists) {
    std::vector<std::string> all;
    (all.insert(all.end(), lists.begin(), lists.end()), ...);
    return all;
  };
  static const std::vector<std::string> kOfDirection[2][2] = {
      {joined(kBoth, kBidirectional), joined(kBoth, kBidirectional, kIrregular)},
      {joined(kBoth, kCausal), joined(kBoth, kCausal, kIrregular)}};
  return kOfDirection[causal ? 1 : 0][irregular ? 1 : 0];
}

// From the whole range from the first case on: rapidcheck begins with small ones, which show
// little.
inline std::int64_t number(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
}

// Text of a union of 1 .. 3 terms.
inline std::string text(bool causal, bool irregular) {
  std::string out;
  for (std::int64_t left = number(1, 3); left > 0; --left) {
    for (const char letter : *rc::gen::elementOf(terms(causal, irregular))) {
      if (letter == 'N' || letter == 'Z') {
        out += std::to_string(number(letter == 'N' ? 1 : 0, 40));
      } else {
        out += letter;
      }
    }
    if (left > 1) out += "+";
  }
  return out;
}

inline Union parsed(const std::string& text, bool causal) {
  return parse_attend(text, causal).groups.front().attend;
}

}  // namespace lacuna::any_union

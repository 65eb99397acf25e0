#pragma once

#include <string_view>

namespace lacuna::config {

// Why no figure depends on a key although its name sounds as if (trap 14), or "" where the key is
// not known to be neutral. A neutral key that holds an object is neutral with all that is in it.
std::string_view neutral_reason(std::string_view key);

inline bool is_neutral(std::string_view key) { return !neutral_reason(key).empty(); }

}  // namespace lacuna::config

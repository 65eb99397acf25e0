#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/options.h"
#include "lacuna/integer.h"

namespace lacuna::cli {

using Json = nlohmann::ordered_json;

// Integers above 2^63-1 are decimal strings, so that no reader rounds them.
inline Json json_of(Int128 value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (value > kMost || value < -kMost) return to_string(value);
  return static_cast<std::int64_t>(value);
}

template <typename Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}
template <>
inline Json json_of(const std::optional<Int128>& value) {
  return value ? json_of(*value) : Json(nullptr);
}

// What every document says of its subject.
Json subject_json(const Subject& subject);

}  // namespace lacuna::cli

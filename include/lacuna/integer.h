#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lacuna {

// Counts of pairs and FLOPs exceed 64 bits at lengths near 2^40; they are kept in 128 bits.
// A value that exceeds even these is an Error, never a wrapped number.
__extension__ typedef __int128 Int128;

// Checked arithmetic: throw Error("<what> overflows 128 bits"-like) rather than wrap.
Int128 checked_add(Int128 a, Int128 b);
Int128 checked_mul(Int128 a, Int128 b);
std::int64_t checked_add64(std::int64_t a, std::int64_t b);
std::int64_t checked_mul64(std::int64_t a, std::int64_t b);

// The value as 64 bits; throws Error naming `what` where it does not fit.
std::int64_t to_int64(Int128 value, std::string_view what);

// Decimal text of a 128-bit value.
std::string to_string(Int128 value);

// Whole number in decimal digits, optional leading '-', range [min, max]; throws Error naming
// `what`, the text and the allowed range. No other characters, no exponent, no silent truncation.
std::int64_t parse_int64(std::string_view text, std::string_view what, std::int64_t min,
                         std::int64_t max);

// ceil(a / b) and floor division for b > 0; a may be negative in floor_div.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace lacuna

#include "lacuna/integer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "lacuna/error.h"

namespace lacuna {

Int128 checked_add(Int128 a, Int128 b) {
  Int128 sum;
  if (__builtin_add_overflow(a, b, &sum)) throw Error("a count exceeds 128 bits");
  return sum;
}

Int128 checked_mul(Int128 a, Int128 b) {
  Int128 product;
  if (__builtin_mul_overflow(a, b, &product)) throw Error("a count exceeds 128 bits");
  return product;
}

std::int64_t checked_add64(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw Error("a size exceeds 64 bits");
  return sum;
}

std::int64_t checked_mul64(std::int64_t a, std::int64_t b) {
  std::int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw Error("a size exceeds 64 bits");
  return product;
}

std::int64_t to_int64(Int128 value, std::string_view what) {
  if (value < std::numeric_limits<std::int64_t>::min() ||
      value > std::numeric_limits<std::int64_t>::max()) {
    throw Error(std::string(what) + " is " + to_string(value) + "; allowed: 64-bit integers");
  }
  return static_cast<std::int64_t>(value);
}

std::string to_string(Int128 value) {
  // The magnitude is taken unsigned: -2^127 has no positive counterpart.
  __extension__ typedef unsigned __int128 Magnitude;
  Magnitude rest =
      value < 0 ? Magnitude{0} - static_cast<Magnitude>(value) : static_cast<Magnitude>(value);
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
    rest /= 10;
  } while (rest > 0);
  return value < 0 ? "-" + digits : digits;
}

std::int64_t parse_int64(std::string_view text, std::string_view what, std::int64_t min,
                         std::int64_t max) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end || value < min || value > max) {
    std::string shown(text);
    std::replace(shown.begin(), shown.end(), '\0', '?');  // a message ends at its first NUL
    throw Error(std::string(what) + " is '" + shown + "'; allowed: whole numbers " +
                std::to_string(min) + ".." + std::to_string(max));
  }
  return value;
}

}  // namespace lacuna

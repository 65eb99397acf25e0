#include "lacuna/quantity.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace lacuna {
namespace {

__extension__ typedef unsigned __int128 Magnitude;

constexpr const char* kDecimalPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
constexpr const char* kBinaryPrefixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"};

// Unsigned: −2^127 has no positive counterpart.
Magnitude magnitude_of(Int128 value) {
  return value < 0 ? Magnitude{0} - static_cast<Magnitude>(value) : static_cast<Magnitude>(value);
}

std::string grouped(const std::string& digits) {
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  std::string text;
  for (std::size_t idx = 0; idx < digits.size(); ++idx) {
    if (idx > first && (digits.size() - idx) % 3 == 0) text += ',';
    text += digits[idx];
  }
  return text;
}

// value / base^k with two decimals, its prefix and unit. In integers: a count of 128 bits is exact
// to the last digit shown.
std::string scaled_text(Int128 value, int base, const char* const (&prefixes)[9],
                        std::string_view unit) {
  const Magnitude magnitude = magnitude_of(value);
  const char* const sign = value < 0 ? "-" : "";
  const auto number_base = static_cast<Magnitude>(base);
  if (magnitude < number_base) {
    return fmt::format("{}{} {}", sign, static_cast<int>(magnitude), unit);
  }
  Magnitude scale = 1;
  std::size_t prefix_idx = 0;
  const auto hundredths = [&] {
    return magnitude / scale * 100 + (magnitude % scale * 100 + scale / 2) / scale;
  };
  // Compared after rounding: 999999 is "1.00 M", not "1000.00 k".
  do {
    scale *= number_base;
    ++prefix_idx;
  } while (prefix_idx + 1 < std::size(prefixes) && hundredths() >= number_base * 100);
  const Magnitude shown = hundredths();
  return fmt::format("{}{}.{:02} {}{}", sign, grouped(to_string(static_cast<Int128>(shown / 100))),
                     static_cast<int>(shown % 100), prefixes[prefix_idx], unit);
}

}  // namespace

std::string count_text(Int128 count, Grouping grouping) {
  return grouping == Grouping::kThousands ? grouped(to_string(count)) : to_string(count);
}

std::string bytes_text(Int128 bytes) {
  const std::string decimal = scaled_text(bytes, 1000, kDecimalPrefixes, "B");
  if (magnitude_of(bytes) < 1000) return decimal;
  return decimal + " (" + scaled_text(bytes, 1024, kBinaryPrefixes, "B") + ")";
}

std::string si_text(Int128 count, std::string_view unit) {
  return scaled_text(count, 1000, kDecimalPrefixes, unit);
}

std::string flops_text(Int128 flops) { return si_text(flops, "FLOP"); }

std::string rate_text(double per_s, std::string_view unit) {
  double scaled = per_s;
  std::size_t prefix_idx = 0;
  while (std::isfinite(scaled) && prefix_idx + 1 < std::size(kDecimalPrefixes) &&
         std::abs(scaled) >= 999.995) {
    scaled /= 1000;
    ++prefix_idx;
  }
  return fmt::format("{:.2f} {}{}", scaled, kDecimalPrefixes[prefix_idx], unit);
}

std::string seconds_text(double seconds) {
  struct Unit {
    double per_second;
    const char* name;
  };
  if (seconds == 0) return "0 s";
  constexpr Unit kUnits[] = {{1, "s"}, {1e3, "ms"}, {1e6, "µs"}, {1e9, "ns"}};
  for (const Unit& unit : kUnits) {
    const double scaled = seconds * unit.per_second;
    // 0.99999 s is "1.00 s", not "1000.00 ms".
    if (std::abs(scaled) >= 0.999995 || unit.per_second == 1e9 || !std::isfinite(scaled)) {
      return fmt::format("{:.2f} {}", scaled, unit.name);
    }
  }
  return {};
}

std::string ratio_text(double ratio, std::string_view denominator) {
  return fmt::format("{:.2f}× {}", ratio, denominator);
}

std::string percent_text(double fraction, std::string_view denominator) {
  return fmt::format("{:.2f} % of {}", fraction * 100, denominator);
}

}  // namespace lacuna

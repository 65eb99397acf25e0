#pragma once

#include <cstdint>
#include <numeric>
#include <optional>

#include "lacuna/integer.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"
#include "topology/terms.h"

namespace lacuna {

// Least common multiple, or nullopt past 2^40: a longer period shortens no sum that is feasible at
// all.
inline std::optional<std::int64_t> common_period(std::optional<std::int64_t> a, std::int64_t b) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 40;
  if (!a || b > kLongest || *a / std::gcd(*a, b) > kLongest / b) return std::nullopt;
  return *a / std::gcd(*a, b) * b;
}

// Where a sum over rows may be taken in closed form.
struct RegularZone {
  std::int64_t period = 1;  // rows
  Range rows;               // the rows that repeat with it
};

// The zone of a segment of `length` tokens; nullopt where rows must be counted one by one.
std::optional<RegularZone> regular_zone(const Topology& topology, std::int64_t length);

// Throws Error where rows or tile sides are out of range.
void require_tiles(Range rows, std::int64_t length, Tile tile);

// The same for sums over query tiles: in whole multiples of both tile sides.
std::optional<RegularZone> regular_zone(const Topology& topology, std::int64_t length, Tile tile);

inline Int128 checked_scale(Int128 value, Int128 factor) { return checked_mul(value, factor); }

// Throws Error where rows without a period are too many to be counted one by one.
void require_countable(Range rows);

// Σ over `rows` of a quantity that, in the regular zone, grows by a fixed amount with each period:
// value(row + period) - value(row) is the same for every period. `direct(begin, end)` sums rows one
// by one; it is asked for a few periods at the zone's start instead of for the whole of it. Value
// needs +, - and checked_scale(value, Int128). REQUIRES: direct(a, b) + direct(b, c) = direct(a, c)
// where b - a is a multiple of the unit that `period` is a multiple of.
template <typename Value, typename Direct>
Value periodic_sum(Range rows, const std::optional<RegularZone>& zone, const Direct& direct) {
  if (!zone) {
    require_countable(rows);
    return direct(rows.begin, rows.end);
  }
  const std::int64_t period = zone->period;
  const std::int64_t begin =
      rows.begin >= zone->rows.begin
          ? rows.begin
          : rows.begin + ceil_div(zone->rows.begin - rows.begin, period) * period;
  // Rows past the zone are summed from a whole number of periods on, so that no unit is cut.
  const std::int64_t end = rows.end <= zone->rows.end
                               ? rows.end
                               : begin + floor_div(zone->rows.end - begin, period) * period;
  // Two base periods must fit the zone. A short stretch near its start is as cheap row by row.
  const std::int64_t base = zone->rows.begin + (begin - zone->rows.begin) % period;
  if (begin >= end || zone->rows.end - base < 2 * period ||
      (begin == base && end - begin <= 2 * period)) {
    return direct(rows.begin, rows.end);
  }
  const Int128 skipped = (begin - base) / period;
  const Int128 whole = (end - begin) / period;
  const std::int64_t rest = (end - begin) % period;
  // Σ_{k < count} (first + (skipped + k) · growth)
  const auto grown = [&](std::int64_t length, Int128 first_step, Int128 count) {
    const Value first = direct(base, base + length);
    const Value growth = direct(base + period, base + period + length) - first;
    const Int128 steps = checked_add(checked_mul(first_step, count), count * (count - 1) / 2);
    return checked_scale(first, count) + checked_scale(growth, steps);
  };
  Value sum = direct(rows.begin, begin);
  if (whole > 0) sum = sum + grown(period, skipped, whole);
  // The last, shorter period: its rows stand `skipped + whole` periods past the base's.
  const std::int64_t done = begin + static_cast<std::int64_t>(whole) * period;
  if (rest > 0) sum = sum + grown(rest, skipped + whole, 1);
  return sum + direct(done + rest, rows.end);
}

}  // namespace lacuna

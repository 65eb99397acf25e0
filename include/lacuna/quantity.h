#pragma once

#include <string>
#include <string_view>

#include "lacuna/integer.h"

namespace lacuna {

// Numbers with their units as people read them. Every function is pure, thread-safe and independent
// of the locale; scaled numbers have two decimals, rounded half away from zero. The exact integer
// is what JSON carries; these texts are for tables.

// What stands where a figure does not exist: never a 0.
inline constexpr std::string_view kNoFigure = "–";

enum class Grouping { kNone, kThousands };

// "33030656", or "33,030,656" with kThousands.
std::string count_text(Int128 count, Grouping grouping = Grouping::kNone);

// "512 B"; from 1000 on, where they differ, decimal and binary: "108.53 MB (103.50 MiB)".
std::string bytes_text(Int128 bytes);

// The whole count with an SI prefix: si_text(1500000, "FLOP") is "1.50 MFLOP"; below 1000 "640
// FLOP".
std::string si_text(Int128 count, std::string_view unit);
std::string flops_text(Int128 flops);  // unit "FLOP"

// A rate with an SI prefix: "25.70 GB/s", "117.40 GFLOP/s". Not finite: "nan", "inf" and the unit.
std::string rate_text(double per_s, std::string_view unit);

// Seconds in the fitting one of ns, µs, ms, s: "1.23 ms", "0 s".
std::string seconds_text(double seconds);

// A ratio names its denominator: "16.25× dense", "12.50 % of dense".
std::string ratio_text(double ratio, std::string_view denominator);
std::string percent_text(double fraction, std::string_view denominator);

}  // namespace lacuna

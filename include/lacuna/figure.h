#pragma once

#include <string_view>

namespace lacuna {

// Every figure of a report carries its kind.
enum class FigureKind {
  kExact,     // counted
  kModel,     // a formula with named inputs
  kMeasured,  // timed or read from a running system, with its statistics
  kEstimate,  // anything weaker
};

// "exact", "model", "measured", "estimate".
std::string_view to_string(FigureKind kind);

// The kind of that name. Throws Error naming the text, the four names and a near miss.
FigureKind parse_figure_kind(std::string_view text);

}  // namespace lacuna

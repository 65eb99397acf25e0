#include "lacuna/figure.h"

#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr FigureKind kKinds[] = {FigureKind::kExact, FigureKind::kModel, FigureKind::kMeasured,
                                 FigureKind::kEstimate};

}  // namespace

std::string_view to_string(FigureKind kind) {
  switch (kind) {
    case FigureKind::kExact:
      return "exact";
    case FigureKind::kModel:
      return "model";
    case FigureKind::kMeasured:
      return "measured";
    case FigureKind::kEstimate:
      break;
  }
  return "estimate";
}

FigureKind parse_figure_kind(std::string_view text) {
  std::vector<std::string> names;
  for (const FigureKind kind : kKinds) {
    if (to_string(kind) == text) return kind;
    names.emplace_back(to_string(kind));
  }
  throw Error("kind is '" + std::string(text.substr(0, 64)) +
              "'; allowed: exact, model, measured, estimate" + did_you_mean(text, names));
}

}  // namespace lacuna

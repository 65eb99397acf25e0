#include "lacuna/figure.h"

#include <gtest/gtest.h>

#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(FigureKind, EveryNameReadsBackAsItsKind) {
  for (const FigureKind kind :
       {FigureKind::kExact, FigureKind::kModel, FigureKind::kMeasured, FigureKind::kEstimate}) {
    EXPECT_EQ(parse_figure_kind(to_string(kind)), kind);
  }
}

TEST(FigureKind, UnknownNameIsAnErrorWithANearMiss) {
  try {
    parse_figure_kind("mesured");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "kind is 'mesured'; allowed: exact, model, measured, estimate; did you mean "
                 "'measured'?");
  }
}

}  // namespace
}  // namespace lacuna

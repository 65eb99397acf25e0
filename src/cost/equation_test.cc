#include "lacuna/equation.h"

#include <gtest/gtest.h>

#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr Int128 kMax128 = (((Int128{1} << 126) - 1) << 1) + 1;

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EquationText, ShowsSymbolsNumbersAndValue) {
  const Equation edges("E", 10);
  const Equation heads("H", 1);
  const Equation dim("d_h", 2);
  EXPECT_EQ((4 * edges * heads * dim).text("pair_flops"), "pair_flops = 4·E·H·d_h = 4·10·1·2 = 80");
  const Equation value("d_v", 2);
  EXPECT_EQ((2 * edges * heads * dim + 2 * edges * heads * value).text("pair_flops"),
            "pair_flops = 2·E·H·d_h + 2·E·H·d_v = 2·10·1·2 + 2·10·1·2 = 80");
}

TEST(EquationText, LeavesEqualNeighboursOut) {
  EXPECT_EQ(Equation(7).text("x"), "x = 7");
  EXPECT_EQ(Equation("n", 7).text("x"), "x = n = 7");
  EXPECT_EQ(Equation("n", 7).text("n"), "n = 7");
}

TEST(EquationText, HasBracketsOnlyWhereDue) {
  const Equation a("a", 2);
  const Equation b("b", 3);
  const Equation c("c", 5);
  EXPECT_EQ(((a + b) * c).text("x"), "x = (a + b)·c = (2 + 3)·5 = 25");
  EXPECT_EQ((a * b + c).text("x"), "x = a·b + c = 2·3 + 5 = 11");
  EXPECT_EQ((a + (b + c)).text("x"), "x = a + b + c = 2 + 3 + 5 = 10");
  EXPECT_EQ((a - (b - c)).text("x"), "x = a - (b - c) = 2 - (3 - 5) = 4");
  EXPECT_EQ((a - b - c).text("x"), "x = a - b - c = 2 - 3 - 5 = -6");
  EXPECT_EQ((a - b * c).text("x"), "x = a - b·c = 2 - 3·5 = -13");
  EXPECT_EQ((a * (b * c)).text("x"), "x = a·b·c = 2·3·5 = 30");
  EXPECT_EQ((min(a + b, c) * a).text("x"), "x = min(a + b, c)·a = min(2 + 3, 5)·2 = 10");
}

TEST(EquationText, PutsNegativeNumbersInBrackets) {
  const Equation a("a", -2);
  const Equation b("b", 3);
  EXPECT_EQ((b + a).text("x"), "x = b + a = 3 + (-2) = 1");
  EXPECT_EQ((b - a).text("x"), "x = b - a = 3 - (-2) = 5");
  EXPECT_EQ((a * b).text("x"), "x = a·b = (-2)·3 = -6");
  EXPECT_EQ((b + -3).text("x"), "x = b + (-3) = 3 + (-3) = 0");
}

TEST(EquationText, DropsNeutralLiteralsButNotNamedOnes) {
  const Equation a("a", 2);
  EXPECT_EQ((1 * a * 1).text("x"), "x = a = 2");
  EXPECT_EQ((a + 0).text("x"), "x = a = 2");
  EXPECT_EQ((0 + a - 0).text("x"), "x = a = 2");
  EXPECT_EQ((Equation("m", 1) * a).text("x"), "x = m·a = 1·2 = 2");
  EXPECT_EQ((Equation(2) * 3 * a).text("x"), "x = 6·a = 6·2 = 12");
}

TEST(EquationDivision, RoundsAsItSays) {
  const Equation a("a", 7);
  const Equation b("b", 2);
  EXPECT_EQ(ceil_div(a, b).text("x"), "x = ⌈a/b⌉ = ⌈7/2⌉ = 4");
  EXPECT_EQ(floor_div(a, b).text("x"), "x = ⌊a/b⌋ = ⌊7/2⌋ = 3");
  EXPECT_EQ(ceil_div(a + b, b * b).text("x"), "x = ⌈(a + b)/(b·b)⌉ = ⌈(7 + 2)/(2·2)⌉ = 3");
  EXPECT_EQ(floor_div(a - 8, b).value(), -1);
  EXPECT_EQ(ceil_div(a - 8, b).value(), 0);
  EXPECT_EQ(exact_div(a * (a + 1), b).text("x"), "x = a·(a + 1)/b = 7·(7 + 1)/2 = 28");
  EXPECT_EQ(exact_div(a, 1).text("x"), "x = a = 7");
}

TEST(EquationDivision, RefusesWhatHasNoExactAnswer) {
  EXPECT_EQ(message_of([] { ceil_div(Equation(7), 0); }), "a divisor is 0; allowed: 1 and above");
  EXPECT_EQ(message_of([] { floor_div(Equation(7), -2); }),
            "a divisor is -2; allowed: 1 and above");
  EXPECT_EQ(message_of([] { exact_div(Equation(7), 0); }), "a divisor is 0; allowed: 1 and above");
  EXPECT_EQ(message_of([] { exact_div(Equation(7), 2); }),
            "7 is divided by 2; allowed: its multiples");
}

TEST(EquationExtremes, TakeTheSmallerAndTheLarger) {
  const Equation a("a", 7);
  const Equation b("b", 2);
  EXPECT_EQ(min(a, b).value(), 2);
  EXPECT_EQ(max(a, b).text("x"), "x = max(a, b) = max(7, 2) = 7");
}

TEST(EquationNamed, HidesTheDerivation) {
  const Equation edges = exact_div(Equation("n", 4) * (Equation("n", 4) + 1), 2);
  EXPECT_EQ((4 * edges.named("E")).text("flops"), "flops = 4·E = 4·10 = 40");
}

TEST(EquationOverflow, IsAnErrorAndNeverAWrappedNumber) {
  const Equation most("x", kMax128);
  EXPECT_EQ(message_of([&] { most + 1; }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([&] { most * 2; }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([&] { Equation(-2) - most; }), "a count exceeds 128 bits");
  EXPECT_EQ((most - most).value(), 0);
}

}  // namespace
}  // namespace lacuna

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lacuna/integer.h"

namespace lacuna {

// An exact integer that knows how it was computed, so that every figure can print its equation with
// the values put in, and the printed equation cannot differ from the number. A plain value.
//
//   Equation edges("E", 10), heads("H", 1), dim("d_h", 2);
//   (4 * edges * heads * dim).text("pair_flops")
//     == "pair_flops = 4·E·H·d_h = 4·10·1·2 = 80"
class Equation {
 public:
  Equation() : Equation(Int128{0}) {}
  // A literal constant of a formula.
  Equation(Int128 literal);  // NOLINT: constants stand in formulas as they are
  Equation(int literal) : Equation(Int128{literal}) {}           // NOLINT
  Equation(std::int64_t literal) : Equation(Int128{literal}) {}  // NOLINT
  // A named input, or a named intermediate result whose own derivation is printed elsewhere.
  Equation(std::string symbol, Int128 value);

  Int128 value() const { return value_; }
  const std::string& symbols() const { return symbols_; }  // "4·E·H·d_h"
  const std::string& numbers() const { return numbers_; }  // "4·10·1·2"
  // "name = symbols = numbers = value", with equal neighbours left out.
  std::string text(std::string_view name) const;
  // The same number under a name of its own.
  Equation named(std::string symbol) const { return Equation(std::move(symbol), value_); }

  // Checked: throw Error where 128 bits do not hold the result.
  friend Equation operator+(const Equation& a, const Equation& b);
  friend Equation operator-(const Equation& a, const Equation& b);
  friend Equation operator*(const Equation& a, const Equation& b);
  // ceil(a / b), floor(a / b), min, max, and a / b where b divides a. Throw Error where b <= 0, and
  // exact_div where there is a rest.
  friend Equation ceil_div(const Equation& a, const Equation& b);
  friend Equation floor_div(const Equation& a, const Equation& b);
  friend Equation exact_div(const Equation& a, const Equation& b);
  friend Equation min(const Equation& a, const Equation& b);
  friend Equation max(const Equation& a, const Equation& b);

 private:
  Equation(Int128 value, std::string symbols, std::string numbers, int binding);
  static Equation call(std::string_view function, Int128 value, const Equation& a,
                       const Equation& b);
  static Equation rounded(std::string_view open, std::string_view close, Int128 value,
                          const Equation& a, const Equation& b);
  bool is_literal(Int128 literal) const { return literal_ && value_ == literal; }
  std::string bound_symbols(int at_least) const;
  std::string bound_numbers(int at_least) const;

  Int128 value_ = 0;
  std::string symbols_;
  std::string numbers_;
  int binding_ = 2;       // 0 sum, 1 product, 2 atom: where brackets are due
  bool literal_ = false;  // a constant of the formula, not a named value
};

}  // namespace lacuna

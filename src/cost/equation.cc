#include "lacuna/equation.h"

#include <algorithm>
#include <utility>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr int kSum = 0;
constexpr int kProduct = 1;
constexpr int kAtom = 2;

void require_divisor(const Equation& divisor) {
  if (divisor.value() > 0) return;
  throw Error("a divisor is " + to_string(divisor.value()) + "; allowed: 1 and above");
}

Int128 floor_quotient(Int128 a, Int128 b) { return a / b - (a % b < 0 ? 1 : 0); }

// A minus sign never stands right behind an operator.
std::string bracketed(const std::string& text, bool due) {
  return due || text.starts_with('-') ? "(" + text + ")" : text;
}

}  // namespace

Equation::Equation(Int128 value, std::string symbols, std::string numbers, int binding)
    : value_(value),
      symbols_(std::move(symbols)),
      numbers_(std::move(numbers)),
      binding_(binding) {}

Equation::Equation(Int128 literal)
    : Equation(literal, to_string(literal), to_string(literal), kAtom) {
  literal_ = true;
}

Equation::Equation(std::string symbol, Int128 value)
    : Equation(value, std::move(symbol), to_string(value), kAtom) {}

std::string Equation::text(std::string_view name) const {
  std::string out(name);
  std::string_view last = name;
  const std::string result = to_string(value_);
  for (const std::string* part : {&symbols_, &numbers_, &result}) {
    if (*part == last) continue;
    out += " = " + *part;
    last = *part;
  }
  return out;
}

std::string Equation::bound_symbols(int at_least) const {
  return bracketed(symbols_, binding_ < at_least);
}

std::string Equation::bound_numbers(int at_least) const {
  return bracketed(numbers_, binding_ < at_least);
}

Equation operator+(const Equation& a, const Equation& b) {
  if (a.is_literal(0)) return b;
  if (b.is_literal(0)) return a;
  return {checked_add(a.value_, b.value_), a.symbols_ + " + " + b.bound_symbols(kSum),
          a.numbers_ + " + " + b.bound_numbers(kSum), kSum};
}

Equation operator-(const Equation& a, const Equation& b) {
  if (b.is_literal(0)) return a;
  Int128 difference;
  if (__builtin_sub_overflow(a.value_, b.value_, &difference)) {
    throw Error("a count exceeds 128 bits");
  }
  return {difference, a.symbols_ + " - " + b.bound_symbols(kProduct),
          a.numbers_ + " - " + b.bound_numbers(kProduct), kSum};
}

Equation operator*(const Equation& a, const Equation& b) {
  if (a.is_literal(1)) return b;
  if (b.is_literal(1)) return a;
  if (a.literal_ && b.literal_) return Equation(checked_mul(a.value_, b.value_));
  return {checked_mul(a.value_, b.value_),
          a.bound_symbols(kProduct) + "·" + b.bound_symbols(kProduct),
          a.bound_numbers(kProduct) + "·" + b.bound_numbers(kProduct), kProduct};
}

Equation exact_div(const Equation& a, const Equation& b) {
  require_divisor(b);
  if (a.value_ % b.value_ != 0) {
    throw Error(to_string(a.value_) + " is divided by " + to_string(b.value_) +
                "; allowed: its multiples");
  }
  if (b.is_literal(1)) return a;
  return {a.value_ / b.value_, a.bound_symbols(kProduct) + "/" + b.bound_symbols(kAtom),
          a.bound_numbers(kProduct) + "/" + b.bound_numbers(kAtom), kProduct};
}

Equation Equation::rounded(std::string_view open, std::string_view close, Int128 value,
                           const Equation& a, const Equation& b) {
  const auto write = [&](const std::string& top, const std::string& bottom) {
    return std::string(open) + top + "/" + bottom + std::string(close);
  };
  return {value, write(a.bound_symbols(kProduct), b.bound_symbols(kAtom)),
          write(a.bound_numbers(kProduct), b.bound_numbers(kAtom)), kAtom};
}

Equation ceil_div(const Equation& a, const Equation& b) {
  require_divisor(b);
  const Int128 floor = floor_quotient(a.value_, b.value_);
  return Equation::rounded("⌈", "⌉", floor + (a.value_ % b.value_ != 0 ? 1 : 0), a, b);
}

Equation floor_div(const Equation& a, const Equation& b) {
  require_divisor(b);
  return Equation::rounded("⌊", "⌋", floor_quotient(a.value_, b.value_), a, b);
}

Equation Equation::call(std::string_view function, Int128 value, const Equation& a,
                        const Equation& b) {
  const auto write = [&](const std::string& first, const std::string& second) {
    return std::string(function) + "(" + first + ", " + second + ")";
  };
  return {value, write(a.symbols_, b.symbols_), write(a.numbers_, b.numbers_), kAtom};
}

Equation min(const Equation& a, const Equation& b) {
  return Equation::call("min", std::min(a.value_, b.value_), a, b);
}

Equation max(const Equation& a, const Equation& b) {
  return Equation::call("max", std::max(a.value_, b.value_), a, b);
}

}  // namespace lacuna

#include "cost/log_cursor.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 46;  // bytes, tokens, …: 64 TiB; sums stay small

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

// digits · 10^-decimals; nullopt where there is no number, or one of more than 15 digits.
struct Decimal {
  std::int64_t digits = 0;
  int decimals = 0;
  std::size_t length = 0;  // characters
};

// Commas stand before groups of three digits only.
bool eats_comma(std::string_view text, std::size_t at, bool whole_only) {
  if (!whole_only || at == 0 || at + 3 >= text.size() || text[at] != ',') return false;
  const bool group = is_digit(text[at + 1]) && is_digit(text[at + 2]) && is_digit(text[at + 3]);
  return group && (at + 4 >= text.size() || !is_digit(text[at + 4]));
}

std::optional<Decimal> decimal(std::string_view text, bool whole_only) {
  Decimal found;
  bool after_point = false;
  int num_digits = 0;
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (is_digit(text[at])) {
      if (++num_digits > 15) return std::nullopt;
      found.digits = 10 * found.digits + (text[at] - '0');
      found.decimals += after_point ? 1 : 0;
    } else if (text[at] == '.' && !whole_only && !after_point && num_digits > 0 &&
               at + 1 < text.size() && is_digit(text[at + 1])) {
      after_point = true;
    } else if (!eats_comma(text, at, whole_only)) {
      break;
    }
  }
  found.length = at;
  if (num_digits == 0) return std::nullopt;
  // "1.2.3" is a version, not a number.
  if (!whole_only && at < text.size() && text[at] == '.' && at + 1 < text.size() &&
      is_digit(text[at + 1])) {
    return std::nullopt;
  }
  return found;
}

// The whole numbers that print as `value` of a unit, rounded half either way.
std::optional<LogNumber> rounded(const Decimal& value, std::int64_t unit) {
  Int128 scale = 2;
  for (int i = 0; i < value.decimals; ++i) scale *= 10;
  const Int128 low = std::max<Int128>((Int128{2} * value.digits - 1) * unit, 0);
  const Int128 high = (Int128{2} * value.digits + 1) * unit;
  if (high / scale > kMost) return std::nullopt;
  LogNumber number;
  number.low = static_cast<std::int64_t>((low + scale - 1) / scale);
  number.high = static_cast<std::int64_t>(high / scale);
  return number;
}

std::int64_t bytes_of(std::string_view unit) {
  return unit == "GiB" ? std::int64_t{1} << 30 : std::int64_t{1} << 20;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

void plain_line(std::string_view line, std::string& plain) {
  plain.clear();
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\r') continue;
    if (line[at] != '\x1b') {
      plain += line[at];
      continue;
    }
    if (at + 1 >= line.size() || line[at + 1] != '[') continue;
    at += 2;  // parameters, up to the letter that ends the code
    while (at < line.size() && (line[at] < '@' || line[at] > '~')) ++at;
  }
}

std::string_view LogCursor::after(std::string_view before) const {
  const std::size_t found = text_.find(before);
  if (found == std::string_view::npos) return {};
  std::string_view rest = without_spaces(text_.substr(found + before.size()));
  if (!rest.empty() && rest.front() == '=') rest = without_spaces(rest.substr(1));
  return rest;
}

void LogCursor::refuse(std::string_view before, std::string_view allowed) const {
  std::string rest(after(before).substr(0, 40));
  throw Error(fmt::format("line {} of the log has '{}' after '{}'; allowed: {}", number_, rest,
                          before, allowed));
}

LogNumber LogCursor::count_after(std::string_view before, std::string_view word) const {
  const std::string_view rest = after(before);
  const std::optional<Decimal> value = decimal(rest, true);
  const bool fits = value && value->digits <= kMost &&
                    (value->length >= rest.size() || rest[value->length] != '.' ||
                     value->length + 1 >= rest.size() || !is_digit(rest[value->length + 1]));
  if (!fits || (!word.empty() && !without_spaces(rest.substr(value->length)).starts_with(word))) {
    refuse(before, fmt::format("a whole number up to 2^46{}{}", word.empty() ? "" : " and ", word));
  }
  const std::string number(rest.substr(0, value->length));
  return {number_, word.empty() ? number : fmt::format("{} {}", number, word), value->digits,
          value->digits};
}

LogNumber LogCursor::size_after(std::string_view before, std::string_view unit) const {
  const std::string_view rest = after(before);
  std::optional<Decimal> value = decimal(rest, false);
  const std::string allowed = fmt::format("a number and {}, up to 2^46 bytes", unit);
  if (!value || !without_spaces(rest.substr(value->length)).starts_with(unit)) {
    refuse(before, allowed);
  }
  const std::string text = fmt::format("{} {}", rest.substr(0, value->length), unit);
  while (unit == "GiB" && value->decimals < 2) {
    value->digits *= 10;
    ++value->decimals;
  }
  std::optional<LogNumber> number = rounded(*value, bytes_of(unit));
  if (!number) refuse(before, allowed);
  if (unit == "MiB") {  // llama.cpp divides in single precision, whose mantissa has 24 bits
    number->low -= number->low >> 24;
    number->high += number->high >> 24;
  }
  number->line = number_;
  number->text = text;
  return *number;
}

LogNumber LogCursor::times_after(std::string_view before) const {
  const std::string_view rest = after(before);
  const std::optional<Decimal> value = decimal(rest, false);
  const char* allowed = "a number and 'x', up to 2^46 thousandths";
  if (!value || value->length >= rest.size() || rest[value->length] != 'x') {
    refuse(before, allowed);
  }
  std::optional<LogNumber> number = rounded(*value, 1000);
  if (!number) refuse(before, allowed);
  number->line = number_;
  number->text = std::string(rest.substr(0, value->length + 1));
  return *number;
}

bool LogCursor::is_negative_after(std::string_view before) const {
  return after(before).starts_with('-');
}

std::string LogCursor::quoted_after(std::string_view before) const {
  const std::string_view rest = after(before);
  const std::size_t end = rest.empty() || rest[0] != '\'' ? 0 : rest.find('\'', 1);
  if (end == std::string_view::npos || end < 2) refuse(before, "a type in quotes");
  return std::string(rest.substr(1, end - 1));
}

std::string LogCursor::bracketed_after(std::string_view before) const {
  const std::size_t found = text_.find(before);
  const std::string_view rest =
      found == std::string_view::npos ? "" : text_.substr(found + before.size());
  const std::size_t end = rest.find("):");
  if (end == std::string_view::npos || end == 0) refuse(before, "a type, then '):'");
  return std::string(rest.substr(0, end));
}

void LogCursor::sequences_after(std::string_view before, std::int64_t& seqs,
                                std::int64_t& streams) const {
  const std::string_view rest = after(before);
  const std::optional<Decimal> first = decimal(rest, true);
  if (!first) refuse(before, "a number of seqs");
  std::string_view behind = without_spaces(rest.substr(first->length));
  std::int64_t second = 1;
  if (behind.starts_with('/')) {
    behind = without_spaces(behind.substr(1));
    const std::optional<Decimal> number = decimal(behind, true);
    if (!number) refuse(before, "a number of seqs");
    second = number->digits;
  }
  constexpr std::int64_t kMostSequences = 1 << 20;
  if (first->digits < 1 || first->digits > kMostSequences || second < 1 || second > first->digits) {
    refuse(before, "1..2^20 seqs in no more streams");
  }
  seqs = first->digits;
  streams = second;
}

std::optional<LogNumber> LogCursor::llama_setting(std::string_view name) const {
  if (text_.find("llama_") == std::string_view::npos) return std::nullopt;
  for (std::size_t at = text_.find(name); at != std::string_view::npos;
       at = text_.find(name, at + 1)) {
    const std::string_view behind = without_spaces(text_.substr(at + name.size()));
    const std::size_t before = text_.find_last_not_of(' ', at == 0 ? 0 : at - 1);
    if (at == 0 || before == std::string_view::npos || text_[before] != ':' || before + 1 == at) {
      continue;
    }
    if (!behind.starts_with('=')) continue;
    const std::string_view value = without_spaces(behind.substr(1));
    if (value.starts_with("true") || value.starts_with("false")) {
      const bool is_true = value.starts_with("true");
      return LogNumber{number_, is_true ? "true" : "false", is_true, is_true};
    }
    const std::optional<Decimal> number = decimal(value, true);
    if (!number || number->digits > kMost) refuse(name, "a whole number up to 2^46");
    return LogNumber{number_, std::string(value.substr(0, number->length)), number->digits,
                     number->digits};
  }
  return std::nullopt;
}

std::string_view LogCursor::value_of(std::string_view name) const {
  std::string dashed(name);
  std::ranges::replace(dashed, '_', '-');
  for (const std::string_view spelled : {name, std::string_view(dashed)}) {
    for (std::size_t at = text_.find(spelled); at != std::string_view::npos;
         at = text_.find(spelled, at + 1)) {
      if (at > 0 && is_name(text_[at - 1])) continue;
      std::string_view rest = text_.substr(at + spelled.size());
      if (!rest.empty() && (rest.front() == '\'' || rest.front() == '"')) rest.remove_prefix(1);
      if (rest.empty() || (rest.front() != '=' && rest.front() != ':' && rest.front() != ' ')) {
        continue;
      }
      rest = without_spaces(rest.substr(1));
      if (!rest.empty()) return rest;
    }
  }
  return {};
}

std::optional<LogNumber> LogCursor::vllm_setting(std::string_view name) const {
  const std::string_view rest = value_of(name);
  const std::optional<Decimal> value = decimal(rest, true);
  if (!value || value->digits < 1 || value->digits > kMost) return std::nullopt;  // None, auto
  return LogNumber{number_, std::string(rest.substr(0, value->length)), value->digits,
                   value->digits};
}

std::string LogCursor::vllm_word(std::string_view name) const {
  std::string_view rest = value_of(name);
  if (!rest.empty() && (rest.front() == '\'' || rest.front() == '"')) rest.remove_prefix(1);
  std::size_t end = 0;
  while (end < rest.size() && (is_name(rest[end]) || rest[end] == '.')) ++end;
  return std::string(rest.substr(0, end));
}

std::int64_t LogCursor::data_parallel_rank() const {
  const std::size_t pid = text_.find(" pid=");
  const std::string_view before = text_.substr(0, pid == std::string_view::npos ? 0 : pid);
  const std::size_t open = before.rfind('(');
  const std::string_view name = open == std::string_view::npos ? "" : before.substr(open);
  const std::size_t found = name.find("_DP");
  if (found == std::string_view::npos) return 0;
  const std::optional<Decimal> rank = decimal(name.substr(found + 3), true);
  return rank ? rank->digits : 0;
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/integer.h"

// The vocabulary of topology text: how each term is called and what its numbers may be. The parser,
// the printer and check() all read it here, so that they cannot disagree.
namespace lacuna::attend_text {

inline constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxListItems = 65536;
inline constexpr std::int64_t kMaxTerms = 1024;
inline constexpr std::int64_t kMaxHeads = 65536;
inline constexpr std::int64_t kMaxLayers = 65536;
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 20;
// Numbers that one table may hold once all its layers are written out (weight()): a few bytes of
// hostile text must not become gigabytes.
inline constexpr std::int64_t kMaxTableNumbers = std::int64_t{1} << 24;

enum class Kind {
  kNumber,
  kSeed,     // any unsigned 64-bit number
  kOffset,   // a number, or `head`
  kOutside,  // the word `window`
};

struct Parameter {
  std::string_view name;
  Kind kind = Kind::kNumber;
  std::int64_t min = 1;
  std::optional<std::int64_t> fallback;  // of an argument that may be left out
};

struct Value {
  Int128 number = 0;  // wide enough for every int64 and every seed
  bool word = false;  // the parameter's word stands instead of a number
};

// Ways to call a term, but for global positions, global tokens and files, which take lists.
enum class FormId {
  kFull,
  kWindow,
  kWindowBothSides,
  kDilated,
  kSink,
  kGlobalFirst,
  kGlobalLast,
  kGlobalEvery,
  kChunk,
  kStrided,
  kFixed,
  kWindowBlocks,
  kVerticalBlocks,
  kTopK,
  kTopKBlocks,
  kRandom,
  kRandomBlocks,
  kList,  // none of these
};

struct Form {
  FormId id;
  std::string_view term;
  std::vector<Parameter> parameters;  // in positional order
  Term (*make)(std::span<const Value> values);
};

std::span<const Form> forms();
const Form& form(FormId id);
const std::vector<std::string>& term_names();

// How a term is said: make(values) gives the term back. kList has no values.
struct Call {
  FormId form = FormId::kList;
  std::vector<Value> values;
};
Call call_of(const Term& term, bool causal);

std::string_view word_of(Kind kind);  // "head", "window" or ""
std::string range_of(const Parameter& parameter);

// A term that may not stand in a table of this direction. `parameter` is its form's argument that
// is wrong, or -1.
struct Problem {
  std::string message;
  int parameter = -1;
};
std::optional<Problem> problem_of(const Term& term, bool causal);

// What is wrong with the heads and unions of a layer that attends, or "". Without `num_q_heads`
// heads 0..max must each be named once, whatever max is.
std::string heads_problem(const Attend& attend, std::optional<std::int64_t> num_q_heads);

// A pair that a causal table may not hold, as a message, or "". It reads the whole list.
std::string pairs_problem(const Term& term, bool causal);

// Numbers that a copy of this holds, for limits of memory.
std::int64_t weight(const Term& term);
std::int64_t weight(const Attend& attend);

// Text of one union, as it stands in JSON.
std::string union_text(const Union& attend, bool causal);
// "0-3,5". REQUIRES: sorted, unique.
std::string list_text(std::span<const std::int64_t> numbers);

// Characters of a file name that needs no quotes.
bool is_bare(char character);
// In single quotes, shortened, with control characters escaped: safe in a message of one line.
std::string shown(std::string_view text);

}  // namespace lacuna::attend_text

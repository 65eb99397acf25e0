#include "lacuna/attend.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "topology/attend_parser.h"
#include "topology/attend_terms.h"

namespace lacuna {
namespace attend_text {
namespace {

// global(every=…) is said with names; the word of random_blocks needs one.
std::string call_text(const Call& call) {
  const Form& called = form(call.form);
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < called.parameters.size(); ++i) {
    const Parameter& parameter = called.parameters[i];
    const Value& value = call.values[i];
    const bool outside = parameter.kind == Kind::kOutside;
    const bool global = called.term == "global";
    if (outside && !value.word) continue;
    if (global && parameter.fallback && value.number == *parameter.fallback) continue;
    const std::string said =
        value.word ? std::string(word_of(parameter.kind)) : to_string(value.number);
    arguments.push_back(outside || global ? fmt::format("{}={}", parameter.name, said) : said);
  }
  return arguments.empty() ? std::string(called.term)
                           : fmt::format("{}({})", called.term, fmt::join(arguments, ","));
}

std::string numbers_text(const char* prefix, const std::vector<std::int64_t>& numbers) {
  if (numbers.empty() || std::ssize(numbers) > kMaxListItems) {
    throw Error(fmt::format("a list of global has {} items; allowed in text: 1..{}", numbers.size(),
                            kMaxListItems));
  }
  return fmt::format("global({}{})", prefix, fmt::join(numbers, ","));
}

std::string file_text(const char* term, const std::string& file) {
  if (!file.empty() && std::all_of(file.begin(), file.end(), is_bare)) {
    return fmt::format("{}({})", term, file);
  }
  std::string quoted;
  for (const char character : file) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      throw Error(
          fmt::format("file name {} has a control character; allowed: printed ones", shown(file)));
    }
    if (character == '"' || character == '\\') quoted += '\\';
    quoted += character;
  }
  if (quoted.empty()) throw Error(fmt::format("{} has no file name", term));
  return fmt::format("{}(\"{}\")", term, quoted);
}

std::string term_text(const Term& term, bool causal) {
  if (const auto problem = problem_of(term, causal)) throw Error(problem->message);
  if (const auto* t = std::get_if<GlobalPositions>(&term)) return numbers_text("", t->positions);
  if (const auto* t = std::get_if<GlobalTokens>(&term)) return numbers_text("token=", t->tokens);
  if (const auto* t = std::get_if<ExplicitBlocks>(&term)) return file_text("blocks", t->file);
  if (const auto* t = std::get_if<ExplicitEdges>(&term)) return file_text("edges", t->file);
  return call_text(call_of(term, causal));
}

std::string limited(std::string text) {
  if (std::ssize(text) <= kMaxTextBytes) return text;
  throw Error(fmt::format("the text has {} bytes; allowed: up to {}", text.size(), kMaxTextBytes));
}

}  // namespace

std::string union_text(const Union& attend, bool causal) {
  std::string text;
  for (const Term& term : attend) {
    if (!text.empty()) text += '+';
    text += term_text(term, causal);
  }
  return limited(std::move(text));
}

std::string list_text(std::span<const std::int64_t> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace attend_text

Attend parse_attend(std::string_view text, bool causal, const std::string& base_dir) {
  attend_text::Context context(causal, base_dir);
  attend_text::Parser parser(text, context, "attend");
  Attend attend = parser.attend();
  parser.expect_end("'+' or the end");
  return attend;
}

std::string to_text(const Term& term, bool causal) {
  return attend_text::limited(attend_text::term_text(term, causal));
}

std::string to_text(const Attend& attend, bool causal) {
  if (const std::string problem = attend_text::heads_problem(attend, std::nullopt);
      !problem.empty()) {
    throw Error(problem);
  }
  if (attend.groups.front().heads.empty()) {
    return attend_text::union_text(attend.groups.front().attend, causal);
  }
  std::string text = "heads(";
  for (const HeadGroup& group : attend.groups) {
    if (text.back() != '(') text += "; ";
    text +=
        attend_text::list_text(group.heads) + ": " + attend_text::union_text(group.attend, causal);
  }
  return attend_text::limited(text + ")");
}

}  // namespace lacuna

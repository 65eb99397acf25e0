#include "topology/attend_parser.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna::attend_text {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
// A point belongs to a word so that "1.5" is shown, and refused, as a whole.
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> argument_names(std::string_view term) {
  std::vector<std::string> names;
  for (const Form& each : forms()) {
    if (each.term != term) continue;
    for (const Parameter& parameter : each.parameters) names.emplace_back(parameter.name);
  }
  if (term == "global") names.emplace_back("token");
  return names;
}

}  // namespace

Parser::Parser(std::string_view text, Context& context, std::string where)
    : text_(text), context_(context), where_(std::move(where)) {
  if (std::ssize(text) > kMaxTextBytes) {
    throw Error(
        fmt::format("{} has {} bytes; allowed: up to {}", where_, text.size(), kMaxTextBytes));
  }
}

Attend Parser::attend() {
  const std::size_t begin = place();
  Attend attend;
  if (word() == "heads") {
    expect('(', "'(' and the groups of heads");
    do {
      attend.groups.push_back(head_group());
    } while (accept(';'));
    expect(')', "'+', ';' or ')'");
  } else {
    at_ = begin;
    attend.groups.push_back({{}, terms()});
  }
  if (const std::string problem = heads_problem(attend, std::nullopt); !problem.empty()) {
    fail(begin, problem);
  }
  return attend;
}

HeadGroup Parser::head_group() {
  HeadGroup group;
  group.heads = list("head", kMaxHeads - 1);
  std::sort(group.heads.begin(), group.heads.end());
  charge(std::ssize(group.heads));
  expect(':', "',', '-' or ':' and a union");
  group.attend = terms();
  return group;
}

Union Parser::terms() {
  Union terms;
  do {
    if (std::ssize(terms) == kMaxTerms) {
      fail(place(), fmt::format("a union has more than {} terms", kMaxTerms));
    }
    terms.push_back(term());
    charge(weight(terms.back()));
  } while (accept('+'));
  return terms;
}

Term Parser::term() {
  const std::size_t begin = place();
  const std::string_view name = word();
  const std::vector<std::string>& names = term_names();
  if (name.empty()) fail_found("a term: " + joined(names) + ", heads");
  if (name == "heads") fail(begin, "heads(…) stands alone; allowed here: a term: " + joined(names));
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::vector<std::string> known = names;
    known.emplace_back("heads");
    fail(begin, fmt::format("{} is not a term; allowed: {}{}", shown(name), joined(known),
                            did_you_mean(name, known)));
  }
  if (name == "full") return Full{};
  expect('(', fmt::format("'(' and the arguments of {}", name));
  if (name == "blocks" || name == "edges") return file_term(name == "blocks");
  if (name == "global") return global(begin);
  const std::vector<Argument> given = arguments(name);
  return bind(form_of(name, given), given, begin);
}

Term Parser::global(std::size_t term_place) {
  const std::size_t begin = place();
  const std::string_view first = word();
  if (first == "token" && accept('=')) {
    Term term = GlobalTokens{numbers("token")};
    expect(')', "',' or ')'");
    return term;
  }
  at_ = begin;
  if (first.empty() || is_digit(first.front())) {
    Term term = GlobalPositions{numbers("position")};
    expect(')', "',' or ')'");
    return term;
  }
  const std::vector<Argument> given = arguments("global");
  return bind(form_of("global", given), given, term_place);
}

// The file is opened while the text is read, so that a table holds its lists by value.
Term Parser::file_term(bool blocks) {
  const std::size_t begin = place();
  std::string file = file_name();
  expect(')', "')'");
  const std::string path = (std::filesystem::path(context_.base_dir) / file).string();
  try {
    Term term;
    if (blocks) {
      auto found = context_.blocks.find(path);
      const bool is_new = found == context_.blocks.end();
      if (is_new) found = context_.blocks.emplace(path, read_block_list(path)).first;
      term = ExplicitBlocks{std::move(file), found->second.block, found->second.list};
      if (!is_new) return term;
    } else {
      auto found = context_.edges.find(path);
      const bool is_new = found == context_.edges.end();
      if (is_new) found = context_.edges.emplace(path, read_edge_list(path)).first;
      term = ExplicitEdges{std::move(file), found->second};
      if (!is_new) return term;
    }
    if (const std::string problem = pairs_problem(term, context_.causal); !problem.empty()) {
      throw Error(problem);
    }
    return term;
  } catch (const Error& error) {
    fail(begin, error.what());
  }
}

std::string Parser::file_name() {
  std::size_t begin = place();
  if (accept('"')) return quoted_name();
  std::string name = plain_name();
  if (name.empty()) fail(begin, "no file name; allowed: a bare name or one in double quotes");
  if (!accept('=')) return name;
  if (name != "file") {
    fail(begin, fmt::format("{} is not an argument of blocks or edges; allowed: file{}",
                            shown(name), did_you_mean(name, {"file"})));
  }
  begin = place();
  if (accept('"')) return quoted_name();
  name = plain_name();
  if (name.empty()) fail(begin, "no file name; allowed: a bare name or one in double quotes");
  return name;
}

std::string Parser::plain_name() {
  const std::size_t begin = place();
  while (at_ < text_.size() && is_bare(text_[at_])) ++at_;
  return std::string(text_.substr(begin, at_ - begin));
}

std::string Parser::quoted_name() {
  const std::size_t begin = at_ - 1;
  std::string name;
  while (at_ < text_.size() && text_[at_] != '"') {
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x20 || byte == 0x7f) fail(at_, "a control character stands in a file name");
    if (text_[at_] == '\\') {
      ++at_;
      if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\\')) {
        fail(at_ - 1, "'\\' stands in a file name; allowed: \\\" and \\\\");
      }
    }
    name += text_[at_++];
  }
  if (at_ == text_.size()) fail(begin, "a file name has no closing '\"'");
  ++at_;
  if (name.empty()) fail(begin, "no file name; allowed: a bare name or one in double quotes");
  return name;
}

// After '(': everything up to and with ')'.
std::vector<Parser::Argument> Parser::arguments(std::string_view name) {
  constexpr std::size_t kMostArguments = 8;  // more than any term has; bind() names what is wrong
  std::vector<Argument> given;
  do {
    given.push_back(argument());
    const Argument& last = given.back();
    if (last.name.empty() && given.size() > 1 && !given[given.size() - 2].name.empty()) {
      fail(last.place, fmt::format("{} stands after a named argument of {}; allowed: name=value",
                                   shown(last.text), name));
    }
  } while (given.size() < kMostArguments && accept(','));
  expect(')', "',' or ')'");
  return given;
}

Parser::Argument Parser::argument() {
  Argument argument;
  argument.place = place();
  argument.text = word();
  if (argument.text.empty()) fail_found("an argument");
  if (!accept('=')) return argument;
  argument.name = argument.text;
  argument.name_place = argument.place;
  argument.place = place();
  argument.text = word();
  if (argument.text.empty()) fail_found(fmt::format("a value of {}", argument.name));
  return argument;
}

// window and global have several forms: a first name or the number of arguments tells which.
const Form& Parser::form_of(std::string_view term, const std::vector<Argument>& given) const {
  const Form* last = nullptr;
  const Form* fitting = nullptr;
  for (const Form& each : forms()) {
    if (each.term != term) continue;
    last = &each;
    const bool named =
        std::any_of(each.parameters.begin(), each.parameters.end(),
                    [&](const Parameter& p) { return p.name == given.front().name; });
    if (named) return each;
    if (fitting == nullptr && given.size() <= each.parameters.size()) fitting = &each;
  }
  return fitting != nullptr ? *fitting : *last;
}

Term Parser::bind(const Form& form, const std::vector<Argument>& given,
                  std::size_t term_place) const {
  const std::size_t num_parameters = form.parameters.size();
  std::vector<const Argument*> bound(num_parameters, nullptr);
  std::vector<Value> values(num_parameters);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::size_t slot = slot_of(form, given[i], i);
    const Parameter& parameter = form.parameters[slot];
    if (bound[slot] != nullptr) {
      fail(given[i].name_place, fmt::format("{} of {} is given twice", parameter.name, form.term));
    }
    bound[slot] = &given[i];
    values[slot] = value_of(form, parameter, given[i]);
  }
  for (std::size_t slot = 0; slot < num_parameters; ++slot) {
    if (bound[slot] != nullptr) continue;
    const Parameter& parameter = form.parameters[slot];
    if (!parameter.fallback) {
      fail(term_place,
           fmt::format("{} needs {}, in {}", form.term, parameter.name, range_of(parameter)));
    }
    values[slot].number = *parameter.fallback;
  }
  if (form.id == FormId::kWindow && !context_.causal) {
    fail(term_place,
         "window(w) counts the query itself and needs a causal table; here say window(l,r)");
  }
  Term term = form.make(values);
  if (const auto problem = problem_of(term, context_.causal)) {
    const Argument* wrong =
        problem->parameter < 0 ? nullptr : bound[static_cast<std::size_t>(problem->parameter)];
    fail(wrong == nullptr ? term_place : wrong->place, problem->message);
  }
  return term;
}

std::size_t Parser::slot_of(const Form& form, const Argument& argument,
                            std::size_t position) const {
  const std::vector<Parameter>& parameters = form.parameters;
  const std::vector<std::string> names = argument_names(form.term);
  if (argument.name.empty()) {
    // Every form of global is named: a position there is a list of numbers.
    if (form.term == "global") {
      fail(argument.place,
           fmt::format("{} is not an argument of global; allowed: positions, or one "
                       "of {} by name{}",
                       shown(argument.text), joined(names), did_you_mean(argument.text, names)));
    }
    if (position < parameters.size()) return position;
    fail(argument.place, fmt::format("{} is one argument too many for {}; allowed: {}",
                                     shown(argument.text), form.term, joined(names)));
  }
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const Parameter& p) { return p.name == argument.name; });
  if (found != parameters.end()) return static_cast<std::size_t>(found - parameters.begin());
  const bool elsewhere = std::find(names.begin(), names.end(), argument.name) != names.end();
  fail(argument.name_place,
       elsewhere ? fmt::format("{} does not go with the other arguments of {}",
                               shown(argument.name), form.term)
                 : fmt::format("{} is not an argument of {}; allowed: {}{}", shown(argument.name),
                               form.term, joined(names), did_you_mean(argument.name, names)));
}

Value Parser::value_of(const Form& form, const Parameter& parameter,
                       const Argument& argument) const {
  const std::string_view word = word_of(parameter.kind);
  if (!word.empty() && argument.text == word) return {0, true};
  const std::string allowed = range_of(parameter);
  if (parameter.kind == Kind::kOutside || (!word.empty() && !is_digit(argument.text.front()))) {
    fail(argument.place, fmt::format("{} of {} is {}; allowed: {}{}", parameter.name, form.term,
                                     shown(argument.text), allowed,
                                     did_you_mean(argument.text, {std::string(word)})));
  }
  if (!std::all_of(argument.text.begin(), argument.text.end(), is_digit)) {
    fail(argument.place, fmt::format("{} of {} is {}, not a whole number; allowed: {}, in digits "
                                     "without a suffix",
                                     parameter.name, form.term, shown(argument.text), allowed));
  }
  std::uint64_t value = 0;
  const char* end = argument.text.data() + argument.text.size();
  const bool fits = std::from_chars(argument.text.data(), end, value).ec == std::errc{};
  const bool in_range =
      parameter.kind == Kind::kSeed ||
      (value <= std::uint64_t{kMaxNumber} && static_cast<std::int64_t>(value) >= parameter.min);
  if (!fits || !in_range) {
    fail(argument.place, fmt::format("{} of {} is {}; allowed: {}", parameter.name, form.term,
                                     argument.text.substr(0, 40), allowed));
  }
  return {value, false};
}

std::vector<std::int64_t> Parser::numbers(const char* what) {
  std::vector<std::int64_t> all;
  do {
    if (std::ssize(all) == kMaxListItems) {
      fail(place(), fmt::format("a list has more than {} items", kMaxListItems));
    }
    all.push_back(number(what, 0, kMaxNumber));
  } while (accept(','));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::int64_t> Parser::list(const char* what, std::int64_t max) {
  std::vector<std::int64_t> all;
  do {
    const std::size_t begin = place();
    const std::int64_t first = number(what, 0, max);
    const std::int64_t last = accept('-') ? number(what, 0, max) : first;
    if (last < first) {
      fail(begin, fmt::format("'{}-{}' falls; allowed: the smaller number first", first, last));
    }
    if (std::ssize(all) + last - first + 1 > kMaxListItems) {
      fail(begin, fmt::format("a list has more than {} items", kMaxListItems));
    }
    for (std::int64_t each = first; each <= last; ++each) all.push_back(each);
  } while (accept(','));
  return all;
}

std::int64_t Parser::number(const char* what, std::int64_t min, std::int64_t max) {
  const std::size_t begin = place();
  const std::string_view text = word();
  if (text.empty()) fail_found(fmt::format("a {}, in {}..{}", what, min, max));
  if (!std::all_of(text.begin(), text.end(), is_digit)) {
    fail(begin, fmt::format("{} {} is not a whole number; allowed: {}..{}, in digits without a "
                            "suffix",
                            what, shown(text), min, max));
  }
  std::int64_t value = 0;
  const auto status = std::from_chars(text.data(), text.data() + text.size(), value).ec;
  if (status != std::errc{} || value < min || value > max) {
    fail(begin,
         fmt::format("{} {} is out of range; allowed: {}..{}", what, text.substr(0, 40), min, max));
  }
  return value;
}

std::size_t Parser::place() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_;
}

bool Parser::accept(char character) {
  if (place() == text_.size() || text_[at_] != character) return false;
  ++at_;
  return true;
}

void Parser::expect(char character, const std::string& allowed) {
  if (!accept(character)) fail_found(allowed);
}

bool Parser::at_end() { return place() == text_.size(); }

void Parser::expect_end(const std::string& allowed) {
  if (!at_end()) fail_found(allowed);
}

std::string_view Parser::word() {
  const std::size_t begin = place();
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

void Parser::charge(std::int64_t numbers) {
  context_.numbers_left -= numbers;
  if (context_.numbers_left >= 0) return;
  throw Error(fmt::format("{}: the table holds more than {} numbers", where_, kMaxTableNumbers));
}

void Parser::fail(std::size_t place, const std::string& message) const {
  // Characters are counted, not bytes: those that continue one are left out.
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };
  const auto begin = text_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(place);
  const auto column = 1 + std::count_if(begin, end, [&](char c) { return !continues(c); });
  throw Error(fmt::format("{} column {}: {}", where_, column, message));
}

void Parser::fail_found(const std::string& allowed) {
  const std::size_t begin = place();
  std::size_t end = begin;
  constexpr std::string_view kMarks = "(),;:+*=\"";
  while (end < text_.size() && !is_space(text_[end]) &&
         kMarks.find(text_[end]) == std::string_view::npos) {
    ++end;
  }
  if (end == begin && end < text_.size()) ++end;
  const std::string found =
      begin == text_.size() ? "the end" : shown(text_.substr(begin, end - begin));
  fail(begin, fmt::format("{} stands here; allowed: {}", found, allowed));
}

}  // namespace lacuna::attend_text

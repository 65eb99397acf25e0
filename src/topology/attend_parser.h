#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/attend.h"
#include "topology/attend_terms.h"
#include "topology/edge_list.h"

namespace lacuna::attend_text {

// What all texts of one table share: a file is read once, and the limit counts them together.
struct Context {
  Context(bool causal_, std::string base_dir_) : causal(causal_), base_dir(std::move(base_dir_)) {}
  bool causal;
  std::string base_dir;
  std::map<std::string, std::shared_ptr<const EdgeList>> edges;
  std::map<std::string, BlockList> blocks;
  std::int64_t numbers_left = kMaxTableNumbers;
};

// Recursive descent over one text. Its depth is the grammar's: heads(…) holds unions, unions hold
// terms. Every Error reads "<where> column N: …". Not thread-safe; `text` and `context` outlive it.
class Parser {
 public:
  Parser(std::string_view text, Context& context, std::string where);

  // union | heads(list: union; …)
  Attend attend();
  // term ('+' term)*
  Union terms();
  // n | n '-' m, joined by ','; numbers 0..max in the text's order. `what` names one of them.
  std::vector<std::int64_t> list(const char* what, std::int64_t max);
  std::int64_t number(const char* what, std::int64_t min, std::int64_t max);

  // Skips white space, then the character where it stands there.
  bool accept(char character);
  void expect(char character, const std::string& allowed);
  bool at_end();
  void expect_end(const std::string& allowed);
  // The letters, digits and '_' that stand here, or "".
  std::string_view word();
  // Where the next thing stands, as a place for fail().
  std::size_t place();

  // Takes `numbers` from the table's limit.
  void charge(std::int64_t numbers);
  [[noreturn]] void fail(std::size_t place, const std::string& message) const;
  // "'x' stands here; allowed: …"
  [[noreturn]] void fail_found(const std::string& allowed);

 private:
  struct Argument {
    std::string_view name;  // "" where only its position says
    std::string_view text;
    std::size_t name_place = 0;
    std::size_t place = 0;
  };

  Term term();
  Term global(std::size_t term_place);
  Term file_term(bool blocks);
  std::string file_name();
  std::string quoted_name();
  std::string plain_name();
  std::vector<Argument> arguments(std::string_view name);
  Argument argument();
  const Form& form_of(std::string_view term, const std::vector<Argument>& given) const;
  Term bind(const Form& form, const std::vector<Argument>& given, std::size_t term_place) const;
  std::size_t slot_of(const Form& form, const Argument& argument, std::size_t position) const;
  Value value_of(const Form& form, const Parameter& parameter, const Argument& argument) const;
  std::string_view digits();
  std::int64_t whole(std::string_view digits, std::size_t place, const char* what, std::int64_t min,
                     std::int64_t max) const;
  std::vector<std::int64_t> numbers(const char* what);
  HeadGroup head_group();

  std::string_view text_;
  Context& context_;
  std::string where_;
  std::size_t at_ = 0;
};

}  // namespace lacuna::attend_text

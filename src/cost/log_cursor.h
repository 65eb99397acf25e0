#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lacuna {

// A number out of a line, with the whole numbers that print so (in bytes, thousandths, or itself).
struct LogNumber {
  std::int64_t line = 0;
  std::string text;
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// `line` without colour codes and carriage returns, into `plain`.
void plain_line(std::string_view line, std::string& plain);

// One line of a log, looked into by what stands before a number. Every reader that finds its words
// but no number throws Error naming the line. A view: the text must outlive it.
class LogCursor {
 public:
  LogCursor(std::string_view text, std::int64_t number) : text_(text), number_(number) {}

  std::int64_t number() const { return number_; }
  bool has(std::string_view words) const { return text_.find(words) != std::string_view::npos; }

  // A whole number, thousands apart or not, and the word behind it.
  LogNumber count_after(std::string_view before, std::string_view word) const;
  // A size with its unit, behind spaces and '='. GiB come from vLLM, which leaves zeros at the end
  // away: they have two decimals at least.
  LogNumber size_after(std::string_view before, std::string_view unit) const;
  // "3.45x", in thousandths.
  LogNumber times_after(std::string_view before) const;
  bool is_negative_after(std::string_view before) const;

  std::string quoted_after(std::string_view before) const;     // 'f16' -> f16
  std::string bracketed_after(std::string_view before) const;  // f16): -> f16
  // "2/2 seqs": sequences and streams; "2 seqs" is one stream.
  void sequences_after(std::string_view before, std::int64_t& seqs, std::int64_t& streams) const;

  // `llama_context: n_ctx    = 8192`: the name stands first behind the function. true is 1.
  std::optional<LogNumber> llama_setting(std::string_view name) const;
  // `name=8192`, `'name': 8192` or `--name 8192`, with '_' or '-'.
  std::optional<LogNumber> vllm_setting(std::string_view name) const;
  std::string vllm_word(std::string_view name) const;

  // The N of `(EngineCore_DPn pid=…)` and `(Worker_DPn_TPm pid=…)`; 0 without.
  std::int64_t data_parallel_rank() const;

 private:
  std::string_view after(std::string_view before) const;
  std::string_view value_of(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view before, std::string_view allowed) const;

  std::string_view text_;
  std::int64_t number_;
};

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"
#include "lacuna/config.h"

namespace lacuna::config {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;   // of windows and vocabularies
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;  // of a projection
constexpr std::int64_t kMaxHeads = 1 << 20;
constexpr std::int64_t kMaxLayers = 1 << 14;

// What a model class fills in where the file is silent.
struct ClassDefault {
  std::string_view key;
  std::int64_t value;
};
struct ClassFacts;

// Is a key's name one that may decide what is attended to, or what is kept (trap 14)?
bool is_relevant(std::string_view key);

// The keys of one config, with the order in which a value is looked for: the user's assumption, the
// (nested) text config, the class default, the outer level of the file. It records which keys were
// asked for, so that finish() can refuse the relevant ones that nobody understood.
//
// A key is a path: "linear_attn_config.head_dim", "block_configs.3.ffn.no_op". Every reading member
// throws Error naming the file, the key, its value and what was allowed. One mutator at a time.
class Keys {
 public:
  Keys(Value root, std::string file, const Assumptions& assume);

  const std::string& file() const { return file_; }
  // The outer level's own value, whatever a nested config says; asks for nothing.
  const Value* outer(std::string_view key) const { return member(outer_, key); }
  // GGUF: only keys that begin with `prefix` belong to the model; it is left out where a name is
  // judged.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  void set_class(const ClassFacts* facts) { class_ = facts; }

  // The value to use, or nullptr where it is null or absent everywhere. Marks the key as asked for.
  const Value* find(std::string_view key);
  // Is there a value other than null, in the file or assumed? Asks for nothing.
  bool present(std::string_view key) const;
  // Does the file or an assumption say anything, be it null?
  bool given(std::string_view key) const;
  bool assumed(std::string_view key) const;

  std::optional<std::int64_t> integer(std::string_view key, std::int64_t min = 1,
                                      std::int64_t max = kMaxSize);
  std::int64_t need(std::string_view key, std::int64_t min = 1, std::int64_t max = kMaxSize);
  // The one value that several spellings of one thing have; they must agree.
  std::optional<std::int64_t> any(std::initializer_list<std::string_view> keys,
                                  std::int64_t min = 1, std::int64_t max = kMaxSize);
  std::optional<bool> boolean(std::string_view key);
  std::optional<double> real(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t min,
                                                    std::int64_t max);
  std::optional<std::vector<std::string>> texts(std::string_view key);
  // The list's length, or nullopt where the key is no list. Asks for nothing.
  std::optional<std::int64_t> length(std::string_view key) const;

  // The key needs no reading: no figure depends on it, or another key decides. An assumption on it
  // would decide nothing and is refused.
  void understood(std::string_view key, std::string_view why);

  void note(std::string key, std::string value, std::string reason);
  // Throws Error: file, key, its value, and what was allowed.
  [[noreturn]] void fail(std::string_view key, const std::string& allowed) const;

  // Refuses assumptions that nobody asked for and relevant keys that nobody understood.
  void finish();

  std::vector<ConfigNote> take_notes() { return std::move(notes_); }
  std::vector<std::string> take_ignored() { return std::move(ignored_); }

 private:
  const Value* in_file(std::string_view key, bool* outer = nullptr) const;
  const Value* note_once(std::string_view key, const Value* value, const std::string& reason);
  void check_known(const Value::Object& object, const std::string& path, const std::string& skip);
  void check_value(const Value& value, std::string_view name, const std::string& path);
  bool asked_inside(const std::string& path) const;
  std::vector<std::string> names() const;

  Value::Object outer_;
  Value::Object inner_;  // empty where nothing is nested
  std::string nested_;   // the name of the nested text config
  std::string file_;
  std::string prefix_;
  const ClassFacts* class_ = nullptr;
  std::set<std::string, std::less<>> asked_;
  std::set<std::string, std::less<>> noted_;
  std::map<std::string, Value, std::less<>> assumed_;  // a value "ignore" makes the key absent
  std::set<std::string, std::less<>> ignore_;
  std::map<std::string, Value, std::less<>> class_values_;
  std::vector<ConfigNote> notes_;
  std::vector<std::string> ignored_;
};

}  // namespace lacuna::config

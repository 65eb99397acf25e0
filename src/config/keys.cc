#include "config/keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/class_facts.h"
#include "config/neutral_keys.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna::config {
namespace {

// The value at a path. Keys may hold dots themselves (GGUF), so every split is tried, longest
// first.
const Value* resolve(const Value& value, std::string_view path) {
  if (const Value::List* list = value.list()) {
    const std::size_t dot = path.find('.');
    const std::string_view digits = path.substr(0, dot);
    if (digits.empty() || digits.size() > 6) return nullptr;
    std::size_t index = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return nullptr;
      index = index * 10 + static_cast<std::size_t>(c - '0');
    }
    if (index >= list->size()) return nullptr;
    return dot == std::string_view::npos ? &(*list)[index]
                                         : resolve((*list)[index], path.substr(dot + 1));
  }
  const Value::Object* object = value.object();
  if (object == nullptr) return nullptr;
  if (const Value* found = member(*object, path)) return found;
  for (std::size_t dot = path.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = path.rfind('.', dot - 1)) {
    if (const Value* inner = member(*object, path.substr(0, dot))) {
      if (const Value* found = resolve(*inner, path.substr(dot + 1))) return found;
    }
  }
  return nullptr;
}

const Value* resolve(const Value::Object& object, std::string_view path) {
  if (const Value* found = member(object, path)) return found;
  for (std::size_t dot = path.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = path.rfind('.', dot - 1)) {
    if (const Value* inner = member(object, path.substr(0, dot))) {
      if (const Value* found = resolve(*inner, path.substr(dot + 1))) return found;
    }
  }
  return nullptr;
}

Value assumed_value(const std::string& text) {
  try {
    return parse_json(text, "assumption");
  } catch (const Error&) {
    return Value{text};
  }
}

// A key from the file, fit for a one-line message.
std::string shown(std::string_view key) {
  std::string out(key.substr(0, 80));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  }
  return key.size() > 80 ? out + "..." : out;
}

// A near miss is looked for only where the key has the length of one.
std::string near_miss(std::string_view key, const std::vector<std::string>& names) {
  return key.size() > 80 ? "" : did_you_mean(key, names);
}

// Names under which multimodal configs nest their language model.
constexpr std::string_view kTextConfigs[] = {"text_config", "language_config", "llm_config"};

}  // namespace

bool is_relevant(std::string_view key) {
  std::string lower(key);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (std::string_view word :
       {"window", "sliding", "chunk", "sparse", "pattern", "layer_type", "attn", "attention", "kv",
        "head", "index", "lora", "linear", "mamba", "ssm", "block", "interval"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return false;
}

Keys::Keys(Value root, std::string file, const Assumptions& assume) : file_(std::move(file)) {
  auto* object = std::get_if<Value::Object>(&root.data);
  if (object == nullptr) throw Error(fmt::format("{}: not a JSON object of keys", file_));
  for (std::string_view name : kTextConfigs) {
    const Value* nested = member(*object, name);
    if (nested == nullptr || nested->is_null()) continue;
    if (nested->object() == nullptr) {
      throw Error(
          fmt::format("{}: {} is {}: allowed is an object of keys", file_, name, to_text(*nested)));
    }
    inner_ = *nested->object();
    nested_ = name;
    break;
  }
  outer_ = std::move(*object);
  for (const auto& [key, text] : assume) {
    if (text == "ignore") {
      ignore_.insert(key);
    } else {
      assumed_.emplace(key, assumed_value(text));
    }
  }
}

const Value* Keys::in_file(std::string_view key, bool* outer) const {
  if (ignore_.find(key) != ignore_.end()) return nullptr;
  if (const Value* found = resolve(inner_, key)) return found;
  if (!nested_.empty() && key.substr(0, nested_.size()) == nested_) return nullptr;
  const Value* found = resolve(outer_, key);
  if (outer != nullptr) *outer = found != nullptr && !nested_.empty();
  return found;
}

bool Keys::assumed(std::string_view key) const { return assumed_.find(key) != assumed_.end(); }

bool Keys::given(std::string_view key) const { return assumed(key) || in_file(key) != nullptr; }

bool Keys::present(std::string_view key) const {
  const auto assumption = assumed_.find(key);
  if (assumption != assumed_.end()) return !assumption->second.is_null();
  const Value* value = in_file(key);
  return value != nullptr && !value->is_null();
}

const Value* Keys::note_once(std::string_view key, const Value* value, const std::string& reason) {
  if (noted_.insert(std::string(key)).second) note(std::string(key), to_text(*value), reason);
  return value->is_null() ? nullptr : value;
}

const Value* Keys::find(std::string_view key) {
  asked_.emplace(key);
  if (const auto found = assumed_.find(key); found != assumed_.end()) {
    return note_once(key, &found->second, "assumed by the user");
  }
  if (ignore_.find(key) != ignore_.end() && noted_.insert(std::string(key)).second) {
    note(std::string(key), "ignore", "left out as the user asked");
  }
  bool outer = false;
  const Value* value = in_file(key, &outer);
  if (value != nullptr && !outer) return value->is_null() ? nullptr : value;
  if (class_ != nullptr) {
    for (const ClassDefault& filled : class_->defaults) {
      if (filled.key != key) continue;
      const auto at = class_values_.try_emplace(std::string(key), Value{filled.value}).first;
      return note_once(key, &at->second,
                       fmt::format("class default of {} ({})", class_->name, class_->source));
    }
  }
  if (value == nullptr || value->is_null()) return nullptr;
  return note_once(key, value, fmt::format("from outside {}, which does not say", nested_));
}

std::optional<std::int64_t> Keys::integer(std::string_view key, std::int64_t min,
                                          std::int64_t max) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::int64_t* number = value->integer();
  if (number == nullptr || *number < min || *number > max) {
    fail(key, fmt::format("allowed is a whole number in {}..{}", min, max));
  }
  return *number;
}

std::int64_t Keys::need(std::string_view key, std::int64_t min, std::int64_t max) {
  if (const auto number = integer(key, min, max)) return *number;
  fail(key, fmt::format("a whole number in {}..{} is needed", min, max));
}

std::optional<std::int64_t> Keys::any(std::initializer_list<std::string_view> keys,
                                      std::int64_t min, std::int64_t max) {
  // What the file says under a later spelling beats what the class fills in under the first.
  bool said = false;
  for (const std::string_view key : keys) said = said || given(key);
  std::optional<std::int64_t> number;
  std::string_view from;
  for (const std::string_view key : keys) {
    if (said && !given(key)) continue;
    const auto next = integer(key, min, max);
    if (!next) continue;
    if (number && *number != *next) {
      fail(key, fmt::format("{} says {}: they must agree", from, *number));
    }
    if (!number) from = key;
    number = next;
  }
  return number;
}

std::optional<bool> Keys::boolean(std::string_view key) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const bool* flag = value->boolean()) return *flag;
  if (const std::int64_t* number = value->integer(); number && (*number == 0 || *number == 1)) {
    return *number == 1;
  }
  fail(key, "allowed are true and false");
}

std::optional<double> Keys::real(std::string_view key) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const double* number = value->real()) return *number;
  if (const std::int64_t* number = value->integer()) return static_cast<double>(*number);
  fail(key, "allowed is a number");
}

std::optional<std::string> Keys::text(std::string_view key) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const std::string* text = value->text()) return *text;
  fail(key, "allowed is a text");
}

std::optional<std::vector<std::int64_t>> Keys::integers(std::string_view key, std::int64_t min,
                                                        std::int64_t max) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const Value::List* list = value->list();
  if (list == nullptr) fail(key, "allowed is a list of whole numbers");
  std::vector<std::int64_t> numbers;
  numbers.reserve(list->size());
  for (const Value& item : *list) {
    if (const bool* flag = item.boolean(); flag != nullptr && min <= 0) {
      numbers.push_back(*flag ? 1 : 0);
      continue;
    }
    const std::int64_t* number = item.integer();
    if (number == nullptr || *number < min || *number > max) {
      fail(key, fmt::format("its item {} is {}: allowed are whole numbers in {}..{}",
                            numbers.size(), to_text(item), min, max));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> Keys::texts(std::string_view key) {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const Value::List* list = value->list();
  if (list == nullptr) fail(key, "allowed is a list of texts");
  std::vector<std::string> out;
  out.reserve(list->size());
  for (const Value& item : *list) {
    if (item.text() == nullptr) {
      fail(key, fmt::format("its item {} is {}: allowed are texts", out.size(), to_text(item)));
    }
    out.push_back(*item.text());
  }
  return out;
}

std::optional<std::int64_t> Keys::length(std::string_view key) const {
  const auto assumption = assumed_.find(key);
  const Value* value = assumption != assumed_.end() ? &assumption->second : in_file(key);
  if (value == nullptr || value->list() == nullptr) return std::nullopt;
  return static_cast<std::int64_t>(value->list()->size());
}

void Keys::understood(std::string_view key, std::string_view why) {
  if (assumed(key)) {
    throw Error(fmt::format("{}: the assumed {} would decide nothing: {}", file_, key, why));
  }
  if (asked_.find(key) != asked_.end()) return;
  asked_.emplace(key);
  if (const Value* value = in_file(key); value != nullptr && !value->is_null()) {
    note(std::string(key), to_text(*value), std::string(why));
    ignored_.emplace_back(key);
  }
}

void Keys::note(std::string key, std::string value, std::string reason) {
  notes_.push_back({std::move(key), std::move(value), std::move(reason)});
}

void Keys::fail(std::string_view key, const std::string& allowed) const {
  const auto assumption = assumed_.find(key);
  const Value* value = assumption != assumed_.end() ? &assumption->second : in_file(key);
  throw Error(fmt::format("{}: {} {}: {}", file_, key,
                          value == nullptr ? "is absent" : "is " + to_text(*value), allowed));
}

std::vector<std::string> Keys::names() const { return {asked_.begin(), asked_.end()}; }

bool Keys::asked_inside(const std::string& path) const {
  const std::string inside = path + ".";
  const auto next = asked_.lower_bound(inside);
  return next != asked_.end() && next->compare(0, inside.size(), inside) == 0;
}

void Keys::check_value(const Value& value, std::string_view name, const std::string& path) {
  if (asked_.find(path) != asked_.end() || ignore_.find(path) != ignore_.end()) return;
  if (assumed(path)) return;  // with null: finish() has let no other pass
  if (asked_inside(path)) {
    if (const Value::Object* object = value.object()) return check_known(*object, path + ".", "");
    if (const Value::List* list = value.list()) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        check_value((*list)[i], name, fmt::format("{}.{}", path, i));
      }
      return;
    }
  }
  const bool counts = is_relevant(name);
  if (!value.is_null() && !is_neutral(name)) {
    if (counts) {
      throw Error(
          fmt::format("{}: {} is {}: its name says that it may decide what is attended to or kept, "
                      "and it is not "
                      "understood{}; --assume {}=ignore reads the file without it",
                      file_, shown(path), to_text(value), near_miss(path, names()), shown(path)));
    }
    if (const Value::Object* object = value.object()) check_known(*object, path + ".", "");
  }
  ignored_.push_back(shown(path));
}

void Keys::check_known(const Value::Object& object, const std::string& path,
                       const std::string& skip) {
  for (const auto& [key, value] : object) {
    if (path.empty() && key == skip) continue;
    std::string_view name = key;
    if (!prefix_.empty() && path.empty()) {
      if (name.substr(0, prefix_.size()) != prefix_) {  // GGUF: general.*, tokenizer.*
        if (asked_.find(key) == asked_.end()) ignored_.push_back(key);
        continue;
      }
      name.remove_prefix(prefix_.size());
    }
    check_value(value, name, path + key);
  }
}

void Keys::finish() {
  for (const auto& [key, value] : assumed_) {
    if (asked_.find(key) != asked_.end()) continue;
    if (value.is_null() && in_file(key) != nullptr) {  // switches off what the file has
      note(key, "null", "assumed by the user");
      continue;
    }
    throw Error(
        fmt::format("{}: the assumed {} = {} is not a key that this model's reader asks for{}",
                    file_, key, to_text(value), near_miss(key, names())));
  }
  for (const std::string& key : ignore_) {
    if (resolve(inner_, key) != nullptr || resolve(outer_, key) != nullptr) {
      if (noted_.insert(key).second) note(key, "ignore", "left out as the user asked");
      continue;
    }
    if (asked_.find(key) == asked_.end()) {
      throw Error(fmt::format("{}: the assumed {} = ignore names a key that is not in the file{}",
                              file_, key, near_miss(key, names())));
    }
  }
  check_known(inner_, "", "");
  check_known(outer_, "", nested_);
}

}  // namespace lacuna::config

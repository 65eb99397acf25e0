#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "config/value.h"
#include "lacuna/error.h"

namespace lacuna::config {
namespace {

constexpr std::size_t kMaxDepth = 64;

// Builds Values while nlohmann parses: a duplicate key and a deep nesting are seen at once, and no
// recursion follows the input.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const std::string& name) : name_(name) {}

  bool null() override { return put(Value{}); }
  bool boolean(bool value) override { return put(Value{value}); }
  bool number_integer(number_integer_t value) override { return put(Value{std::int64_t{value}}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) {
      return put(Value{static_cast<double>(value)});
    }
    return put(Value{static_cast<std::int64_t>(value)});
  }
  bool number_float(number_float_t value, const string_t&) override { return put(Value{value}); }
  bool string(string_t& value) override { return put(Value{std::move(value)}); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Value{Value::Object{}}); }
  bool start_array(std::size_t) override { return open(Value{Value::List{}}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (!stack_.back().keys.insert(value).second) {
      throw Error(fmt::format("{}: the key '{}' stands twice in one object", name_, value));
    }
    stack_.back().key = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string what = error.what();
    const std::size_t bracket = what.find("] ");
    if (bracket != std::string::npos) what = what.substr(bracket + 2);
    for (char& c : what) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    throw Error(fmt::format("{}: not JSON at byte {}: {}", name_, position, what.substr(0, 160)));
  }

  Value take() { return std::move(root_); }

 private:
  struct Open {
    Value value;
    std::string key;  // of the member that is being read
    std::unordered_set<std::string> keys;
  };

  bool put(Value value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Open& top = stack_.back();
    if (auto* list = std::get_if<Value::List>(&top.value.data)) {
      list->push_back(std::move(value));
    } else {
      std::get<Value::Object>(top.value.data).push_back({std::move(top.key), std::move(value)});
    }
    return true;
  }
  bool open(Value value) {
    if (stack_.size() >= kMaxDepth) {
      throw Error(fmt::format("{}: nested deeper than {}", name_, kMaxDepth));
    }
    stack_.push_back({std::move(value), "", {}});
    return true;
  }
  bool close() {
    Value value = std::move(stack_.back().value);
    stack_.pop_back();
    return put(std::move(value));
  }

  const std::string& name_;
  std::vector<Open> stack_;
  Value root_;
};

// Python's json module writes NaN and Infinity bare, and real configs hold them (Nemotron-H's
// time_step_limit). They are replaced outside of strings.
std::string without_python_numbers(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < json.size()) out += json[++i];
      if (c == '"') in_string = false;
      continue;
    }
    bool replaced = false;
    for (std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (json.substr(i, word.size()) == word) {
        out += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (replaced) continue;
    in_string = c == '"';
    out += c;
  }
  return out;
}

void append_text(const Value& value, std::string& out) {
  constexpr std::size_t kLongest = 60;
  if (out.size() > kLongest) return;
  if (value.is_null()) {
    out += "null";
  } else if (const bool* flag = value.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const std::int64_t* number = value.integer()) {
    out += fmt::format("{}", *number);
  } else if (const double* real = value.real()) {
    out += fmt::format("{}", *real);
  } else if (const std::string* text = value.text()) {
    out += '"';
    for (const char c : text->substr(0, kLongest))
      out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    out += '"';
  } else if (const Value::List* list = value.list()) {
    out += '[';
    for (std::size_t i = 0; i < list->size() && out.size() <= kLongest; ++i) {
      if (i > 0) out += ", ";
      append_text((*list)[i], out);
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, inner] : *value.object()) {
      if (out.size() > kLongest) break;
      if (!first) out += ", ";
      first = false;
      out += key + ": ";
      append_text(inner, out);
    }
    out += '}';
  }
}

}  // namespace

const Value* member(const Value::Object& object, std::string_view key) {
  for (const auto& [name, value] : object) {
    if (name == key) return &value;
  }
  return nullptr;
}

Value parse_json(std::string_view json, const std::string& name) {
  const std::string text = without_python_numbers(json);
  Builder builder(name);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(value, out);
  if (out.size() > 72) out = out.substr(0, 69) + "...";
  return out;
}

}  // namespace lacuna::config

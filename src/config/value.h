#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lacuna::config {

// One value of a config file, JSON or GGUF alike. A plain value; objects keep the file's order.
// Integers beyond 64 bits signed are doubles, and so are refused where an integer is wanted.
struct Value {
  using List = std::vector<Value>;
  struct Member;
  using Object = std::vector<Member>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Object> data;

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data); }
  const double* real() const { return std::get_if<double>(&data); }
  const std::string* text() const { return std::get_if<std::string>(&data); }
  const List* list() const { return std::get_if<List>(&data); }
  const Object* object() const { return std::get_if<Object>(&data); }
};

struct Value::Member {
  std::string key;
  Value value;
};

// The value of `key` in an object, or nullptr.
const Value* member(const Value::Object& object, std::string_view key);

// JSON text as a value. Throws Error naming `name` where the text is not JSON, is nested deeper
// than 64, or names a key twice. NaN and Infinity, which Python writes, are read as null.
Value parse_json(std::string_view json, const std::string& name);

// The value as JSON-like text on one line, cut after about 60 characters.
std::string to_text(const Value& value);

}  // namespace lacuna::config

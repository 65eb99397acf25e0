#include "lacuna/policy.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "cost/held_model.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// Far above any real number, and small enough that no sum of ours exceeds 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 40;

struct Parameter {
  const char* name;
  std::int64_t value;  // the default
  std::int64_t least;
  std::int64_t most;
};

struct Row {
  const char* name;
  std::vector<Parameter> params;
};

// 64 tokens are Lacuna's own page; the others are the defaults of the modelled engines.
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"exact", {}},
      {"paged", {{"P", 64, 1, kMost}, {"in_flight", 1, 0, kMost}, {"rollback", 0, 0, kMost}}},
      {"full", {}},
      {"uniform", {{"P", 16, 1, kMost}}},
      {"pool", {{"P", 16, 1, kMost}, {"batched", 8192, 1, kMost}}},
      {"iswa",
       {{"ubatch", 512, 1, kMost},
        {"pad", 256, 1, kMost},
        {"seqs", 1, 1, 1 << 20},
        {"unified", 1, 0, 1}}},
      {"hf_dynamic", {}},
      {"hf_static", {}},
      {"rolling", {}},
  };
  return kRows;
}

const Row& row_of(std::string_view name) {
  for (const Row& row : rows()) {
    if (row.name == name) return row;
  }
  throw Error(fmt::format("policy is '{}'; allowed: {}{}", name, fmt::join(policy_names(), ", "),
                          did_you_mean(name, policy_names())));
}

std::vector<std::string> parameter_names(const Row& row) {
  std::vector<std::string> names;
  for (const Parameter& parameter : row.params) names.emplace_back(parameter.name);
  return names;
}

const Parameter& parameter_of(const Row& row, std::string_view name) {
  for (const Parameter& parameter : row.params) {
    if (parameter.name == name) return parameter;
  }
  const std::vector<std::string> names = parameter_names(row);
  throw Error(fmt::format("parameter of policy {} is '{}'; allowed: {}{}", row.name, name,
                          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                          did_you_mean(name, names)));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// One `name=value` of the list.
void read_parameter(const Row& row, std::string_view text, Policy& policy) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    throw Error(fmt::format("policy {} is given '{}'; allowed: name=value with {}", row.name,
                            trimmed(text), fmt::join(parameter_names(row), ", ")));
  }
  const Parameter& parameter = parameter_of(row, trimmed(text.substr(0, equals)));
  std::string_view value = trimmed(text.substr(equals + 1));
  if (value == "true") value = "1";
  if (value == "false") value = "0";
  policy.params[parameter.name] =
      parse_int64(value, fmt::format("{} of policy {}", parameter.name, row.name), parameter.least,
                  parameter.most);
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.name);
  return names;
}

Policy parse_policy(std::string_view text) {
  const std::string_view whole = trimmed(text);
  const std::size_t open = whole.find('(');
  const Row& row = row_of(trimmed(whole.substr(0, open)));
  Policy policy{row.name, {}};
  for (const Parameter& parameter : row.params) policy.params[parameter.name] = parameter.value;
  if (open == std::string_view::npos) return policy;
  if (whole.back() != ')') {
    throw Error(fmt::format("policy is '{}'; allowed: a ')' at its end", whole));
  }
  std::string_view list = whole.substr(open + 1, whole.size() - open - 2);
  std::vector<std::string> given;
  while (!trimmed(list).empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    read_parameter(row, part, policy);
    given.emplace_back(trimmed(part.substr(0, part.find('='))));
    if (std::ranges::count(given, given.back()) > 1) {
      throw Error(
          fmt::format("{} of policy {} is given twice; allowed: once", given.back(), row.name));
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return policy;
}

std::string to_text(const Policy& policy) {
  check_policy(policy);
  std::string list;
  for (const std::string& name : parameter_names(row_of(policy.name))) {
    list += fmt::format("{}{}={}", list.empty() ? "" : ", ", name, policy.params.at(name));
  }
  return list.empty() ? policy.name : fmt::format("{}({})", policy.name, list);
}

void check_policy(const Policy& policy) {
  const Row& row = row_of(policy.name);
  for (const auto& [name, value] : policy.params) {
    const Parameter& parameter = parameter_of(row, name);
    if (value < parameter.least || value > parameter.most) {
      throw Error(fmt::format("{} of policy {} is {}; allowed: {}..{}", name, row.name, value,
                              parameter.least, parameter.most));
    }
  }
  for (const Parameter& parameter : row.params) {
    if (!policy.params.contains(parameter.name)) {
      throw Error(fmt::format("policy {} has no {}; allowed: {}..{}", row.name, parameter.name,
                              parameter.least, parameter.most));
    }
  }
}

std::int64_t param(const Policy& policy, const std::string& name) { return policy.params.at(name); }

Held held(const Policy& policy, const LayerTable& table, const ModelShape& shape,
          const HeldQuery& query) {
  const HeldModel model(policy, table, shape, query.kv_dtype);
  return model.held(query.length, query.max_length == 0 ? query.length : query.max_length);
}

}  // namespace lacuna

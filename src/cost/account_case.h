#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lacuna/engine_account.h"

namespace lacuna {

// What one attempt to account for a start works with; a suspected cause changes one part of it.
struct AccountCase {
  const EngineStart* start = nullptr;
  LayerTable table;
  ModelShape shape;
  AccountFlags flags;
};

// What the attempts of one engine gave: a policy each, with every line judged.
struct AccountAttempts {
  std::vector<AccountPolicy> policies;
  std::vector<AccountParameter> parameters;
  std::vector<std::string> notes;
};
AccountAttempts llama_attempts(const AccountCase& about);
AccountAttempts vllm_attempts(const AccountCase& about);

// Values with where they come from: the log, then a flag, then a default.
class ParameterList {
 public:
  explicit ParameterList(const EngineStart& start) : start_(start) {}

  // nullopt where neither the log nor the flag says it.
  std::optional<std::int64_t> find(const std::string& name, const std::string& flag,
                                   const std::optional<std::int64_t>& given);
  std::int64_t get(const std::string& name, const std::string& flag,
                   const std::optional<std::int64_t>& given, std::int64_t otherwise);
  void add(const std::string& name, const std::string& value, const std::string& source);
  std::vector<AccountParameter> take() { return std::move(list_); }

 private:
  const EngineStart& start_;
  std::vector<AccountParameter> list_;
};

// A line whose prediction is low..high.
AccountLine judged(const LogFigure& figure, Int128 low, Int128 high, Equation equation);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lacuna/engine_account.h"

namespace lacuna::cli {

struct ExplainFlags {
  ModelFlags model;
  std::string log;
  std::optional<std::int64_t> start;  // of the log, from 1; nullopt: all
  AccountFlags account;
  bool json = false;
};

void add_explain_flags(CLI::App& app, ExplainFlags& flags);
// Prints what accounts for the log's figures; returns a sentence for each start with a line that
// differs. Throws Error as the readers do, and where the log speaks of no KV cache.
std::vector<std::string> explain(const ExplainFlags& flags,
                                 const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli

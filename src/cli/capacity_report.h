#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"

namespace lacuna::cli {

struct CapacityFlags {
  ModelFlags model;
  std::string memory_budget;
  std::int64_t requests = 1;
  std::string lengths;
  std::optional<std::int64_t> prompt;
  std::string ttft;
  std::string tpot;
  std::string margin;
  std::string weight_bytes;
  std::string kv_dtype = "bf16";
  std::int64_t page_size = 64;
  std::int64_t threads = 0;
  std::vector<std::string> policies;
  std::string hardware;
  bool json = false;
};

void add_capacity_flags(CLI::App& app, CapacityFlags& flags);

// Tokens and requests that a budget holds under each policy, the largest window, and what each
// lever buys; as text, or as JSON with the keys of docs/schema/capacity.schema.json.
std::string capacity(const CapacityFlags& flags);

}  // namespace lacuna::cli

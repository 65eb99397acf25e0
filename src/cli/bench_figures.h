#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/json.h"
#include "lacuna/cpu.h"
#include "lacuna/kernel_speed.h"
#include "lacuna/statistics.h"

namespace lacuna::cli {

// What `bench kernels` and `bench decode` say in the same words.

template <typename Items, typename ToJson>
Json list_json(const Items& items, const ToJson& to_json) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}
Json statistics_json(const Statistics& value);
Json goals_json(std::span<const KernelGoal> goals);
// The machine as documents of models and caches name it.
Json machine_json(const CpuInfo& cpu);
std::string document_text(const Json& document);

std::string share_text(double share);
std::string giga_text(double per_s);
// "median (p10..p90)".
std::string spread_text(const Statistics& value, double scale);
std::string machine_text(const CpuInfo& cpu);
// Below an empty line; nothing where there are none.
std::string goals_text(std::span<const KernelGoal> goals);

}  // namespace lacuna::cli

#include "cli/bench_figures.h"

#include <fmt/format.h>

#include "lacuna/kernels.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

Json goal_json(const KernelGoal& goal) {
  return {{"what", goal.what},
          {"unit", goal.unit},
          {"bound", goal.bound},
          {"at_most", goal.at_most},
          {"value", json_of(goal.value)},
          {"met", goal.met()}};
}

std::string value_text(const KernelGoal& goal, double value) {
  if (goal.unit == "share") return share_text(value);
  if (goal.unit == "MiB") return fmt::format("{:.1f} MiB", value);
  return fmt::format("{:.3f}{}", value, goal.unit == "ms" ? " ms" : "");
}

}  // namespace

Json statistics_json(const Statistics& value) {
  return {{"p10", value.p10}, {"p50", value.p50}, {"p90", value.p90},
          {"min", value.min}, {"max", value.max}, {"num_runs", value.num_runs}};
}

Json goals_json(std::span<const KernelGoal> goals) { return list_json(goals, goal_json); }

Json machine_json(const CpuInfo& cpu) {
  return {{"cpu", cpu.model_name},
          {"num_allowed_cpus", cpu.num_allowed_cpus},
          {"last_level_total_bytes", json_of(cpu.last_level_total_bytes)},
          {"isas", kernel_isas()}};
}

std::string document_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string giga_text(double per_s) { return fmt::format("{:.1f}", per_s * 1e-9); }

std::string spread_text(const Statistics& value, double scale) {
  return fmt::format("{:.3g} ({:.3g}..{:.3g})", value.p50 * scale, value.p10 * scale,
                     value.p90 * scale);
}

std::string machine_text(const CpuInfo& cpu) {
  std::string text = fmt::format("{}, {} CPU(s)", printable(cpu.model_name), cpu.num_allowed_cpus);
  if (cpu.last_level_total_bytes) {
    text += ", last-level cache " + bytes_text(*cpu.last_level_total_bytes);
  }
  return text + "\n";
}

std::string goals_text(std::span<const KernelGoal> goals) {
  if (goals.empty()) return "";
  Table table({{"what", Align::kLeft},
               {"wanted", Align::kRight},
               {"measured", Align::kRight},
               {"", Align::kLeft}});
  for (const KernelGoal& goal : goals) {
    const std::string bound = (goal.at_most ? "<= " : ">= ") + value_text(goal, goal.bound);
    if (goal.value) {
      table.add_row(
          {goal.what, bound, value_text(goal, *goal.value), goal.met() ? "" : "not reached"});
    } else {
      table.add_row({goal.what, bound, std::string(kNoFigure), "not timed"});
    }
  }
  return "\n" + table.text();
}

}  // namespace lacuna::cli

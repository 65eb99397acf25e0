#include <algorithm>
#include <cmath>

#include "lacuna/error.h"
#include "lacuna/probe.h"

namespace lacuna {
namespace {

std::int64_t percent(double fraction) { return std::llround(fraction * 100); }

std::string runs_text(const MeasuredRate& rate) {
  return "median of " + std::to_string(rate.num_runs) + " runs, " +
         std::to_string(percent(rate.min / rate.median)) + ".." +
         std::to_string(percent(rate.max / rate.median)) + " % of it";
}

// With all threads; nothing where the product was not measured.
std::optional<double> peak(const std::vector<FlopRateRow>& rows) {
  if (rows.empty()) return std::nullopt;
  return rows.back().flops_per_s.median;
}

std::string product_text(const char* name, const std::vector<FlopRateRow>& rows) {
  if (rows.empty()) return "";
  const FlopRateRow& row = rows.back();
  return std::string(name) + " with " + row.isa + ", " + runs_text(row.flops_per_s) + "; ";
}

double lowest_cpu_share(const ProbeResult& result) {
  double lowest = result.bandwidth.back().bytes_per_s.cpu_share;
  for (const auto* rows : {&result.fma_f32, &result.dot_bf16, &result.dot_int8}) {
    if (!rows->empty()) lowest = std::min(lowest, rows->back().flops_per_s.cpu_share);
  }
  return lowest;
}

std::vector<std::string> probe_notes(const ProbeResult& result) {
  constexpr double kQuietShare = 0.9;
  std::vector<std::string> notes = {"fp8 products are not measured"};
  const auto absent = [&notes](const char* name, const std::vector<FlopRateRow>& rows) {
    if (rows.empty()) notes.push_back(std::string("no instruction for a dot product of ") + name);
  };
  absent("bf16", result.dot_bf16);
  absent("int8", result.dot_int8);
  const double cpu_share = lowest_cpu_share(result);
  if (cpu_share < kQuietShare) {
    notes.push_back("other work shared the machine: the probe's threads ran " +
                    std::to_string(percent(cpu_share)) +
                    " % of the time and its figures are too low; measure again when it is quiet");
  }
  if (!result.cpu.last_level_total_bytes) {
    notes.push_back("the system does not state its last-level cache");
  } else if (result.bandwidth.back().working_set_bytes < 2 * *result.cpu.last_level_total_bytes) {
    notes.push_back("the largest working set may still lie in the last-level cache");
  }
  return notes;
}

}  // namespace

Device as_device(const ProbeResult& result) {
  if (result.fma_f32.empty() || result.bandwidth.empty()) {
    throw Error("the probe result has no rows; allowed: results of probe()");
  }
  Device device;
  device.name = "probe";
  device.label = result.cpu.model_name + ", " + std::to_string(result.num_threads) +
                 (result.num_threads == 1 ? " thread" : " threads");
  const ReadBandwidthRow& largest = result.bandwidth.back();
  device.fp32_flops_per_s = peak(result.fma_f32);
  device.bf16_flops_per_s = peak(result.dot_bf16);
  device.int8_ops_per_s = peak(result.dot_int8);
  device.bandwidth_bytes_per_s = largest.bytes_per_s.median;
  device.capacity_bytes = result.memory.total_bytes;
  device.capacity_kind = CapacityKind::kReported;
  device.provenance =
      "measured on this machine: " + product_text("f32 multiply-add", result.fma_f32) +
      product_text("bf16 dot product", result.dot_bf16) +
      product_text("int8 dot product", result.dot_int8) + "read bandwidth at a working set of " +
      std::to_string(largest.working_set_bytes) + " bytes, " + runs_text(largest.bytes_per_s);
  device.notes = probe_notes(result);
  for (const ReadBandwidthRow& row : result.bandwidth) {
    if (row.num_threads != result.num_threads) continue;
    device.bandwidth_by_working_set.push_back({row.working_set_bytes, row.bytes_per_s.median});
  }
  return device;
}

}  // namespace lacuna

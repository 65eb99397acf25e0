#include "lacuna/machine.h"

#include <algorithm>
#include <cctype>

#include "lacuna/error.h"
#include "machine/device_table.h"

namespace lacuna {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return lower;
}

// "H100" means "h100-sxm": a name that begins with the word is nearer than any edit distance says.
std::string near_miss(std::string_view name, const std::vector<std::string>& names) {
  const std::string word = lower_case(name.substr(0, 64));
  for (const std::string& candidate : names) {
    if (word.size() >= 2 && candidate.starts_with(word)) {
      return "; did you mean '" + candidate + "'?";
    }
  }
  return did_you_mean(word, names);
}

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device> table = make_device_table();
  return table;
}

const Device& device(std::string_view name) {
  std::vector<std::string> names;
  std::string allowed;
  for (const Device& row : devices()) {
    if (row.name == name) return row;
    names.push_back(row.name);
    allowed += (allowed.empty() ? "" : ", ") + row.name;
  }
  throw Error("no device '" + std::string(name.substr(0, 64)) + "'; allowed: " + allowed +
              near_miss(name, names));
}

BandwidthPoint bandwidth_at(const Device& device, std::int64_t working_set_bytes) {
  const std::vector<BandwidthPoint>& points = device.bandwidth_by_working_set;
  if (points.empty()) return {0, device.bandwidth_bytes_per_s};
  for (const BandwidthPoint& point : points) {
    if (point.working_set_bytes >= working_set_bytes) return point;
  }
  return points.back();
}

std::optional<double> ridge_flops_per_byte(std::optional<double> flops_per_s,
                                           double bandwidth_bytes_per_s) {
  if (!flops_per_s) return std::nullopt;
  return *flops_per_s / bandwidth_bytes_per_s;
}

std::optional<double> peak_flops_per_s(const Device& device) {
  return std::max(device.bf16_flops_per_s, device.fp32_flops_per_s);  // absent is the least
}

std::string_view to_string(CapacityKind kind) {
  return kind == CapacityKind::kMarketing ? "marketing" : "reported";
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

// What a capacity figure is. Device bytes are never derived from a marketing figure.
enum class CapacityKind {
  kMarketing,  // the decimal "80 GB" of a data sheet; what a device reports is another number
  kReported,   // bytes that the device or the system itself states
};

// Read bandwidth over a working set of a given size: below the last-level cache it is not DRAM's.
struct BandwidthPoint {
  std::int64_t working_set_bytes = 0;
  double bytes_per_s = 0;

  bool operator==(const BandwidthPoint&) const = default;
};

// What one device can do. Plain data, decimal units. Peaks are dense (never a figure with
// structured sparsity) and absent where none is published; a CPU's are those of the whole socket.
// Every row says where its numbers come from, and its notes say which of them are derived,
// unchecked or disputed.
struct Device {
  std::string name = {};   // stable key: "h100-sxm"
  std::string label = {};  // for people: "NVIDIA H100 SXM 80 GB"
  std::optional<double> bf16_flops_per_s = std::nullopt;
  std::optional<double> fp8_flops_per_s = std::nullopt;
  std::optional<double> fp4_flops_per_s = std::nullopt;
  std::optional<double> int8_ops_per_s = std::nullopt;
  std::optional<double> fp32_flops_per_s = std::nullopt;
  double bandwidth_bytes_per_s = 0;  // of main memory; > 0
  std::optional<std::int64_t> capacity_bytes = std::nullopt;
  CapacityKind capacity_kind = CapacityKind::kMarketing;  // means nothing without capacity_bytes
  std::optional<double> power_watts = std::nullopt;
  std::string provenance = {};
  std::vector<std::string> notes = {};
  // Measured devices only, ascending by working set; empty where only one figure is known.
  std::vector<BandwidthPoint> bandwidth_by_working_set = {};

  bool operator==(const Device&) const = default;
};

// The bandwidth to use for a step that reads `working_set_bytes` over and over, and the working set
// it is a figure for: the smallest measured one that is not smaller, else the largest measured one.
// Without measured ones: the device's bandwidth with working_set_bytes 0 ("of main memory, any
// size").
BandwidthPoint bandwidth_at(const Device& device, std::int64_t working_set_bytes);

// FLOP per byte at which the two bounds meet; absent where the peak is.
std::optional<double> ridge_flops_per_byte(std::optional<double> flops_per_s,
                                           double bandwidth_bytes_per_s);

// The faster of the bf16 and f32 peaks: 16-bit numbers may be widened and multiplied as f32, and on
// some processors that is what is fast. Absent where both are.
std::optional<double> peak_flops_per_s(const Device& device);

// The table of real devices, in its stable order. Thread-safe.
const std::vector<Device>& devices();

// The row with this name. Throws Error naming `name`, all names, and a near miss.
const Device& device(std::string_view name);

// Device files: one JSON object with "format": "lacuna-device", "format_version": 1 and the members
// of Device under their own names; "capacity_kind" is "marketing" or "reported" and required with
// capacity_bytes. Required: name, bandwidth_bytes_per_s. Absent or null: not published; an absent
// label is the name, an absent provenance is the source of the text. Numbers are positive and
// finite. An unknown, repeated or wrongly typed key is an Error naming the source and the key.
std::string device_to_json_text(const Device& device);
Device device_from_json_text(const std::string& text, const std::string& source);
Device read_device_file(const std::string& path);  // at most 1 MiB

std::string_view to_string(CapacityKind kind);

}  // namespace lacuna

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/machine.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lacuna-device";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kLongestFileBytes = 1 << 20;
constexpr std::size_t kLongestText = 4096;

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys = {"format",
                                                "format_version",
                                                "name",
                                                "label",
                                                "bf16_flops_per_s",
                                                "fp8_flops_per_s",
                                                "fp4_flops_per_s",
                                                "int8_ops_per_s",
                                                "fp32_flops_per_s",
                                                "capacity_bytes",
                                                "bandwidth_bytes_per_s",
                                                "capacity_kind",
                                                "power_watts",
                                                "provenance",
                                                "notes",
                                                "bandwidth_by_working_set"};
  return keys;
}

// As JSON text in ASCII, so that a message stays one printable line.
std::string ascii_text(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64);
}

// Reads the members of one object; every message names the source and the key.
class Reader {
 public:
  Reader(const Json& object, std::string source) : object_(object), source_(std::move(source)) {}

  void only(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        throw Error(source_ + ": unknown key " + ascii_text(key) + did_you_mean(key, keys));
      }
    }
  }

  // Null where the key is absent or null.
  const Json* find(const char* key) const {
    const auto member = object_.find(key);
    return member == object_.end() || member->is_null() ? nullptr : &*member;
  }

  std::optional<double> number(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : 0;
    if (!std::isfinite(number) || number <= 0) fail(key, *value, "positive finite numbers");
    return number;
  }

  std::optional<std::int64_t> whole(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    const std::int64_t number = value->is_number_integer() ? value->get<std::int64_t>() : 0;
    if (number <= 0) fail(key, *value, "whole numbers 1..2^63-1");
    return number;
  }

  std::optional<std::string> text(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string() || value->get_ref<const std::string&>().empty() ||
        value->get_ref<const std::string&>().size() > kLongestText) {
      fail(key, *value, "texts of 1.." + std::to_string(kLongestText) + " bytes");
    }
    return value->get<std::string>();
  }

  template <typename Value>
  Value required(const char* key, std::optional<Value> value) const {
    if (!value) throw Error(source_ + ": key '" + key + "' is missing");
    return *std::move(value);
  }

  [[noreturn]] void fail(const std::string& key, const Json& value,
                         const std::string& allowed) const {
    throw Error(source_ + ": '" + key + "' is " + ascii_text(value) + "; allowed: " + allowed);
  }

 private:
  const Json& object_;
  std::string source_;
};

// The library keeps the last of repeated keys; a file that says two things is refused instead.
Json parse_object(const std::string& text, const std::string& source) {
  std::vector<std::set<std::string>> seen;
  std::optional<std::string> repeated;
  const auto callback = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key && !seen.back().insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, callback);
  } catch (const Json::exception& error) {
    throw Error(source + ": not JSON: " + error.what());
  }
  if (repeated) throw Error(source + ": key " + ascii_text(*repeated) + " is repeated");
  if (!json.is_object()) throw Error(source + ": expected one JSON object");
  return json;
}

void check_format(const Reader& reader) {
  const std::string format = reader.required("format", reader.text("format"));
  if (format != kFormat) reader.fail("format", format, std::string("\"") + kFormat + "\"");
  const std::int64_t version = reader.required("format_version", reader.whole("format_version"));
  if (version != kFormatVersion) reader.fail("format_version", version, "1");
}

void read_capacity(Device& device, const Reader& reader) {
  device.capacity_bytes = reader.whole("capacity_bytes");
  const std::optional<std::string> kind = reader.text("capacity_kind");
  if (!kind && !device.capacity_bytes) return;
  const std::string named = reader.required("capacity_kind", kind);
  if (named != "marketing" && named != "reported") {
    reader.fail("capacity_kind", named, "\"marketing\" or \"reported\"");
  }
  device.capacity_kind = named == "marketing" ? CapacityKind::kMarketing : CapacityKind::kReported;
}

std::vector<std::string> read_notes(const Reader& reader) {
  std::vector<std::string> notes;
  const Json* const value = reader.find("notes");
  if (value == nullptr) return notes;
  if (!value->is_array()) reader.fail("notes", *value, "a list of texts");
  for (const Json& note : *value) {
    if (!note.is_string()) reader.fail("notes", note, "a list of texts");
    notes.push_back(note.get<std::string>());
  }
  return notes;
}

std::vector<BandwidthPoint> read_points(const Reader& reader, const std::string& source) {
  constexpr const char* kKey = "bandwidth_by_working_set";
  std::vector<BandwidthPoint> points;
  const Json* const value = reader.find(kKey);
  if (value == nullptr) return points;
  if (!value->is_array()) reader.fail(kKey, *value, "a list of objects");
  for (const Json& entry : *value) {
    if (!entry.is_object()) reader.fail(kKey, entry, "a list of objects");
    const Reader point(entry, source + ": " + kKey);
    point.only({"working_set_bytes", "bytes_per_s"});
    const auto set_bytes = point.required("working_set_bytes", point.whole("working_set_bytes"));
    if (!points.empty() && set_bytes <= points.back().working_set_bytes) {
      point.fail("working_set_bytes", set_bytes, "ascending sizes");
    }
    points.push_back({set_bytes, point.required("bytes_per_s", point.number("bytes_per_s"))});
  }
  return points;
}

Json optional_json(const auto& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

Device device_from_json_text(const std::string& text, const std::string& source) {
  const Json json = parse_object(text, source);
  const Reader reader(json, source);
  check_format(reader);
  reader.only(known_keys());
  Device device;
  device.name = reader.required("name", reader.text("name"));
  device.label = reader.text("label").value_or(device.name);
  device.bf16_flops_per_s = reader.number("bf16_flops_per_s");
  device.fp8_flops_per_s = reader.number("fp8_flops_per_s");
  device.fp4_flops_per_s = reader.number("fp4_flops_per_s");
  device.int8_ops_per_s = reader.number("int8_ops_per_s");
  device.fp32_flops_per_s = reader.number("fp32_flops_per_s");
  device.bandwidth_bytes_per_s =
      reader.required("bandwidth_bytes_per_s", reader.number("bandwidth_bytes_per_s"));
  read_capacity(device, reader);
  device.power_watts = reader.number("power_watts");
  device.provenance = reader.text("provenance").value_or(source);
  device.notes = read_notes(reader);
  device.bandwidth_by_working_set = read_points(reader, source);
  return device;
}

std::string device_to_json_text(const Device& device) {
  Json json;
  json["format"] = kFormat;
  json["format_version"] = kFormatVersion;
  json["name"] = device.name;
  json["label"] = device.label;
  json["bf16_flops_per_s"] = optional_json(device.bf16_flops_per_s);
  json["fp8_flops_per_s"] = optional_json(device.fp8_flops_per_s);
  json["fp4_flops_per_s"] = optional_json(device.fp4_flops_per_s);
  json["int8_ops_per_s"] = optional_json(device.int8_ops_per_s);
  json["fp32_flops_per_s"] = optional_json(device.fp32_flops_per_s);
  json["bandwidth_bytes_per_s"] = device.bandwidth_bytes_per_s;
  json["capacity_bytes"] = optional_json(device.capacity_bytes);
  json["capacity_kind"] =
      device.capacity_bytes ? Json(std::string(to_string(device.capacity_kind))) : Json(nullptr);
  json["power_watts"] = optional_json(device.power_watts);
  json["provenance"] = device.provenance;
  json["notes"] = device.notes;
  json["bandwidth_by_working_set"] = Json::array();
  for (const BandwidthPoint& point : device.bandwidth_by_working_set) {
    json["bandwidth_by_working_set"].push_back(
        {{"working_set_bytes", point.working_set_bytes}, {"bytes_per_s", point.bytes_per_s}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Device read_device_file(const std::string& path) {
  return device_from_json_text(read_file(path, kLongestFileBytes), path);
}

}  // namespace lacuna

#include <gtest/gtest.h>

#include <filesystem>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/machine.h"

namespace lacuna {
namespace {

// A device file whose members after the format are `members`.
std::string file_with(const std::string& members) {
  return R"({"format": "lacuna-device", "format_version": 1, )" + members + "}";
}

std::string error_of(const std::string& text) {
  try {
    device_from_json_text(text, "box.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const std::string& text, const std::string& named) {
  const std::string message = error_of(text);
  EXPECT_NE(message.find("box.json"), std::string::npos) << text << " -> " << message;
  EXPECT_NE(message.find(named), std::string::npos) << text << " -> " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

constexpr const char* kSmallest = R"("name": "x", "bandwidth_bytes_per_s": 1e9)";

TEST(DeviceFile, EveryRowOfTheTableSurvivesTheRoundTrip) {
  for (const Device& row : devices()) {
    EXPECT_EQ(device_from_json_text(device_to_json_text(row), "row"), row) << row.name;
  }
}

TEST(DeviceFile, MeasuredBandwidthsSurviveTheRoundTrip) {
  Device device;
  device.name = "box";
  device.label = "a \"box\" – of mine";
  device.bandwidth_bytes_per_s = 25.7e9 / 3;
  device.provenance = "measured";
  device.bandwidth_by_working_set = {{1 << 20, 98.7e9}, {std::int64_t{1} << 30, 25.7e9 / 3}};
  EXPECT_EQ(device_from_json_text(device_to_json_text(device), "box"), device);
}

TEST(DeviceFile, AbsentIsNotPublished) {
  const Device device = device_from_json_text(file_with(kSmallest), "box.json");
  EXPECT_EQ(device.label, "x");
  EXPECT_EQ(device.provenance, "box.json");
  EXPECT_FALSE(device.bf16_flops_per_s || device.fp32_flops_per_s || device.capacity_bytes);
  EXPECT_EQ(device.bandwidth_bytes_per_s, 1e9);
}

TEST(DeviceFile, IsReadFromAPath) {
  const std::string path = testing::TempDir() + "/lacuna_device_file_test.json";
  write_file(path, file_with(kSmallest));
  EXPECT_EQ(read_device_file(path).name, "x");
  std::filesystem::remove(path);
  EXPECT_THROW(read_device_file(path), Error);
}

TEST(DeviceFile, UnknownKeyIsNamedWithANearMiss) {
  expect_refused(file_with(std::string(kSmallest) + R"(, "bf16_flops_pers": 1)"),
                 "unknown key \"bf16_flops_pers\"; did you mean 'bf16_flops_per_s'");
  expect_refused(file_with(std::string(kSmallest) + ", \"a\\nb\": 1"), "unknown key \"a\\nb\"");
}

TEST(DeviceFile, RepeatedKeyIsRefused) {
  expect_refused(file_with(std::string(kSmallest) + R"(, "name": "y")"), "\"name\" is repeated");
}

TEST(DeviceFile, WrongTypesAndRangesNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("name": 5)", "'name' is 5"},
      {R"("name": "")", "'name'"},
      {R"("name": "x")", "'bandwidth_bytes_per_s' is missing"},
      {R"("bandwidth_bytes_per_s": 1)", "'name' is missing"},
      {R"("name": "x", "bandwidth_bytes_per_s": -1)", "'bandwidth_bytes_per_s' is -1"},
      {R"("name": "x", "bandwidth_bytes_per_s": 0)", "'bandwidth_bytes_per_s' is 0"},
      {R"("name": "x", "bandwidth_bytes_per_s": "fast")", "'bandwidth_bytes_per_s'"},
      {R"("name": "x", "bandwidth_bytes_per_s": [1])", "'bandwidth_bytes_per_s'"},
      {R"("name": "x", "bandwidth_bytes_per_s": true)", "'bandwidth_bytes_per_s'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "power_watts": {})", "'power_watts'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "capacity_bytes": 1.5)", "'capacity_bytes'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "capacity_bytes": 18446744073709551615)",
       "'capacity_bytes'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "capacity_bytes": 5)",
       "'capacity_kind' is missing"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "capacity_kind": "big")", "'capacity_kind'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "notes": "one")", "'notes'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "notes": [1])", "'notes'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "bandwidth_by_working_set": [1])",
       "'bandwidth_by_working_set'"},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "bandwidth_by_working_set": [{"bytes": 1}])",
       "unknown key \"bytes\""},
      {R"("name": "x", "bandwidth_bytes_per_s": 1, "bandwidth_by_working_set":
          [{"working_set_bytes": 2, "bytes_per_s": 1}, {"working_set_bytes": 2, "bytes_per_s": 1}])",
       "ascending"}};
  for (const auto& [members, named] : cases) expect_refused(file_with(members), named);
}

TEST(DeviceFile, FormatAndVersionAreChecked) {
  expect_refused("{}", "'format' is missing");
  expect_refused(R"({"format": "other"})", "'format'");
  expect_refused(R"({"format": "lacuna-device"})", "'format_version' is missing");
  expect_refused(R"({"format": "lacuna-device", "format_version": 2})", "'format_version' is 2");
}

TEST(DeviceFile, TextThatIsNotOneJsonObjectIsRefused) {
  for (const char* text : {"", "[]", "3", "null", "{", "{\"a\": NaN}", "{\"a\": 1e999}", "\xff\xfe",
                           "{} {}", "{\"a\": Infinity}"}) {
    expect_refused(text, "");
  }
  expect_refused(std::string(100'000, '['), "");
}

}  // namespace
}  // namespace lacuna

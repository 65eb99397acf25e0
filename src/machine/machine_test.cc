#include "lacuna/machine.h"

#include <gtest/gtest.h>

#include <set>

#include "lacuna/error.h"

namespace lacuna {
namespace {

std::string error_of(std::string_view name) {
  try {
    device(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceTable, EveryRowHasBandwidthProvenanceAndItsOwnName) {
  std::set<std::string> names;
  for (const Device& row : devices()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.label.empty()) << row.name;
    EXPECT_FALSE(row.provenance.empty()) << row.name;
    EXPECT_GT(row.bandwidth_bytes_per_s, 1e11) << row.name;
    EXPECT_NE(row.name, "probe");
    EXPECT_FALSE(row.power_watts) << row.name;
  }
  EXPECT_EQ(names.size(), 22U);
}

TEST(DeviceTable, AppleRowsHaveNoMatrixPeak) {
  for (const Device& row : devices()) {
    if (row.label.rfind("Apple", 0) != 0) continue;
    EXPECT_FALSE(row.bf16_flops_per_s || row.fp8_flops_per_s || row.int8_ops_per_s) << row.name;
    EXPECT_FALSE(row.notes.empty()) << row.name;
  }
}

TEST(DeviceTable, DerivedAndUncheckedPeaksSaySo) {
  EXPECT_NE(device("epyc-9654").notes.at(0).find("derived"), std::string::npos);
  EXPECT_NE(device("xeon-spr").notes.at(0).find("unchecked"), std::string::npos);
  EXPECT_NE(device("rtx-4090").notes.at(0).find("unchecked"), std::string::npos);
}

TEST(DeviceTable, CapacityOfAMarketingFigureIsDecimal) {
  const Device& h100 = device("h100-sxm");
  EXPECT_EQ(h100.capacity_kind, CapacityKind::kMarketing);
  EXPECT_EQ(h100.capacity_bytes, 80'000'000'000);
  const Device& l40s = device("l40s");
  EXPECT_EQ(l40s.capacity_kind, CapacityKind::kReported);
  EXPECT_EQ(l40s.capacity_bytes, 46'068LL * 1024 * 1024);
}

// The ridge column of the specification's table, rounded there to whole FLOP a byte.
TEST(DeviceTable, RidgeOfBf16IsThePublishedOne) {
  const std::pair<const char*, double> ridges[] = {
      {"a100-sxm", 153}, {"a100-pcie", 161}, {"a30", 177},         {"h100-sxm", 295},
      {"h200-sxm", 206}, {"b200", 292},      {"gb200", 313},       {"b300", 290},
      {"l40s", 419},     {"rtx-4090", 164},  {"arc-pro-b60", 216}, {"mi300x", 247},
      {"epyc-9654", 32}, {"xeon-spr", 373}};
  for (const auto& [name, ridge] : ridges) {
    const Device& row = device(name);
    const auto value = ridge_flops_per_byte(row.bf16_flops_per_s, row.bandwidth_bytes_per_s);
    ASSERT_TRUE(value) << name;
    EXPECT_NEAR(*value, ridge, 0.51) << name;
  }
  EXPECT_FALSE(ridge_flops_per_byte(device("m5").bf16_flops_per_s, 1));
}

TEST(DeviceTable, UnknownNameIsAnErrorWithTheNamesAndANearMiss) {
  EXPECT_NE(error_of("h100-smx").find("did you mean 'h100-sxm'"), std::string::npos);
  EXPECT_NE(error_of("H200").find("did you mean 'h200-sxm'"), std::string::npos);
  EXPECT_NE(error_of("toaster").find("'toaster'; allowed: a100-sxm, "), std::string::npos);
  EXPECT_EQ(error_of("toaster").find("did you mean"), std::string::npos);
  EXPECT_NE(error_of("").find("no device ''"), std::string::npos);
}

TEST(Bandwidth, IsThatOfTheSmallestMeasuredSetNotBelowTheStep) {
  Device measured;
  measured.bandwidth_bytes_per_s = 20;
  measured.bandwidth_by_working_set = {{100, 90}, {1000, 50}, {10000, 20}};
  EXPECT_EQ(bandwidth_at(measured, 0), (BandwidthPoint{100, 90}));
  EXPECT_EQ(bandwidth_at(measured, 101), (BandwidthPoint{1000, 50}));
  EXPECT_EQ(bandwidth_at(measured, 1'000'000), (BandwidthPoint{10000, 20}));
  EXPECT_EQ(bandwidth_at(device("h100-sxm"), 5), (BandwidthPoint{0, 3350e9}));
}

TEST(Peak, IsTheFasterOfBf16AndF32) {
  Device device;
  EXPECT_FALSE(peak_flops_per_s(device));
  device.bf16_flops_per_s = 82e9;
  EXPECT_EQ(peak_flops_per_s(device), 82e9);
  device.fp32_flops_per_s = 166e9;  // a core whose bf16 products are slow
  EXPECT_EQ(peak_flops_per_s(device), 166e9);
  device.bf16_flops_per_s = 234e9;
  EXPECT_EQ(peak_flops_per_s(device), 234e9);
  device.bf16_flops_per_s.reset();
  EXPECT_EQ(peak_flops_per_s(device), 166e9);
}

}  // namespace
}  // namespace lacuna

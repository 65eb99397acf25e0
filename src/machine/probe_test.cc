#include "lacuna/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lacuna/error.h"
#include "machine/probe_dispatch.h"

namespace lacuna {
namespace {

// Long enough to be a measurement of something, short enough for every test run. No test here
// compares speeds: other work may share the machine.
ProbeOptions short_options() {
  ProbeOptions options;
  options.num_threads = 2;
  options.num_runs = 3;
  options.run_ns = 200'000;
  options.max_working_set_bytes = 4 << 20;
  return options;
}

void expect_plausible(const MeasuredRate& rate) {
  EXPECT_TRUE(std::isfinite(rate.median));
  EXPECT_GT(rate.min, 0);
  EXPECT_LE(rate.min, rate.median);
  EXPECT_LE(rate.median, rate.max);
  EXPECT_EQ(rate.num_runs, 3);
  EXPECT_GE(rate.cpu_share, 0);
  EXPECT_LE(rate.cpu_share, 1);
}

TEST(Probe, GivesPositiveFiniteRowsForOneAndAllThreads) {
  const std::optional<ProbeResult> result = probe(short_options());
  ASSERT_TRUE(result);
  ASSERT_EQ(result->fma_f32.size(), 2U);
  EXPECT_EQ(result->fma_f32[0].num_threads, 1);
  EXPECT_EQ(result->fma_f32[1].num_threads, 2);
  for (const FlopRateRow& row : result->fma_f32) expect_plausible(row.flops_per_s);
  ASSERT_GE(result->bandwidth.size(), 2U);
  EXPECT_EQ(result->bandwidth.front().num_threads, 1);
  EXPECT_EQ(result->bandwidth.back().num_threads, 2);
  for (const ReadBandwidthRow& row : result->bandwidth) {
    expect_plausible(row.bytes_per_s);
    EXPECT_GT(row.working_set_bytes, 0);
    EXPECT_LE(row.working_set_bytes, 4 << 20);
  }
}

// The products that a kernel of this build has on this machine, and no other.
TEST(Probe, DotProductsHaveRowsWhereThisMachineHasThem) {
  const std::optional<ProbeResult> result = probe(short_options());
  ASSERT_TRUE(result);
  const std::pair<const char*, const std::vector<FlopRateRow>*> products[] = {
      {"f32", &result->fma_f32}, {"bf16", &result->dot_bf16}, {"int8", &result->dot_int8}};
  for (const auto& [product, rows] : products) {
    ASSERT_EQ(rows->size(), probe_kernels_of(product).empty() ? 0U : 2U) << product;
    for (std::size_t idx = 0; idx < rows->size(); ++idx) {
      const FlopRateRow& row = (*rows)[idx];
      EXPECT_EQ(row.product, product);
      EXPECT_EQ(row.num_threads, static_cast<std::int64_t>(idx) + 1);
      expect_plausible(row.flops_per_s);
      EXPECT_TRUE(std::ranges::any_of(probe_kernels_of(product), [&](const ProbeKernel* kernel) {
        return row.isa == kernel->isa;
      })) << row.isa;
    }
  }
}

TEST(Probe, OneProductAloneIsOneRow) {
  for (const char* product : {"f32", "bf16", "int8"}) {
    const std::optional<FlopRateRow> row = probe_product(product, 2, short_options());
    ASSERT_EQ(row.has_value(), !probe_kernels_of(product).empty()) << product;
    if (!row) continue;
    EXPECT_EQ(row->product, product);
    EXPECT_EQ(row->num_threads, 2);
    expect_plausible(row->flops_per_s);
  }
}

TEST(Probe, OneProductAloneStopsAndRefuses) {
  const auto message = [](std::string_view product, std::int64_t num_threads) -> std::string {
    try {
      probe_product(product, num_threads, short_options());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("f64", 1), "product is 'f64'; allowed: f32, bf16, int8");
  EXPECT_EQ(message("f32", 0), "num_threads is 0; allowed: 1..4096");
  std::stop_source source;
  source.request_stop();
  ProbeOptions options;
  options.stop = source.get_token();
  EXPECT_FALSE(probe_product("f32", 1, options));
}

TEST(Probe, ReadsOfOneWorkingSetAreMeasuredAsOftenAsAsked) {
  ReadProbe reads(2, 3 << 20, short_options());
  for (int times = 0; times < 2; ++times) {
    const std::optional<ReadBandwidthRow> row = reads.measure();
    ASSERT_TRUE(row);
    EXPECT_EQ(row->num_threads, 2);
    EXPECT_EQ(row->working_set_bytes, 3 << 20);
    expect_plausible(row->bytes_per_s);
  }
}

TEST(Probe, ReadsOfOneWorkingSetStopAndRefuse) {
  std::stop_source stop;
  ProbeOptions options = short_options();
  options.stop = stop.get_token();
  ReadProbe reads(1, 1 << 20, options);
  stop.request_stop();
  EXPECT_FALSE(reads.measure());
  try {
    ReadProbe(1, 5);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "working_set_bytes is 5; allowed: 1024..1099511627776");
  }
}

TEST(Probe, WorkingSetsAscendForEachThreadCount) {
  const std::optional<ProbeResult> result = probe(short_options());
  ASSERT_TRUE(result);
  for (std::size_t idx = 1; idx < result->bandwidth.size(); ++idx) {
    const ReadBandwidthRow& before = result->bandwidth[idx - 1];
    const ReadBandwidthRow& row = result->bandwidth[idx];
    if (before.num_threads != row.num_threads) continue;
    EXPECT_LT(before.working_set_bytes, row.working_set_bytes);
  }
}

TEST(Probe, DeviceSaysThatItIsMeasuredAndAtWhichWorkingSet) {
  const std::optional<ProbeResult> result = probe(short_options());
  ASSERT_TRUE(result);
  const Device device = as_device(*result);
  EXPECT_EQ(device.name, "probe");
  EXPECT_EQ(device.fp32_flops_per_s, result->fma_f32.back().flops_per_s.median);
  EXPECT_EQ(device.bf16_flops_per_s.has_value(), !result->dot_bf16.empty());
  EXPECT_EQ(device.int8_ops_per_s.has_value(), !result->dot_int8.empty());
  EXPECT_NE(device.provenance.find("measured"), std::string::npos);
  EXPECT_NE(device.provenance.find(std::to_string(result->bandwidth.back().working_set_bytes)),
            std::string::npos);
  EXPECT_EQ(device.bandwidth_by_working_set.back().bytes_per_s, device.bandwidth_bytes_per_s);
  EXPECT_EQ(device_from_json_text(device_to_json_text(device), "probe"), device);
}

TEST(Probe, StopBeforeTheStartGivesNothing) {
  std::stop_source source;
  source.request_stop();
  ProbeOptions options;
  options.stop = source.get_token();
  EXPECT_FALSE(probe(options));
}

TEST(Probe, StopFromTheProgressCallbackEndsItThere) {
  std::stop_source source;
  std::int64_t num_calls = 0;
  std::int64_t last_done = -1;
  ProbeOptions options = short_options();
  options.stop = source.get_token();
  options.progress = [&](std::int64_t done, std::int64_t total, std::string_view next) {
    EXPECT_GE(done, last_done);
    EXPECT_LT(done, total);
    EXPECT_FALSE(next.empty());
    last_done = done;
    if (++num_calls == 3) source.request_stop();
  };
  EXPECT_FALSE(probe(options));
  EXPECT_EQ(num_calls, 3);
}

TEST(Probe, OptionsOutOfRangeAreNamed) {
  const auto message = [](const ProbeOptions& options) -> std::string {
    try {
      probe(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.num_threads = -1}), "num_threads is -1; allowed: 0..4096");
  EXPECT_EQ(message({.num_runs = 0}), "num_runs is 0; allowed: 1..1000");
  EXPECT_EQ(message({.run_ns = 5}), "run_ns is 5; allowed: 100000..1000000000");
  EXPECT_EQ(message({.max_working_set_bytes = 0}),
            "max_working_set_bytes is 0; allowed: 1048576..1099511627776");
}

TEST(Probe, DeviceOfASharedMachineSaysThatItsFiguresAreTooLow) {
  ProbeResult result;
  result.num_threads = 1;
  result.fma_f32 = {{"avx2", "f32", 1, {100e9, 90e9, 110e9, 7, 0.99}}};
  result.bandwidth = {{"avx2", 1, 1 << 20, {50e9, 50e9, 50e9, 7, 1.0}},
                      {"avx2", 1, 1 << 27, {25e9, 20e9, 26e9, 5, 0.6}}};
  const Device device = as_device(result);
  EXPECT_TRUE(std::ranges::any_of(device.notes, [](const std::string& note) {
    return note.find("ran 60 % of the time") != std::string::npos;
  }));
  EXPECT_EQ(
      device.provenance,
      "measured on this machine: f32 multiply-add with avx2, median of 7 runs, 90..110 % of "
      "it; read bandwidth at a working set of 134217728 bytes, median of 5 runs, 80..104 % of "
      "it");
  result.bandwidth.back().bytes_per_s.cpu_share = 0.95;
  for (const std::string& note : as_device(result).notes) {
    EXPECT_EQ(note.find("other work"), std::string::npos) << note;
  }
}

TEST(Probe, DeviceHasTheRatesOfAllThreadsForEachProduct) {
  ProbeResult result;
  result.num_threads = 2;
  result.fma_f32 = {{"avx512", "f32", 1, {1e9, 1e9, 1e9, 7, 1}},
                    {"avx512", "f32", 2, {2e9, 2e9, 2e9, 7, 1}}};
  result.dot_bf16 = {{"avx512_bf16", "bf16", 1, {3e9, 3e9, 3e9, 7, 1}},
                     {"avx512_bf16", "bf16", 2, {4e9, 2e9, 4e9, 7, 0.5}}};
  result.bandwidth = {{"avx2", 2, 1 << 27, {5e9, 5e9, 5e9, 7, 1}}};
  const Device device = as_device(result);
  EXPECT_EQ(device.fp32_flops_per_s, 2e9);
  EXPECT_EQ(device.bf16_flops_per_s, 4e9);
  EXPECT_FALSE(device.int8_ops_per_s);
  EXPECT_NE(device.provenance.find("bf16 dot product with avx512_bf16, median of 7 runs, "
                                   "50..100 % of it; read bandwidth"),
            std::string::npos)
      << device.provenance;
  EXPECT_TRUE(std::ranges::count(device.notes, "no instruction for a dot product of int8"));
  EXPECT_FALSE(std::ranges::count(device.notes, "no instruction for a dot product of bf16"));
  EXPECT_TRUE(std::ranges::any_of(device.notes, [](const std::string& note) {
    return note.find("ran 50 % of the time") != std::string::npos;
  }));
}

TEST(Probe, ResultWithoutRowsIsNoDevice) { EXPECT_THROW(as_device(ProbeResult{}), Error); }

TEST(Probe, PortableLoopIsAlwaysThereAndLast) {
  ASSERT_FALSE(probe_isas().empty());
  EXPECT_EQ(probe_isas().back(), "portable");
}

}  // namespace
}  // namespace lacuna

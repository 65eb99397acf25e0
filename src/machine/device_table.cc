#include "machine/device_table.h"

#include <string>

namespace lacuna {
namespace {

constexpr double kTera = 1e12;
constexpr double kGigabytesPerSecond = 1e9;

constexpr const char* kAic =
    "AIC (ai-dynamo/aiconfigurator), its systems folder; a repository run by the vendor";
constexpr const char* kAppleSources = "huggingface.js #1044 and applegpuinfo";
constexpr const char* kAppleAllSources = "huggingface.js #1044, applegpuinfo and whichllm #92";
constexpr const char* kNoMatrixPeak = "Apple publishes no bf16 matrix peak; none is given here";

std::int64_t gigabytes(std::int64_t count) { return count * 1'000'000'000; }
std::int64_t mebibytes(std::int64_t count) { return count << 20; }

void add_ampere(std::vector<Device>& table) {
  table.push_back({.name = "a100-sxm",
                   .label = "NVIDIA A100 SXM 80 GB",
                   .bf16_flops_per_s = 312 * kTera,
                   .int8_ops_per_s = 624 * kTera,
                   .bandwidth_bytes_per_s = 2039 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(80),
                   .provenance = "AIC (ai-dynamo/aiconfigurator), systems/a100_sxm.yaml; a "
                                 "repository run by the vendor",
                   .notes = {"no fp8 product on this device"}});
  table.push_back({.name = "a100-pcie",
                   .label = "NVIDIA A100 PCIe 80 GB",
                   .bf16_flops_per_s = 312 * kTera,
                   .bandwidth_bytes_per_s = 1935 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(80),
                   .provenance = kAic});
  table.push_back({.name = "a30",
                   .label = "NVIDIA A30",
                   .bf16_flops_per_s = 165 * kTera,
                   .bandwidth_bytes_per_s = 933 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(24),
                   .provenance = kAic});
}

void add_hopper(std::vector<Device>& table) {
  table.push_back({.name = "h100-sxm",
                   .label = "NVIDIA H100 SXM 80 GB",
                   .bf16_flops_per_s = 989.4 * kTera,
                   .fp8_flops_per_s = 1978.9 * kTera,
                   .bandwidth_bytes_per_s = 3350 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(80),
                   .provenance = std::string(kAic) + "; and a public reference page",
                   .notes = {"the device itself reports 81,559 MiB"}});
  table.push_back({.name = "h200-sxm",
                   .label = "NVIDIA H200 SXM 141 GB",
                   .bf16_flops_per_s = 989 * kTera,
                   .fp8_flops_per_s = 1978 * kTera,
                   .bandwidth_bytes_per_s = 4800 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(141),
                   .provenance = kAic,
                   .notes = {"the device itself reports about 139 GiB"}});
}

void add_blackwell(std::vector<Device>& table) {
  table.push_back({.name = "b200",
                   .label = "NVIDIA B200",
                   .bf16_flops_per_s = 2250 * kTera,
                   .fp8_flops_per_s = 4500 * kTera,
                   .fp4_flops_per_s = 9000 * kTera,
                   .bandwidth_bytes_per_s = 7700 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(180),
                   .provenance = std::string(kAic) + ", citing the NVIDIA data sheet",
                   .notes = {"others give 8000 GB/s"}});
  table.push_back({.name = "gb200",
                   .label = "NVIDIA GB200 (one GPU)",
                   .bf16_flops_per_s = 2500 * kTera,
                   .fp8_flops_per_s = 5000 * kTera,
                   .fp4_flops_per_s = 10000 * kTera,
                   .bandwidth_bytes_per_s = 8000 * kGigabytesPerSecond,
                   .capacity_bytes = mebibytes(189'471),
                   .capacity_kind = CapacityKind::kReported,
                   .provenance = kAic});
  table.push_back({.name = "b300",
                   .label = "NVIDIA B300",
                   .bf16_flops_per_s = 2250 * kTera,
                   .fp8_flops_per_s = 4500 * kTera,
                   .fp4_flops_per_s = 14000 * kTera,
                   .bandwidth_bytes_per_s = 7750 * kGigabytesPerSecond,
                   .capacity_bytes = mebibytes(275'040),
                   .capacity_kind = CapacityKind::kReported,
                   .provenance = kAic});
}

void add_smaller_cards(std::vector<Device>& table) {
  table.push_back({.name = "l40s",
                   .label = "NVIDIA L40S",
                   .bf16_flops_per_s = 362.05 * kTera,
                   .fp8_flops_per_s = 733 * kTera,
                   .bandwidth_bytes_per_s = 864 * kGigabytesPerSecond,
                   .capacity_bytes = mebibytes(46'068),
                   .capacity_kind = CapacityKind::kReported,
                   .provenance = kAic});
  table.push_back({.name = "rtx-4090",
                   .label = "NVIDIA GeForce RTX 4090",
                   .bf16_flops_per_s = 165.2 * kTera,
                   .fp8_flops_per_s = 330.3 * kTera,
                   .bandwidth_bytes_per_s = 1008 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(24),
                   .provenance = "waredb.com",
                   .notes = {"peaks are those with fp32 accumulation; with fp16 accumulation 330.3 "
                             "and 660.6 (unchecked) TFLOP/s"}});
  table.push_back(
      {.name = "arc-pro-b60",
       .label = "Intel Arc Pro B60",
       .bf16_flops_per_s = 98.3 * kTera,
       .bandwidth_bytes_per_s = 456 * kGigabytesPerSecond,
       .capacity_bytes = gigabytes(24),
       .provenance = kAic,
       .notes = {"fp8 falls back to bf16", "about 220 GB/s were measured as effective"}});
  table.push_back({.name = "mi300x",
                   .label = "AMD Instinct MI300X",
                   .bf16_flops_per_s = 1307.4 * kTera,
                   .fp8_flops_per_s = 2614.9 * kTera,
                   .bandwidth_bytes_per_s = 5300 * kGigabytesPerSecond,
                   .capacity_bytes = gigabytes(192),
                   .provenance = "a public repository comparing MI300X with H200",
                   .notes = {"2615 TFLOP/s is quoted elsewhere as dense fp16; it is not"}});
}

// Whole sockets. The peaks are products of cores, clock and operations a cycle, so they are
// derived.
void add_server_cpus(std::vector<Device>& table) {
  constexpr double kEpycFlops = 96 * 2.4e9 * 64;
  constexpr double kXeonFlops = 56 * 2.0e9 * 1024;
  table.push_back(
      {.name = "epyc-9654",
       .label = "AMD EPYC 9654 (one socket)",
       .bf16_flops_per_s = kEpycFlops,
       .bandwidth_bytes_per_s = 460.8 * kGigabytesPerSecond,
       .provenance = "derived: 12 channels DDR5-4800 (golem, hpctech)",
       .notes = {"bf16 peak derived: 96 cores x 2.4 GHz x 64 a cycle (256-bit data path); "
                 "measure your own machine with 'probe'"}});
  for (const bool emerald : {false, true}) {
    table.push_back(
        {.name = emerald ? "xeon-emr" : "xeon-spr",
         .label = emerald ? "Intel Xeon Emerald Rapids (one socket)"
                          : "Intel Xeon Sapphire Rapids (one socket)",
         .bf16_flops_per_s = kXeonFlops,
         .int8_ops_per_s = 2 * kXeonFlops,
         .bandwidth_bytes_per_s = (emerald ? 358.4 : 307.2) * kGigabytesPerSecond,
         .provenance = emerald ? "derived: 8 channels DDR5-5600" : "derived: 8 channels DDR5-4800",
         .notes = {
             "bf16 peak derived: 56 cores x 2.0 GHz x 1024 a cycle with AMX; operations a cycle "
             "unchecked; int8 twice that, unchecked; without AMX measure with 'probe'"}});
  }
}

void add_apple(std::vector<Device>& table) {
  const std::string by_clock = " GB/s follow from the memory clock; the rounded figure is used";
  table.push_back({.name = "m1-max",
                   .label = "Apple M1 Max",
                   .fp32_flops_per_s = 10.6 * kTera,
                   .bandwidth_bytes_per_s = 400 * kGigabytesPerSecond,
                   .provenance = kAppleSources,
                   .notes = {kNoMatrixPeak, "409.6" + by_clock}});
  table.push_back({.name = "m2-max",
                   .label = "Apple M2 Max",
                   .fp32_flops_per_s = 13.6 * kTera,
                   .bandwidth_bytes_per_s = 400 * kGigabytesPerSecond,
                   .provenance = kAppleSources,
                   .notes = {kNoMatrixPeak, "409.6" + by_clock}});
  table.push_back({.name = "m1-ultra",
                   .label = "Apple M1 Ultra",
                   .bandwidth_bytes_per_s = 800 * kGigabytesPerSecond,
                   .provenance = kAppleAllSources,
                   .notes = {kNoMatrixPeak, "819" + by_clock}});
  table.push_back({.name = "m4-max",
                   .label = "Apple M4 Max",
                   .fp32_flops_per_s = 18.4 * kTera,
                   .bandwidth_bytes_per_s = 546 * kGigabytesPerSecond,
                   .provenance = kAppleAllSources,
                   .notes = {kNoMatrixPeak}});
  struct M5 {
    const char* name;
    const char* label;
    double gigabytes_per_s;
  };
  for (const M5& row : {M5{"m5", "Apple M5", 153}, M5{"m5-pro", "Apple M5 Pro", 307},
                        M5{"m5-max", "Apple M5 Max", 614}}) {
    table.push_back({.name = row.name,
                     .label = row.label,
                     .bandwidth_bytes_per_s = row.gigabytes_per_s * kGigabytesPerSecond,
                     .provenance = "whichllm #92",
                     .notes = {kNoMatrixPeak}});
  }
}

}  // namespace

std::vector<Device> make_device_table() {
  std::vector<Device> table;
  add_ampere(table);
  add_hopper(table);
  add_blackwell(table);
  add_smaller_cards(table);
  add_server_cpus(table);
  add_apple(table);
  return table;
}

}  // namespace lacuna

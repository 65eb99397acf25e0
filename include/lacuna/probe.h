#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/cpu.h"
#include "lacuna/machine.h"

namespace lacuna {

// One measured quantity over its timed runs. `median` is the figure; the rest is its spread.
struct MeasuredRate {
  double median = 0;
  double min = 0;
  double max = 0;
  std::int64_t num_runs = 0;
  // Median share of the runs in which the threads had a CPU, 0..1. Well below 1: other work shared
  // the machine, and the figure is lower than what the machine can do.
  double cpu_share = 0;
};

struct FlopRateRow {
  std::string isa;  // instruction set of the loop that was fastest: "avx512", "avx2", "portable"
  std::string product;  // "f32", "bf16" or "int8"
  std::int64_t num_threads = 0;
  MeasuredRate flops_per_s;  // two for each multiply-add
};

struct ReadBandwidthRow {
  std::string isa;
  std::int64_t num_threads = 0;
  std::int64_t working_set_bytes = 0;  // all threads together, each reading its own equal part
  MeasuredRate bytes_per_s;
};

struct ProbeResult {
  CpuInfo cpu;
  MemoryInfo memory;
  std::int64_t num_threads = 0;  // of the "all threads" rows
  // Each one thread, then all. The dot products add pairs of bf16 into f32 and fours of int8 into
  // int32; empty where this machine has no instruction for them.
  std::vector<FlopRateRow> fma_f32;
  std::vector<FlopRateRow> dot_bf16;
  std::vector<FlopRateRow> dot_int8;
  std::vector<ReadBandwidthRow> bandwidth;  // one thread ascending by working set, then all
};

struct ProbeOptions {
  std::int64_t num_threads = 0;  // 0: the CPUs this process may use; else 1..4096
  std::int64_t num_runs = 7;     // timed runs of each row, 1..1000
  // Length of one timed run, 100 us .. 1 s. A row stops early at 3 runs once it took 10 times this.
  std::int64_t run_ns = 30'000'000;
  // Cap of the largest working set, from 1 MiB; it is also kept within half of the available
  // memory.
  std::int64_t max_working_set_bytes = std::int64_t{3} << 29;
  std::stop_token stop = {};
  // Called on the caller's thread before each row: how many rows are done, of how many, what comes.
  std::function<void(std::int64_t done, std::int64_t total, std::string_view next)> progress = {};
};

// Measures this machine: multiply-adds in f32, dot products of bf16 and int8, and read bandwidth,
// with one thread and with all, the latter measured and never multiplied. Working sets run from the
// L2 cache (1 MiB where unknown) to four times the last-level caches (256 MiB where unknown). The
// defaults take a few seconds. Starts its own threads and joins them. Other work on the machine
// lowers the figures: the spread shows it. Returns nothing once `stop` is requested (tested between
// runs and while memory is filled). Throws Error for options out of range and where memory cannot
// be had.
std::optional<ProbeResult> probe(const ProbeOptions& options = {});

// One row of fma_f32, dot_bf16 or dot_int8 alone, with exactly `num_threads` threads (1..4096):
// what a timed figure taken in the same moment is a share of. Nothing where this machine has no
// instruction for the product, or once `stop` is requested. Throws Error for an unknown product.
// Of the options, num_threads, max_working_set_bytes and progress are not used.
std::optional<FlopRateRow> probe_product(std::string_view product, std::int64_t num_threads,
                                         const ProbeOptions& options = {});

// Read bandwidth over one working set with exactly `num_threads` threads, measured as often as
// asked: what a timed figure taken in the same moment is a share of. Holds its memory. One caller
// at a time. Of the options, num_threads, max_working_set_bytes and progress are not used.
class ReadProbe {
 public:
  // The set is rounded down to whole loop bodies of each thread. Throws Error for a number out of
  // range (1..4096 threads, 1 KiB..2^40 bytes) and where memory cannot be had.
  ReadProbe(std::int64_t num_threads, std::int64_t working_set_bytes,
            const ProbeOptions& options = {});
  ~ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;

  // Nothing once stop is requested.
  std::optional<ReadBandwidthRow> measure();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The device "probe": peaks and bandwidth with all threads, the bandwidth being that of the largest
// working set; the provenance says it is measured and at which working set.
Device as_device(const ProbeResult& result);

// Instruction sets the probe's loops have on this machine, the widest first, "portable" last.
std::vector<std::string> probe_isas();

}  // namespace lacuna

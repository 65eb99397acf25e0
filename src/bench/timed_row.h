#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "bench/spot_check.h"
#include "bench/tensors.h"
#include "lacuna/kernel_bench.h"
#include "lacuna/thread_pool.h"
#include "lacuna/topology.h"

namespace lacuna::bench {

// Raised where a call ended because stop was requested; caught inside src/bench.
struct Stopped {};

// What the rows of one bench share: only one of them runs at a time.
class Shared {
 public:
  Shared(std::uint64_t seed, std::stop_token stop) : seed_(seed), stop_(std::move(stop)) {}

  std::shared_ptr<const Inputs> inputs(const KernelProblem& problem);
  ThreadPool& pool(std::int64_t num_threads);
  // At least so many bytes; what was given before is no longer valid.
  std::span<std::byte> workspace(std::int64_t size_bytes);
  std::span<std::byte> out(std::int64_t size_bytes);
  std::span<float> lse(std::int64_t count);
  const std::stop_token& stop() const { return stop_; }

 private:
  std::uint64_t seed_;
  std::stop_token stop_;
  std::vector<std::pair<KernelProblem, std::shared_ptr<const Inputs>>> inputs_;
  std::map<std::int64_t, std::unique_ptr<ThreadPool>> pools_;
  AlignedBytes workspace_;
  AlignedBytes out_;
  std::vector<float> lse_;
};

// One problem made ready: planned, run once, checked, and how often a timed figure repeats it.
// `shared` must outlive it.
class TimedRow {
 public:
  // Throws Error, and Stopped.
  TimedRow(const KernelProblem& problem, Shared& shared, const KernelBenchOptions& options);

  TimedRow(const TimedRow&) = delete;
  TimedRow& operator=(const TimedRow&) = delete;

  const KernelRow& row() const { return row_; }
  // Throws Stopped.
  void time_once(std::int64_t round);
  // What the last call gave, until another row runs.
  Outputs outputs() const;
  const Inputs& inputs() const { return *inputs_; }

 private:
  void prepare();
  void choose_calls(std::int64_t run_ns);
  Ledger call(const Plan& plan);

  Shared& shared_;
  KernelRow row_;
  std::shared_ptr<const Inputs> inputs_;
  AlignedBytes packed_;  // K and V, where the row takes them so
  std::array<std::int64_t, 1> packed_starts_ = {0};
  KvView kv_;
  std::vector<Topology> topologies_;
  Plan plan_;
  bool cpu_time_ = false;
};

}  // namespace lacuna::bench

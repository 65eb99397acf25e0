#include "lacuna/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <iterator>
#include <latch>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/memory.h"
#include "machine/probe_dispatch.h"

namespace lacuna {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMebibyte = 1 << 20;
constexpr std::int64_t kMostThreads = 4096;

// Raised between runs, caught in probe(): a stop is an outcome, not an error.
struct Stopped {};

// Results of the loops go here, so that no link-time optimiser may drop them.
void keep(double value) {
  static std::atomic<double> sink;
  sink.store(value, std::memory_order_relaxed);
}

// Memory whose every page was written by the thread that reads it: an untouched page is the one
// page of zeros, and a page belongs to the memory of the CPU that first wrote it. It lies on huge
// pages, as the cache's does: on small ones a linear read reaches 0.7 of it on a Zen 4 core.
class Buffer {
 public:
  explicit Buffer(std::int64_t size_bytes) : memory_(size_bytes) {}

  const std::byte* data() const { return memory_.data(); }
  void fill(const std::stop_token& stop) {
    for (std::int64_t begin = 0; begin < memory_.size() && !stop.stop_requested();
         begin += kMebibyte) {
      const std::int64_t end = std::min(begin + kMebibyte, memory_.size());
      std::memset(memory_.data() + begin, 0x5A, static_cast<std::size_t>(end - begin));
    }
  }

 private:
  Memory memory_;
};

// Runs `work(thread_idx)` on num_threads threads at once. Seconds from the first start to the last
// end: the slowest thread decides, as it does in any use of all of them.
template <typename Work>
double timed_seconds(std::int64_t num_threads, const Work& work) {
  std::vector<Clock::time_point> starts(static_cast<std::size_t>(num_threads));
  std::vector<Clock::time_point> ends(static_cast<std::size_t>(num_threads));
  std::latch together(num_threads);
  std::atomic<bool> is_cancelled = false;
  const auto body = [&](std::size_t thread_idx) {
    together.arrive_and_wait();
    if (is_cancelled) return;
    starts[thread_idx] = Clock::now();
    work(thread_idx);
    ends[thread_idx] = Clock::now();
  };
  std::vector<std::jthread> helpers;
  try {
    while (std::ssize(helpers) + 1 < num_threads) helpers.emplace_back(body, helpers.size() + 1);
  } catch (const std::system_error& error) {
    // Those that run already wait for the missing ones: let them go, or the join would not return.
    is_cancelled = true;
    together.count_down(num_threads - std::ssize(helpers));
    throw Error("the probe cannot start " + std::to_string(num_threads) +
                " threads: " + error.what());
  }
  body(0);
  helpers.clear();  // joins
  const auto first = *std::min_element(starts.begin(), starts.end());
  const auto last = *std::max_element(ends.begin(), ends.end());
  return std::max(std::chrono::duration<double>(last - first).count(), 1e-9);
}

double median_of(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The timed runs of one row: rates in units per second, and the share of the time the threads ran.
struct Runs {
  std::vector<double> rates;
  std::vector<double> cpu_shares;

  MeasuredRate summary() && {
    const double median = median_of(rates);  // sorts
    return {median, rates.front(), rates.back(), std::ssize(rates), median_of(cpu_shares)};
  }
};

// One row: which of the kernels is fastest in one run, then the timed runs of that one.
// seconds(kernel, count) runs `count` units of work; rate = units per second × unit size.
class RowMeter {
 public:
  RowMeter(const ProbeOptions& options, std::int64_t num_threads)
      : options_(options), num_threads_(num_threads) {}

  // REQUIRES: at least one kernel. work_of(kernel): amount of one unit, in the rate's own unit.
  template <typename Seconds, typename WorkOf>
  std::pair<const ProbeKernel*, MeasuredRate> measure(
      const std::vector<const ProbeKernel*>& kernels, const Seconds& seconds,
      const WorkOf& work_of) const {
    const ProbeKernel* best = nullptr;
    std::int64_t best_count = 1;
    double best_rate = 0;
    for (const ProbeKernel* kernel : kernels) {
      const std::int64_t count = calibrate(*kernel, seconds);
      const double rate = work_of(*kernel) * trial(*kernel, seconds, count);
      if (rate <= best_rate) continue;
      best = kernel;
      best_count = count;
      best_rate = rate;
    }
    Runs runs;
    const Clock::time_point begin = Clock::now();
    while (std::ssize(runs.rates) < options_.num_runs) {
      const Run run = run_once(*best, best_count, seconds);
      runs.rates.push_back(static_cast<double>(best_count) * work_of(*best) / run.seconds);
      runs.cpu_shares.push_back(std::clamp(run.cpu_seconds / run.seconds, 0.0, 1.0));
      if (std::ssize(runs.rates) >= 3 && Clock::now() - begin > 10 * run_length()) break;
    }
    return {best, std::move(runs).summary()};
  }

 private:
  std::chrono::nanoseconds run_length() const { return std::chrono::nanoseconds(options_.run_ns); }

  void check_stop() const {
    if (options_.stop.stop_requested()) throw Stopped{};
  }

  struct Run {
    double seconds = 0;
    double cpu_seconds = 0;  // of the mean thread, the caller's other threads included
  };

  template <typename Seconds>
  Run run_once(const ProbeKernel& kernel, std::int64_t count, const Seconds& seconds) const {
    check_stop();
    const std::clock_t cpu_begin = std::clock();
    const double taken = seconds(kernel, count);
    const auto cpu_ticks = static_cast<double>(std::clock() - cpu_begin);
    return {taken, cpu_ticks / CLOCKS_PER_SEC / static_cast<double>(num_threads_)};
  }

  // Units a CPU second in the best of four short runs. Only the order of the kernels matters here,
  // and CPU time keeps it where other work takes turns with the probe.
  template <typename Seconds>
  double trial(const ProbeKernel& kernel, const Seconds& seconds, std::int64_t count) const {
    const std::int64_t part = std::max<std::int64_t>(1, count / 4);
    double best = 0;
    for (int idx = 0; idx < 4; ++idx) {
      const Run run = run_once(kernel, part, seconds);
      const double spent = run.cpu_seconds > 0 ? run.cpu_seconds : run.seconds;
      best = std::max(best, static_cast<double>(part) / spent);
    }
    return best;
  }

  // Units of work that take about one run's length; the growing runs also warm the machine up. The
  // shorter of two: where other work took the CPU during one, the count would be far too small.
  template <typename Seconds>
  std::int64_t calibrate(const ProbeKernel& kernel, const Seconds& seconds) const {
    const double wanted = std::chrono::duration<double>(run_length()).count();
    std::int64_t count = 1;
    while (true) {
      check_stop();
      const double taken = std::min(seconds(kernel, count), seconds(kernel, count));
      if (taken >= wanted / 4) {
        return std::max<std::int64_t>(
            1, static_cast<std::int64_t>(static_cast<double>(count) * wanted / taken));
      }
      count *= taken < wanted / 64 ? 16 : 4;
    }
  }

  const ProbeOptions& options_;
  std::int64_t num_threads_;
};

FlopRateRow measure_product(const ProbeOptions& options,
                            const std::vector<const ProbeKernel*>& kernels,
                            std::int64_t num_threads) {
  const auto seconds = [num_threads](const ProbeKernel& kernel, std::int64_t count) {
    return timed_seconds(num_threads, [&](std::size_t thread_idx) {
      keep(kernel.multiply_add(count, static_cast<float>(thread_idx + 1)));
    });
  };
  const auto work_of = [num_threads](const ProbeKernel& kernel) {
    return static_cast<double>(kernel.flops_per_iteration * num_threads);
  };
  const auto [kernel, rate] = RowMeter(options, num_threads).measure(kernels, seconds, work_of);
  return {kernel->isa, kernel->product, num_threads, rate};
}

// `buffers`: one for each thread, each at least its part of the working set.
ReadBandwidthRow measure_read(const ProbeOptions& options, const std::vector<Buffer>& buffers,
                              std::int64_t part_bytes) {
  const std::int64_t num_threads = static_cast<std::int64_t>(buffers.size());
  const auto seconds = [&](const ProbeKernel& kernel, std::int64_t num_passes) {
    return timed_seconds(num_threads, [&](std::size_t thread_idx) {
      const std::byte* const part = buffers[thread_idx].data();
      keep(static_cast<double>(kernel.read(part, part_bytes, num_passes)));
    });
  };
  const std::int64_t set_bytes = part_bytes * num_threads;
  const auto work_of = [set_bytes](const ProbeKernel&) { return static_cast<double>(set_bytes); };
  const auto [kernel, rate] =
      RowMeter(options, num_threads).measure(probe_kernels_of("f32"), seconds, work_of);
  return {kernel->isa, num_threads, set_bytes, rate};
}

std::vector<Buffer> make_buffers(std::int64_t num_threads, std::int64_t part_bytes,
                                 const std::stop_token& stop) {
  std::vector<Buffer> buffers;
  for (std::int64_t idx = 0; idx < num_threads; ++idx) buffers.emplace_back(part_bytes);
  timed_seconds(num_threads, [&](std::size_t thread_idx) { buffers[thread_idx].fill(stop); });
  if (stop.stop_requested()) throw Stopped{};
  return buffers;
}

// A part is whole loop bodies; its rounding down is why rows state the set they really read.
std::int64_t part_bytes(std::int64_t set_bytes, std::int64_t num_threads) {
  const std::int64_t part = set_bytes / num_threads / kProbeReadBytes * kProbeReadBytes;
  return std::max(part, kProbeReadBytes);
}

// Sizes from the threads' L2 caches to four times the last level, each four times the one before;
// the last one is exact.
std::vector<std::int64_t> working_sets(const ProbeOptions& options, const ProbeResult& result,
                                       std::int64_t num_threads) {
  constexpr std::int64_t kLargestCache = std::int64_t{1} << 40;
  const CpuInfo& cpu = result.cpu;
  const std::int64_t l2_bytes = std::min(cpu.l2_bytes.value_or(kMebibyte), kLargestCache);
  std::int64_t last =
      4 * std::min(cpu.last_level_total_bytes.value_or(64 * kMebibyte), kLargestCache);
  last = std::min(last, options.max_working_set_bytes);
  if (const auto available = result.memory.available_bytes) last = std::min(last, *available / 2);
  std::vector<std::int64_t> sets;
  for (std::int64_t size = l2_bytes * num_threads; 2 * size <= last; size *= 4)
    sets.push_back(size);
  sets.push_back(last);
  return sets;
}

void check_range(const char* name, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return;
  throw Error(std::string(name) + " is " + std::to_string(value) +
              "; allowed: " + std::to_string(min) + ".." + std::to_string(max));
}

void check_options(const ProbeOptions& options) {
  check_range("num_threads", options.num_threads, 0, kMostThreads);
  check_range("num_runs", options.num_runs, 1, 1000);
  check_range("run_ns", options.run_ns, 100'000, 1'000'000'000);
  check_range("max_working_set_bytes", options.max_working_set_bytes, kMebibyte,
              std::int64_t{1} << 40);
}

struct Product {
  const char* name;
  const char* label;
  std::vector<FlopRateRow> ProbeResult::*rows;
};
constexpr Product kProducts[] = {{"f32", "f32 multiply-add", &ProbeResult::fma_f32},
                                 {"bf16", "bf16 dot product", &ProbeResult::dot_bf16},
                                 {"int8", "int8 dot product", &ProbeResult::dot_int8}};

// The rows in order, with their progress.
class Rows {
 public:
  Rows(const ProbeOptions& options, ProbeResult& result) : options_(options), result_(result) {
    thread_counts_.push_back(1);
    if (result.num_threads > 1) thread_counts_.push_back(result.num_threads);
    for (const std::int64_t num_threads : thread_counts_) {
      sets_.push_back(working_sets(options, result, num_threads));
      num_rows_ += std::ssize(sets_.back());
      for (const Product& product : kProducts) {
        num_rows_ += probe_kernels_of(product.name).empty() ? 0 : 1;
      }
    }
  }

  void measure() {
    for (const Product& product : kProducts) product_rows(product);
    for (std::size_t idx = 0; idx < sets_.size(); ++idx) read_rows(sets_[idx], thread_counts_[idx]);
  }

 private:
  void product_rows(const Product& product) {
    const std::vector<const ProbeKernel*> kernels = probe_kernels_of(product.name);
    if (kernels.empty()) return;
    for (const std::int64_t num_threads : thread_counts_) {
      announce(product.label, num_threads);
      (result_.*product.rows).push_back(measure_product(options_, kernels, num_threads));
      ++num_done_;
    }
  }

  void read_rows(const std::vector<std::int64_t>& sets, std::int64_t num_threads) {
    announce("filling memory", num_threads);
    const std::vector<Buffer> buffers =
        make_buffers(num_threads, part_bytes(sets.back(), num_threads), options_.stop);
    for (const std::int64_t set_bytes : sets) {
      announce("read " + std::to_string(set_bytes >> 10) + " KiB", num_threads);
      result_.bandwidth.push_back(
          measure_read(options_, buffers, part_bytes(set_bytes, num_threads)));
      ++num_done_;
    }
  }

  void announce(const std::string& what, std::int64_t num_threads) const {
    if (!options_.progress) return;
    options_.progress(
        num_done_, num_rows_,
        what + ", " + std::to_string(num_threads) + (num_threads == 1 ? " thread" : " threads"));
  }

  const ProbeOptions& options_;
  ProbeResult& result_;
  std::vector<std::int64_t> thread_counts_;
  std::vector<std::vector<std::int64_t>> sets_;  // for each of thread_counts_
  std::int64_t num_rows_ = 0;
  std::int64_t num_done_ = 0;
};

}  // namespace

std::optional<ProbeResult> probe(const ProbeOptions& options) {
  check_options(options);
  ProbeResult result;
  result.cpu = read_cpu_info();
  result.memory = read_memory_info();
  result.num_threads = options.num_threads > 0
                           ? options.num_threads
                           : std::min<std::int64_t>(result.cpu.num_allowed_cpus, kMostThreads);
  try {
    Rows(options, result).measure();
  } catch (const Stopped&) {
    return std::nullopt;
  }
  return result;
}

std::optional<FlopRateRow> probe_product(std::string_view product, std::int64_t num_threads,
                                         const ProbeOptions& options) {
  check_options(options);
  check_range("num_threads", num_threads, 1, kMostThreads);
  if (std::ranges::none_of(kProducts, [&](const Product& row) { return row.name == product; })) {
    throw Error("product is '" + std::string(product.substr(0, 64)) +
                "'; allowed: f32, bf16, int8");
  }
  const std::vector<const ProbeKernel*> kernels = probe_kernels_of(product);
  if (kernels.empty()) return std::nullopt;
  try {
    return measure_product(options, kernels, num_threads);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

struct ReadProbe::State {
  ProbeOptions options;
  std::int64_t part = 0;
  std::vector<Buffer> buffers;
};

ReadProbe::ReadProbe(std::int64_t num_threads, std::int64_t working_set_bytes,
                     const ProbeOptions& options)
    : state_(std::make_unique<State>()) {
  check_options(options);
  check_range("num_threads", num_threads, 1, kMostThreads);
  check_range("working_set_bytes", working_set_bytes, 1024, std::int64_t{1} << 40);
  state_->options = options;
  state_->part = part_bytes(working_set_bytes, num_threads);
  try {
    state_->buffers = make_buffers(num_threads, state_->part, options.stop);
  } catch (const Stopped&) {  // measure() will say so
  }
}

ReadProbe::~ReadProbe() = default;

std::optional<ReadBandwidthRow> ReadProbe::measure() {
  try {
    if (state_->options.stop.stop_requested()) throw Stopped{};
    return measure_read(state_->options, state_->buffers, state_->part);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

std::vector<std::string> probe_isas() {
  std::vector<std::string> names;
  for (const ProbeKernel* kernel : supported_probe_kernels()) names.emplace_back(kernel->isa);
  return names;
}

}  // namespace lacuna

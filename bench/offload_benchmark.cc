// What a sleeping sequence costs: 4096 tokens (64 MiB) and 64 tokens (1 MiB) of 16 layers with one
// KV head of 256 dims in bf16, in pages of 64 KiB. Cold: dropped from the system's page cache
// before every wake. Ahead: prefetched so long before the wake that the disk was done; at once:
// right before it. The file lies in the folder for temporary files.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lacuna/kv_cache.h"
#include "lacuna/offload.h"
#include "lacuna/sequence_file.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLong = 4096;
constexpr std::int64_t kShort = 64;
constexpr std::int64_t kDims = 256;
constexpr std::int64_t kTokenBytes = 16 << 10;

std::string path_of(const char* name) {
  return (std::filesystem::temp_directory_path() / name).string();
}

struct Filled {
  static CacheShape shape() {
    CacheShape shape;
    shape.layers.assign(16, {1, kDims, kDims, {}, {}});
    return shape;
  }

  explicit Filled(std::int64_t length) : sequence(cache.create()) {
    const StepRows rows = {sequence, length};
    KvCache::Step step = *cache.begin({{rows}});
    std::vector<float> numbers(static_cast<std::size_t>(length * kDims));
    for (std::size_t idx = 0; idx < numbers.size(); ++idx) {
      numbers[idx] = static_cast<float>(idx * 2654435761U % 4096) / 4096;
    }
    const TensorView view = tensor_view(numbers.data(), DType::kF32, {length, 1, kDims});
    for (int layer = 0; layer < 16; ++layer) step.append(layer, view, view);
    step.commit();
  }

  KvCache cache{shape(), {.budget_bytes = 3 * kLong * kTokenBytes}};
  SequenceId sequence;
};

// Sets the iteration's time to the call's, and the counter cpu_ms to its CPU time alone.
template <typename Call>
void time_call(benchmark::State& state, Call call) {
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  call();
  state.SetIterationTime(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  state.counters["cpu_ms"] =
      1e3 * static_cast<double>(std::clock() - cpu_start) / static_cast<double>(CLOCKS_PER_SEC);
}

enum class Prefetch { kNone, kAtOnce, kAhead };

// Timed: the wake alone. Its bytes are checked by it.
void BM_Wake(benchmark::State& state, bool cold, Prefetch prefetch) {
  Filled filled(state.range(0));
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kLong * kTokenBytes);
  for (auto _ : state) {
    if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
    if (cold) tier.drop_from_page_cache();
    if (prefetch != Prefetch::kNone) tier.prefetch(filled.sequence);
    if (prefetch == Prefetch::kAhead) std::this_thread::sleep_for(std::chrono::seconds(1));
    time_call(state, [&] {
      if (!tier.wake(filled.sequence)) state.SkipWithError("memory is short");
    });
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kTokenBytes);
}

void BM_Sleep(benchmark::State& state) {
  Filled filled(state.range(0));
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kLong * kTokenBytes);
  for (auto _ : state) {
    time_call(state, [&] {
      if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
    });
    tier.drop_from_page_cache();  // so that the next one does not wait for this one's writes
    if (!tier.wake(filled.sequence)) state.SkipWithError("memory is short");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kTokenBytes);
}

// What the system asks for a prefetch: the caller's own time.
void BM_Prefetch(benchmark::State& state) {
  Filled filled(state.range(0));
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kLong * kTokenBytes);
  if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
  for (auto _ : state) {
    tier.drop_from_page_cache();
    time_call(state, [&] { tier.prefetch(filled.sequence); });
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kTokenBytes);
}

void BM_Save(benchmark::State& state) {
  Filled filled(state.range(0));
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(state.range(0)), 7);
  const std::string path = path_of("lacuna_sequence_benchmark");
  for (auto _ : state) {
    time_call(state, [&] { save_sequence(filled.cache, filled.sequence, "", tokens, path); });
  }
  std::filesystem::remove(path);
  state.SetBytesProcessed(state.iterations() * state.range(0) * kTokenBytes);
}

void BM_Load(benchmark::State& state) {
  Filled filled(state.range(0));
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(state.range(0)), 7);
  const std::string path = path_of("lacuna_sequence_benchmark");
  save_sequence(filled.cache, filled.sequence, "", tokens, path);
  for (auto _ : state) {
    std::optional<LoadedSequence> loaded;
    time_call(state, [&] { loaded = load_sequence(filled.cache, path, ""); });
    if (!loaded) state.SkipWithError("memory is short");
    filled.cache.free(loaded->sequence);
  }
  std::filesystem::remove(path);
  state.SetBytesProcessed(state.iterations() * state.range(0) * kTokenBytes);
}

// The machine's disk and its other work make single times jump: the median of 25, and the least.
void repeated(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(kShort)->Arg(kLong)->Iterations(1)->Repetitions(25)->ReportAggregatesOnly()->Unit(
      benchmark::kMillisecond);
  benchmark->ComputeStatistics("min", [](const std::vector<double>& times) {
    return *std::min_element(times.begin(), times.end());
  });
}

BENCHMARK_CAPTURE(BM_Wake, hot, false, Prefetch::kNone)->UseManualTime()->Apply(repeated);
BENCHMARK_CAPTURE(BM_Wake, cold, true, Prefetch::kNone)->UseManualTime()->Apply(repeated);
BENCHMARK_CAPTURE(BM_Wake, cold_prefetched_at_once, true, Prefetch::kAtOnce)
    ->UseManualTime()
    ->Apply(repeated);
BENCHMARK_CAPTURE(BM_Wake, cold_prefetched_ahead, true, Prefetch::kAhead)
    ->UseManualTime()
    ->Apply(repeated);
BENCHMARK(BM_Sleep)->UseManualTime()->Apply(repeated);
BENCHMARK(BM_Prefetch)->UseManualTime()->Apply(repeated);
BENCHMARK(BM_Save)->UseManualTime()->Apply(repeated);
BENCHMARK(BM_Load)->UseManualTime()->Apply(repeated);

}  // namespace
}  // namespace lacuna

// What a sleeping sequence costs: 64 MiB in 1024 pages of 64 KiB, 4096 tokens of 16 layers with one
// KV head of 256 dims in bf16. Cold: dropped from the system's page cache before every wake. Ahead:
// prefetched so long before the wake that the disk was done; at once: right before it. The file
// lies in the folder for temporary files.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lacuna/kv_cache.h"
#include "lacuna/offload.h"
#include "lacuna/sequence_file.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLength = 4096;
constexpr std::int64_t kDims = 256;
constexpr std::int64_t kBytes = 64 << 20;

std::string path_of(const char* name) {
  return (std::filesystem::temp_directory_path() / name).string();
}

struct Filled {
  static CacheShape shape() {
    CacheShape shape;
    shape.layers.assign(16, {1, kDims, kDims, {}, {}});
    return shape;
  }

  Filled() : sequence(cache.create()) {
    const StepRows rows = {sequence, kLength};
    KvCache::Step step = *cache.begin({{rows}});
    std::vector<float> numbers(static_cast<std::size_t>(kLength * kDims));
    for (std::size_t idx = 0; idx < numbers.size(); ++idx) {
      numbers[idx] = static_cast<float>(idx * 2654435761U % 4096) / 4096;
    }
    const TensorView view = tensor_view(numbers.data(), DType::kF32, {kLength, 1, kDims});
    for (int layer = 0; layer < 16; ++layer) step.append(layer, view, view);
    step.commit();
  }

  KvCache cache{shape(), {.budget_bytes = 3 * kBytes}};
  SequenceId sequence;
};

template <typename Call>
double seconds_of(Call call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

enum class Prefetch { kNone, kAtOnce, kAhead };

// Timed: the wake alone. Its bytes are checked by it.
void BM_Wake(benchmark::State& state, bool cold, Prefetch prefetch) {
  Filled filled;
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kBytes);
  for (auto _ : state) {
    if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
    if (cold) tier.drop_from_page_cache();
    if (prefetch != Prefetch::kNone) tier.prefetch(filled.sequence);
    if (prefetch == Prefetch::kAhead) std::this_thread::sleep_for(std::chrono::seconds(1));
    state.SetIterationTime(seconds_of([&] {
      if (!tier.wake(filled.sequence)) state.SkipWithError("memory is short");
    }));
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void BM_Sleep(benchmark::State& state) {
  Filled filled;
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kBytes);
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
    }));
    tier.drop_from_page_cache();  // so that the next one does not wait for this one's writes
    if (!tier.wake(filled.sequence)) state.SkipWithError("memory is short");
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

// What the system asks for a prefetch: the caller's own time.
void BM_Prefetch(benchmark::State& state) {
  Filled filled;
  KvOffload tier(filled.cache, path_of("lacuna_offload_benchmark"), kBytes);
  if (!tier.sleep(filled.sequence)) state.SkipWithError("the file has no room");
  for (auto _ : state) {
    tier.drop_from_page_cache();
    state.SetIterationTime(seconds_of([&] { tier.prefetch(filled.sequence); }));
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void BM_Save(benchmark::State& state) {
  Filled filled;
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kLength), 7);
  const std::string path = path_of("lacuna_sequence_benchmark");
  for (auto _ : state) save_sequence(filled.cache, filled.sequence, "", tokens, path);
  std::filesystem::remove(path);
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void BM_Load(benchmark::State& state) {
  Filled filled;
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kLength), 7);
  const std::string path = path_of("lacuna_sequence_benchmark");
  save_sequence(filled.cache, filled.sequence, "", tokens, path);
  for (auto _ : state) {
    const auto loaded = load_sequence(filled.cache, path, "");
    if (!loaded) state.SkipWithError("memory is short");
    filled.cache.free(loaded->sequence);
  }
  std::filesystem::remove(path);
  state.SetBytesProcessed(state.iterations() * kBytes);
}

// The machine's disk and its other work make single times jump: the median of 15, and the least.
void repeated(benchmark::internal::Benchmark* benchmark) {
  benchmark->Iterations(1)->Repetitions(15)->ReportAggregatesOnly()->Unit(benchmark::kMillisecond);
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
BENCHMARK(BM_Save)->UseRealTime()->Apply(repeated);
BENCHMARK(BM_Load)->UseRealTime()->Apply(repeated);

}  // namespace
}  // namespace lacuna

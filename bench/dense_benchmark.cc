// Products of rows with packed weights: ./dev bench Dense. Operations are 2 · rows · outputs ·
// inputs; bytes those of the packed weights, each once. Weights take turns so that few rows read
// them from memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lacuna/dense.h"
#include "lacuna/memory.h"

namespace {

using lacuna::DenseGroup;
using lacuna::DenseRows;
using lacuna::DenseType;
using lacuna::DenseWeights;

// bits: 32 in f32, 8, or 4 and 5 as files store them.
void multiply_rows(benchmark::State& state, int bits) {
  const std::int64_t num_rows = state.range(0), outputs = state.range(1), inputs = state.range(2);
  lacuna::ThreadPool pool(state.range(3));
  std::vector<float> numbers(
      static_cast<std::size_t>(std::max<std::int64_t>(num_rows, 64) * inputs));
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& x : numbers) x = normal(generator);
  const auto read_row = [&](std::span<float> to, std::int64_t row) {
    std::copy_n(numbers.begin() + row % 64 * inputs, inputs, to.begin());
  };
  const auto read_groups = [&](std::span<DenseGroup> to, std::int64_t row) {
    for (DenseGroup& group : to) {
      std::ranges::fill(group.numbers, static_cast<std::uint8_t>(row % (1 << bits)));
      group.scale = 1;
      group.offset = -8;
    }
  };
  const DenseType type = bits == 32 ? DenseType::kF32 : DenseType::kInt8;
  constexpr std::int64_t kTurnedBytes = std::int64_t{256} << 20;
  std::vector<DenseWeights> weights;
  do {
    if (bits < 8) {
      weights.emplace_back(bits, outputs, inputs, read_groups, &pool);
    } else {
      weights.emplace_back(type, outputs, inputs, read_row, &pool);
    }
  } while (num_rows <= 8 && std::ssize(weights) * weights.front().size_bytes() < kTurnedBytes);
  DenseRows rows(type);
  rows.set(numbers.data(), num_rows, inputs, &pool);
  const std::int64_t stride = weights.front().padded_outputs();
  lacuna::Memory memory(num_rows * stride * std::int64_t{sizeof(float)});
  auto* const out = reinterpret_cast<float*>(memory.data());
  std::size_t turn = 0;
  for (auto _ : state) {
    multiply(out, stride, rows, weights[turn++ % weights.size()], &pool);
    benchmark::DoNotOptimize(out);
  }
  const auto times = static_cast<double>(state.iterations());
  state.counters["operations"] = benchmark::Counter(
      times * 2.0 * static_cast<double>(num_rows * outputs * inputs), benchmark::Counter::kIsRate);
  state.counters["bytes"] = benchmark::Counter(
      times * static_cast<double>(weights.front().size_bytes()), benchmark::Counter::kIsRate);
}

void DenseInt4(benchmark::State& state) { multiply_rows(state, 4); }
void DenseInt5(benchmark::State& state) { multiply_rows(state, 5); }
void DenseInt8(benchmark::State& state) { multiply_rows(state, 8); }
void DenseF32(benchmark::State& state) { multiply_rows(state, 32); }

// Rows, outputs, inputs, threads: the MLP of SmolLM2-135M and the output of Gemma 3 270M.
void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"rows", "outputs", "inputs", "threads"})->UseRealTime();
  for (const std::int64_t threads : {1, 2}) {
    for (const std::int64_t num_rows : {1, 2, 8, 64, 512}) of->Args({num_rows, 3072, 576, threads});
    of->Args({512, 576, 1536, threads});
    of->Args({1, 32768, 640, threads});
  }
}
BENCHMARK(DenseInt4)->Apply(sizes);
BENCHMARK(DenseInt5)->Apply(sizes);
BENCHMARK(DenseInt8)->Apply(sizes);
BENCHMARK(DenseF32)->Apply(sizes);

}  // namespace

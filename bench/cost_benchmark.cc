// How long exact answers take. A 64-layer hybrid at 128k tokens should answer in under 50 ms and 64
// MiB, a tile view of a million tokens in under a second. `peak_rss_mib` is the process's peak so
// far: run one benchmark alone (--benchmark_filter) for its own.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <string>

#include "lacuna/cost.h"
#include "lacuna/executed.h"
#include "lacuna/graph.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/shape.h"
#include "lacuna/tiles.h"
#include "lacuna/topology.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLayers = 64;
constexpr std::int64_t kLong = 131072;
constexpr std::int64_t kMillion = 1'000'000;
constexpr std::int64_t kBillion = 1'000'000'000;
constexpr std::int64_t kLongest = std::int64_t{1} << 40;
constexpr const char* kHybrid = "window(1024)*5, full";
constexpr const char* kMixed = "window(1024)+sink(4)+global(every=4096)*5, full";

void count_peak_memory(benchmark::State& state) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // KiB on Linux
  state.counters["peak_rss_mib"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

LayerTable table_of(const char* attend) {
  return parse_layers(attend, static_cast<int>(kLayers), true);
}

// The sizes of a 27B model: 32 query heads on 16 KV heads of 128.
ModelShape sizes() {
  LayerShape layer;
  layer.num_q_heads = 32;
  layer.num_kv_heads = 16;
  layer.head_dim = layer.v_head_dim = 128;
  layer.mlp = MlpShape{.kind = MlpKind::kGated, .intermediate_size = 21504};
  ModelShape shape = uniform_shape(static_cast<int>(kLayers), layer);
  shape.hidden_size = 5376;
  shape.vocab_size = 262144;
  return shape;
}

void run_cost(benchmark::State& state, const char* attend, const CostQuery& query) {
  const LayerTable table = table_of(attend);
  const ModelShape shape = sizes();
  if (!cost(table, shape, query).total.pairs.has_value()) state.SkipWithError("no pairs");
  for (auto _ : state) benchmark::DoNotOptimize(cost(table, shape, query));
  count_peak_memory(state);
}

CostQuery prefill(std::int64_t tokens) {
  CostQuery query;
  query.lengths = {tokens};
  query.kv_dtype = kv_dtype("bf16");
  return query;
}

CostQuery decode(std::int64_t tokens, std::int64_t steps) {
  CostQuery query = prefill(tokens);
  query.phase = Phase::kDecode;
  query.generate = steps;
  return query;
}

void BM_CostPrefill(benchmark::State& state, const char* attend) {
  run_cost(state, attend, prefill(state.range(0)));
}
BENCHMARK_CAPTURE(BM_CostPrefill, hybrid, kHybrid)
    ->Arg(kLong)
    ->Arg(kBillion)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_CostPrefill, hybrid_sinks_globals, kMixed)
    ->Arg(kLong)
    ->Arg(kBillion)
    ->Unit(benchmark::kMillisecond);

void BM_CostPrefillInChunks(benchmark::State& state) {
  CostQuery query = prefill(state.range(0));
  query.chunk = 2048;
  run_cost(state, kHybrid, query);
}
BENCHMARK(BM_CostPrefillInChunks)->Arg(kLong)->Arg(kBillion)->Unit(benchmark::kMillisecond);

void BM_CostTrain(benchmark::State& state) {
  CostQuery query = prefill(state.range(0));
  query.phase = Phase::kTrain;
  run_cost(state, kHybrid, query);
}
BENCHMARK(BM_CostTrain)->Arg(kLong)->Unit(benchmark::kMillisecond);

void BM_CostDecode(benchmark::State& state, const char* attend) {
  run_cost(state, attend, decode(state.range(0), state.range(1)));
}
BENCHMARK_CAPTURE(BM_CostDecode, hybrid, kHybrid)
    ->Args({kLong, 1})
    ->Args({kLong, 4096})
    ->Args({kBillion, 4096})
    ->Args({kBillion, kBillion})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_CostDecode, hybrid_sinks_globals, kMixed)
    ->Args({kLong, 4096})
    ->Args({kBillion, 4096})
    ->Unit(benchmark::kMillisecond);

// Every sequence has a length of its own.
void BM_CostVarlen(benchmark::State& state) {
  CostQuery query = prefill(0);
  query.lengths.clear();
  for (std::int64_t idx = 0; idx < state.range(0); ++idx) query.lengths.push_back(1000 + 7 * idx);
  run_cost(state, kHybrid, query);
}
BENCHMARK(BM_CostVarlen)->Arg(256)->Unit(benchmark::kMillisecond);

void BM_TileView(benchmark::State& state, const char* attend) {
  const Topology topology(parse_layers(attend, 1, true).layers[0].attend.groups[0].attend, true);
  const std::int64_t length = state.range(0);
  std::int64_t visited = 0;
  for (auto _ : state) {
    visited = 0;
    for_each_query_tile(topology, {0, length}, length, {128, 64},
                        [&](const QueryTile& tile) { visited += tile.visited.size(); });
    benchmark::DoNotOptimize(visited);
  }
  if (count_tiles(topology, {0, length}, length, {128, 64}).visited != visited) {
    state.SkipWithError("the count of tiles differs from the tiles");
  }
  state.counters["visited_tiles"] = static_cast<double>(visited);
  count_peak_memory(state);
}
BENCHMARK_CAPTURE(BM_TileView, window_sink_global, "window(4096)+sink(4)+global(first=64)")
    ->Arg(kMillion)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TileView, window_sink_every, "window(4096)+sink(4)+global(every=65536)")
    ->Arg(kMillion)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TileView, full, "full")->Arg(kMillion)->Unit(benchmark::kMillisecond);

void BM_Executed(benchmark::State& state) {
  const Topology topology({Window{4095}, Sink{4}, GlobalFirst{64}}, true);
  const std::int64_t length = state.range(0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(executed(topology, {0, length}, length, {64, 64}));
  }
  count_peak_memory(state);
}
BENCHMARK(BM_Executed)->Arg(kMillion)->Arg(kLongest)->Unit(benchmark::kMillisecond);

void BM_Edges(benchmark::State& state, const char* attend) {
  const Topology topology(parse_layers(attend, 1, true).layers[0].attend.groups[0].attend, true);
  for (auto _ : state) benchmark::DoNotOptimize(topology.edges(kLongest));
  count_peak_memory(state);
}
BENCHMARK_CAPTURE(BM_Edges, full, "full")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Edges, window, "window(4096)")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Edges, window_sink_every, "window(4096)+sink(4)+global(every=1024)")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Edges, dilated_chunk, "dilated(64,16)+chunk(1000)")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Edges, fixed_strided, "fixed(128,8)+strided(96)")
    ->Unit(benchmark::kMicrosecond);

void BM_Hops(benchmark::State& state, const char* attend) {
  const LayerTable table = table_of(attend);
  const std::vector<int> heads(static_cast<std::size_t>(kLayers), 32);
  for (auto _ : state) {
    const Graph graph(table, heads, kLong);
    benchmark::DoNotOptimize(graph.hops(0, kLong - 1));
    benchmark::DoNotOptimize(graph.first_layer(0, kLong - 1));
    benchmark::DoNotOptimize(graph.reach_tokens());
  }
  count_peak_memory(state);
}
BENCHMARK_CAPTURE(BM_Hops, hybrid, kHybrid)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Hops, hybrid_sinks_globals, kMixed)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Hops, windows_only, "window(1024)")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Hops, dilated, "dilated(64,16)")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lacuna

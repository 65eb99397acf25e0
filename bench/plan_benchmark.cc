// What a plan costs beside running it: under 2 % at 128k tokens. The hardest case is a narrow
// window, which runs in well under a second. 8 query heads on 2 KV heads, tiles of 16 × 16.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/executed.h"
#include "lacuna/layer_table.h"
#include "lacuna/plan.h"
#include "lacuna/topology.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLong = 131072;
constexpr HeadCounts kHeads{8, 2};
constexpr PlanOptions kOptions{};

std::vector<Topology> topologies_of(const char* attend, bool causal) {
  const Layer layer = parse_layers(attend, 1, causal).layers.front();
  return topologies_of_heads(layer, causal, 0, kHeads.num_q_heads);
}

// False where the plan and the one count of executed pairs disagree.
bool as_counted(const Plan& plan, const std::vector<Topology>& topologies, std::int64_t length) {
  Int128 pairs = 0;
  for (int head = 0; head < kHeads.num_q_heads; ++head) {
    const Topology& topology =
        topologies.size() == 1 ? topologies.front() : topologies[static_cast<std::size_t>(head)];
    pairs += executed(topology, {0, length}, length, kOptions.tile).pairs;
  }
  return plan.executed_pairs() == pairs;
}

void count_plan(benchmark::State& state, const Plan& plan) {
  const auto bytes = plan.tiles.size() * sizeof(PlanTile) + plan.parts.size() * sizeof(TilePart) +
                     plan.runs.size() * sizeof(TileRun) + plan.rows.size() * sizeof(plan.rows[0]) +
                     plan.masks.size() * sizeof(plan.masks[0]) +
                     plan.items.size() * sizeof(WorkItem);
  state.counters["runs"] = static_cast<double>(plan.runs.size());
  state.counters["mib"] = static_cast<double>(bytes) / (1024.0 * 1024.0);
}

void BM_PlanPrefill(benchmark::State& state, const char* attend, bool causal) {
  const std::vector<Topology> topologies = topologies_of(attend, causal);
  const std::int64_t length = state.range(0);
  const std::vector<SequenceRows> sequences = {{{0, length}, length}};
  {
    const Plan plan = make_plan(topologies, sequences, kHeads, kOptions);
    if (!as_counted(plan, topologies, length)) state.SkipWithError("plan and count disagree");
    count_plan(state, plan);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_plan(topologies, sequences, kHeads, kOptions));
  }
}

#define LACUNA_PREFILL(name, attend, causal) \
  BENCHMARK_CAPTURE(BM_PlanPrefill, name, attend, causal)->Arg(kLong)->Unit(benchmark::kMillisecond)

LACUNA_PREFILL(window_128, "window(128)", true);
LACUNA_PREFILL(window_512, "window(512)", true);
LACUNA_PREFILL(full, "full", true);
LACUNA_PREFILL(window_sink_globals, "window(512)+sink(4)+global(every=8192)", true);
LACUNA_PREFILL(window_many_globals, "window(128)+global(every=24)", true);
LACUNA_PREFILL(chunk, "chunk(8192)", true);
LACUNA_PREFILL(chunk_prime, "chunk(10007)", true);
LACUNA_PREFILL(strided, "window(128)+strided(362)", true);
LACUNA_PREFILL(vertical_blocks, "vertical_blocks(64,16,8,head)", true);
LACUNA_PREFILL(longformer, "window(256,256)+global(first=64)", false);
LACUNA_PREFILL(bigbird,
               "window_blocks(1,1,64)+global(first=128)+random_blocks(3,64,1,outside=window)",
               false);
LACUNA_PREFILL(window_random, "window(128)+random(16,7)", true)->Iterations(1);

// A step of a batch: one row of each of many sequences.
void BM_PlanDecode(benchmark::State& state, const char* attend) {
  const std::vector<Topology> topologies = topologies_of(attend, true);
  std::vector<SequenceRows> sequences;
  for (std::int64_t s = 0; s < state.range(0); ++s) {
    const std::int64_t length = kLong - 1000 * s;
    sequences.push_back({{length - 1, length}, length});
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_plan(topologies, sequences, kHeads, kOptions));
  }
}
BENCHMARK_CAPTURE(BM_PlanDecode, full, "full")->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PlanDecode, window_sink_globals, "window(512)+sink(4)+global(every=8192)")
    ->Arg(1)
    ->Arg(64)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lacuna

#include "lacuna/decode_speed.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>

#include "lacuna/cpu.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_cache.h"
#include "lacuna/prefix.h"
#include "lacuna/retention.h"
#include "lacuna/stopwatch.h"

namespace lacuna {
namespace {

constexpr std::int64_t kLong = 32768;
constexpr std::int64_t kFar = 131072;
constexpr std::int64_t kWindowKeys = 4100;  // window(4096)+sink(4)
constexpr std::int64_t kTokenBytes = 8 * (128 + 128) * 2;

// Layers of which one step reads at least four times the last-level cache.
std::int64_t num_layers(std::int64_t tokens, std::int64_t token_bytes) {
  const std::int64_t cache = read_cpu_info().last_level_total_bytes.value_or(64 << 20);
  return std::clamp<std::int64_t>(ceil_div(4 * cache, tokens * token_bytes), 1, 256);
}

DecodeProblem problem(const std::string& name, const std::string& attend, std::int64_t layers,
                      std::int64_t threads) {
  LayerShape sizes;
  sizes.num_q_heads = 32;
  sizes.num_kv_heads = 8;
  sizes.head_dim = sizes.v_head_dim = 128;
  DecodeProblem made;
  made.name = name;
  made.table = parse_layers(attend, static_cast<int>(layers), true);
  made.shape = uniform_shape(static_cast<int>(layers), sizes);
  made.threads = threads;
  return made;
}

// 2k .. 32k, evenly in their logarithm, so that short ones stand beside long ones.
std::vector<std::int64_t> mixed_lengths() {
  std::vector<std::int64_t> lengths;
  constexpr std::int64_t kSteps[] = {2048, 2900, 4096, 5800, 8192, 11600, 16384, 23200, 32768};
  for (std::size_t idx = 0; idx < 32; ++idx) lengths.push_back(kSteps[idx * 5 % 9]);
  return lengths;
}

// Figures of the rows that were timed.
class TimedRows {
 public:
  explicit TimedRows(const DecodeBenchResult& result) : rows_(result.rows) {}

  template <typename Figure>
  std::optional<double> of(const std::string& name, const Figure& figure) const {
    const DecodeRow* const row = find(name);
    return row == nullptr ? std::nullopt : std::optional<double>(figure(*row));
  }
  std::optional<double> share(const std::string& name) const {
    return of(name, [](const DecodeRow& row) {
      return row.share_of_bandwidth(&DecodeRound::step_seconds).p50;
    });
  }
  // Of step times: the median over the rounds that both rows have.
  std::optional<double> ratio(const std::string& name, const std::string& base_name) const {
    const DecodeRow* const row = find(name);
    const DecodeRow* const base = find(base_name);
    if (row == nullptr || base == nullptr) return std::nullopt;
    std::vector<double> samples;
    for (std::size_t idx = 0; idx < std::min(row->rounds.size(), base->rounds.size()); ++idx) {
      samples.push_back(row->rounds[idx].step_seconds / base->rounds[idx].step_seconds);
    }
    return statistics_of(samples).p50;
  }

 private:
  const DecodeRow* find(const std::string& name) const {
    const auto found =
        std::ranges::find_if(rows_, [&](const DecodeRow& row) { return row.problem.name == name; });
    return found == rows_.end() ? nullptr : &*found;
  }

  const std::vector<DecodeRow>& rows_;
};

// A cache that has the tokens published under the identity "bench".
void publish_tokens(KvCache& cache, std::span<const std::int32_t> tokens) {
  const SequenceId sequence = cache.create();
  const StepRows rows = {sequence, std::ssize(tokens)};
  std::optional<KvCache::Step> step = cache.begin({&rows, 1});
  if (!step) throw Error("the cache has no room for the prefix");
  const CacheLayer& sizes = cache.shape().layers.front();
  const std::array<std::int64_t, 3> shape = {rows.num_rows, sizes.num_kv_heads, sizes.head_dim};
  const std::vector<float> zeros(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]), 0.0F);
  const TensorView keys = tensor_view(zeros.data(), DType::kF32, shape);
  for (int layer = 0; layer < std::ssize(cache.shape().layers); ++layer) {
    step->append(layer, keys, keys);
  }
  step->commit();
  cache.publish(sequence, "bench", tokens);
  cache.free(sequence);
}

}  // namespace

std::vector<DecodeProblem> decode_speed_problems(std::int64_t max_threads) {
  const std::int64_t threads = std::min<std::int64_t>(max_threads, 2);
  const std::int64_t layers = num_layers(kLong, kTokenBytes / 2);
  std::vector<DecodeProblem> problems;
  const auto add_long = [&](const std::string& name, DType dtype, std::int64_t rows) {
    DecodeProblem row = problem(name, "full", layers, threads);
    row.lengths = {kLong};
    row.kv_dtype = dtype;
    row.rows = rows;
    problems.push_back(std::move(row));
    return &problems.back();
  };
  add_long("kv 32768, bf16", DType::kBf16, 1);
  add_long("kv 32768, int8", DType::kInt8, 1);
  add_long("kv 32768, int8, exact", DType::kInt8, 1)->exact_kv = true;
  add_long("kv 32768, int4", DType::kInt4, 1);
  add_long("kv 32768, f32", DType::kF32, 1);
  add_long("kv 32768, bf16, 2 rows", DType::kBf16, 2);
  add_long("kv 32768, bf16, 8 rows", DType::kBf16, 8);
  const std::int64_t short_layers = num_layers(kWindowKeys, kTokenBytes);
  problems.push_back(problem("kv 4100, bf16", "full", short_layers, threads));
  problems.back().lengths = {kWindowKeys - 1};
  problems.push_back(
      problem("window(4096)+sink(4) at 131072", "window(4096)+sink(4)", short_layers, threads));
  problems.back().lengths = {kFar};
  problems.push_back(problem("batch of 32, 2k..32k, bf16", "full", 1, threads));
  problems.back().lengths = mixed_lengths();
  return problems;
}

PrefixHitFigure time_prefix_hit(std::int64_t repetitions) {
  constexpr std::int64_t kTokens = 16384;
  constexpr int kLayers = 32;
  LayerShape sizes;
  sizes.head_dim = sizes.v_head_dim = 16;
  const LayerTable table = parse_layers("full", kLayers, true);
  const Retention retention(table, uniform_shape(kLayers, sizes));
  CacheShape shape;
  shape.layers = retention.layers();
  KvCache cache(shape, {.budget_bytes = std::int64_t{128} << 20});
  std::vector<std::int32_t> prompt(kTokens + 1);  // the last token is always computed
  std::iota(prompt.begin(), prompt.end(), 0);
  publish_tokens(cache, std::span(prompt).first(kTokens));
  PrefixHitFigure figure = {0, std::ssize(cache.tables()), 0, {}};
  std::vector<double> samples;
  for (std::int64_t idx = 0; idx < std::max<std::int64_t>(repetitions, 1); ++idx) {
    const Stopwatch watch;
    const PrefixMatch match = cache.match("bench", prompt);
    figure.tokens = hit_length(match, retention, std::ssize(prompt));
    const SequenceId hit =
        cache.adopt("bench", std::span(prompt).first(static_cast<std::size_t>(figure.tokens)),
                    retention.kept(figure.tokens, figure.tokens));
    samples.push_back(watch.seconds());
    figure.shared_pages = cache.prefix_statistics().shared_pages;
    cache.free(hit);
  }
  figure.seconds = statistics_of(samples);
  return figure;
}

std::vector<KernelGoal> decode_goals(const DecodeBenchResult& result, const PrefixHitFigure& hit) {
  const TimedRows rows(result);
  const std::string one_row = "kv 32768, bf16";
  const auto over_bound = [](const DecodeRow& row) {
    return row.seconds(&DecodeRound::step_seconds).p50 / row.bound().p50;
  };
  const auto overhead = [](const DecodeRow& row) { return row.overhead().p50; };
  constexpr bool kAtMost = true;
  return {{"kv 32768, bf16: K/V bytes a second over the probe's", "share", 0.88, !kAtMost,
           rows.share(one_row)},
          {"int8 KV: step time over that of bf16", "ratio", 0.6, kAtMost,
           rows.ratio("kv 32768, int8", one_row)},
          {"window 4096 + sink 4 at 131072: step time over that of 4100 tokens", "ratio", 1.15,
           kAtMost, rows.ratio("window(4096)+sink(4) at 131072", "kv 4100, bf16")},
          {"2 rows: step time over that of one", "ratio", 1.15, kAtMost,
           rows.ratio("kv 32768, bf16, 2 rows", one_row)},
          {"8 rows: step time over max(bytes over bandwidth, FLOPs over limit(bf16))", "ratio", 1.5,
           kAtMost, rows.of("kv 32768, bf16, 8 rows", over_bound)},
          {"batch of 32 sequences, 2k..32k: K/V bytes a second over the probe's", "share", 0.85,
           !kAtMost, rows.share("batch of 32, 2k..32k, bf16")},
          {"append, pages and plan: share of a step at kv 4100", "share", 0.03, kAtMost,
           rows.of("kv 4100, bf16", overhead)},
          {"hit on a shared prefix of 16384 tokens, 32 layers: until its first step", "ms", 1,
           kAtMost, 1e3 * hit.seconds.p50}};
}

}  // namespace lacuna

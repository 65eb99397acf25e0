#include "bench/model_row.h"

#include <algorithm>

#include "bench/committed_pass.h"
#include "bench/prediction.h"
#include "bench/timed_row.h"
#include "lacuna/generate.h"
#include "lacuna/integer.h"
#include "lacuna/stopwatch.h"
#include "lacuna/system_memory.h"

namespace lacuna::bench {
namespace {

// Of one KV head, on pages with a key that the rows read.
std::int64_t keys_on_pages(const Ranges& read, std::int64_t page_size) {
  std::int64_t pages = 0;
  std::int64_t last = -1;
  for (const Range& part : read.parts()) {
    const std::int64_t end = (part.end - 1) / page_size;
    pages += end - std::max(part.begin / page_size, last + 1) + 1;
    last = end;
  }
  return pages * page_size;
}

// What summaries of the sequence's pages take, or would take.
std::int64_t summary_bytes(const KvCache& cache, SequenceId sequence) {
  CacheShape shape = cache.shape();
  shape.summaries = true;
  const std::vector<CacheTable> tables = cache_tables(shape);
  std::int64_t bytes = 0;
  for (std::size_t idx = 0; idx < tables.size(); ++idx) {
    const std::span<const PageId> pages = cache.block_table(sequence, idx);
    bytes += (std::ssize(pages) - std::ranges::count(pages, KvView::kNullPage)) *
             (tables[idx].page_bytes - tables[idx].kv_bytes);
  }
  return bytes;
}

}  // namespace

ModelTimer::ModelTimer(const Model& model, const ModelProblem& problem, std::vector<TokenId> prompt,
                       ThreadPool& pool, const ModelBenchOptions& options)
    : model_(model),
      pool_(pool),
      options_(options),
      transformer_options_(options.transformer),
      prompt_(std::move(prompt)) {
  row_.problem = problem;
  row_.file_weight_bytes = model.file_weight_bytes();
  row_.weight_bytes = model.weight_bytes();
  transformer_options_.table = problem.table;
  transformer_options_.populate = true;  // as an engine has it that has answered before
  transformer_options_.cache_bytes =
      cache_bytes_for(problem.table, model.config().shape, options.transformer,
                      problem.prompt_tokens + problem.generate_tokens, options.chunk);
  require_memory(transformer_options_.cache_bytes, "the cache");
  predict();
  if (problem.num_steps() == 0) return;
  row_.bandwidth_set_bytes = std::max<std::int64_t>(
      row_.file_weight_bytes + static_cast<std::int64_t>(row_.step_read_bytes()), 1 << 20);
}

// The probe's read bandwidth at this moment. Its memory is there from the first call on.
double ModelTimer::bandwidth() {
  if (!reads_) make_probe();
  const std::optional<ReadBandwidthRow> row = reads_->measure();
  if (!row) throw Stopped{};
  return row->bytes_per_s.median;
}

void ModelTimer::make_probe() {
  ProbeOptions probe_options;
  probe_options.num_runs = 3;
  probe_options.run_ns = 10'000'000;
  probe_options.stop = options_.stop;
  reads_ =
      std::make_unique<ReadProbe>(pool_.num_threads(), row_.bandwidth_set_bytes, probe_options);
}

// ---- Predictions --------------------------------------------------------------------------------

// By the table that is claimed, and without faults.
void ModelTimer::predict() {
  const LayerTable& table = row_.problem.claim.value_or(row_.problem.table);
  row_.layers.resize(table.layers.size());
  for (std::size_t layer = 0; layer < row_.layers.size(); ++layer) predict_layer(table, layer);
  const LayerTable whole_table = parse_layers("full", static_cast<int>(table.layers.size()), true);
  for (std::int64_t step = 0; step <= row_.problem.num_steps(); ++step) {
    const Held all = predicted_kv(table, model_.config().shape, transformer_options_,
                                  row_.problem.prompt_tokens + step, 0);
    const Held whole = predicted_kv(whole_table, model_.config().shape, transformer_options_,
                                    row_.problem.prompt_tokens + step, 0);
    for (std::size_t layer = 0; layer < row_.layers.size(); ++layer) {
      row_.layers[layer].predicted_held_bytes.push_back(all.layers[layer].bytes);
      row_.layers[layer].whole_held_bytes.push_back(whole.layers[layer].bytes);
    }
  }
}

void ModelTimer::predict_layer(const LayerTable& table, std::size_t layer) {
  const LayerShape& shape = model_.config().shape.layers[layer];
  ModelLayer& figures = row_.layers[layer];
  const bool is_last = layer + 1 == row_.layers.size();
  // Equal layers are computed once.
  for (std::size_t before = 0; before < layer && !is_last; ++before) {
    if (table.layers[before] != table.layers[layer]) continue;
    if (model_.config().shape.layers[before] != shape) continue;
    figures = row_.layers[before];
    return;
  }
  figures.attend = to_text(table.layers[layer].attend, table.causal);
  const HeadCounts heads = {shape.num_q_heads, shape.num_kv_heads};
  figures.num_q_heads = shape.num_q_heads;
  const std::vector<Topology> topologies = topologies_of_heads(
      table.layers[layer], table.causal, static_cast<int>(layer), shape.num_q_heads);
  const std::int64_t prompt = row_.problem.prompt_tokens;
  figures.prompt_rows = is_last ? 1 : prompt;
  for (std::int64_t first = prompt - figures.prompt_rows; first < prompt; first += options_.chunk) {
    const std::int64_t end = std::min(first + options_.chunk, prompt);
    const PredictedCall chunk = predicted_call(topologies, heads, {{first, end}, end});
    figures.predicted_pairs += chunk.pairs;
    figures.predicted_needed_pairs += chunk.needed_pairs;
    figures.dense_pairs += heads.num_q_heads * (end - first) * end;
  }
  const LayerTopology readers(table.layers[layer], table.causal, static_cast<int>(layer),
                              shape.num_q_heads, shape.num_kv_heads);
  std::int64_t keys_of_pages = 0;
  PredictedCall steps;
  for (std::int64_t at = prompt; at < prompt + row_.problem.num_steps(); ++at) {
    steps = steps + predicted_call(topologies, heads, {{at, at + 1}, at + 1});
    figures.dense_step_pairs += heads.num_q_heads * (at + 1);
    for (const LayerTopology::Class& of : readers.kv_heads()) {
      keys_of_pages +=
          of.count * keys_on_pages(of.topology.row(at, at + 1), options_.transformer.page_size);
    }
  }
  figures.predicted_step_pairs = steps.pairs;
  figures.predicted_step_needed_pairs = steps.needed_pairs;
  const std::int64_t key_bytes =
      loaded_key_bytes(transformer_options_.kv_dtype, shape.head_dim, shape.v_head_dim);
  figures.predicted_read_bytes = checked_mul64(steps.loaded_keys, key_bytes);
  figures.page_bytes = checked_mul64(keys_of_pages, key_bytes);
}

// ---- A round ------------------------------------------------------------------------------------

// One prompt and its answer, timed and counted.
class ModelTimer::Round {
 public:
  Round(ModelTimer& of, std::int64_t round)
      : of_(of),
        layers_(of.row_.layers),
        transformer_(of.model_, of.transformer_options_, of.pool_),
        sequence_(transformer_.cache().create()) {
    times_.round = round;
    times_.layer_prefill_seconds.resize(layers_.size(), 0);
    times_.layer_step_seconds.resize(layers_.size(), 0);
    for (ModelLayer& layer : layers_) {
      layer.pairs = layer.needed_pairs = layer.read_bytes = 0;
      layer.step_pairs = layer.step_needed_pairs = 0;
      layer.held_bytes.clear();
    }
  }

  void prefill(const std::function<void(std::int64_t)>& progress) {
    const std::span<const TokenId> prompt = of_.prompt_;
    for (std::size_t first = 0; first < prompt.size();) {
      const auto chunk = prompt.subspan(
          first, std::min(static_cast<std::size_t>(of_.options_.chunk), prompt.size() - first));
      first += chunk.size();
      const bool is_last = first == prompt.size();
      {
        const Timed timed(times_.first_token_seconds);
        pass(chunk, is_last ? LogitRows::kLast : LogitRows::kNone);
        if (is_last) pick();
      }
      times_.prefill += last_->times();
      for (std::size_t layer = 0; layer < last_->layers().size(); ++layer) {
        const LayerPass& done = last_->layers()[layer];
        times_.layer_prefill_seconds[layer] += done.seconds;
        layers_[layer].pairs += done.ledger.executed_pairs;
        layers_[layer].needed_pairs += done.ledger.needed_pairs;
      }
      progress(std::ssize(chunk));
    }
    note_held();
  }

  void decode(const std::function<void(std::int64_t)>& progress) {
    double sampling = 0;
    CpuTimes spent;
    for (std::int64_t step = 0; step < of_.row_.problem.num_steps(); ++step) {
      times_.step_seconds.push_back(0);
      {
        const CpuStopwatch cpu;
        const Timed timed(times_.step_seconds.back());
        pass({&tokens_.back(), 1}, LogitRows::kLast);
        {
          const Timed choosing(sampling);
          pick();
        }
        spent += cpu.times();
      }
      note_step();
      progress(1);
    }
    means(sampling, spent);
  }

  void set_bandwidth(double bytes_per_s) { times_.read_bytes_per_s = bytes_per_s; }
  // What differs from the prediction in one round stays.
  void finish() {
    if (of_.row_.rounds.empty() || of_.row_.as_predicted()) {
      of_.row_.layers = std::move(layers_);
      of_.row_.live_bytes = std::move(live_bytes_);
      of_.row_.summary_bytes = std::move(summary_bytes_);
    }
    if (of_.row_.rounds.empty()) of_.row_.tokens = std::move(tokens_);
    of_.row_.rounds.push_back(std::move(times_));
  }

 private:
  void pass(std::span<const TokenId> tokens, LogitRows rows) {
    last_.reset();
    last_.emplace(committed_pass(transformer_, sequence_, tokens, rows, of_.options_.stop));
  }

  void pick() { tokens_.push_back(sampler_.pick(last_->logits(0))); }

  void note_step() {
    times_.step += last_->times();
    for (std::size_t layer = 0; layer < last_->layers().size(); ++layer) {
      const LayerPass& done = last_->layers()[layer];
      times_.layer_step_seconds[layer] += done.seconds;
      layers_[layer].step_pairs += done.ledger.executed_pairs;
      layers_[layer].step_needed_pairs += done.ledger.needed_pairs;
      layers_[layer].read_bytes += done.ledger.loaded_bytes;
    }
    note_held();
  }

  void note_held() {
    const std::vector<std::int64_t> held = transformer_.cache().held_bytes(sequence_);
    for (std::size_t layer = 0; layer < held.size(); ++layer) {
      layers_[layer].held_bytes.push_back(held[layer]);
    }
    live_bytes_.push_back(transformer_.cache().live_bytes());
    summary_bytes_.push_back(summary_bytes(transformer_.cache(), sequence_));
  }

  void means(double sampling, const CpuTimes& cpu) {
    const auto steps = static_cast<double>(of_.row_.problem.num_steps());
    if (steps == 0) return;
    for (const PassPart& part : pass_parts()) times_.step.*part.seconds /= steps;
    for (double& seconds : times_.layer_step_seconds) seconds /= steps;
    times_.sampling_seconds = sampling / steps;
    times_.cpu_share = std::min(1.0, cpu.all / (times_.mean_step_seconds() * steps *
                                                static_cast<double>(of_.pool_.num_threads())));
    times_.caller_cpu_share = cpu.all > 0 ? std::min(1.0, cpu.caller / cpu.all) : 1;
  }

  ModelTimer& of_;
  std::vector<ModelLayer> layers_;
  std::vector<std::int64_t> live_bytes_;
  std::vector<std::int64_t> summary_bytes_;
  Transformer transformer_;
  SequenceId sequence_;
  Sampler sampler_{SamplerOptions{}};
  std::optional<Transformer::Pass> last_;
  std::vector<TokenId> tokens_;
  ModelRound times_;
};

void ModelTimer::time_once(std::int64_t round, const std::function<void(std::int64_t)>& progress) {
  Round at_hand(*this, round);
  at_hand.prefill(progress);
  if (row_.problem.num_steps() > 0) {
    const double before = bandwidth();
    at_hand.decode(progress);
    at_hand.set_bandwidth((before + bandwidth()) / 2);
  }
  at_hand.finish();
}

}  // namespace lacuna::bench

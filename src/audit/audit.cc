#include "lacuna/audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "audit/intervention.h"
#include "audit/quality.h"
#include "bench/timed_row.h"
#include "lacuna/error.h"
#include "lacuna/generate.h"

namespace lacuna {
namespace {

std::vector<int> heads_of(const Model& model) {
  std::vector<int> heads;
  for (const LayerShape& layer : model.config().shape.layers) heads.push_back(layer.num_q_heads);
  return heads;
}

// Enough to see what a base does at a distance: half of them are foretold.
constexpr std::int64_t kRotaryTokens = 1024;

// One audit, stage by stage.
class Auditor {
 public:
  Auditor(const Model& model, const Model& exact, std::span<const LayerTable> tables,
          ThreadPool& pool, const AuditOptions& options)
      : model_(model), exact_(exact), tables_(tables), pool_(pool), options_(options) {
    if (tables.empty()) throw Error("the audit has no table; allowed: at least one");
    if (std::ssize(options.bench.text) <= options.prompt_tokens) {
      throw Error(fmt::format("the text has {} tokens; allowed: at least {}, one after the prompt",
                              options.bench.text.size(), options.prompt_tokens + 1));
    }
  }

  Audit run() {
    audit_.num_threads = pool_.num_threads();
    try {
      measure();
      if (options_.int8_kv) measure_int8();
      for (std::size_t idx = 0; idx < audit_.tables.size(); ++idx) {
        judge_hops(idx);
        judge_quality(idx);
      }
      try_rotary();
    } catch (const bench::Stopped&) {
      audit_.interrupted = true;
    }
    return std::move(audit_);
  }

 private:
  void say(const std::string& stage) const {
    if (options_.stage) options_.stage(stage);
  }

  const LayerTable& claimed(std::size_t idx) const {
    return idx == 0 && options_.claim ? *options_.claim : tables_[idx];
  }

  std::vector<ModelProblem> problems(std::size_t count) const {
    std::vector<ModelProblem> problems;
    for (std::size_t idx = 0; idx < count; ++idx) {
      problems.push_back(
          {tables_[idx], options_.prompt_tokens, options_.generate_tokens, claimed(idx)});
    }
    return problems;
  }

  std::vector<AuditedTable> measured(const ModelBenchOptions& bench, std::size_t count) {
    ModelBenchResult result = run_model_bench(model_, problems(count), pool_, bench);
    std::vector<AuditedTable> tables;
    for (ModelRow& row : result.rows) tables.emplace_back().row = std::move(row);
    if (result.interrupted) {
      audit_.interrupted = true;
      if (audit_.tables.empty()) audit_.tables = std::move(tables);
      throw bench::Stopped{};
    }
    return tables;
  }

  void measure() {
    say("prompt and answer through each table");
    audit_.tables = measured(options_.bench, tables_.size());
  }

  void measure_int8() {
    if (options_.bench.transformer.kv_dtype == DType::kInt8) return;
    say("once more with keys and values in int8");
    ModelBenchOptions bench = options_.bench;
    bench.transformer.kv_dtype = DType::kInt8;
    audit_.int8_kv = std::move(measured(bench, 1).front());
  }

  TransformerOptions transformer_options(std::size_t idx, DType kv_dtype, std::int64_t copies) {
    TransformerOptions options = options_.bench.transformer;
    options.table = tables_[idx];
    options.kv_dtype = kv_dtype;
    options.planted.hidden_seconds = 0;
    options.planted.one_thread = false;
    options.planted.masked_dense = false;  // the same answer, only later
    options.cache_bytes = copies * cache_bytes_for(tables_[idx], model_.config().shape, options,
                                                   options_.prompt_tokens, options_.bench.chunk);
    return options;
  }

  void judge_hops(std::size_t idx) {
    const std::int64_t query = options_.prompt_tokens - 1;
    if (query == 0) return;
    const Graph graph(claimed(idx), heads_of(model_), options_.prompt_tokens);
    std::vector<std::int64_t> evidence = {query / 2};
    if (options_.all_distances) evidence = audit::telling_evidence(graph, query);
    say(fmt::format("{} changed token(s) through {}", evidence.size(), to_text(tables_[idx])));
    Transformer transformer(exact_, transformer_options(idx, DType::kF32, std::ssize(evidence) + 1),
                            pool_);
    const auto prompt =
        std::span(options_.bench.text).first(static_cast<std::size_t>(options_.prompt_tokens));
    audit_.tables[idx].interventions = audit::intervene(transformer, graph, prompt, evidence,
                                                        model_.tokenizer().vocab_size(), options_);
  }

  void judge_quality(std::size_t idx) {
    const std::int64_t positions = std::min(options_.quality_positions, options_.prompt_tokens);
    if (positions == 0) return;
    say(fmt::format("likelihood of {} tokens through {}", positions, to_text(tables_[idx])));
    const auto tokens =
        std::span(options_.bench.text).first(static_cast<std::size_t>(options_.prompt_tokens) + 1);
    if (buckets_.empty()) {
      const Graph graph(claimed(0), heads_of(model_), options_.prompt_tokens);
      buckets_ = audit::pair_buckets(graph, tokens, positions);
    }
    Transformer transformer(
        model_, transformer_options(idx, options_.bench.transformer.kv_dtype, 1), pool_);
    audit_.tables[idx].quality = audit::quality_of(transformer, tokens, buckets_, pool_, options_);
  }

  void try_rotary() {
    if (model_.rotates_alike() || options_.quality_positions == 0) return;
    const std::int64_t prompt = std::min(kRotaryTokens, options_.prompt_tokens);
    say(fmt::format("likelihood with the rotary base of the first layer in all, {} tokens",
                    prompt));
    const auto tokens = std::span(options_.bench.text).first(static_cast<std::size_t>(prompt) + 1);
    const std::vector<std::string> buckets(static_cast<std::size_t>((prompt + 1) / 2), "");
    const auto quality = [&](bool as_first) {
      TransformerOptions options = transformer_options(0, options_.bench.transformer.kv_dtype, 1);
      options.planted.local_rotary = options.planted.local_rotary || as_first;
      Transformer transformer(model_, options, pool_);
      return audit::quality_of(transformer, tokens, buckets, pool_, options_);
    };
    Quality own = quality(false);
    audit_.rotary = {std::move(own), quality(true)};
  }

  const Model& model_;
  const Model& exact_;
  std::span<const LayerTable> tables_;
  ThreadPool& pool_;
  const AuditOptions& options_;
  std::vector<std::string> buckets_;
  Audit audit_;
};

}  // namespace

LayerTable with_wider_windows(LayerTable table, std::int64_t more) {
  for (Layer& layer : table.layers) {
    for (HeadGroup& group : layer.attend.groups) {
      for (Term& term : group.attend) {
        auto* const window = std::get_if<Window>(&term);
        if (window != nullptr) window->left = std::max<std::int64_t>(window->left + more, 0);
      }
    }
  }
  return table;
}

Audit run_audit(const Model& model, const Model& exact, std::span<const LayerTable> tables,
                ThreadPool& pool, const AuditOptions& options) {
  return Auditor(model, exact, tables, pool, options).run();
}

}  // namespace lacuna

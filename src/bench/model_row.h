#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lacuna/model_bench.h"
#include "lacuna/probe.h"

namespace lacuna::bench {

// One problem with its predictions, ready to be timed.
class ModelTimer {
 public:
  // `prompt` has the problem's tokens. All references must outlive it. Throws Error.
  ModelTimer(const Model& model, const ModelProblem& problem, std::vector<TokenId> prompt,
             ThreadPool& pool, const ModelBenchOptions& options);
  ModelTimer(const ModelTimer&) = delete;
  ModelTimer& operator=(const ModelTimer&) = delete;

  const ModelRow& row() const { return row_; }
  // `progress` gets the tokens of a chunk or step that is done. Throws Stopped.
  void time_once(std::int64_t round, const std::function<void(std::int64_t)>& progress);

 private:
  class Round;

  double bandwidth();
  void make_probe();
  void predict();
  void predict_layer(const LayerTable& table, std::size_t layer);

  const Model& model_;
  ThreadPool& pool_;
  const ModelBenchOptions& options_;
  ModelRow row_;
  TransformerOptions transformer_options_;
  std::vector<TokenId> prompt_;
  std::unique_ptr<ReadProbe> reads_;
};

}  // namespace lacuna::bench

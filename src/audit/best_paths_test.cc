#include "audit/best_paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "cache/packed_reader.h"
#include "lacuna/topology.h"

namespace lacuna::audit {
namespace {

constexpr std::int64_t kTokens = 60;

// Weights of every edge by their definition, and the best path by trying each last edge first.
class Oracle {
 public:
  Oracle(const LayerTable& table, float sm_scale) : table_(table), sm_scale_(sm_scale) {}

  // Of a pass over all tokens at once.
  void note(std::int64_t layer, const LayerAttention& done) {
    weights_.resize(static_cast<std::size_t>(layer) + 1);
    auto& of_layer = weights_.back();
    const std::int64_t num_heads = done.q.shape[1];
    const std::int64_t group = num_heads / done.kv.num_kv_heads;
    const Topology topology(table_.layers[weights_.size() - 1].attend.groups[0].attend, true);
    for (std::int64_t head = 0; head < num_heads; ++head) {
      std::vector<std::vector<float>> keys;
      for (std::int64_t key = 0; key < kTokens; ++key) {
        keys.push_back(rig::PackedReader(done.kv, false, head / group, key).vector());
      }
      for (std::int64_t row = 0; row < kTokens; ++row) {
        const float* const q = static_cast<const float*>(done.q.data) + row * done.q.strides[0] +
                               head * done.q.strides[1];
        std::map<std::int64_t, double> exps;
        double sum = 0;
        for (std::int64_t key = 0; key <= row; ++key) {
          if (!topology.visible(row, key, kTokens)) continue;
          double dot = 0;
          for (std::size_t dim = 0; dim < keys[0].size(); ++dim) {
            dot += double{q[dim]} * keys[static_cast<std::size_t>(key)][dim];
          }
          sum += exps[key] = std::exp(dot * sm_scale_);
        }
        for (const auto& [key, e] : exps) {
          double& largest = of_layer[{row, key}];
          largest = std::max(largest, e / sum);
        }
      }
    }
  }

  // Into `layer`'s input at `row`, from the token at `evidence`.
  double best(std::int64_t evidence, std::size_t layer, std::int64_t row) {
    if (row < evidence) return 0;
    if (layer == 0) return row == evidence ? 1 : 0;
    const auto known = best_.find({evidence, layer, row});
    if (known != best_.end()) return known->second;
    double best_of = best(evidence, layer - 1, row);
    for (const auto& [edge, weight] : weights_[layer - 1]) {
      if (edge.first != row) continue;
      best_of = std::max(best_of, weight * best(evidence, layer - 1, edge.second));
    }
    return best_[{evidence, layer, row}] = best_of;
  }

 private:
  const LayerTable& table_;
  double sm_scale_ = 1;
  std::vector<std::map<std::pair<std::int64_t, std::int64_t>, double>> weights_;
  std::map<std::tuple<std::int64_t, std::size_t, std::int64_t>, double> best_;
};

class BestPathsTest : public testing::Test {
 protected:
  BestPathsTest()
      : pool_(2),
        model_(std::string(LACUNA_TEST_DATA) + "/models/tiny-gemma3.gguf",
               {.products = DenseType::kF32}, &pool_) {
    std::mt19937 random(7);
    for (int i = 0; i < kTokens; ++i) tokens_.push_back(static_cast<TokenId>(random() % 60));
  }

  void read(const LayerTable& table, std::int64_t chunk,
            const Transformer::AttentionObserver& observer) {
    TransformerOptions options;
    options.table = table;
    options.kv_dtype = DType::kF32;
    options.page_size = 16;
    Transformer transformer(model_, options, pool_);
    transformer.observe_attention(observer);
    const SequenceId sequence = transformer.cache().create();
    for (std::int64_t at = 0; at < kTokens; at += chunk) {
      const auto count = static_cast<std::size_t>(std::min(chunk, kTokens - at));
      const NewTokens batch[] = {
          {sequence, std::span(tokens_).subspan(static_cast<std::size_t>(at), count)}};
      transformer.forward(batch, LogitRows::kNone)->commit();
    }
  }

  ThreadPool pool_;
  Model model_;
  std::vector<TokenId> tokens_;
};

TEST_F(BestPathsTest, AreThoseOfEveryPathTriedByDefinition) {
  const auto num_layers = static_cast<int>(model_.config().table.layers.size());
  const float sm_scale =
      1 / std::sqrt(static_cast<float>(model_.config().shape.layers[0].head_dim));
  const std::vector<std::int64_t> evidence = {0, 17, 40, 58};
  for (const char* layers : {"window(8)*5, full", "full", "window(5)", "window(3)+sink(2)"}) {
    const LayerTable table = parse_layers(layers, num_layers, true);
    const Graph graph(table, std::vector<int>(table.layers.size(), 4), kTokens);
    Oracle oracle(table, sm_scale);
    read(table, kTokens, [&](auto layer, const LayerAttention& done) { oracle.note(layer, done); });
    BestPaths paths(table, evidence, kTokens, {});
    read(table, 13, [&](auto layer, const LayerAttention& done) { paths.add(layer, done); });
    for (std::size_t idx = 0; idx < evidence.size(); ++idx) {
      const std::optional<BestPath> best = paths.to(kTokens - 1, idx);
      const std::optional<int> hops = graph.hops(evidence[idx], kTokens - 1);
      ASSERT_EQ(best.has_value(), hops.has_value()) << layers << ' ' << evidence[idx];
      if (!best) continue;
      EXPECT_GE(best->hops, *hops);
      const double expected = oracle.best(evidence[idx], table.layers.size(), kTokens - 1);
      EXPECT_GT(expected, 0);
      EXPECT_NEAR(best->weight / expected, 1, 1e-4) << layers << ' ' << evidence[idx];
    }
  }
}

TEST_F(BestPathsTest, OfATokenToItselfIsTheResidual) {
  const LayerTable table = model_.config().table;
  BestPaths paths(table, {kTokens - 1}, kTokens, {});
  read(table, 16, [&](auto layer, const LayerAttention& done) { paths.add(layer, done); });
  EXPECT_EQ(paths.to(kTokens - 1, 0)->weight, 1);
  EXPECT_EQ(paths.to(kTokens - 1, 0)->hops, 0);
}

}  // namespace
}  // namespace lacuna::audit

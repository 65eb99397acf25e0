#include "lacuna/graph.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "compare.h"
#include "generate.h"
#include "lacuna/layer_table.h"
#include "oracle.h"

// Hops, reach and coverage against boolean products over (layer, position).

namespace lacuna {
namespace {

constexpr std::int64_t kLongest = 24;

struct Model {
  LayerTable table;
  std::vector<int> num_q_heads;
};

std::string describe(const Model& model) {
  std::string out = model.table.causal ? "causal" : "bidirectional";
  for (std::size_t l = 0; l < model.table.layers.size(); ++l) {
    const Layer& layer = model.table.layers[l];
    out += "\n  layer " + std::to_string(l) + ": " + std::string(to_string(layer.mixer)) + ", " +
           std::to_string(model.num_q_heads[l]) + " heads";
    if (layer.kv_from) out += ", kv_from " + std::to_string(*layer.kv_from);
    for (const HeadGroup& group : layer.attend.groups) {
      out += " [" + generate::describe(group.attend) + "]";
    }
  }
  return out;
}

// Small windows and strides, so that several layers are needed to get anywhere.
rc::Gen<Term> short_term(bool causal) {
  using rc::gen::map;
  auto window =
      map(rc::gen::pair(generate::between(0, 4), generate::between(0, 3)), [causal](auto pair) {
        return Term(Window{pair.first, causal ? 0 : pair.second});
      });
  auto chunk = map(generate::between(1, 7), [](auto c) { return Term(Chunk{c}); });
  auto dilated =
      map(rc::gen::pair(generate::between(1, 3), generate::between(1, 6)), [](auto pair) {
        return Term(Dilated{pair.first, pair.second});
      });
  auto listed = map(generate::between(0, 23), [](auto p) { return Term(GlobalPositions{{p}}); });
  auto random = map(rc::gen::pair(generate::between(1, 2), generate::seed()), [](auto pair) {
    return Term(Random{pair.first, pair.second});
  });
  return rc::gen::oneOf(window, chunk, dilated, listed, random, generate::term(causal));
}

rc::Gen<Union> short_union(bool causal) {
  return rc::gen::mapcat(rc::gen::inRange(1, 3), [causal](int count) {
    return rc::gen::container<Union>(static_cast<std::size_t>(count), short_term(causal));
  });
}

// Which earlier layers own KV that a later one may share.
std::vector<int> owners(const std::vector<Layer>& layers) {
  std::vector<int> result;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].mixer == Mixer::kSoftmax && !layers[l].kv_from) {
      result.push_back(static_cast<int>(l));
    }
  }
  return result;
}

Layer any_layer(bool causal, int num_q_heads, const std::vector<Layer>& before) {
  Layer layer;
  const auto kind = *rc::gen::inRange(0, 10).as("kind");
  if (kind == 9) layer.mixer = Mixer::kNone;
  // What a finite state carries in a bidirectional table is not specified.
  if (kind == 8 && causal) layer.mixer = Mixer::kLinear;
  if (kind == 7 && causal && *rc::gen::arbitrary<bool>().as("ssm")) layer.mixer = Mixer::kSsm;
  if (layer.mixer != Mixer::kSoftmax) return layer;
  layer.attend.groups.push_back({{}, *short_union(causal).as("attend")});
  if (num_q_heads > 1 && *rc::gen::arbitrary<bool>().as("split")) {
    layer.attend.groups.push_back({{}, *short_union(causal).as("attend")});
    for (std::int64_t h = 0; h < num_q_heads; ++h) {
      layer.attend.groups[static_cast<std::size_t>(h % 2)].heads.push_back(h);
    }
  }
  const auto sharable = owners(before);
  if (!sharable.empty() && kind < 3) layer.kv_from = *rc::gen::elementOf(sharable).as("kv_from");
  return layer;
}

Model any_model(bool causal) {
  Model model;
  model.table.causal = causal;
  const auto num_layers = *rc::gen::inRange(1, 7).as("layers");
  for (int l = 0; l < num_layers; ++l) {
    model.num_q_heads.push_back(*rc::gen::inRange(1, 4).as("heads"));
    model.table.layers.push_back(any_layer(causal, model.num_q_heads.back(), model.table.layers));
  }
  return model;
}

std::string text(std::optional<int> value) { return value ? std::to_string(*value) : "null"; }

std::string pair_answers(const Graph& graph, const oracle::Paths& paths, std::int64_t j,
                         std::int64_t i) {
  const auto evidence = static_cast<std::size_t>(j);
  const auto query = static_cast<std::size_t>(i);
  const auto hops = graph.hops(j, i);
  if (hops != paths.hops[evidence][query]) {
    return compare::disagreement(compare::at("hops", {j, i}), text(hops),
                                 text(paths.hops[evidence][query]));
  }
  const auto first = graph.first_layer(j, i);
  if (first != paths.first_layer[evidence][query]) {
    return compare::disagreement(compare::at("first_layer", {j, i}), text(first),
                                 text(paths.first_layer[evidence][query]));
  }
  return "";
}

struct Extremes {
  std::int64_t reach_tokens = 0;
  int diameter = 0;
};

std::string query_answers(const Graph& graph, const oracle::Paths& paths, std::int64_t i,
                          bool causal, Extremes& extremes) {
  const std::int64_t n = graph.length();
  oracle::Row sources(static_cast<std::size_t>(n), false);
  int eccentricity = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const auto message = pair_answers(graph, paths, j, i);
    if (!message.empty()) return message;
    const auto hops = paths.hops[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)];
    if (!hops) continue;
    sources[static_cast<std::size_t>(j)] = true;
    eccentricity = std::max(eccentricity, *hops);
    extremes.reach_tokens = std::max(extremes.reach_tokens, std::abs(i - j));
  }
  extremes.diameter = std::max(extremes.diameter, eccentricity);
  const double legal = static_cast<double>(causal ? i + 1 : n);
  const double coverage = static_cast<double>(oracle::count(sources)) / legal;
  if (std::abs(graph.coverage(i) - coverage) > 1e-12) {
    return compare::disagreement(compare::at("coverage", {i}), std::to_string(graph.coverage(i)),
                                 std::to_string(coverage));
  }
  return compare::first(
      {compare::sets(compare::at("sources", {i}), graph.sources(i).parts(), sources),
       compare::numbers(compare::at("eccentricity", {i}), graph.eccentricity(i), eccentricity)});
}

std::string all_answers(const Model& model, std::int64_t n) {
  const Graph graph(model.table, model.num_q_heads, n);
  const auto paths = oracle::paths(model.table, model.num_q_heads, n);
  Extremes extremes;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto message = query_answers(graph, paths, i, model.table.causal, extremes);
    if (!message.empty()) return message;
  }
  return compare::first(
      {compare::numbers("reach_tokens", graph.reach_tokens(), extremes.reach_tokens),
       compare::numbers("diameter", graph.diameter(), extremes.diameter)});
}

void agrees(bool causal) {
  const Model model = any_model(causal);
  const auto n = *generate::between(1, kLongest).as("length");
  const auto message = all_answers(model, n);
  if (!message.empty())
    RC_FAIL(message + " at length " + std::to_string(n) + ", " + describe(model));
}

RC_GTEST_PROP(GraphOfALayerTable, CausalAnswersAsBooleanProducts, ()) { agrees(true); }
RC_GTEST_PROP(GraphOfALayerTable, BidirectionalAnswersAsBooleanProducts, ()) { agrees(false); }

Model equal_layers(int count, const Union& attend, bool causal) {
  Model model;
  model.table.causal = causal;
  Layer layer;
  layer.attend.groups.push_back({{}, attend});
  model.table.layers.assign(static_cast<std::size_t>(count), layer);
  model.num_q_heads.assign(static_cast<std::size_t>(count), 1);
  return model;
}

// L windows of w reach L(w-1) back, at any length; every window, layer count and length up to 96.
TEST(GraphOfALayerTable, EqualWindowsReachLayersTimesWindowLessOne) {
  for (std::int64_t w : {1, 2, 3, 7, 16}) {
    for (int layers : {1, 2, 3, 5}) {
      for (std::int64_t n : {1, 2, 17, 96, 4097, 131072}) {
        const Model model = equal_layers(layers, {Window{w - 1, 0}}, true);
        const Graph graph(model.table, model.num_q_heads, n);
        EXPECT_EQ(graph.reach_tokens(), std::min(n - 1, layers * (w - 1)))
            << layers << " layers of window " << w << " at length " << n;
      }
    }
  }
}

TEST(GraphOfALayerTable, SingleTermsAnswerAsBooleanProducts) {
  for (const Term& term :
       {Term{Full{}}, Term{Window{2, 0}}, Term{Dilated{3, 4}}, Term{Sink{2}},
        Term{GlobalPositions{{9}}}, Term{GlobalEvery{5, 3}}, Term{Chunk{6}}, Term{Strided{5}},
        Term{Fixed{4, 1}}, Term{WindowBlocks{1, 0, 3}}, Term{VerticalBlocks{2, 1, 3, 0, true}},
        Term{TopK{3}}, Term{TopKBlocks{2, 3, 0, 1}}, Term{Random{2, 9}},
        Term{RandomBlocks{1, 3, 9, false}}}) {
    for (int layers : {1, 3}) {
      for (std::int64_t n : {1, 2, 11, 24}) {
        EXPECT_EQ(all_answers(equal_layers(layers, {term}, true), n), "")
            << generate::describe(Union{term}) << ", " << layers << " layers, length " << n;
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

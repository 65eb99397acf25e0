// The worked examples of the source chapters, tests/data/worked-examples.json. Each is computed
// through the public interface from the example's own `given`; no result stands in this file.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lacuna/capacity.h"
#include "lacuna/cost.h"
#include "lacuna/error.h"
#include "lacuna/estimate.h"
#include "lacuna/graph.h"
#include "lacuna/topology.h"
#include "lacuna/training.h"

namespace lacuna {
namespace {

using Json = nlohmann::json;

std::int64_t whole(const Json& given, const char* key) { return given.at(key).get<std::int64_t>(); }
int count(const Json& given, const char* key) { return given.at(key).get<int>(); }
double real(const Json& given, const char* key) { return given.at(key).get<double>(); }
std::string text(const Json& given, const char* key) { return given.at(key).get<std::string>(); }

std::int64_t number(const Figure128& figure) { return to_int64(figure.value(), "a figure"); }
double ratio(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

Topology topology(const std::string& attend, bool causal = true) {
  return Topology(parse_attend(attend, causal).groups.front().attend, causal);
}

// The plain dtype of `b` bytes an element.
KvDtype dtype_of(const Json& given) {
  for (const char* name : {"fp8", "bf16", "f32"}) {
    if (kv_dtype(name).group_bytes == whole(given, "b")) return kv_dtype(name);
  }
  throw Error("no plain KV dtype of that many bytes an element");
}

ModelShape shape_of(int num_layers, int num_q_heads, int num_kv_heads, std::int64_t head_dim) {
  return uniform_shape(num_layers, LayerShape{.num_q_heads = num_q_heads,
                                              .num_kv_heads = num_kv_heads,
                                              .head_dim = head_dim,
                                              .v_head_dim = head_dim});
}

CostQuery query_of(Phase phase, std::vector<std::int64_t> lengths) {
  CostQuery query;
  query.phase = phase;
  query.lengths = std::move(lengths);
  query.kv_dtype = kv_dtype("bf16");
  return query;
}

// One decode step of the example's KV dtype.
CostQuery step_of(const Json& given, std::vector<std::int64_t> lengths) {
  CostQuery query = query_of(Phase::kDecode, std::move(lengths));
  query.kv_dtype = dtype_of(given);
  return query;
}

LayerCost total(const std::string& layers, const ModelShape& shape, const CostQuery& query,
                bool causal = true) {
  return cost(parse_layers(layers, static_cast<int>(shape.layers.size()), causal), shape, query)
      .total;
}

// Edges of one head of one layer over a whole prompt.
std::int64_t edges(const std::string& attend, std::int64_t length) {
  return number(total(attend, shape_of(1, 1, 1, 1), query_of(Phase::kPrefill, {length})).edges);
}

// A table in which every `period`-th layer is full and the others are windows.
std::string hybrid(const Json& given) {
  const std::int64_t period = whole(given, "N") / whole(given, "full_layers");
  return "window(" + std::to_string(whole(given, "window")) + ")*" + std::to_string(period - 1) +
         ", full";
}

// The KV shape of an example with N layers; KV figures do not depend on query heads.
ModelShape kv_shape(const Json& given) {
  const int heads = count(given, "H_kv");
  return shape_of(count(given, "N"), heads, heads, whole(given, "d_h"));
}

Json causal_pair_flops(const Json& given) {
  const ModelShape shape =
      shape_of(1, count(given, "heads"), count(given, "heads"), whole(given, "d_h"));
  const std::vector<std::int64_t> lengths = {whole(given, "n")};
  const LayerCost forward = total(text(given, "attend"), shape, query_of(Phase::kPrefill, lengths));
  // What a backward pass would compute again are the scores alone: QKᵀ.
  const std::int64_t scores =
      number(total(text(given, "attend"), shape, query_of(Phase::kTrain, lengths)).recompute_flops);
  const LayerCost square = total("full", shape, query_of(Phase::kPrefill, lengths), false);
  return {{"edges", number(forward.edges)},
          {"qk_flops", scores},
          {"pv_flops", number(forward.pair_flops) - scores},
          {"pair_flops", number(forward.pair_flops)},
          {"square_pairs", number(square.legal_pairs)},
          {"square_pair_flops", number(square.pair_flops)}};
}

Json score_bytes(const Json& given) {
  const Equation bytes = materialised_bytes(whole(given, "B"), whole(given, "H"), whole(given, "n"),
                                            whole(given, "b"));
  return {{"score_bytes", to_int64(bytes.value(), "score_bytes")}};
}

Json window_density(const Json& given) {
  const LayerCost cost_of = total(text(given, "attend"), shape_of(1, 1, 1, 1),
                                  query_of(Phase::kPrefill, {whole(given, "n")}));
  const std::int64_t legal = number(cost_of.legal_pairs);
  return {{"edges", number(cost_of.edges)},
          {"causal_edges", legal},
          {"density_causal", ratio(number(cost_of.edges), legal)}};
}

Json amdahl(const Json& given) {
  return {{"speedup", amdahl_speedup(real(given, "p"), real(given, "r"), real(given, "u"))}};
}

Json prefill_of_one_layer(const Json& given) {
  const ModelShape one = shape_of(1, count(given, "H"), count(given, "H"), whole(given, "d_h"));
  const CostQuery query = query_of(Phase::kPrefill, {whole(given, "n")});
  const LayerCost full = total("full", one, query);
  const LayerCost window = total("window(4096)", one, query);
  const ModelShape four = shape_of(4, count(given, "H"), count(given, "H"), whole(given, "d_h"));
  return {{"causal_edges", number(full.edges)},
          {"pair_flops", number(full.pair_flops)},
          {"window_4096_edges", number(window.edges)},
          {"window_4096_pair_flops", number(window.pair_flops)},
          {"ratio", ratio(number(window.edges), number(full.edges))},
          {"one_full_in_four", ratio(number(total("window(4096)*3, full", four, query).pair_flops),
                                     number(total("full", four, query).pair_flops))}};
}

Json kv_capacity(const Json& given) {
  const CostQuery query = step_of(
      given, std::vector<std::int64_t>(given.at("B").get<std::size_t>(), whole(given, "L")));
  const auto held = [&](const std::string& layers) {
    return number(total(layers, kv_shape(given), query).kv_held_bytes);
  };
  const std::int64_t window = held("window(4096)");
  const std::int64_t with_sinks = held("window(4096)+sink(4)");
  return {{"full_bytes", held("full")},
          {"window_4096_bytes", window},
          {"window_4096_sink_4_bytes", with_sinks},
          {"sink_overhead", ratio(with_sinks - window, window)}};
}

Json step_reads(const Json& given) {
  const CostQuery query = step_of(given, {whole(given, "L")});
  const auto read = [&](const std::string& layers) {
    const PhaseCost phase =
        cost(parse_layers(layers, count(given, "N"), true), kv_shape(given), query);
    return std::pair{number(phase.layers.front().kv_read_bytes_per_step),
                     number(phase.total.kv_read_bytes_per_step)};
  };
  const auto [layer, model] = read("full");
  const auto [window_layer, window_model] = read("window(4096)");
  return {{"layer_bytes", layer},
          {"model_bytes", model},
          {"window_4096_layer_bytes", window_layer},
          {"window_4096_model_bytes", window_model}};
}

Json hybrid_capacity(const Json& given) {
  const ModelShape shape = shape_of(count(given, "N"), 1, 1, 1);
  const CostQuery query = query_of(Phase::kDecode, {whole(given, "L")});
  return {{"ratio", ratio(number(total(hybrid(given), shape, query).kv_held_bytes),
                          number(total("full", shape, query).kv_held_bytes))}};
}

Json tiles_of_a_window(const Json& given) {
  const std::int64_t start = whole(given, "start");
  const Rounding tiles = round_up(Ranges{{start, start + whole(given, "w")}}, whole(given, "tile"));
  return {{"tiles", to_int64(tiles.units.value(), "tiles")},
          {"executed", to_int64(tiles.slots.value(), "executed")},
          {"waste", to_int64(tiles.empty.value(), "waste")},
          {"waste_ratio", tiles.waste}};
}

Json tokens_a_request(const Json& given) {
  const ModelShape shape = kv_shape(given);
  const LayerTable table = parse_layers("full", count(given, "N"), true);
  CapacityQuery query;
  query.budget_bytes = whole(given, "budget");
  query.requests = whole(given, "R");
  query.kv_dtype = dtype_of(given);
  query.policy = parse_policy("exact");
  const LayerCost one = cost(table, shape, step_of(given, {1})).total;
  return {{"bytes_per_token", number(one.kv_bytes_per_token)},
          {"L_keep", capacity(table, shape, query).limit.tokens}};
}

Json prefill_speedup(const Json& given) {
  const double relative =
      pair_time_ratio(real(given, "edge_ratio"), real(given, "kernel_efficiency"));
  const double speedup = amdahl_speedup(real(given, "p"), relative);
  return {{"time_ratio", 1 / speedup}, {"speedup", speedup}};
}

Json rows_and_densities(const Json& given) {
  const std::int64_t n = whole(given, "n");
  const Topology rows = topology(text(given, "attend"));
  Json lengths = Json::array();
  for (std::int64_t query = 0; query < n; ++query) lengths.push_back(rows.row(query, n).size());
  const std::int64_t counted = edges(text(given, "attend"), n);
  const auto legal = [&](bool causal) {
    return to_int64(legal_pairs(causal, 0, n, n), "legal pairs");
  };
  return {{"row_lengths", lengths},
          {"edges", counted},
          {"density_square", ratio(counted, legal(false))},
          {"density_causal", ratio(counted, legal(true))}};
}

Json paged_slots(const Json& given) {
  const Rounding pages = round_up(whole(given, "tokens"), whole(given, "page"));
  return {{"pages", to_int64(pages.units.value(), "pages")},
          {"slots", to_int64(pages.slots.value(), "slots")},
          {"fragmentation", pages.waste}};
}

Json aligned_window(const Json& given) {
  const Rounding tiles = round_up(whole(given, "w"), whole(given, "tile"));
  return {{"executed", to_int64(tiles.slots.value(), "executed")}};
}

Json forward_of_one_layer(const Json& given) {
  ModelShape shape = shape_of(1, count(given, "H"), count(given, "H"), whole(given, "d_h"));
  shape.hidden_size = whole(given, "d");
  const CostQuery query =
      query_of(Phase::kPrefill,
               std::vector<std::int64_t>(given.at("B").get<std::size_t>(), whole(given, "n")));
  const LayerCost dense = total("full", shape, query);
  const LayerCost sparse = total(text(given, "attend"), shape, query);
  const std::int64_t projections = number(dense.projection_flops);
  const std::int64_t dense_total = number(dense.pair_flops) + projections;
  const std::int64_t sparse_total = number(sparse.pair_flops) + projections;
  const double kept = ratio(number(sparse.edges), number(dense.edges));
  return {
      {"causal_edges", number(dense.edges)},
      {"edges", number(sparse.edges)},
      {"ratio", kept},
      {"dense_pair_flops", number(dense.pair_flops)},
      {"pair_flops", number(sparse.pair_flops)},
      {"projection_flops", projections},
      {"dense_total", dense_total},
      {"total", sparse_total},
      {"pair_speedup", ratio(number(dense.pair_flops), number(sparse.pair_flops))},
      {"total_speedup", ratio(dense_total, sparse_total)},
      {"speedup_at_60_percent_kernel",
       amdahl_speedup(ratio(number(dense.pair_flops), dense_total), pair_time_ratio(kept, 0.6))}};
}

Json hybrid_prefill(const Json& given) {
  const ModelShape shape = shape_of(count(given, "N"), 1, 1, 1);
  const CostQuery query = query_of(Phase::kPrefill, {whole(given, "n")});
  const std::int64_t window =
      edges("window(" + std::to_string(whole(given, "window")) + ")", whole(given, "n"));
  return {{"causal_edges", edges("full", whole(given, "n"))},
          {"edges", window},
          {"ratio", ratio(number(total(hybrid(given), shape, query).edges),
                          number(total("full", shape, query).edges))}};
}

Json synchronous_step(const Json& given) {
  const std::int64_t window = whole(given, "window");
  const std::string layers = "window(" + std::to_string(window) + ")";
  const auto read = [&](std::size_t requests) {
    // Any history past the window reads the same.
    const std::vector<std::int64_t> lengths(requests, 2 * window);
    return number(total(layers, kv_shape(given), step_of(given, lengths)).kv_read_bytes_per_step);
  };
  const std::int64_t step = read(given.at("R").get<std::size_t>());
  const Roofline bound = roofline(0, static_cast<double>(step), 1, real(given, "bandwidth"));
  return {{"request_bytes", read(1)}, {"step_bytes", step}, {"seconds", bound.seconds}};
}

Json intensity(const Json& given) {
  const auto of_group = [&](int group) {
    return decode_intensity(shape_of(1, group, 1, whole(given, "d_h")).layers.front(),
                            Mixer::kSoftmax, dtype_of(given));
  };
  return {{"g1", of_group(1)}, {"g8", of_group(8)}};
}

Json index_bytes(const Json& given) {
  const int heads = count(given, "H_kv");
  const LayerShape layer = shape_of(1, heads, heads, whole(given, "d_h")).layers.front();
  const Equation kv = kv_bytes_per_token(layer, Mixer::kSoftmax, dtype_of(given));
  return {{"ratio", index_byte_ratio(whole(given, "id_bytes"), to_int64(kv.value(), "KV bytes"))}};
}

Json fewest_blocks(const Json& given) {
  const Rounding blocks = round_up(whole(given, "k"), whole(given, "block"));
  return {{"min_blocks", to_int64(blocks.units.value(), "blocks")}};
}

Json transferred(const Json& given) {
  const auto slots = [&](const Json& choice) {
    const Rounding pages =
        round_up_counted(whole(choice, "tokens"), whole(choice, "pages"), whole(given, "page"));
    return to_int64(pages.slots.value(), "slots");
  };
  return {{"a_transferred", slots(given.at("a"))}, {"b_transferred", slots(given.at("b"))}};
}

Json listed_tokens(const Json& given) {
  const auto tokens = given.at("tokens").get<std::vector<std::int64_t>>();
  const Rounding tiles = round_up(positions(tokens), whole(given, "tile"));
  return {{"executed", to_int64(tiles.slots.value(), "executed")}};
}

Json missing_edges(const Json& given) {
  const std::int64_t n = whole(given, "n");
  const std::int64_t causal = edges("full", n);
  return {{"causal_edges", causal},
          {"saved", causal - edges(text(given, "attend"), n)},
          {"reads_first_from_last", topology(text(given, "attend")).visible(n - 1, 0, n)}};
}

Json reach(const Json& given) {
  const int layers = count(given, "layers");
  const LayerTable table =
      parse_layers("window(" + std::to_string(whole(given, "window")) + ")", layers, true);
  const Graph graph(table, std::vector<int>(static_cast<std::size_t>(layers), 1), 64);
  return {{"reach", graph.reach_tokens()}};
}

Json layers_between(const Json& given) {
  const std::string radius = std::to_string(whole(given, "r"));
  const std::int64_t distance = whole(given, "distance");
  // More layers than the distance has tokens are never needed.
  const int layers = static_cast<int>(distance);
  const LayerTable table = parse_layers("window(" + radius + "," + radius + ")", layers, false);
  const Graph graph(table, std::vector<int>(static_cast<std::size_t>(layers), 1), distance + 1);
  return {{"layers", graph.first_layer(0, distance).value() + 1}};
}

Json lengths_of_a_batch(const Json& given) {
  const auto lengths = given.at("lengths").get<std::vector<std::int64_t>>();
  std::int64_t tokens = 0;
  for (const std::int64_t length : lengths) tokens += length;
  const std::int64_t requests = std::ssize(lengths);
  const auto batch_edges = [&](const std::vector<std::int64_t>& batch) {
    return number(
        total(text(given, "attend"), shape_of(1, 1, 1, 1), query_of(Phase::kPrefill, batch)).edges);
  };
  const std::vector<std::int64_t> means(lengths.size(), tokens / requests);
  return {{"edges", batch_edges(lengths)}, {"edges_of_mean", batch_edges(means)}};
}

Json cumulative_decode(const Json& given) {
  const auto steps = [&](const std::string& attend) {
    CostQuery query = query_of(Phase::kDecode, {whole(given, "n")});
    query.generate = whole(given, "m");
    return number(total(attend, shape_of(1, 1, 1, 1), query).edges);
  };
  return {{"full", steps("full")}, {"window_256", steps("window(256)")}};
}

Json shared_prefix(const Json& given) {
  const auto suffixes = given.at("suffixes").get<std::vector<std::int64_t>>();
  const PrefixBytes bytes =
      shared_prefix_bytes(whole(given, "prefix"), suffixes, whole(given, "bytes_per_token"));
  return {{"shared", to_int64(bytes.shared.value(), "shared")},
          {"copied", to_int64(bytes.copied.value(), "copied")}};
}

Json speculation(const Json& given) {
  return {
      {"per_token", cost_per_committed_token(real(given, "step_cost"), real(given, "accepted"))}};
}

const std::map<std::string, Json (*)(const Json&)> kExamples = {
    {"causal-4", causal_pair_flops},
    {"scores-8k", score_bytes},
    {"window-8k", window_density},
    {"amdahl-40", amdahl},
    {"amdahl-80", amdahl},
    {"prefill-32k", prefill_of_one_layer},
    {"kv-128k", kv_capacity},
    {"reads-128k", step_reads},
    {"hybrid-128k-kv", hybrid_capacity},
    {"tiles-3000-aligned", tiles_of_a_window},
    {"tiles-3000-offset", tiles_of_a_window},
    {"capacity-48g", tokens_a_request},
    {"ttft-70", prefill_speedup},
    {"ttft-20", prefill_speedup},
    {"window-8-3", rows_and_densities},
    {"page-4097", paged_slots},
    {"tile-4097", aligned_window},
    {"train-64k", forward_of_one_layer},
    {"hybrid-128k-prefill", hybrid_prefill},
    {"multi-tenant", synchronous_step},
    {"intensity", intensity},
    {"index-bytes", index_bytes},
    {"train-bound-70", amdahl},
    {"train-bound-25", amdahl},
    {"topk-2048-64", fewest_blocks},
    {"scatter-64k", transferred},
    {"two-tiles", listed_tokens},
    {"window-8-3-missing", missing_edges},
    {"reach", reach},
    {"reach-two-sided", layers_between},
    {"mean-length-trap", lengths_of_a_batch},
    {"decode-cumulative", cumulative_decode},
    {"prefix-share", shared_prefix},
    {"speculate", speculation},
};

const std::vector<Json>& all_cases() {
  static const std::vector<Json> cases = [] {
    std::ifstream file(LACUNA_TEST_DATA "/worked-examples.json");
    return Json::parse(file).at("cases").get<std::vector<Json>>();
  }();
  return cases;
}

void expect_equal(const Json& got, const Json& want, double rel_tol, const std::string& key) {
  if (!want.is_number_float()) {
    EXPECT_EQ(got, want) << key;
    return;
  }
  ASSERT_TRUE(got.is_number_float()) << key;
  const double expected = want.get<double>();
  EXPECT_LE(std::abs(got.get<double>() - expected), rel_tol * std::abs(expected))
      << key << " is " << got << ", wanted " << want;
}

class WorkedExample : public testing::TestWithParam<std::string> {};

TEST_P(WorkedExample, ComesOutOfTheLibrary) {
  for (const Json& example : all_cases()) {
    if (example.at("id") != GetParam()) continue;
    const Json got = kExamples.at(GetParam())(example.at("given"));
    const Json& want = example.at("want");
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [key, value] : want.items()) {
      ASSERT_TRUE(got.contains(key)) << key;
      expect_equal(got.at(key), value, example.at("rel_tol").get<double>(), key);
    }
    return;
  }
  FAIL() << "no case of that id";
}

std::vector<std::string> ids() {
  std::vector<std::string> names;
  for (const auto& [id, compute] : kExamples) names.push_back(id);
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (letter == '-') letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, WorkedExample, testing::ValuesIn(ids()), test_name);

TEST(WorkedExamples, AreAllComputed) {
  EXPECT_EQ(all_cases().size(), 34u);
  for (const Json& example : all_cases()) {
    EXPECT_TRUE(kExamples.contains(example.at("id").get<std::string>())) << example.at("id");
  }
}

}  // namespace
}  // namespace lacuna

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>

#include "cost/demand.h"
#include "cost/held_model.h"
#include "lacuna/capacity.h"
#include "lacuna/cost.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// Bytes read and FLOPs do not depend on tiles: the coarsest are the cheapest to count.
constexpr Tile kCoarse{std::int64_t{1} << 20, std::int64_t{1} << 20};

void check_query(const WindowQuery& query) {
  if (query.capacity.lengths.empty()) {
    throw Error("lengths are empty; allowed: the lengths of the requests that must be served");
  }
  const std::pair<const char*, std::optional<double>> numbers[] = {
      {"ttft_seconds", query.ttft_seconds},
      {"tpot_seconds", query.tpot_seconds},
      {"flops_per_s", query.flops_per_s},
      {"bandwidth_bytes_per_s", query.bandwidth_bytes_per_s}};
  for (const auto& [name, value] : numbers) {
    if (value && !(*value > 0)) {
      throw Error(fmt::format("{} is {}; allowed: above 0", name, *value));
    }
  }
  if (query.weight_bytes && *query.weight_bytes < 0) {
    throw Error(fmt::format("weight_bytes is {}; allowed: 0 and above", *query.weight_bytes));
  }
  if (query.prompt_tokens && *query.prompt_tokens < 0) {
    throw Error(fmt::format("prompt_tokens is {}; allowed: 0 and above", *query.prompt_tokens));
  }
}

// How often each length occurs among the R longest requests; where R exceeds the list, the longest
// comes again.
std::map<std::int64_t, std::int64_t> worst_requests(const CapacityQuery& query) {
  std::vector<std::int64_t> lengths = query.lengths;
  std::ranges::sort(lengths, std::greater<>());
  const auto listed = static_cast<std::int64_t>(lengths.size());
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t idx = 0; idx < std::min(listed, query.requests); ++idx) {
    ++counts[lengths[static_cast<std::size_t>(idx)]];
  }
  if (query.requests > listed) counts[lengths.front()] += query.requests - listed;
  return counts;
}

CostQuery cost_query(Phase phase, std::int64_t length, const KvDtype& dtype) {
  CostQuery query;
  query.phase = phase;
  query.lengths = {length};
  query.tile = kCoarse;
  query.kv_dtype = dtype;
  return query;
}

class Search {
 public:
  Search(const LayerTable& table, const ModelShape& shape, const WindowQuery& query)
      : table_(table),
        shape_(shape),
        query_(query),
        longest_(std::max<std::int64_t>(1, std::ranges::max(query.capacity.lengths))) {
    if (query.prompt_tokens) longest_ = std::max(longest_, *query.prompt_tokens);
  }

  void add_bound(Bound bound, double allowed, const std::function<double(std::int64_t)>& used,
                 LargestWindow& result) const {
    WindowBound found{bound, std::nullopt, true, 0, allowed};
    std::int64_t good = 0;
    std::int64_t bad = longest_ + 1;
    if (used(longest_) <= allowed) {
      good = longest_;
      found.limits = false;
    }
    while (good < longest_ && bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      (used(middle) <= allowed ? good : bad) = middle;
    }
    if (good > 0) found.window = good;
    found.used = used(std::max<std::int64_t>(1, good));
    result.bounds.push_back(found);
  }

  double held_bytes(std::int64_t window) const {
    const CapacityQuery& query = query_.capacity;
    const HeldModel model(query.policy, with_window(table_, window), shape_, query.kv_dtype);
    return static_cast<double>(
        Demand(model, query.lengths, query.page_entry_bytes).worst(query.requests));
  }
  double step_bytes(std::int64_t window) const {
    const LayerTable table = with_window(table_, window);
    Int128 bytes = query_.weight_bytes.value_or(0);
    for (const auto& [length, count] : worst_requests(query_.capacity)) {
      if (length == 0) continue;
      const LayerCost step =
          cost(table, shape_, cost_query(Phase::kDecode, length, query_.capacity.kv_dtype)).total;
      bytes = checked_add(bytes, checked_mul(count, step.kv_read_bytes_per_step.value()));
      if (step.index_read_bytes_per_step.has_value()) {
        bytes = checked_add(bytes, checked_mul(count, step.index_read_bytes_per_step.value()));
      }
    }
    return static_cast<double>(bytes);
  }
  LayerCost prefill(std::int64_t window) const {
    const std::int64_t prompt =
        query_.prompt_tokens.value_or(std::ranges::max(query_.capacity.lengths));
    return cost(with_window(table_, window), shape_,
                cost_query(Phase::kPrefill, prompt, query_.capacity.kv_dtype))
        .total;
  }
  double prefill_flops(std::int64_t window) const {
    const LayerCost total = prefill(window);
    Int128 flops = total.pair_flops.value();
    for (const Figure128* part : {&total.projection_flops, &total.mlp_flops}) {
      if (part->has_value()) flops = checked_add(flops, part->value());
    }
    return static_cast<double>(flops);
  }

 private:
  const LayerTable& table_;
  const ModelShape& shape_;
  const WindowQuery& query_;
  std::int64_t longest_;
};

bool has_window(const LayerTable& table) {
  // Replacing shows what there is to replace.
  return !(with_window(table, 1) == table && with_window(table, 2) == table);
}

LayerTable full_as_windows(const LayerTable& table) {
  LayerTable changed = table;
  for (Layer& layer : changed.layers) {
    for (HeadGroup& group : layer.attend.groups) {
      for (Term& term : group.attend) {
        if (std::holds_alternative<Full>(term)) term = Window{};
      }
    }
  }
  return changed;
}

void conclude(LargestWindow& result) {
  const bool none = std::ranges::any_of(
      result.bounds, [](const WindowBound& bound) { return !bound.window.has_value(); });
  std::optional<std::int64_t> smallest;
  for (const WindowBound& bound : result.bounds) {
    if (bound.window) smallest = std::min(smallest.value_or(*bound.window), *bound.window);
  }
  if (!none) result.window = smallest;
  for (const WindowBound& bound : result.bounds) {
    const bool gives = none ? !bound.window.has_value() : bound.window == smallest;
    if (gives && bound.limits) result.binds.push_back(bound.bound);
  }
}

}  // namespace

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::kMemory:
      return "memory";
    case Bound::kBandwidth:
      return "bandwidth";
    case Bound::kPrefill:
      return "prefill";
  }
  return "";
}

LargestWindow largest_window(const LayerTable& table, const ModelShape& shape,
                             const WindowQuery& query) {
  check_query(query);
  LargestWindow result;
  LayerTable windows = table;
  if (!has_window(table)) {
    windows = full_as_windows(table);
    if (!has_window(windows)) {
      throw Error("no layer has a window or is full; allowed: a table in which one can be set");
    }
    result.notes.push_back("no layer has a window: every full layer is given one");
  }
  const Search search(windows, shape, query);
  const Capacity now = capacity(windows, shape, query.capacity);
  search.add_bound(
      Bound::kMemory, static_cast<double>(now.usable_bytes),
      [&](std::int64_t window) { return search.held_bytes(window); }, result);
  if (query.tpot_seconds && query.bandwidth_bytes_per_s) {
    search.add_bound(
        Bound::kBandwidth, *query.tpot_seconds * *query.bandwidth_bytes_per_s,
        [&](std::int64_t window) { return search.step_bytes(window); }, result);
    if (!query.weight_bytes) {
      result.notes.push_back("the step's bytes are KV alone: the weights' size is not known");
    }
  } else {
    result.notes.push_back("the step's bandwidth bound needs tpot and a bandwidth");
  }
  if (query.ttft_seconds && query.flops_per_s) {
    search.add_bound(
        Bound::kPrefill, *query.ttft_seconds * *query.flops_per_s,
        [&](std::int64_t window) { return search.prefill_flops(window); }, result);
    const LayerCost total = search.prefill(1);
    for (const Figure128* part : {&total.projection_flops, &total.mlp_flops}) {
      if (!part->has_value()) {
        result.notes.push_back("the prefill's FLOPs are incomplete: " + part->why);
      }
    }
  } else {
    result.notes.push_back("the prefill bound needs ttft and a peak of FLOP/s");
  }
  conclude(result);
  return result;
}

}  // namespace lacuna

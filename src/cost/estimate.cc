#include "lacuna/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

[[noreturn]] void refuse(const char* name, double value, const char* allowed) {
  throw Error(fmt::format("{} is {}; allowed: {}", name, value, allowed));
}

void require_share(const char* name, double value) {
  if (!(value >= 0 && value <= 1)) refuse(name, value, "0..1");
}

void require_not_negative(const char* name, double value) {
  if (!(value >= 0) || std::isinf(value)) refuse(name, value, "finite, 0 and above");
}

void require_positive(const char* name, double value) {
  if (!(value > 0) || std::isinf(value)) refuse(name, value, "finite, above 0");
}

void require_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw Error(fmt::format("{} is {}; allowed: {} and above", name, value, least));
}

double share(Int128 part, Int128 whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Rounding rounding(Equation tokens, Equation units, std::int64_t unit) {
  Rounding result;
  result.slots = units * Equation("unit", unit);
  result.empty = result.slots - tokens;
  result.waste = share(result.empty.value(), tokens.value());
  result.valid = result.slots.value() == 0 ? 1 : share(tokens.value(), result.slots.value());
  result.tokens = std::move(tokens);
  result.units = std::move(units);
  return result;
}

}  // namespace

double amdahl_speedup(double pair_share, double relative_time, double added_share) {
  require_share("pair_share", pair_share);
  require_not_negative("relative_time", relative_time);
  require_not_negative("added_share", added_share);
  const double time = (1 - pair_share) + pair_share * relative_time + added_share;
  return time > 0 ? 1 / time : std::numeric_limits<double>::infinity();
}

double pair_time_ratio(double edge_ratio, double kernel_efficiency) {
  require_not_negative("edge_ratio", edge_ratio);
  require_positive("kernel_efficiency", kernel_efficiency);
  return edge_ratio / kernel_efficiency;
}

Roofline roofline(double flops, double bytes, double flops_per_s, double bandwidth_bytes_per_s) {
  require_not_negative("flops", flops);
  require_not_negative("bytes", bytes);
  require_positive("flops_per_s", flops_per_s);
  require_positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s);
  Roofline result;
  result.compute_seconds = flops / flops_per_s;
  result.memory_seconds = bytes / bandwidth_bytes_per_s;
  result.seconds = std::max(result.compute_seconds, result.memory_seconds);
  result.intensity = bytes > 0 ? flops / bytes : std::numeric_limits<double>::infinity();
  result.ridge = flops_per_s / bandwidth_bytes_per_s;
  result.memory_bound = result.memory_seconds > result.compute_seconds;
  return result;
}

double decode_intensity(const LayerShape& shape, Mixer mixer, const KvDtype& dtype) {
  const Int128 bytes = kv_bytes_per_token(shape, mixer, dtype).value();
  if (bytes == 0) {
    throw Error(fmt::format("mixer is {}; allowed: softmax, mla", to_string(mixer)));
  }
  // A latent is key and value at once; only the key's dot product sees the rope part.
  const Int128 dims = mixer == Mixer::kMla
                          ? Int128{2} * shape.latent->kv_lora_rank + shape.latent->qk_rope_head_dim
                          : Int128{shape.head_dim} + shape.v_head_dim;
  return share(checked_mul(Int128{2} * shape.num_q_heads, dims), bytes);
}

double cost_per_committed_token(double step_cost, double mean_committed) {
  require_not_negative("step_cost", step_cost);
  if (!(mean_committed >= 1) || std::isinf(mean_committed)) {
    refuse("mean_committed", mean_committed, "finite, 1 and above: a step commits at least one");
  }
  return step_cost / mean_committed;
}

double selection_gain(double dense, double sparse, double select) {
  require_not_negative("dense", dense);
  require_not_negative("sparse", sparse);
  require_not_negative("select", select);
  return dense - (sparse + select);
}

GenerationCost cost_per_million_tokens(const GenerationInputs& inputs) {
  require_not_negative("step_seconds", inputs.step_seconds);
  require_positive("tokens_per_step", inputs.tokens_per_step);
  require_not_negative("prefill_seconds_per_request", inputs.prefill_seconds_per_request);
  require_positive("tokens_per_request", inputs.tokens_per_request);
  require_positive("num_devices", inputs.num_devices);
  constexpr double kMillion = 1e6;
  GenerationCost cost;
  cost.device_seconds = kMillion * inputs.num_devices *
                        (inputs.step_seconds / inputs.tokens_per_step +
                         inputs.prefill_seconds_per_request / inputs.tokens_per_request);
  if (inputs.power_watts) {
    require_not_negative("power_watts", *inputs.power_watts);
    cost.joules = cost.device_seconds * *inputs.power_watts;
  }
  return cost;
}

Rounding round_up(std::int64_t tokens, std::int64_t unit) {
  require_at_least("tokens", tokens, 0);
  require_at_least("unit", unit, 1);
  const Equation count("tokens", tokens);
  return rounding(count, ceil_div(count, Equation("unit", unit)), unit);
}

Rounding round_up(const Ranges& tokens, std::int64_t unit) {
  require_at_least("unit", unit, 1);
  if (!tokens.empty()) require_at_least("first token", tokens.front(), 0);
  return round_up_counted(tokens.size(), tiles_touched(tokens, unit).size(), unit);
}

Rounding round_up_counted(std::int64_t tokens, std::int64_t units, std::int64_t unit) {
  require_at_least("tokens", tokens, 0);
  require_at_least("unit", unit, 1);
  if (units < ceil_div(tokens, unit) || units > tokens) {
    throw Error(fmt::format("units is {} for {} tokens in units of {}; allowed: {}..{}", units,
                            tokens, unit, ceil_div(tokens, unit), tokens));
  }
  return rounding(Equation("tokens", tokens), Equation("units", units), unit);
}

Ranges positions(std::span<const std::int64_t> list) {
  std::vector<Range> parts;
  parts.reserve(list.size());
  for (const std::int64_t position : list) {
    require_at_least("position", position, 0);
    parts.push_back({position, checked_add64(position, 1)});
  }
  return Ranges(std::move(parts));
}

Int128 cumulative_decode_edges(const Topology& topology, std::int64_t prompt,
                               std::int64_t generate) {
  require_at_least("prompt", prompt, 1);
  require_at_least("generate", generate, 0);
  // The step of length L computes row L-1.
  const std::int64_t end = checked_add64(prompt - 1, generate);
  return topology.edges(prompt - 1, end, end);
}

Padding padding(const Topology& topology, std::span<const std::int64_t> lengths) {
  Padding result;
  std::int64_t longest = 0;
  for (const std::int64_t length : lengths) {
    require_at_least("length", length, 0);
    longest = std::max(longest, length);
    result.tokens = checked_add(result.tokens, length);
    result.edges = checked_add(result.edges, topology.edges(length));
  }
  const auto sequences = static_cast<Int128>(lengths.size());
  result.padded_tokens = checked_mul(sequences, longest);
  result.padded_edges = checked_mul(sequences, topology.edges(longest));
  result.token_waste = share(result.padded_tokens - result.tokens, result.tokens);
  result.edge_waste = share(result.padded_edges - result.edges, result.edges);
  return result;
}

PrefixBytes shared_prefix_bytes(std::int64_t prefix_tokens,
                                std::span<const std::int64_t> suffix_tokens,
                                std::int64_t bytes_per_token) {
  require_at_least("prefix_tokens", prefix_tokens, 0);
  require_at_least("bytes_per_token", bytes_per_token, 0);
  Int128 suffixes = 0;
  for (const std::int64_t suffix : suffix_tokens) {
    require_at_least("suffix_tokens", suffix, 0);
    suffixes = checked_add(suffixes, suffix);
  }
  const Equation token("c", bytes_per_token);
  const Equation prefix("p", prefix_tokens);
  const Equation own("Σs_r", suffixes);
  const Equation requests("R", static_cast<std::int64_t>(suffix_tokens.size()));
  return {token * (prefix + own), token * (requests * prefix + own)};
}

double selector_byte_ratio(std::int64_t index_bytes_per_token, std::int64_t kv_bytes_per_token,
                           std::int64_t k, std::int64_t history_tokens) {
  require_at_least("index_bytes_per_token", index_bytes_per_token, 0);
  require_at_least("kv_bytes_per_token", kv_bytes_per_token, 1);
  require_at_least("k", k, 0);
  require_at_least("history_tokens", history_tokens, 1);
  return share(index_bytes_per_token, kv_bytes_per_token) +
         share(std::min(k, history_tokens), history_tokens);
}

double index_byte_ratio(std::int64_t id_bytes, std::int64_t kv_bytes_per_token) {
  require_at_least("id_bytes", id_bytes, 0);
  require_at_least("kv_bytes_per_token", kv_bytes_per_token, 1);
  return share(id_bytes, kv_bytes_per_token);
}

std::vector<double> truncation_error(double tau, std::span<const double> mu_kept,
                                     std::span<const double> mu_removed) {
  require_share("tau", tau);
  if (mu_kept.size() != mu_removed.size()) {
    throw Error(fmt::format("mu_removed has {} elements; allowed: {}, as mu_kept",
                            mu_removed.size(), mu_kept.size()));
  }
  std::vector<double> error(mu_kept.size());
  for (std::size_t dim = 0; dim < error.size(); ++dim) {
    error[dim] = tau * (mu_removed[dim] - mu_kept[dim]);
  }
  return error;
}

}  // namespace lacuna

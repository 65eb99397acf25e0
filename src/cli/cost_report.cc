#include "cli/cost_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lacuna/error.h"
#include "lacuna/graph.h"
#include "lacuna/quantity.h"

namespace lacuna::cli {
namespace {

std::optional<Int128> value_of(const Figure128& figure) {
  if (!figure.has_value()) return std::nullopt;
  return figure.value();
}

std::optional<Int128> sum_of(std::initializer_list<const Figure128*> parts) {
  Int128 sum = 0;
  for (const Figure128* part : parts) {
    if (!part->has_value()) return std::nullopt;
    sum = checked_add(sum, part->value());
  }
  return sum;
}

// How long the batch's sequences are at a phase's end, and how long they may become.
HeldQuery held_query(const CostReport& report, Phase phase, std::int64_t length) {
  const std::int64_t steps = std::max<std::int64_t>(report.generate, 1);
  const std::int64_t now =
      phase == Phase::kDecode ? length + steps + report.verify_rows - 2 : length;
  return {now, std::max(now, length + report.generate), report.kv_dtype};
}

PolicyRow policy_row(const CostReport& report, const Policy& policy, Phase phase) {
  PolicyRow row{policy, Int128{0}, "", "", {}};
  std::map<std::int64_t, std::int64_t> times;  // sequences of equal length are asked for once
  for (const std::int64_t length : report.lengths) ++times[length];
  try {
    for (const auto& [length, count] : times) {
      const Held one = held(policy, report.subject.table, report.subject.shape,
                            held_query(report, phase, length));
      // iswa's bytes are of a whole context, which holds `seqs` sequences.
      const auto seqs = one.policy.params.find("seqs");
      const std::int64_t times_held =
          seqs == one.policy.params.end() ? count : ceil_div(count, seqs->second);
      row.held_bytes = checked_add(*row.held_bytes, checked_mul(one.bytes.value(), times_held));
      row.policy = one.policy;
      row.notes = one.notes;
      row.equation = one.bytes.text(policy.name + "_held_bytes");
    }
  } catch (const Error& error) {  // a policy that cannot serve this table is an answer
    row.held_bytes.reset();
    row.why = error.what();
  }
  return row;
}

std::vector<RooflineRow> rooflines(const CostReport& report, const PhaseCost& phase) {
  std::vector<RooflineRow> rows;
  const Device& device = *report.hardware;
  const auto peak = peak_flops_per_s(device);
  const auto flops = value_of(phase.total.pair_flops);
  if (!peak || !flops) return rows;
  const auto add = [&](const char* work, Int128 work_flops, const std::optional<Int128>& bytes) {
    if (!bytes) return;
    const auto working_set = static_cast<std::int64_t>(std::min(*bytes, Int128{1} << 62));
    rows.push_back({work, work_flops, *bytes,
                    roofline(static_cast<double>(work_flops), static_cast<double>(*bytes), *peak,
                             bandwidth_at(device, working_set).bytes_per_s)});
  };
  if (phase.phase == Phase::kDecode) {
    const LayerCost& total = phase.total;
    add("attention of a step, mean FLOPs and last bytes",
        *flops / std::max<std::int64_t>(report.generate, 1),
        sum_of({&total.kv_read_bytes_per_step, &total.index_read_bytes_per_step}));
    return rows;
  }
  add("attention, every byte once", *flops, value_of(phase.total.compulsory_bytes));
  add("attention, K and V as tiles load them", *flops, value_of(phase.total.kv_loaded_bytes));
  return rows;
}

// The same model with every attending layer full: what a saving is measured against.
LayerTable all_full(const LayerTable& table) {
  LayerTable full = table;
  for (Layer& layer : full.layers) {
    if (!layer.attend.groups.empty()) layer.attend.groups = {{{}, {Full{}}}};
    layer.index_from.reset();
  }
  return full;
}

Prediction speed_bound(const CostReport& report, const PhaseReport& phase, const CostQuery& query) {
  const LayerCost dense = cost(all_full(report.subject.table), report.subject.shape, query).total;
  Prediction bound{"speed_bound",
                   "against the same model with full attention, the whole " +
                       std::string(to_string(phase.cost.phase)) + " gains at most ",
                   "a larger gain between the two tables in one run", std::nullopt};
  const auto fewer = value_of(phase.cost.total.executed_pairs);
  const auto pairs = value_of(dense.pair_flops);
  const auto rest = sum_of({&dense.projection_flops, &dense.mlp_flops, &dense.logits_flops});
  const auto executed = value_of(dense.executed_pairs);
  if (!fewer || !pairs || !executed || *executed == 0) return bound;
  const double ratio = static_cast<double>(*fewer) / static_cast<double>(*executed);
  if (!rest) {
    bound.statement += fmt::format(
        "1/((1-p) + {:.4f} p) times, p the measured share of pair work (executed pairs {:.2f} % of "
        "the dense)",
        ratio, 100 * ratio);
    return bound;
  }
  const double share = static_cast<double>(*pairs) / static_cast<double>(*pairs + *rest);
  bound.value = amdahl_speedup(share, ratio);
  bound.statement += fmt::format(
      "{:.2f} times (pair work is {:.1f} % of the dense FLOPs, executed pairs {:.2f} % of the "
      "dense)",
      *bound.value, 100 * share, 100 * ratio);
  return bound;
}

void predict(CostReport& report, const PhaseReport& phase, const CostQuery& query) {
  const LayerCost& total = phase.cost.total;
  const auto needed = value_of(total.pairs);
  const auto executed = value_of(total.executed_pairs);
  if (needed && executed && *needed > 0) {
    const double ratio = static_cast<double>(*executed) / static_cast<double>(*needed);
    report.predictions.push_back(
        {"time_follows_tiles",
         std::string(to_string(phase.cost.phase)) + " time follows the executed pairs, which are " +
             ratio_text(ratio, "the needed pairs"),
         "a change of the tile that changes executed pairs and not the time", ratio});
  }
  if (phase.cost.phase != Phase::kTrain) {
    report.predictions.push_back(speed_bound(report, phase, query));
  }
  if (phase.cost.phase != Phase::kDecode) return;
  for (const RooflineRow& row : phase.rooflines) {
    if (!row.bound.memory_bound) continue;
    report.predictions.push_back(
        {"decode_is_bandwidth_bound",
         fmt::format(
             "a step's attention does {:.2f} FLOP a byte, below the ridge of {:.1f}: halving "
             "the KV bytes read halves its time, halving arithmetic alone does not",
             row.bound.intensity, row.bound.ridge),
         "int8 KV that does not cut the attention part of a step to about half of bf16's",
         row.bound.seconds});
  }
  for (const PolicyRow& row : phase.policies) {
    if (row.policy.name != "paged" || !row.held_bytes) continue;
    report.predictions.push_back({"held_bytes_equal",
                                  "the live pages of Lacuna's cache hold exactly " +
                                      bytes_text(*row.held_bytes) + " after the last step",
                                  "any other sum over the pool's live pages",
                                  static_cast<double>(*row.held_bytes)});
  }
}

void ask_graph(CostReport& report, const CostFlags& flags) {
  const std::int64_t length = *std::max_element(report.lengths.begin(), report.lengths.end());
  if (length == 0) return;
  const Graph graph(report.subject.table, num_q_heads(report.subject.shape), length);
  report.evidence = flags.evidence.value_or(0);
  report.query = flags.query.value_or(length - 1);
  require_inside(*report.evidence, "--evidence", length);
  require_inside(*report.query, "--query", length);
  // Sets of too many ranges: the counts stand without the paths.
  const auto is_answered = [&](const char* what, const auto& question) {
    try {
      question();
      return true;
    } catch (const Error& error) {
      report.warnings.push_back(std::string(what) + " not known: " + error.what());
      return false;
    }
  };
  report.paths_known = is_answered("hops and first_layer are", [&] {
    report.hops = graph.hops(*report.evidence, *report.query);
    report.first_layer = graph.first_layer(*report.evidence, *report.query);
  });
  is_answered("reach_tokens is", [&] { report.reach_tokens = graph.reach_tokens(); });
}

void warn(CostReport& report) {
  const std::int64_t longest = *std::max_element(report.lengths.begin(), report.lengths.end());
  const auto context = report.subject.shape.context_length;
  if (context && longest + report.generate > *context) {
    report.warnings.push_back("prompt and generate make " +
                              std::to_string(longest + report.generate) +
                              " tokens; the model's context is " + std::to_string(*context));
  }
  if (report.subject.table_replaced) {
    report.warnings.push_back("the model was not trained with this layer table");
    const auto kept = std::ranges::count_if(
        report.subject.table.layers, [](const Layer& layer) { return !attends(layer.mixer); });
    if (kept > 0) {
      report.warnings.push_back(
          fmt::format("{} layers without attention keep their own mixer", kept));
    }
  }
  if (report.hardware && !peak_flops_per_s(*report.hardware)) {
    report.warnings.push_back(report.hardware->name +
                              " has no bf16 or fp32 peak: there is no roofline to show");
  }
}

// A training step's memory by the longest sequence: batches are padded or packed to it.
TrainingMemory training_of(const CostReport& report) {
  return training_memory(
      report.subject.table, report.subject.shape,
      {.batch = static_cast<std::int64_t>(report.lengths.size()),
       .length = *std::max_element(report.lengths.begin(), report.lengths.end())});
}

// What padding every sequence to the longest would cost beside the batch as it is.
std::optional<Padding> padding_of(const CostReport& report) {
  const auto [shortest, longest] =
      std::minmax_element(report.lengths.begin(), report.lengths.end());
  const LayerShape& shape = report.subject.shape.layers.front();
  const LayerTopology heads(report.subject.table.layers.front(), report.subject.table.causal, 0,
                            shape.num_q_heads, shape.num_kv_heads);
  if (*shortest == *longest || heads.q_heads().empty()) return std::nullopt;
  return padding(heads.q_heads().front().topology, report.lengths);
}

CostReport empty_report(const CostFlags& flags) {
  CostReport report;
  report.subject = make_subject(flags.model);
  report.lengths = lengths_of(flags.work);
  report.generate = flags.work.generate.value_or(0);
  report.chunk = flags.work.chunk;
  report.verify_rows = flags.work.verify_rows;
  report.tile = tile_of(flags.work.tile, report.subject.table);
  report.kv_dtype = kv_dtype(flags.work.kv_dtype);
  report.mac = flags.work.mac;
  report.hardware = hardware_of(flags.hardware, flags.work.threads);
  return report;
}

}  // namespace

CostReport make_cost_report(const CostFlags& flags) {
  CostReport report = empty_report(flags);
  const std::vector<Policy> policies =
      policies_of(flags.policies, flags.work.page_size, flags.work.verify_rows);
  for (const Phase phase : phases_of(flags.work)) {
    const CostQuery query{phase,        report.lengths, report.generate, report.verify_rows,
                          report.chunk, report.tile,    report.kv_dtype, report.mac};
    PhaseReport one;
    one.cost = cost(report.subject.table, report.subject.shape, query);
    if (phase != Phase::kTrain) {
      for (const Policy& policy : policies)
        one.policies.push_back(policy_row(report, policy, phase));
    }
    if (report.hardware) one.rooflines = rooflines(report, one.cost);
    if (phase == Phase::kTrain) one.training_memory = training_of(report);
    predict(report, one, query);
    report.phases.push_back(std::move(one));
  }
  report.padding = padding_of(report);
  ask_graph(report, flags);
  warn(report);
  return report;
}

}  // namespace lacuna::cli

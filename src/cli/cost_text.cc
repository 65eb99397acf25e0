#include <fmt/format.h>

#include <algorithm>

#include "cli/cost_report.h"
#include "cli/text.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

std::string shown(const Figure128& figure, std::string (*form)(Int128)) {
  return figure.has_value() ? form(figure.value()) : std::string(kNoFigure);
}

std::string grouped(Int128 count) { return count_text(count, Grouping::kThousands); }

struct LayerGroup {
  std::vector<std::int64_t> layers;
  const LayerCost* cost = nullptr;
};

bool same_figures(const LayerCost& a, const LayerCost& b) {
  const auto left = figures(a);
  const auto right = figures(b);
  return std::equal(left.begin(), left.end(), right.begin(), [](const auto& x, const auto& y) {
    return x.second->has_value() == y.second->has_value() &&
           (!x.second->has_value() || x.second->value() == y.second->value());
  });
}

// Layers of the same topology and figures share a line.
std::vector<LayerGroup> groups_of(const LayerTable& table, const PhaseCost& phase) {
  std::vector<LayerGroup> groups;
  for (std::size_t l = 0; l < phase.layers.size(); ++l) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& group) {
      return table.layers[static_cast<std::size_t>(group.layers.front())] == table.layers[l] &&
             same_figures(*group.cost, phase.layers[l]);
    });
    if (same != groups.end()) {
      same->layers.push_back(static_cast<std::int64_t>(l));
    } else {
      groups.push_back({{static_cast<std::int64_t>(l)}, &phase.layers[l]});
    }
  }
  return groups;
}

std::string density(const LayerCost& cost) {
  if (!cost.pairs.has_value() || !cost.legal_pairs.has_value() || cost.legal_pairs.value() == 0) {
    return std::string(kNoFigure);
  }
  return fmt::format("{:.2f} %", 100 * static_cast<double>(cost.pairs.value()) /
                                     static_cast<double>(cost.legal_pairs.value()));
}

void add_cost_row(Table& table, std::string layers, std::string attend, const LayerCost& cost,
                  Phase phase) {
  std::vector<std::string> cells = {std::move(layers),
                                    std::move(attend),
                                    shown(cost.pairs, grouped),
                                    density(cost),
                                    shown(cost.executed_pairs, grouped),
                                    shown(cost.pair_flops, flops_text)};
  if (phase != Phase::kTrain) {
    cells.push_back(shown(cost.kv_held_bytes, bytes_text));
    cells.push_back(shown(cost.kv_read_bytes_per_step, bytes_text));
  }
  table.add_row(std::move(cells));
}

std::string layer_table_text(const Subject& subject, const PhaseCost& phase) {
  std::vector<Column> columns = {{"layers", Align::kLeft},          {"each reads", Align::kLeft},
                                 {"pairs", Align::kRight},          {"of legal", Align::kRight},
                                 {"executed pairs", Align::kRight}, {"pair FLOPs", Align::kRight}};
  if (phase.phase != Phase::kTrain) {
    columns.push_back({"KV needed", Align::kRight});
    columns.push_back({"KV read a step", Align::kRight});
  }
  Table table(columns);
  for (const LayerGroup& group : groups_of(subject.table, phase)) {
    const Layer& layer = subject.table.layers[static_cast<std::size_t>(group.layers.front())];
    add_cost_row(table, list_text(group.layers), layer_text(layer, subject.table.causal),
                 *group.cost, phase.phase);
  }
  table.add_rule();
  add_cost_row(table, "all", "", phase.total, phase.phase);
  return table.text();
}

std::string other_totals_text(const LayerCost& total, Phase phase) {
  Table table({{"total", Align::kLeft}, {"", Align::kRight}});
  const auto flops = [&](const char* name, const Figure128& figure) {
    table.add_row({name, shown(figure, flops_text)});
  };
  const auto bytes = [&](const char* name, const Figure128& figure) {
    if (figure.has_value()) table.add_row({name, bytes_text(figure.value())});
  };
  if (phase == Phase::kTrain) flops("scores computed again", total.recompute_flops);
  flops("projections", total.projection_flops);
  flops("MLP", total.mlp_flops);
  flops("logits", total.logits_flops);
  if (total.index_flops.has_value() && total.index_flops.value() > 0) {
    flops("index scan", total.index_flops);
  }
  table.add_row({"exponentials", shown(total.exponentials, grouped)});
  bytes("KV of one token", total.kv_bytes_per_token);
  bytes("KV peak, with queries in flight", total.kv_peak_bytes);
  bytes("KV written a step", total.kv_written_bytes_per_step);
  bytes("finite state held", total.state_held_bytes);
  bytes("index held", total.index_held_bytes);
  bytes("index read a step", total.index_read_bytes_per_step);
  bytes("K and V loaded by tiles", total.kv_loaded_bytes);
  bytes("every byte of attention once", total.compulsory_bytes);
  return table.text();
}

std::string policies_text(const PhaseReport& phase) {
  if (phase.policies.empty()) return "";
  Table table({{"allocator policy", Align::kLeft},
               {"KV held", Align::kRight},
               {"beyond what is needed", Align::kRight},
               {"notes", Align::kLeft}});
  for (const PolicyRow& row : phase.policies) {
    std::string note = row.why;
    for (const std::string& one : row.notes) note += (note.empty() ? "" : "; ") + one;
    const Figure128& needed = phase.cost.total.kv_held_bytes;
    table.add_row(
        {to_text(row.policy), row.held_bytes ? bytes_text(*row.held_bytes) : std::string(kNoFigure),
         row.held_bytes && needed.has_value() ? bytes_text(*row.held_bytes - needed.value())
                                              : std::string(kNoFigure),
         note});
  }
  return "\n" + table.text();
}

std::string rooflines_text(const CostReport& report, const PhaseReport& phase) {
  if (phase.rooflines.empty()) return "";
  Table table({{"lower bound on " + report.hardware->label, Align::kLeft},
               {"time", Align::kRight},
               {"binds", Align::kLeft},
               {"FLOP a byte", Align::kRight},
               {"ridge", Align::kRight}});
  for (const RooflineRow& row : phase.rooflines) {
    table.add_row({row.work, seconds_text(row.bound.seconds),
                   row.bound.memory_bound ? "bandwidth" : "arithmetic",
                   fmt::format("{:.2f}", row.bound.intensity),
                   fmt::format("{:.1f}", row.bound.ridge)});
  }
  return "\n" + table.text();
}

std::string training_text(const PhaseReport& phase) {
  if (!phase.training_memory) return "";
  const TrainingMemory& memory = *phase.training_memory;
  Table table({{"memory of a step (estimates but for attention's own)", Align::kLeft},
               {"", Align::kRight}});
  table.add_row({"scores, were they materialised", shown(memory.score_bytes, bytes_text)});
  table.add_row({"output and log-sum-exp that tiled attention keeps",
                 shown(memory.tiled_attention_bytes, bytes_text)});
  table.add_row({"activations", shown(memory.activation_bytes, bytes_text)});
  table.add_row({"weights, gradients, optimiser", shown(memory.state_bytes, bytes_text)});
  table.add_row({"together", shown(memory.total_bytes, bytes_text)});
  return "\n" + table.text();
}

std::string padding_text(const CostReport& report) {
  if (!report.padding) return "";
  return fmt::format(
      "\npadded to the longest sequence the batch has {} tokens instead of {} ({:.1f} % more), and "
      "{:.1f} % more edges in layer 0\n",
      count_text(report.padding->padded_tokens, Grouping::kThousands),
      count_text(report.padding->tokens, Grouping::kThousands), 100 * report.padding->token_waste,
      100 * report.padding->edge_waste);
}

std::string equations_text(const CostReport& report, const PhaseReport& phase) {
  std::string text;
  const auto append = [&](const std::string& title, const LayerCost& cost) {
    text += "\n" + title + "\n";
    for (const auto& [name, figure] : figures(cost)) {
      text += "  " +
              (figure->has_value() ? figure->known->text(name)
                                   : std::string(name) + ": " + figure->why) +
              "\n";
    }
  };
  for (const LayerGroup& group : groups_of(report.subject.table, phase.cost)) {
    append("equations of layers " + list_text(group.layers) + ", each", *group.cost);
  }
  append("equations of the total", phase.cost.total);
  if (!phase.policies.empty()) text += "\nequations of the policies, of the longest sequence\n";
  for (const PolicyRow& row : phase.policies) {
    text += "  " + (row.held_bytes ? row.equation : row.policy.name + ": " + row.why) + "\n";
  }
  return text;
}

std::string heading(const CostReport& report, const PhaseReport& phase) {
  const auto [shortest, longest] =
      std::minmax_element(report.lengths.begin(), report.lengths.end());
  std::string batch =
      report.lengths.size() == 1 ? "" : fmt::format(", {} sequences", report.lengths.size());
  const std::string prompt = *shortest == *longest
                                 ? fmt::format("{} tokens", *longest)
                                 : fmt::format("{}..{} tokens", *shortest, *longest);
  switch (phase.cost.phase) {
    case Phase::kTrain:
      return "train on " + prompt + batch + " (forward and backward)";
    case Phase::kPrefill:
      return "prefill of " + prompt + batch;
    case Phase::kDecode:
      break;
  }
  return fmt::format("decode, {} step(s) after {}{}", std::max<std::int64_t>(report.generate, 1),
                     prompt, batch);
}

std::string paths_text(const CostReport& report) {
  if (!report.evidence || !report.paths_known) return "";
  std::string text = fmt::format("\nfrom token {} to token {}: ", *report.evidence, *report.query);
  text += report.hops ? fmt::format("{} hop(s)", *report.hops) : std::string("unreachable");
  if (report.first_layer) text += fmt::format(", first in layer {}", *report.first_layer);
  if (report.reach_tokens) text += fmt::format("; reach {} tokens", *report.reach_tokens);
  return text + "\n";
}

}  // namespace

std::string cost_text(const CostReport& report, bool explain) {
  std::string text = subject_text(report.subject);
  for (const std::string& warning : report.warnings) text += "warning: " + warning + "\n";
  text += fmt::format("KV as {}, tile {} x {} tokens; every figure is exact, over all heads\n",
                      report.kv_dtype.name, report.tile.q, report.tile.k);
  for (const PhaseReport& phase : report.phases) {
    text += "\n" + heading(report, phase) + "\n\n" + layer_table_text(report.subject, phase.cost) +
            "\n" + other_totals_text(phase.cost.total, phase.cost.phase) + policies_text(phase) +
            rooflines_text(report, phase) + training_text(phase);
    if (explain) text += equations_text(report, phase);
  }
  text += padding_text(report) + paths_text(report);
  if (!report.predictions.empty()) text += "\npredictions, each with what would refute it\n";
  for (const Prediction& one : report.predictions) {
    text += "  " + one.statement + "\n    refuted by: " + one.refuted_by + "\n";
  }
  return text;
}

}  // namespace lacuna::cli

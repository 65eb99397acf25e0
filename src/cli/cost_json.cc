#include "cli/cost_report.h"
#include "cli/json.h"

namespace lacuna::cli {
namespace {

Json figures_json(const LayerCost& cost) {
  Json row = Json::object();
  for (const auto& [name, figure] : figures(cost)) {
    row[std::string(name)] = figure->has_value() ? json_of(figure->value()) : Json(nullptr);
  }
  return row;
}

Json equations_json(const LayerCost& cost) {
  Json row = Json::object();
  for (const auto& [name, figure] : figures(cost)) {
    row[std::string(name)] = figure->has_value() ? figure->known->text(name) : figure->why;
  }
  return row;
}

Json layer_json(const Subject& subject, const LayerCost& cost, std::size_t idx) {
  const Layer& layer = subject.table.layers[idx];
  Json row = {{"layer", idx},
              {"attend", layer.attend.groups.empty() ? std::string()
                                                     : to_text(layer.attend, subject.table.causal)},
              {"mixer", to_string(layer.mixer)},
              {"kv_from", json_of(layer.kv_from)},
              {"index_from", json_of(layer.index_from)}};
  row.update(figures_json(cost));
  return row;
}

Json policies_json(const std::vector<PolicyRow>& rows) {
  Json policies = Json::object();
  for (const PolicyRow& row : rows) {
    Json one = {{"kv_held_bytes", json_of(row.held_bytes)}, {"params", row.policy.params}};
    if (!row.why.empty()) one["why"] = row.why;
    if (!row.notes.empty()) one["notes"] = row.notes;
    policies[row.policy.name] = std::move(one);
  }
  return policies;
}

Json phase_json(const Subject& subject, const PhaseReport& phase) {
  Json layers = Json::array();
  for (std::size_t l = 0; l < phase.cost.layers.size(); ++l) {
    layers.push_back(layer_json(subject, phase.cost.layers[l], l));
  }
  return {{"layers", std::move(layers)},
          {"total", figures_json(phase.cost.total)},
          {"policies", policies_json(phase.policies)}};
}

Json phase_equations_json(const PhaseReport& phase) {
  Json layers = Json::array();
  for (const LayerCost& layer : phase.cost.layers) layers.push_back(equations_json(layer));
  Json policies = Json::object();
  for (const PolicyRow& row : phase.policies) {
    policies[row.policy.name] = row.held_bytes ? row.equation : row.why;
  }
  return {{"layers", std::move(layers)},
          {"total", equations_json(phase.cost.total)},
          {"policies", std::move(policies)}};
}

Json rooflines_json(const CostReport& report) {
  Json phases = Json::object();
  for (const PhaseReport& phase : report.phases) {
    Json rows = Json::array();
    for (const RooflineRow& row : phase.rooflines) {
      rows.push_back({{"work", row.work},
                      {"kind", "model"},
                      {"flops", json_of(row.flops)},
                      {"bytes", json_of(row.bytes)},
                      {"seconds", row.bound.seconds},
                      {"binds", row.bound.memory_bound ? "bandwidth" : "arithmetic"},
                      {"flops_per_byte", row.bound.intensity},
                      {"ridge_flops_per_byte", row.bound.ridge}});
    }
    phases[std::string(to_string(phase.cost.phase))] = std::move(rows);
  }
  return phases;
}

Json training_json(const TrainingMemory& memory) {
  const auto figure = [](const Figure128& one) {
    return one.has_value() ? json_of(one.value()) : Json(nullptr);
  };
  return {{"kind", to_string(memory.kind)},
          {"score_bytes", figure(memory.score_bytes)},
          {"tiled_attention_bytes", figure(memory.tiled_attention_bytes)},
          {"activation_bytes", figure(memory.activation_bytes)},
          {"parameters", figure(memory.parameters)},
          {"parameter_state_bytes", figure(memory.state_bytes)},
          {"total_bytes", figure(memory.total_bytes)}};
}

Json padding_json(const Padding& padding) {
  return {{"tokens", json_of(padding.tokens)},
          {"padded_tokens", json_of(padding.padded_tokens)},
          {"edges_of_layer_0", json_of(padding.edges)},
          {"padded_edges_of_layer_0", json_of(padding.padded_edges)},
          {"token_waste", padding.token_waste},
          {"edge_waste", padding.edge_waste}};
}

Json query_json(const CostReport& report) {
  return {{"lengths_tokens", report.lengths},
          {"generate_tokens", report.generate},
          {"chunk_tokens", report.chunk},
          {"verify_rows", report.verify_rows},
          {"tile", {{"q", report.tile.q}, {"k", report.tile.k}}},
          {"kv_dtype", report.kv_dtype.name},
          {"flops_count", report.mac ? "a multiply-add is 1" : "a multiply-add is 2"}};
}

}  // namespace

Json subject_json(const Subject& subject) {
  Json notes = Json::array();
  for (const ConfigNote& note : subject.notes) {
    notes.push_back({{"key", note.key}, {"value", note.value}, {"reason", note.reason}});
  }
  return {{"source", subject.source},
          {"name", subject.shape.name},
          {"num_layers", subject.table.layers.size()},
          {"causal", subject.table.causal},
          {"trained", to_string(subject.table.trained)},
          {"table_replaced", subject.table_replaced},
          {"context_length", json_of(subject.shape.context_length)},
          {"window_convention", subject.window_convention},
          {"notes", std::move(notes)},
          {"ignored_keys", subject.ignored_keys}};
}

std::string cost_json(const CostReport& report, bool explain) {
  Json phases = Json::object();
  for (const PhaseReport& phase : report.phases) {
    phases[std::string(to_string(phase.cost.phase))] = phase_json(report.subject, phase);
  }
  Json predictions = Json::array();
  for (const Prediction& one : report.predictions) {
    predictions.push_back({{"name", one.name},
                           {"kind", "model"},
                           {"statement", one.statement},
                           {"refuted_by", one.refuted_by},
                           {"value", json_of(one.value)}});
  }
  Json document = {{"format", "lacuna-cost"},
                   {"format_version", 1},
                   {"kind", "exact"},
                   {"model", subject_json(report.subject)},
                   {"request", query_json(report)},
                   {"phases", std::move(phases)},
                   {"evidence", json_of(report.evidence)},
                   {"query", json_of(report.query)},
                   {"hops", json_of(report.hops)},
                   {"first_layer", json_of(report.first_layer)},
                   {"reach_tokens", json_of(report.reach_tokens)},
                   {"predictions", std::move(predictions)},
                   {"warnings", report.warnings}};
  if (report.hardware) {
    document["hardware"] = Json::parse(device_to_json_text(*report.hardware));
    document["rooflines"] = rooflines_json(report);
  }
  if (report.padding) document["padding"] = padding_json(*report.padding);
  for (const PhaseReport& phase : report.phases) {
    if (phase.training_memory) document["training_memory"] = training_json(*phase.training_memory);
  }
  if (explain) {
    for (const PhaseReport& phase : report.phases) {
      document["equations"][std::string(to_string(phase.cost.phase))] = phase_equations_json(phase);
    }
  }
  // Names come from files of others: bytes that are no UTF-8 are replaced, not thrown at the
  // reader.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lacuna::cli

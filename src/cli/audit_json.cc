#include "cli/audit_report.h"
#include "cli/bench_figures.h"
#include "cli/bench_model.h"
#include "lacuna/kernels.h"

namespace lacuna::cli {
namespace {

Json optional_int(const std::optional<int>& value) { return value ? Json(*value) : Json(nullptr); }

Json intervention_json(const Intervention& one) {
  return {{"evidence", one.evidence},
          {"query", one.query},
          {"bucket", to_string(one.bucket)},
          {"hops", optional_int(one.hops)},
          {"first_layer", optional_int(one.first_layer)},
          {"first_change_layer", optional_int(one.first_change)},
          {"last_change", one.last_change},
          {"best_path_weight", one.best_path ? Json(one.best_path->weight) : Json(nullptr)},
          {"best_path_hops", one.best_path ? Json(one.best_path->hops) : Json(nullptr)},
          {"early", one.is_early()}};
}

Json bucket_json(const NllBucket& bucket) {
  return {{"name", bucket.name}, {"positions", bucket.positions}, {"nll", bucket.nll}};
}

Json quality_json(const std::optional<Quality>& quality) {
  if (!quality) return nullptr;
  return {{"first_position", quality->first},
          {"positions", quality->nll.size()},
          {"nll", quality->mean},
          {"by_position", list_json(quality->by_position, bucket_json)},
          {"by_distance", list_json(quality->by_distance, bucket_json)}};
}

Json layers_json(const ModelRow& row, const ModelShape& model) {
  Json list = Json::array();
  for (std::size_t idx = 0; idx < row.layers.size(); ++idx) {
    Json layer = {{"layer", idx}, {"attend", row.layers[idx].attend}};
    layer.update(model_layer_json(row.layers[idx]));
    layer["predicted_held_bytes_by_step"] = row.layers[idx].predicted_held_bytes;
    layer["held_bytes_by_step"] = row.layers[idx].held_bytes;
    layer["page_bytes"] = row.layers[idx].page_bytes;
    const LayerShape& shape = model.layers[idx];
    layer["num_q_heads"] = shape.num_q_heads;
    layer["num_kv_heads"] = shape.num_kv_heads;
    layer["head_dim"] = shape.head_dim;
    layer["v_head_dim"] = shape.v_head_dim;
    layer["prompt_rows"] = row.layers[idx].prompt_rows;
    layer["dense_executed_pairs"] = row.layers[idx].dense_pairs;
    layer["dense_step_executed_pairs"] = row.layers[idx].dense_step_pairs;
    layer["whole_held_bytes"] = row.layers[idx].whole_held_bytes.back();
    list.push_back(std::move(layer));
  }
  return list;
}

Json table_json(const AuditedTable& table, const ModelShape& model) {
  const ModelRow& row = table.row;
  Json json = model_row_json(row);
  json["claim"] = row.problem.claim ? Json(to_text(*row.problem.claim)) : Json(nullptr);
  json["layers"] = layers_json(row, model);
  json["predicted_live_bytes_by_step"] = row.sum().predicted_held_bytes;
  json["live_bytes_by_step"] = row.live_bytes;
  json["page_bytes"] = row.sum().page_bytes;
  json["summary_bytes_by_step"] = row.summary_bytes;
  json["unattributed_share"] = row.unattributed_share();
  json["caller_cpu_share"] =
      row.over_rounds([](const ModelRound& one) { return one.caller_cpu_share; }).p50;
  json["predicted_step_seconds"] = statistics_json(row.predicted_step_seconds());
  json["interventions"] = list_json(table.interventions, intervention_json);
  json["quality"] = quality_json(table.quality);
  return json;
}

Json source_file_json(const SourceFile& file) {
  return {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}};
}

Json source_json(const AuditSource& source) {
  std::int64_t bytes = 0;
  for (const SourceFile& file : source.files) bytes += file.size_bytes;
  return {{"source", source.name()},
          {"size_bytes", bytes},
          {"package", source.package ? Json(*source.package) : Json(nullptr)},
          {"files", list_json(source.files, source_file_json)},
          {"repeated", source.is_repeated}};
}

Json verdict_json(const Verdict& verdict) {
  return {{"name", verdict.name},
          {"kind", to_string(verdict.kind)},
          {"holds", verdict.holds},
          {"table", verdict.table},
          {"says", verdict.says},
          {"next", verdict.next},
          {"cause", verdict.cause.empty() ? Json(nullptr) : Json(verdict.cause)}};
}

Json rotary_json(const std::optional<RotaryTrial>& trial) {
  if (!trial) return nullptr;
  return {{"first_position", trial->own.first},
          {"positions", trial->own.nll.size()},
          {"nll", trial->own.mean},
          {"as_first_layer_nll", trial->as_first.mean},
          {"changes", trial->own.nll != trial->as_first.nll}};
}

}  // namespace

Json audit_document(const AuditReport& report) {
  const AuditFlags& flags = report.flags;
  const RunnerReport& runner = report.runner;
  const auto audited = [&](const AuditedTable& table) {
    return table_json(table, runner.subject.shape);
  };
  return {{"format", "lacuna-audit"},
          {"format_version", 1},
          {"kind", "measured"},
          {"interrupted", report.audit.interrupted},
          {"model", subject_json(runner.subject)},
          {"machine", machine_json(runner.cpu)},
          {"request",
           {{"prompt_tokens", flags.prompt},
            {"generate_tokens", flags.generate},
            {"repetitions", flags.repetitions},
            {"chunk_tokens", flags.runner.chunk},
            {"page_size", flags.runner.page_size},
            {"read_tile_tokens", kernel_tile().k},
            {"full", flags.full},
            {"planted", flags.plant.empty() ? Json(nullptr) : Json(flags.plant)}}},
          {"model_file",
           {{"size_bytes", report.model_file.size_bytes}, {"sha256", report.model_file.sha256}}},
          {"text", source_json(report.source)},
          {"threads", runner.threads},
          {"products", runner.products},
          {"kv_dtype", runner.kv_dtype},
          {"isa", runner.isa},
          {"load_seconds", runner.load_seconds},
          {"peak_memory_bytes", runner.peak_memory_bytes},
          {"verdicts", list_json(verdicts_of(report.audit), verdict_json)},
          {"tables", list_json(report.audit.tables, audited)},
          {"rotary", rotary_json(report.audit.rotary)},
          {"int8_kv", report.audit.int8_kv ? audited(*report.audit.int8_kv) : Json(nullptr)}};
}

}  // namespace lacuna::cli

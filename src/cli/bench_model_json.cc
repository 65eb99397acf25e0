#include "cli/bench_figures.h"
#include "cli/bench_model.h"

namespace lacuna::cli {
namespace {

Json tail_json(const Statistics& value) {
  Json json = statistics_json(value);
  json["p99"] = value.p99;
  return json;
}

// Medians over the rounds; what no part covers is a part of its own.
Json parts_json(const ModelRow& row, PassTimes ModelRound::*times,
                const std::function<double(const ModelRound&)>& whole) {
  Json json = Json::object();
  for (const PassPart& part : pass_parts()) {
    json[std::string(part.name)] =
        row.over_rounds([&](const ModelRound& one) { return (one.*times).*part.seconds; }).p50;
  }
  json["unattributed"] =
      row.over_rounds([&](const ModelRound& one) { return whole(one) - (one.*times).sum(); }).p50;
  return json;
}

Json step_parts_json(const ModelRow& row) {
  Json json = parts_json(row, &ModelRound::step, [](const ModelRound& one) {
    return one.mean_step_seconds() - one.sampling_seconds;
  });
  json["sampling"] =
      row.over_rounds([](const ModelRound& one) { return one.sampling_seconds; }).p50;
  return json;
}

}  // namespace

Json model_layer_json(const ModelLayer& layer) {
  return {{"predicted_executed_pairs", layer.predicted_pairs},
          {"executed_pairs", layer.pairs},
          {"predicted_needed_pairs", layer.predicted_needed_pairs},
          {"needed_pairs", layer.needed_pairs},
          {"predicted_step_executed_pairs", layer.predicted_step_pairs},
          {"step_executed_pairs", layer.step_pairs},
          {"predicted_step_needed_pairs", layer.predicted_step_needed_pairs},
          {"step_needed_pairs", layer.step_needed_pairs},
          {"predicted_held_bytes", layer.predicted_held_bytes.back()},
          {"held_bytes", layer.held_bytes.back()},
          {"predicted_read_bytes", layer.predicted_read_bytes},
          {"read_bytes", layer.read_bytes}};
}

namespace {

Json kind_json(const ModelKind& kind) {
  Json json = {{"attend", kind.sum.attend}, {"num_layers", kind.layers.size()}};
  json.update(model_layer_json(kind.sum));
  json["prefill_seconds"] = kind.prefill_seconds.p50;
  json["step_seconds"] = kind.step_seconds.p50;
  return json;
}

Json round_json(const ModelRound& round) {
  return {{"round", round.round},
          {"first_token_seconds", round.first_token_seconds},
          {"step_seconds", round.step_seconds},
          {"read_bytes_per_s", round.read_bytes_per_s},
          {"cpu_share", round.cpu_share}};
}

}  // namespace

Json model_row_json(const ModelRow& row) {
  const bool has_steps = row.problem.num_steps() > 0;
  Json json = {{"table", to_text(row.problem.table)},
               {"trained", to_string(row.problem.table.trained)},
               {"length_tokens", row.problem.prompt_tokens},
               {"generate_tokens", row.problem.generate_tokens},
               {"as_predicted", row.as_predicted()}};
  json.update(model_layer_json(row.sum()));
  json["first_token_seconds"] = tail_json(row.first_token_seconds());
  json["prefill_parts_seconds"] = parts_json(
      row, &ModelRound::prefill, [](const ModelRound& one) { return one.first_token_seconds; });
  json["step_seconds"] = has_steps ? tail_json(row.step_seconds()) : Json(nullptr);
  json["step_parts_seconds"] = has_steps ? step_parts_json(row) : Json(nullptr);
  json["bound_seconds"] = has_steps ? statistics_json(row.bound_seconds()) : Json(nullptr);
  json["bandwidth_set_bytes"] = row.bandwidth_set_bytes;
  json["kinds"] = list_json(row.kinds(), kind_json);
  json["rounds"] = list_json(row.rounds, round_json);
  return json;
}

std::string model_json(const ModelReport& report) {
  const BenchModelFlags& flags = report.flags;
  const RunnerReport& runner = report.runner;
  const auto weights = [&](std::int64_t ModelRow::*bytes) {
    return report.result.rows.empty() ? 0 : report.result.rows.front().*bytes;
  };
  const Json document = {{"format", "lacuna-bench-model"},
                         {"format_version", 1},
                         {"kind", "measured"},
                         {"interrupted", report.result.interrupted},
                         {"model", subject_json(runner.subject)},
                         {"machine", machine_json(runner.cpu)},
                         {"request",
                          {{"chunk_tokens", flags.runner.chunk},
                           {"page_size", flags.runner.page_size},
                           {"exact_kv", flags.runner.exact_kv},
                           {"text", flags.file.empty() ? Json(nullptr) : Json(flags.file)},
                           {"repetitions", flags.repetitions},
                           {"seed", flags.seed}}},
                         {"threads", runner.threads},
                         {"products", runner.products},
                         {"kv_dtype", runner.kv_dtype},
                         {"isa", runner.isa},
                         {"load_seconds", runner.load_seconds},
                         {"file_weight_bytes", weights(&ModelRow::file_weight_bytes)},
                         {"weight_bytes", weights(&ModelRow::weight_bytes)},
                         {"peak_memory_bytes", runner.peak_memory_bytes},
                         {"rows", list_json(report.result.rows, model_row_json)}};
  return document_text(document);
}

}  // namespace lacuna::cli

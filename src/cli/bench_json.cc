#include "cli/bench_figures.h"
#include "cli/bench_kernels.h"
#include "lacuna/kernels.h"

namespace lacuna::cli {
namespace {

Json problem_json(const KernelProblem& problem) {
  return {{"name", problem.name()},
          {"attend", problem.attend},
          {"causal", problem.causal},
          {"length_tokens", problem.length},
          {"rows", problem.num_rows()},
          {"num_q_heads", problem.heads.num_q_heads},
          {"num_kv_heads", problem.heads.num_kv_heads},
          {"head_dim", problem.head_dim},
          {"v_head_dim", problem.v_head_dim},
          {"dtype", to_string(problem.dtype)},
          {"learned_sinks", problem.learned_sinks},
          {"threads", problem.threads},
          {"path", to_string(problem.path)}};
}

Json ledger_json(const Ledger& ledger) {
  return {{"tiles", ledger.tiles},
          {"executed_pairs", ledger.executed_pairs},
          {"needed_pairs", ledger.needed_pairs},
          {"exponentials", ledger.exponentials},
          {"loaded_keys", ledger.loaded_keys},
          {"loaded_bytes", ledger.loaded_bytes},
          {"distinct_bytes", ledger.distinct_bytes}};
}

// What is known of a row before it is timed.
Json ready_json(const KernelRow& row) {
  Json document = problem_json(row.problem);
  document["isa"] = row.isa;
  document["tile"] = {{"q", row.tile.q}, {"k", row.tile.k}};
  document["needed_pairs"] = row.needed_pairs;
  document["predicted_pairs"] = row.predicted_pairs;
  document["ledger"] = ledger_json(row.ledger);
  document["as_predicted"] = row.as_predicted();
  document["executed_per_needed"] = row.executed_per_needed();
  document["workspace_bytes"] = row.workspace_bytes;
  document["useful_flops"] = row.useful_flops();
  document["first_plan_seconds"] = row.first_plan_seconds;
  document["first_run_seconds"] = row.first_run_seconds;
  document["calls_per_run"] = row.calls_per_run;
  document["check"] = {{"num_rows", row.check.num_rows},
                       {"max_error", row.check.max_error},
                       {"max_lse_error", row.check.max_lse_error},
                       {"error_per_allowed", row.check.worst},
                       {"agrees", row.check.agrees()}};
  return document;
}

Json rate_json(const KernelRow& row, KernelStage stage) {
  const Statistics seconds = row.seconds(stage);
  return {{"seconds", statistics_json(seconds)},
          {"useful_flops_per_s", row.useful_flops() / seconds.p50},
          {"share_of_limit", statistics_json(row.share_of_limit(stage))},
          {"loaded_bytes_per_s", static_cast<double>(row.ledger.loaded_bytes) / seconds.p50},
          {"distinct_bytes_per_s", static_cast<double>(row.ledger.distinct_bytes) / seconds.p50}};
}

Json round_json(const KernelRound& round) {
  return {{"round", round.round},
          {"plan_seconds", round.plan_seconds},
          {"planned_seconds", round.planned_seconds},
          {"whole_seconds", round.whole_seconds},
          {"f32_flops_per_s", round.f32_flops_per_s},
          {"bf16_flops_per_s", round.bf16_flops_per_s},
          {"cpu_share", round.cpu_share}};
}

Json row_json(const KernelRow& row) {
  Json document = ready_json(row);
  document["plan"] = {{"seconds", statistics_json(row.seconds(&KernelRound::plan_seconds))}};
  document["planned"] = rate_json(row, &KernelRound::planned_seconds);
  document["whole"] = rate_json(row, &KernelRound::whole_seconds);
  document["rounds"] = Json::array();
  for (const KernelRound& round : row.rounds) document["rounds"].push_back(round_json(round));
  return document;
}

Json kernels_machine_json(const CpuInfo& cpu) {
  return {{"cpu", cpu.model_name},
          {"num_allowed_cpus", cpu.num_allowed_cpus},
          {"l1_data_bytes", json_of(cpu.l1_data_bytes)},
          {"l2_bytes", json_of(cpu.l2_bytes)},
          {"last_level_bytes", json_of(cpu.last_level_bytes)},
          {"last_level_total_bytes", json_of(cpu.last_level_total_bytes)},
          {"isas", kernel_isas()}};
}

Json request_json(const BenchKernelsFlags& flags) {
  return {{"repetitions", flags.repetitions},
          {"min_time_ms", flags.min_time_ms},
          {"row_seconds", flags.row_seconds},
          {"seed", flags.seed},
          {"clock", flags.cpu_time ? "cpu" : "wall"}};
}

Json ratio_json(const KernelRatio& ratio) {
  return {{"what", ratio.what},
          {"row", ratio.row},
          {"base", ratio.base},
          {"value", statistics_json(ratio.value)}};
}

Json long_plan_json(const LongPlan& plan) {
  return {{"name", plan.problem.name()},
          {"plan_seconds", statistics_json(plan.plan_seconds)},
          {"workspace_bytes", plan.workspace_bytes},
          {"needed_pairs", plan.needed_pairs},
          {"run_seconds_estimate", json_of(plan.run_seconds_estimate)},
          {"rate_of", plan.rate_of}};
}

Json curve_json(const ScanCurve& curve) {
  return {{"name", curve.name}, {"lengths_tokens", curve.lengths}, {"seconds", curve.seconds}};
}

std::string line_of(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string bench_json(const BenchReport& report) {
  const Json document = {
      {"format", "lacuna-bench-kernels"},
      {"format_version", 1},
      {"kind", "measured"},
      {"interrupted", report.result.interrupted},
      {"machine", kernels_machine_json(report.cpu)},
      {"request", request_json(report.flags)},
      {"bandwidth", list_json(report.result.bandwidth,
                              [](const BandwidthFigure& figure) {
                                return Json{{"threads", figure.threads},
                                            {"working_set_bytes", figure.working_set_bytes},
                                            {"bytes_per_s", figure.bytes_per_s}};
                              })},
      {"rows", list_json(report.result.rows, row_json)},
      {"ratios", list_json(report.result.ratios, ratio_json)},
      {"long_plans", list_json(report.long_plans, long_plan_json)},
      {"scan", list_json(report.curves, curve_json)},
      {"goals", goals_json(report.goals)}};
  return document_text(document);
}

std::string bench_rows_line(std::span<const KernelRow> rows) {
  return line_of({{"rows", list_json(rows, ready_json)}});
}

std::string bench_round_line(const KernelRow& row, std::size_t row_idx) {
  Json document = {{"row", row_idx}};
  document.update(round_json(row.rounds.back()));
  return line_of(document);
}

}  // namespace lacuna::cli

#include "cli/bench_decode.h"
#include "cli/bench_figures.h"

namespace lacuna::cli {
namespace {

Json kind_json(const DecodeKind& kind) {
  return {{"attend", kind.attend},
          {"num_layers", kind.num_layers},
          {"predicted_held_bytes", kind.predicted_held_bytes},
          {"held_bytes", kind.held_bytes},
          {"predicted_read_bytes", kind.predicted_read_bytes},
          {"read_bytes", kind.read_bytes},
          {"executed_pairs", kind.pairs},
          {"pair_flops", kind.pair_flops}};
}

Json round_json(const DecodeRound& round) {
  return {{"round", round.round},
          {"plan_seconds", round.plan_seconds},
          {"cache_seconds", round.cache_seconds},
          {"append_seconds", round.append_seconds},
          {"attend_seconds", round.attend_seconds},
          {"kind_seconds", round.kind_seconds},
          {"step_seconds", round.step_seconds},
          {"read_bytes_per_s", round.read_bytes_per_s},
          {"f32_flops_per_s", round.f32_flops_per_s},
          {"bf16_flops_per_s", round.bf16_flops_per_s},
          {"cpu_share", round.cpu_share}};
}

Json row_json(const DecodeRow& row) {
  const DecodeProblem& problem = row.problem;
  return {
      {"name", problem.name},
      {"lengths_tokens", problem.lengths},
      {"rows", problem.rows},
      {"kv_dtype", to_string(problem.kv_dtype)},
      {"exact_kv", problem.exact_kv},
      {"page_size", problem.page_size},
      {"threads", problem.threads},
      {"isa", row.isa},
      {"kinds", list_json(row.kinds, kind_json)},
      {"live_bytes", row.live_bytes},
      {"as_predicted", row.as_predicted()},
      {"bandwidth_set_bytes", row.bandwidth_set_bytes},
      {"steps_per_round", row.steps_per_round},
      {"fill", {{"tokens", row.fill_tokens}, {"seconds", row.fill_seconds}}},
      {"check",
       {{"max_error", row.max_error}, {"error_per_allowed", row.worst}, {"agrees", row.agrees()}}},
      {"step_seconds", statistics_json(row.seconds(&DecodeRound::step_seconds))},
      {"bound_seconds", statistics_json(row.bound())},
      {"overhead", statistics_json(row.overhead())},
      {"share_of_bandwidth", statistics_json(row.share_of_bandwidth(&DecodeRound::step_seconds))},
      {"attention_share_of_bandwidth",
       statistics_json(row.share_of_bandwidth(&DecodeRound::attend_seconds))},
      {"rounds", list_json(row.rounds, round_json)}};
}

Json hit_json(const std::optional<PrefixHitFigure>& hit) {
  if (!hit) return nullptr;
  return {{"tokens", hit->tokens},
          {"num_tables", hit->num_tables},
          {"shared_pages", hit->shared_pages},
          {"seconds", statistics_json(hit->seconds)}};
}

}  // namespace

std::string decode_json(const DecodeReport& report) {
  const Json document = {{"format", "lacuna-bench-decode"},
                         {"format_version", 1},
                         {"kind", "measured"},
                         {"interrupted", report.result.interrupted},
                         {"machine", machine_json(report.cpu)},
                         {"request",
                          {{"repetitions", report.flags.repetitions},
                           {"min_time_ms", report.flags.min_time_ms},
                           {"seed", report.flags.seed}}},
                         {"rows", list_json(report.result.rows, row_json)},
                         {"prefix_hit", hit_json(report.prefix_hit)},
                         {"goals", goals_json(report.goals)}};
  return document_text(document);
}

}  // namespace lacuna::cli

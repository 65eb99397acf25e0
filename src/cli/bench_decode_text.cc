#include <fmt/format.h>

#include "cli/bench_decode.h"
#include "cli/bench_figures.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

std::string micro_text(const DecodeRow& row, DecodeStage stage) {
  return fmt::format("{:.3g}", 1e6 * row.seconds(stage).p50);
}

std::string beside(std::int64_t measured, std::int64_t predicted) {
  if (measured == predicted) return fmt::format("{}", measured);
  return fmt::format("{} NOT AS PREDICTED", measured);
}

std::string steps_text(std::span<const DecodeRow> rows) {
  Table table({{"row", Align::kLeft},
               {"kernels", Align::kLeft},
               {"step ms, p50 (p10..p90)", Align::kRight},
               {"bound ms", Align::kRight},
               {"plan us", Align::kRight},
               {"pages us", Align::kRight},
               {"append us", Align::kRight},
               {"K/V GB/s", Align::kRight},
               {"probe GB/s", Align::kRight},
               {"step of probe", Align::kRight},
               {"attention", Align::kRight},
               {"largest error", Align::kRight},
               {"of allowed", Align::kRight}});
  for (const DecodeRow& row : rows) {
    const Statistics step = row.seconds(&DecodeRound::step_seconds);
    table.add_row(
        {row.problem.name, row.isa, spread_text(step, 1e3),
         fmt::format("{:.3g}", 1e3 * row.bound().p50), micro_text(row, &DecodeRound::plan_seconds),
         micro_text(row, &DecodeRound::cache_seconds),
         micro_text(row, &DecodeRound::append_seconds), giga_text(row.total_bytes() / step.p50),
         giga_text(row.seconds(&DecodeRound::read_bytes_per_s).p50),
         share_text(row.share_of_bandwidth(&DecodeRound::step_seconds).p50),
         share_text(row.share_of_bandwidth(&DecodeRound::attend_seconds).p50),
         fmt::format("{:.2g}", row.max_error),
         fmt::format("{:.2g}{}", row.worst, row.agrees() ? "" : " WRONG")});
  }
  return table.text();
}

std::string kinds_text(std::span<const DecodeRow> rows) {
  Table table({{"row", Align::kLeft},
               {"layers", Align::kLeft},
               {"held, predicted", Align::kRight},
               {"held", Align::kRight},
               {"read a step, predicted", Align::kRight},
               {"read", Align::kRight},
               {"ms", Align::kRight},
               {"of probe", Align::kRight}});
  for (const DecodeRow& row : rows) {
    for (std::size_t idx = 0; idx < row.kinds.size(); ++idx) {
      const DecodeKind& kind = row.kinds[idx];
      std::vector<double> seconds;
      std::vector<double> shares;
      for (const DecodeRound& round : row.rounds) {
        seconds.push_back(round.kind_seconds[idx]);
        shares.push_back(static_cast<double>(kind.read_bytes) / seconds.back() /
                         round.read_bytes_per_s);
      }
      table.add_row({idx == 0 ? row.problem.name : "",
                     fmt::format("{} x {}", kind.num_layers, kind.attend),
                     fmt::format("{}", kind.predicted_held_bytes),
                     beside(kind.held_bytes, kind.predicted_held_bytes),
                     fmt::format("{}", kind.predicted_read_bytes),
                     beside(kind.read_bytes, kind.predicted_read_bytes),
                     fmt::format("{:.3g}", 1e3 * statistics_of(seconds).p50),
                     share_text(statistics_of(shares).p50)});
    }
  }
  return table.text();
}

std::string working_sets_text(const DecodeReport& report) {
  if (!report.cpu.last_level_total_bytes) return "";
  const std::int64_t enough = 4 * *report.cpu.last_level_total_bytes;
  std::string text;
  for (const DecodeRow& row : report.result.rows) {
    if (row.bandwidth_set_bytes >= enough) continue;
    text += fmt::format(
        "{}: a step reads {}, less than four last-level caches; its bandwidth is the probe's at "
        "that working set\n",
        row.problem.name, bytes_text(row.bandwidth_set_bytes));
  }
  return text;
}

}  // namespace

Chart decode_chart(const DecodeReport& report) {
  Chart chart;
  chart.title = "Step time by position";
  chart.x_label = "tokens held before the step";
  chart.y_label = "milliseconds";
  chart.is_log_x = chart.is_log_y = true;
  ChartSeries step{"step", {}, {}};
  ChartSeries bound{"bytes over bandwidth", {}, {}};
  for (const DecodeRow& row : report.result.rows) {
    const auto length = static_cast<double>(row.problem.lengths.front());
    step.x.push_back(length);
    bound.x.push_back(length);
    step.y.push_back(1e3 * row.seconds(&DecodeRound::step_seconds).p50);
    bound.y.push_back(1e3 * row.bound().p50);
  }
  chart.series = {std::move(step), std::move(bound)};
  return chart;
}

std::string decode_text(const DecodeReport& report) {
  std::string text = machine_text(report.cpu);
  if (report.result.interrupted) text += "interrupted: what was timed until then\n";
  if (report.result.rows.empty()) return text + "no row was timed\n";
  text += working_sets_text(report) + "\n";
  text += steps_text(report.result.rows) + "\n" + kinds_text(report.result.rows);
  if (!report.flags.scan.empty()) text += "\n" + chart_text(decode_chart(report));
  return text + goals_text(report.goals);
}

}  // namespace lacuna::cli

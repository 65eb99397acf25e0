#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/bench_figures.h"
#include "cli/bench_kernels.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

std::string rate_of(const KernelRow& row, KernelStage stage) {
  return giga_text(row.useful_flops() / row.seconds(stage).p50);
}

// Medians over all rounds of all rows with so many threads.
std::string limits_text(const BenchReport& report) {
  std::set<std::int64_t> threads;
  for (const KernelRow& row : report.result.rows) threads.insert(row.problem.threads);
  std::string text;
  for (const std::int64_t count : threads) {
    std::vector<double> f32;
    std::vector<double> bf16;
    for (const KernelRow& row : report.result.rows) {
      if (row.problem.threads != count) continue;
      for (const KernelRound& round : row.rounds) {
        f32.push_back(round.f32_flops_per_s);
        if (round.bf16_flops_per_s > 0) bf16.push_back(round.bf16_flops_per_s);
      }
    }
    text += fmt::format("probed beside the rows, {} thread(s): f32 {} GFLOP/s", count,
                        spread_text(statistics_of(f32), 1e-9));
    if (!bf16.empty()) {
      text += fmt::format(", bf16 {} GFLOP/s", spread_text(statistics_of(bf16), 1e-9));
    }
    text += "\n";
  }
  for (const BandwidthFigure& figure : report.result.bandwidth) {
    text += fmt::format("probed read bandwidth, {} thread(s), {}: {}\n", figure.threads,
                        bytes_text(figure.working_set_bytes), rate_text(figure.bytes_per_s, "B/s"));
  }
  return text;
}

// Rows of one thread wait for nobody: what they lack of a CPU, other work had.
std::string shared_machine_text(std::span<const KernelRow> rows) {
  constexpr double kQuietShare = 0.95;
  std::vector<double> shares;
  for (const KernelRow& row : rows) {
    if (row.problem.threads == 1) shares.push_back(row.seconds(&KernelRound::cpu_share).p50);
  }
  if (shares.empty() || statistics_of(shares).p50 >= kQuietShare) return "";
  return fmt::format(
      "other work shared the machine: calls of one thread had a CPU {} of the time; --cpu-time "
      "leaves the rest out\n",
      share_text(statistics_of(shares).p50));
}

std::string rows_text(std::span<const KernelRow> rows) {
  Table table({{"row", Align::kLeft},
               {"kernels", Align::kLeft},
               {"ms, p50 (p10..p90)", Align::kRight},
               {"plan ms", Align::kRight},
               {"first ms", Align::kRight},
               {"GFLOP/s", Align::kRight},
               {"planned", Align::kRight},
               {"of limit", Align::kRight},
               {"planned", Align::kRight},
               {"executed/needed", Align::kRight},
               {"K/V GB/s", Align::kRight},
               {"distinct", Align::kRight},
               {"error/allowed", Align::kRight}});
  for (const KernelRow& row : rows) {
    const Statistics whole = row.seconds(&KernelRound::whole_seconds);
    const double first = row.first_plan_seconds + row.first_run_seconds;
    table.add_row({row.problem.name(), row.isa, spread_text(whole, 1e3),
                   fmt::format("{:.3g}", 1e3 * row.seconds(&KernelRound::plan_seconds).p50),
                   fmt::format("{:.3g}", 1e3 * first), rate_of(row, &KernelRound::whole_seconds),
                   rate_of(row, &KernelRound::planned_seconds),
                   share_text(row.share_of_limit(&KernelRound::whole_seconds).p50),
                   share_text(row.share_of_limit(&KernelRound::planned_seconds).p50),
                   fmt::format("{:.3f}{}", row.executed_per_needed(),
                               row.as_predicted() ? "" : " NOT AS PREDICTED"),
                   giga_text(static_cast<double>(row.ledger.loaded_bytes) / whole.p50),
                   giga_text(static_cast<double>(row.ledger.distinct_bytes) / whole.p50),
                   fmt::format("{:.2f}{}", row.check.worst, row.check.agrees() ? "" : " WRONG")});
  }
  return table.text();
}

std::string ratios_text(std::span<const KernelRatio> ratios) {
  if (ratios.empty()) return "";
  Table table({{"row", Align::kLeft},
               {"figure", Align::kLeft},
               {"median of rounds (p10..p90)", Align::kRight}});
  for (const KernelRatio& ratio : ratios) {
    table.add_row({ratio.row, ratio.what, spread_text(ratio.value, 1)});
  }
  return "\n" + table.text();
}

std::string long_plans_text(std::span<const LongPlan> plans) {
  if (plans.empty()) return "";
  Table table({{"plan alone", Align::kLeft},
               {"ms, p50 (p10..p90)", Align::kRight},
               {"workspace", Align::kRight},
               {"run, estimate", Align::kRight}});
  for (const LongPlan& plan : plans) {
    table.add_row({plan.problem.name(), spread_text(plan.plan_seconds, 1e3),
                   bytes_text(plan.workspace_bytes),
                   plan.run_seconds_estimate ? seconds_text(*plan.run_seconds_estimate)
                                             : std::string(kNoFigure)});
  }
  return "\n" + table.text();
}

// Lengths downwards, one column a curve.
std::string curve_table(std::span<const ScanCurve> curves) {
  std::vector<Column> columns = {{"tokens", Align::kRight}};
  std::set<double> lengths;
  for (const ScanCurve& curve : curves) {
    columns.push_back({curve.name + ", ms", Align::kRight});
    lengths.insert(curve.lengths.begin(), curve.lengths.end());
  }
  Table table(columns);
  for (const double length : lengths) {
    std::vector<std::string> cells = {fmt::format("{:.0f}", length)};
    for (const ScanCurve& curve : curves) {
      const auto at = std::ranges::find(curve.lengths, length) - curve.lengths.begin();
      cells.push_back(
          at == std::ssize(curve.seconds)
              ? std::string(kNoFigure)
              : fmt::format("{:.4g}", 1e3 * curve.seconds[static_cast<std::size_t>(at)]));
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string curves_text(std::span<const ScanCurve> curves) {
  if (curves.empty()) return "";
  return "\n" + curve_table(curves) + "\n" + chart_text(chart_of(curves));
}

}  // namespace

Chart chart_of(std::span<const ScanCurve> curves) {
  Chart chart;
  chart.title = "Time of one layer's attention by length";
  chart.x_label = "tokens";
  chart.y_label = "milliseconds";
  chart.is_log_x = chart.is_log_y = true;
  for (const ScanCurve& curve : curves) {
    ChartSeries series{curve.name, curve.lengths, {}};
    for (const double seconds : curve.seconds) series.y.push_back(seconds * 1e3);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string bench_text(const BenchReport& report) {
  std::string text = machine_text(report.cpu);
  if (report.result.interrupted) text += "interrupted: what was timed until then\n";
  if (report.result.rows.empty()) return text + "no row was timed\n";
  text += limits_text(report);
  if (report.flags.cpu_time) text += "all times are CPU time\n";
  if (!report.flags.cpu_time) text += shared_machine_text(report.result.rows);
  text +=
      "useful rates; whole calls (plan and run) unless it says planned (the plan made before)\n\n";
  text += rows_text(report.result.rows) + ratios_text(report.result.ratios);
  text += curves_text(report.curves) + long_plans_text(report.long_plans);
  return text + goals_text(report.goals);
}

}  // namespace lacuna::cli

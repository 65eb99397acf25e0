#include "cli/audit_page_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/audit_document.h"
#include "cli/audit_layers.h"
#include "cli/audit_tables.h"
#include "cli/mask.h"
#include "lacuna/error.h"
#include "lacuna/statistics.h"
#include "lacuna/svg.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kMaskCells = 64;
constexpr std::size_t kMostMasks = 8;
constexpr std::size_t kMostSeries = 8;
constexpr std::size_t kMostPoints = 256;

std::string figure_html(const std::string& svg) { return "<div class=\"box\">" + svg + "</div>\n"; }

std::string mask_html(const std::string& attend, const Json& document) {
  const bool causal = document.at("model").at("causal").get<bool>();
  const std::int64_t length = count_at(document.at("request"), "prompt_tokens");
  std::string html;
  try {
    const LayerTable table = layer_of(attend, causal, length);
    for (const HeadGroup& group : table.layers.front().attend.groups) {
      const Topology topology(group.attend, causal);
      html += figure_html(mask_svg(mask_of(topology, length, kMaskCells).picture(attend)));
    }
  } catch (const Error& error) {
    return "<p><code>" + xml_escaped(attend) + "</code>: no picture, " + xml_escaped(error.what()) +
           "</p>\n";
  }
  return html;
}

// The median over the rounds at each step. Of many steps each point is the highest of its
// neighbours, so that a spike stays.
ChartSeries steps_of(const AuditRun& run) {
  ChartSeries series{.name = run.name};
  std::vector<double> medians;
  for (std::size_t step = 0;; ++step) {
    std::vector<double> samples;
    for (const Json& round : run.table.at("rounds")) {
      const Json& seconds = round.at("step_seconds");
      if (step < seconds.size()) samples.push_back(1e3 * seconds[step].get<double>());
    }
    if (samples.empty()) break;
    medians.push_back(statistics_of(samples).p50);
  }
  const std::size_t stride = (medians.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < medians.size(); begin += stride) {
    const auto first = medians.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        medians.begin() + static_cast<std::ptrdiff_t>(std::min(begin + stride, medians.size()));
    series.x.push_back(static_cast<double>(begin + 1));
    series.y.push_back(*std::max_element(first, last));
  }
  return series;
}

std::string chart_html(const Chart& chart) {
  if (chart.series.empty()) return "<p>nothing was timed</p>\n";
  return figure_html(chart_svg(chart));
}

}  // namespace

std::string masks_html(const Json& document) {
  std::set<std::string> seen;
  std::string html = "<div class=\"masks\">\n";
  for (const Json& table : document.at("tables")) {
    for (const Json& kind : table.at("kinds")) {
      const auto attend = kind.at("attend").get<std::string>();
      if (seen.size() < kMostMasks && seen.insert(attend).second) {
        html += mask_html(attend, document);
      }
    }
  }
  return html + "</div>\n";
}

std::string steps_html(const Json& document) {
  Chart chart{.title = "Time of each step",
              .x_label = "step of the answer",
              .y_label = "ms, median over the rounds"};
  for (const AuditRun& run : runs_of(document)) {
    if (chart.series.size() == kMostSeries) break;
    ChartSeries series = steps_of(run);
    if (!series.x.empty()) chart.series.push_back(std::move(series));
  }
  return chart_html(chart);
}

std::string roof_html(const Json& document) {
  Chart chart{.title = "Bytes of a step and its time",
              .x_label = "bytes read in a step: weights, keys and values",
              .y_label = "ms",
              .is_log_x = true,
              .is_log_y = true};
  double least = 0;
  double most = 0;
  double bandwidth = 0;
  for (const auto& [name, table, kv_dtype] : runs_of(document)) {
    const double bytes = step_bytes(table);
    const double milli = 1e3 * table.at("step_seconds").at("p50").get<double>();
    if (!(bytes > 0) || !(milli > 0) || chart.series.size() + 1 == kMostSeries) continue;
    chart.series.push_back({name, {bytes}, {milli}});
    least = least > 0 ? std::min(least, bytes) : bytes;
    most = std::max(most, bytes);
    bandwidth = std::max(bandwidth, best_bandwidth(table));
  }
  if (bandwidth > 0) {
    const auto milli = [&](double bytes) { return 1e3 * bytes / bandwidth; };
    chart.series.push_back({fmt::format("bound, {:.1f} GB/s", bandwidth * 1e-9),
                            {least / 2, most * 2},
                            {milli(least / 2), milli(most * 2)}});
  }
  return chart_html(chart);
}

}  // namespace lacuna::cli

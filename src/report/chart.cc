#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lacuna/error.h"
#include "lacuna/svg.h"
#include "report/svg_canvas.h"

namespace lacuna {
namespace {

void check_values(const char* name, const std::vector<double>& values, bool is_log) {
  for (const double value : values) {
    if (std::isfinite(value) && (!is_log || value > 0)) continue;
    throw Error(fmt::format("chart {} is {}; allowed: {}", name, value,
                            is_log ? "positive finite numbers" : "finite numbers"));
  }
}

void check_chart(const Chart& chart) {
  if (chart.series.empty() || chart.series.size() > std::size(kSeriesColours)) {
    throw Error(fmt::format("chart series is {}; allowed: 1..{}", chart.series.size(),
                            std::size(kSeriesColours)));
  }
  for (const ChartSeries& series : chart.series) {
    if (series.x.empty() || series.x.size() != series.y.size()) {
      throw Error(fmt::format("chart series has {} x and {} y; allowed: as many, at least 1",
                              series.x.size(), series.y.size()));
    }
    check_values("x", series.x, chart.is_log_x);
    check_values("y", series.y, chart.is_log_y);
  }
}

// Maps values to pixels and says where the ticks stand.
class Axis {
 public:
  Axis(double low, double high, bool is_log, double pixel_low, double pixel_high)
      : is_log_(is_log), pixel_low_(pixel_low), pixel_high_(pixel_high) {
    if (is_log) {
      low_ = std::floor(std::log10(low));
      high_ = std::max(std::ceil(std::log10(high)), low_ + 1);
    } else {
      step_ = nice_step(high > low ? high / 5 - low / 5 : std::abs(high) / 5);
      low_ = std::floor(low / step_) * step_;
      high_ = std::max(std::ceil(high / step_) * step_, low_ + step_);
    }
  }

  double pixel(double value) const {
    const double at = is_log_ ? std::log10(value) : value;
    return pixel_low_ + (at - low_) / (high_ - low_) * (pixel_high_ - pixel_low_);
  }

  std::vector<double> ticks() const {
    std::vector<double> values;
    if (is_log_) {
      const double stride = std::ceil((high_ - low_) / 8);
      for (double exponent = low_; exponent <= high_; exponent += stride) {
        values.push_back(std::pow(10, exponent));
      }
      return values;
    }
    const auto count = static_cast<int>(std::lround((high_ - low_) / step_));
    for (int idx = 0; idx <= count; ++idx) values.push_back(low_ + idx * step_);
    return values;
  }

 private:
  // 1, 2 or 5 times a power of ten, not below `rough`.
  static double nice_step(double rough) {
    if (!(rough > 0)) return 1;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (rough <= factor * power) return factor * power;
    }
    return 10 * power;
  }

  bool is_log_;
  double pixel_low_;
  double pixel_high_;
  double step_ = 1;
  double low_ = 0;
  double high_ = 1;
};

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void cover(const std::vector<double>& values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low = std::min(low, *least);
    high = std::max(high, *most);
  }
};

struct Frame {
  double left = 80;
  double top = 48;
  double right = 560;
  double bottom = 360;
};

void draw_axes(SvgCanvas& canvas, const Chart& chart, const Frame& frame, const Axis& x_axis,
               const Axis& y_axis) {
  for (const double value : x_axis.ticks()) {
    const double x = x_axis.pixel(value);
    canvas.line(x, frame.top, x, frame.bottom, "#ddd");
    canvas.text(x, frame.bottom + 16, fmt::format("{:.6g}", value), Anchor::kMiddle, 10);
  }
  for (const double value : y_axis.ticks()) {
    const double y = y_axis.pixel(value);
    canvas.line(frame.left, y, frame.right, y, "#ddd");
    canvas.text(frame.left - 6, y + 4, fmt::format("{:.6g}", value), Anchor::kEnd, 10);
  }
  canvas.line(frame.left, frame.bottom, frame.right, frame.bottom, "#444");
  canvas.line(frame.left, frame.top, frame.left, frame.bottom, "#444");
  canvas.text((frame.left + frame.right) / 2, frame.bottom + 38, chart.x_label, Anchor::kMiddle);
  canvas.vertical_text(16, (frame.top + frame.bottom) / 2, chart.y_label);
}

void draw_series(SvgCanvas& canvas, const ChartSeries& series, const char* colour,
                 const Axis& x_axis, const Axis& y_axis) {
  std::string data;
  for (std::size_t idx = 0; idx < series.x.size(); ++idx) {
    const double x = x_axis.pixel(series.x[idx]);
    const double y = y_axis.pixel(series.y[idx]);
    data += (idx == 0 ? "M" : "L") + coordinate(x) + " " + coordinate(y);
    canvas.circle(x, y, 2.5, colour);
  }
  canvas.path(data, std::string("fill=\"none\" stroke=\"") + colour + "\" stroke-width=\"1.5\"");
}

struct Extents {
  Extent x;
  Extent y;
};

Extents extents_of(const Chart& chart) {
  Extents extents;
  for (const ChartSeries& series : chart.series) {
    extents.x.cover(series.x);
    extents.y.cover(series.y);
  }
  return extents;
}

// Points on a grid of characters; row 0 is the top.
class TextGrid {
 public:
  static constexpr std::int64_t kColumns = 64;
  static constexpr std::int64_t kRows = 17;

  explicit TextGrid(const Chart& chart) : chart_(chart), extents_(extents_of(chart)) {
    if (!chart.is_log_y) extents_.y.low = std::min(extents_.y.low, 0.0);
    lines_.assign(kRows, std::string(kColumns, ' '));
    for (std::size_t idx = 0; idx < chart.series.size(); ++idx) {
      const ChartSeries& series = chart.series[idx];
      for (std::size_t point = 0; point < series.x.size(); ++point) {
        put(series.x[point], series.y[point], static_cast<char>('a' + idx));
      }
    }
  }

  // Every fourth row says the value that it stands for.
  std::string text() const {
    std::string all;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const double share = static_cast<double>(kRows - 1 - row) / (kRows - 1);
      const std::string label =
          row % 4 == 0 ? fmt::format("{:>9.3g}", value_at(share, extents_.y, chart_.is_log_y))
                       : std::string(9, ' ');
      const std::string& line = lines_[static_cast<std::size_t>(row)];
      all += label + " |" + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    all += std::string(10, ' ') + "+" + std::string(kColumns, '-') + "\n";
    return all + fmt::format("{:11}{:<{}.6g}{:>{}.6g}\n", "", extents_.x.low, kColumns / 2,
                             extents_.x.high, kColumns / 2);
  }

 private:
  static double share_of(double value, const Extent& extent, bool is_log) {
    const double low = is_log ? std::log(extent.low) : extent.low;
    const double high = is_log ? std::log(extent.high) : extent.high;
    return high > low ? ((is_log ? std::log(value) : value) - low) / (high - low) : 0.5;
  }

  static double value_at(double share, const Extent& extent, bool is_log) {
    if (!is_log) return extent.low + share * (extent.high - extent.low);
    return extent.low * std::pow(extent.high / extent.low, share);
  }

  void put(double x, double y, char mark) {
    const auto column = std::lround(share_of(x, extents_.x, chart_.is_log_x) * (kColumns - 1));
    const auto row = std::lround((1 - share_of(y, extents_.y, chart_.is_log_y)) * (kRows - 1));
    char& cell = lines_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
    cell = cell == ' ' || cell == mark ? mark : '*';
  }

  const Chart& chart_;
  Extents extents_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string chart_text(const Chart& chart) {
  check_chart(chart);
  std::string text = chart.title + "\n" + chart.y_label + "\n" + TextGrid(chart).text();
  text += std::string(11, ' ') + chart.x_label + "\n";
  for (std::size_t idx = 0; idx < chart.series.size(); ++idx) {
    text += fmt::format("  {} {}\n", static_cast<char>('a' + idx), chart.series[idx].name);
  }
  return text;
}

std::string chart_svg(const Chart& chart) {
  check_chart(chart);
  auto [x, y] = extents_of(chart);
  if (!chart.is_log_y) y.low = std::min(y.low, 0.0);
  const Frame frame;
  const Axis x_axis(x.low, x.high, chart.is_log_x, frame.left, frame.right);
  const Axis y_axis(y.low, y.high, chart.is_log_y, frame.bottom, frame.top);
  SvgCanvas canvas(frame.right + 180, frame.bottom + 56, chart.title);
  canvas.text(frame.left, 24, chart.title, Anchor::kStart, 15);
  draw_axes(canvas, chart, frame, x_axis, y_axis);
  for (std::size_t idx = 0; idx < chart.series.size(); ++idx) {
    const char* const colour = kSeriesColours[idx];
    const double legend_y = frame.top + 12 + 20 * static_cast<double>(idx);
    draw_series(canvas, chart.series[idx], colour, x_axis, y_axis);
    canvas.rect(frame.right + 16, legend_y - 10, 14, 12, colour, 1);
    canvas.text(frame.right + 36, legend_y, chart.series[idx].name, Anchor::kStart);
  }
  return canvas.document();
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

// A mask reduced by the caller to cells of a grid: rows are queries downwards, columns keys to the
// right. Views are not owned and must live through the call.
struct MaskPicture {
  std::string title = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<const float> density =
      {};                        // [rows, cols] share of each cell's pairs that are visible, 0..1
  std::int64_t first_query = 0;  // the positions that the grid spans, for the axes
  std::int64_t num_queries = 0;
  std::int64_t first_key = 0;
  std::int64_t num_keys = 0;
  // Optional, SVG only: which of class_names (1..8 of them) a cell belongs to, e.g. "window",
  // "sink".
  std::span<const std::uint8_t> classes = {};  // [rows, cols] or empty
  std::vector<std::string> class_names = {};
};

// The functions below are pure and thread-safe: same input, same text. They throw Error naming the
// field, its value and the allowed range: rows and cols 1..1024 (text: 1..64), a span of another
// size, a density outside 0..1, a class without a name, positions that are negative or fewer than
// one.

// A stand-alone SVG document with ticks, axis titles and a legend; neighbouring equal cells are one
// shape, so that a window of any length stays small.
std::string mask_svg(const MaskPicture& picture);

// The same for a terminal, one character a cell; a legend of the characters is the last line. No
// line ends in a space.
std::string mask_text(const MaskPicture& picture);

struct ChartSeries {
  std::string name = {};
  std::vector<double> x = {};  // as many as y, at least 1, finite; > 0 on a logarithmic axis
  std::vector<double> y = {};
};

struct Chart {
  std::string title = {};
  std::string x_label = {};  // with its unit
  std::string y_label = {};
  bool is_log_x = false;
  bool is_log_y = false;
  std::vector<ChartSeries> series = {};  // 1..8, drawn as lines with points
};

// A line chart as a stand-alone SVG document. A linear y axis begins at 0 unless a value is
// negative.
std::string chart_svg(const Chart& chart);

// The same for a terminal: points of the first series are 'a', of the second 'b', …, '*' where
// several meet; the last lines are the legend. No line ends in a space.
std::string chart_text(const Chart& chart);

// `text` with &, <, >, quotes escaped and characters that XML does not allow replaced by '?'.
std::string xml_escaped(std::string_view text);

}  // namespace lacuna

#include "lacuna/svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"
#include "report/svg_canvas.h"

namespace lacuna {
namespace {

constexpr std::size_t kMaxClasses = std::size(kSeriesColours);
constexpr std::int64_t kMaxSvgCells = 1024;
constexpr std::int64_t kMaxTextCells = 64;

void check_range(const char* name, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return;
  throw Error(std::string("picture ") + name + " is " + std::to_string(value) +
              "; allowed: " + std::to_string(min) + ".." + std::to_string(max));
}

void check_classes(const MaskPicture& picture, std::int64_t num_cells) {
  if (picture.classes.empty()) return;
  check_range("classes", std::ssize(picture.classes), num_cells, num_cells);
  check_range("class_names", std::ssize(picture.class_names), 1, kMaxClasses);
  for (const std::uint8_t value : picture.classes) {
    check_range("class", value, 0, std::ssize(picture.class_names) - 1);
  }
}

void check_picture(const MaskPicture& picture, std::int64_t max_cells) {
  constexpr std::int64_t kMaxPosition = std::int64_t{1} << 61;
  check_range("rows", picture.rows, 1, max_cells);
  check_range("cols", picture.cols, 1, max_cells);
  const std::int64_t num_cells = picture.rows * picture.cols;
  check_range("density", std::ssize(picture.density), num_cells, num_cells);
  for (const float value : picture.density) {
    if (value >= 0 && value <= 1) continue;
    throw Error("picture density is " + std::to_string(value) + "; allowed: 0..1");
  }
  check_range("first_query", picture.first_query, 0, kMaxPosition);
  check_range("first_key", picture.first_key, 0, kMaxPosition);
  check_range("num_queries", picture.num_queries, 1, kMaxPosition);
  check_range("num_keys", picture.num_keys, 1, kMaxPosition);
  check_classes(picture, num_cells);
}

// The position at which cell `idx` of `num_cells` begins.
std::int64_t cell_position(std::int64_t first, std::int64_t num_positions, std::int64_t idx,
                           std::int64_t num_cells) {
  return first + static_cast<std::int64_t>(Int128{num_positions} * idx / num_cells);
}

// Cells that carry a tick: every one of few, else the quarters and the last.
std::vector<std::int64_t> tick_cells(std::int64_t num_cells) {
  constexpr std::int64_t kFew = 16;
  std::vector<std::int64_t> cells;
  if (num_cells <= kFew) {
    for (std::int64_t idx = 0; idx < num_cells; ++idx) cells.push_back(idx);
  } else {
    cells = {0, num_cells / 4, num_cells / 2, num_cells * 3 / 4, num_cells - 1};
  }
  return cells;
}

// The label of a ticked cell: where it begins; the last of many says where the axis ends.
std::string tick_label(std::int64_t first, std::int64_t num_positions, std::int64_t idx,
                       std::int64_t num_cells) {
  const bool is_end = idx + 1 == num_cells && num_cells > 1;
  return std::to_string(is_end ? first + num_positions - 1
                               : cell_position(first, num_positions, idx, num_cells));
}

// Visible but faint at the lowest level, so that one key in a large cell is not lost.
constexpr int kLevels = 8;
int level_of(float density) {
  return static_cast<int>(std::ceil(static_cast<double>(density) * kLevels));
}
double opacity_of(int level) { return 0.15 + 0.85 * level / kLevels; }

struct Grid {
  double left = 0;
  double top = 0;
  double cell = 1;
};

// One path for each (class, level): runs of equal cells in a row are one rectangle.
void draw_cells(SvgCanvas& canvas, const MaskPicture& picture, const Grid& grid) {
  std::map<std::pair<int, int>, std::string> paths;
  const auto style_at = [&picture](std::size_t idx) {
    const int series = picture.classes.empty() ? 0 : picture.classes[idx];
    return std::pair(series, level_of(picture.density[idx]));
  };
  for (std::int64_t row = 0; row < picture.rows; ++row) {
    for (std::int64_t begin = 0, end = 0; begin < picture.cols; begin = end) {
      const auto row_begin = static_cast<std::size_t>(row * picture.cols);
      const auto style = style_at(row_begin + static_cast<std::size_t>(begin));
      end = begin + 1;
      while (end < picture.cols && style_at(row_begin + static_cast<std::size_t>(end)) == style)
        ++end;
      if (style.second == 0) continue;
      const std::string width = coordinate(static_cast<double>(end - begin) * grid.cell);
      paths[style] += "M" + coordinate(grid.left + static_cast<double>(begin) * grid.cell) + " " +
                      coordinate(grid.top + static_cast<double>(row) * grid.cell) + "h" + width +
                      "v" + coordinate(grid.cell) + "h-" + width + "z";
    }
  }
  for (const auto& [style, data] : paths) {
    canvas.path(data, std::string("fill=\"") + kSeriesColours[style.first] + "\" fill-opacity=\"" +
                          coordinate(opacity_of(style.second)) +
                          "\" shape-rendering=\"crispEdges\"");
  }
}

void draw_axes(SvgCanvas& canvas, const MaskPicture& picture, const Grid& grid) {
  const double right = grid.left + static_cast<double>(picture.cols) * grid.cell;
  const double bottom = grid.top + static_cast<double>(picture.rows) * grid.cell;
  for (const std::int64_t col : tick_cells(picture.cols)) {
    const double x = grid.left + (static_cast<double>(col) + 0.5) * grid.cell;
    canvas.line(x, grid.top - 4, x, grid.top, "#444");
    canvas.text(x, grid.top - 7, tick_label(picture.first_key, picture.num_keys, col, picture.cols),
                Anchor::kMiddle, 10);
  }
  for (const std::int64_t row : tick_cells(picture.rows)) {
    const double y = grid.top + (static_cast<double>(row) + 0.5) * grid.cell;
    canvas.line(grid.left - 4, y, grid.left, y, "#444");
    canvas.text(grid.left - 7, y + 4,
                tick_label(picture.first_query, picture.num_queries, row, picture.rows),
                Anchor::kEnd, 10);
  }
  const std::string frame = "M" + coordinate(grid.left) + " " + coordinate(grid.top) + "H" +
                            coordinate(right) + "V" + coordinate(bottom) + "H" +
                            coordinate(grid.left) + "z";
  canvas.path(frame, "fill=\"none\" stroke=\"#444\"");
  canvas.text((grid.left + right) / 2, grid.top - 24, "key position", Anchor::kMiddle);
  canvas.vertical_text(14, (grid.top + bottom) / 2, "query position");
}

void draw_legend(SvgCanvas& canvas, const MaskPicture& picture, double left, double top) {
  double y = top;
  const auto entry = [&](const char* colour, double opacity, std::string_view label) {
    canvas.rect(left, y - 10, 14, 12, colour, opacity);
    canvas.text(left + 20, y, label, Anchor::kStart);
    y += 20;
  };
  if (!picture.classes.empty()) {
    for (std::size_t idx = 0; idx < picture.class_names.size(); ++idx) {
      entry(kSeriesColours[idx], 1, picture.class_names[idx]);
    }
    y += 6;
  }
  const char* const colour = picture.classes.empty() ? kSeriesColours[0] : "#444";
  entry(colour, 0, "no pair");
  entry(colour, opacity_of(1), "up to 1/8 of the pairs");
  entry(colour, opacity_of(kLevels / 2), "up to 1/2");
  entry(colour, opacity_of(kLevels), "more than 7/8");
}

// Characters of mask_text by density, each with the share it reaches up to.
struct Shade {
  float up_to;
  const char* character;
  const char* meaning;
};
constexpr Shade kShades[] = {{0.25F, "·", "up to 25 %"},
                             {0.5F, "░", "up to 50 %"},
                             {0.75F, "▒", "up to 75 %"},
                             {1.0F, "▓", "below 100 %"},
                             {2.0F, "█", "every pair"}};

const char* shade_of(float density) {
  if (density == 0) return " ";
  if (density == 1) return kShades[std::size(kShades) - 1].character;
  const auto* shade = std::find_if(std::begin(kShades), std::end(kShades),
                                   [density](const Shade& at) { return density <= at.up_to; });
  return shade->character;
}

void append_line(std::string& text, std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  text += line + "\n";
}

// Key labels over their columns, as many as fit with a space between.
std::string key_labels(const MaskPicture& picture) {
  const std::int64_t last = picture.first_key + picture.num_keys - 1;
  const std::string end_label = std::to_string(last);
  const auto cols = static_cast<std::size_t>(picture.cols);
  std::string line = std::to_string(picture.first_key);
  for (const std::size_t col : {cols / 4, cols / 2, cols * 3 / 4}) {
    const std::string label = std::to_string(cell_position(
        picture.first_key, picture.num_keys, static_cast<std::int64_t>(col), picture.cols));
    if (col < line.size() + 2 || col + label.size() + end_label.size() + 2 > cols) continue;
    line.resize(col, ' ');
    line += label;
  }
  if (cols > 1) {
    const std::size_t at = std::max(line.size() + 1, cols - std::min(cols, end_label.size()));
    line.resize(at, ' ');
    line += end_label;
  }
  return line;
}

std::string shade_legend() {
  std::string legend = "share of a cell's pairs:";
  for (const Shade& shade : kShades) {
    legend += std::string("  ") + shade.character + " " + shade.meaning;
  }
  return legend;
}

}  // namespace

std::string mask_svg(const MaskPicture& picture) {
  check_picture(picture, kMaxSvgCells);
  constexpr double kPictureSize = 512;
  constexpr double kLegendWidth = 190;
  const double longest = static_cast<double>(std::max(picture.rows, picture.cols));
  const double cell = longest < kPictureSize ? std::floor(kPictureSize / longest) : 1;
  const Grid grid = {96, 72, cell};
  const double right = grid.left + static_cast<double>(picture.cols) * cell;
  const double bottom = grid.top + static_cast<double>(picture.rows) * cell;
  SvgCanvas canvas(right + kLegendWidth, std::max(bottom + 24, grid.top + 320), picture.title);
  canvas.text(grid.left, 24, picture.title, Anchor::kStart, 15);
  draw_cells(canvas, picture, grid);
  draw_axes(canvas, picture, grid);
  draw_legend(canvas, picture, right + 20, grid.top + 12);
  return canvas.document();
}

std::string mask_text(const MaskPicture& picture) {
  check_picture(picture, kMaxTextCells);
  const std::vector<std::int64_t> ticks = tick_cells(picture.rows);
  const std::string last_label = std::to_string(picture.first_query + picture.num_queries - 1);
  const std::size_t label_width = std::max<std::size_t>(last_label.size(), 5);
  std::string text;
  if (!picture.title.empty()) append_line(text, printable(picture.title));
  append_line(text, std::string(label_width, ' ') + "  keys →");
  append_line(text, std::string(label_width, ' ') + "  " + key_labels(picture));
  for (std::int64_t row = 0; row < picture.rows; ++row) {
    std::string label;
    if (std::find(ticks.begin(), ticks.end(), row) != ticks.end()) {
      label = tick_label(picture.first_query, picture.num_queries, row, picture.rows);
    }
    std::string line = std::string(label_width - label.size(), ' ') + label + " │";
    for (std::int64_t col = 0; col < picture.cols; ++col) {
      line += shade_of(picture.density[static_cast<std::size_t>(row * picture.cols + col)]);
    }
    append_line(text, std::move(line));
  }
  append_line(text, shade_legend());
  return text;
}

}  // namespace lacuna

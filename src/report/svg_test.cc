#include "lacuna/svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// Owns what a picture views: a causal mask with one cell a pair.
struct Causal {
  explicit Causal(std::int64_t n) : density(static_cast<std::size_t>(n * n)) {
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t col = 0; col <= row; ++col)
        density[static_cast<std::size_t>(row * n + col)] = 1;
    }
    picture = {
        .title = "full", .rows = n, .cols = n, .density = density, .num_queries = n, .num_keys = n};
  }
  Causal(const Causal&) = delete;
  Causal& operator=(const Causal&) = delete;

  std::vector<float> density;
  MaskPicture picture;
};

std::int64_t count_of(const std::string& text, const std::string& word) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

// Tags open and close in order and no bare '&' stands in the text.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty();
}

TEST(MaskText, DrawsEveryPairOfASmallMask) {
  const Causal causal(4);
  EXPECT_EQ(mask_text(causal.picture),
            "full\n"
            "       keys →\n"
            "       0  3\n"
            "    0 │█\n"
            "    1 │██\n"
            "    2 │███\n"
            "    3 │████\n"
            "share of a cell's pairs:  · up to 25 %  ░ up to 50 %  ▒ up to 75 %  ▓ below 100 %  █ "
            "every pair\n");
}

TEST(MaskText, ShadesByDensity) {
  const std::vector<float> density = {0, 0.001F, 0.25F, 0.26F, 0.5F, 0.75F, 0.76F, 0.999F, 1};
  const MaskPicture picture = {
      .rows = 1, .cols = 9, .density = density, .first_query = 7, .num_queries = 1, .num_keys = 9};
  EXPECT_NE(mask_text(picture).find("    7 │ ··░░▒▓▓█\n"), std::string::npos) << mask_text(picture);
}

TEST(MaskText, AxesSayThePositionsTheCellsStandFor) {
  const std::vector<float> density(64 * 64, 0.5F);
  const MaskPicture picture = {.title = "",
                               .rows = 64,
                               .cols = 64,
                               .density = density,
                               .first_query = 100,
                               .num_queries = std::int64_t{1} << 40,
                               .num_keys = 131072};
  const std::string text = mask_text(picture);
  EXPECT_NE(text.find("0               32768           65536           98304     131071\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("          100 │"), std::string::npos) << text;
  EXPECT_NE(text.find("1099511627875 │"), std::string::npos) << text;
  EXPECT_EQ(text.find(" \n"), std::string::npos);
}

TEST(MaskSvg, IsWellFormedAndTheSameEveryTime) {
  const Causal causal(16);
  const std::string svg = mask_svg(causal.picture);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg, mask_svg(causal.picture));
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0U);
  EXPECT_NE(svg.find("key position"), std::string::npos);
  EXPECT_NE(svg.find("query position"), std::string::npos);
}

TEST(MaskSvg, RunsOfEqualCellsAreOneShape) {
  const Causal causal(256);
  const std::string svg = mask_svg(causal.picture);
  EXPECT_EQ(count_of(svg, "z\" fill=\"#0072b2\""), 1);
  // One shape a row: "M x y h w v c h-w z" is well below 40 bytes.
  EXPECT_LT(svg.size(), 256 * 40 + 5000);
}

TEST(MaskSvg, ClassesHaveTheirOwnColourAndLegend) {
  Causal causal(8);
  std::vector<std::uint8_t> classes(64, 0);
  classes[8] = 1;
  causal.picture.classes = classes;
  causal.picture.class_names = {"window", "sink <first>"};
  const std::string svg = mask_svg(causal.picture);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_NE(svg.find(">window<"), std::string::npos);
  EXPECT_NE(svg.find(">sink &lt;first&gt;<"), std::string::npos);
  EXPECT_EQ(count_of(svg, "crispEdges"), 2);
}

TEST(MaskSvg, TitlesAreEscaped) {
  Causal causal(2);
  causal.picture.title = "</title><script>\"&'\x1b";
  const std::string svg = mask_svg(causal.picture);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;/title&gt;&lt;script&gt;&quot;&amp;&apos;?"), std::string::npos);
}

TEST(Mask, FieldsOutOfRangeAreNamed) {
  const auto message = [](const MaskPicture& picture) -> std::string {
    try {
      mask_text(picture);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Causal causal(4);
  const MaskPicture good = causal.picture;
  EXPECT_EQ(message(good), "");
  MaskPicture bad = good;
  bad.rows = 0;
  EXPECT_EQ(message(bad), "picture rows is 0; allowed: 1..64");
  bad = good;
  bad.cols = 65;
  EXPECT_EQ(message(bad), "picture cols is 65; allowed: 1..64");
  bad = good;
  bad.cols = 3;
  EXPECT_EQ(message(bad), "picture density is 16; allowed: 12..12");
  bad = good;
  bad.num_keys = 0;
  EXPECT_EQ(message(bad).rfind("picture num_keys is 0", 0), 0U);
  for (const float value : {-0.1F, 1.1F, std::nanf("")}) {
    causal.density[3] = value;
    EXPECT_EQ(message(good).rfind("picture density is ", 0), 0U);
  }
  causal.density[3] = 0;
  const std::vector<std::uint8_t> classes(16, 1);
  bad = good;
  bad.classes = classes;
  bad.class_names = {"only"};
  EXPECT_EQ(message(bad), "picture class is 1; allowed: 0..0");
}

Chart sample_chart() {
  return {.title = "KV held",
          .x_label = "length (tokens)",
          .y_label = "bytes",
          .is_log_x = true,
          .is_log_y = false,
          .series = {{"full", {1024, 4096, 131072}, {1e6, 4e6, 128e6}},
                     {"window & sink", {1024, 4096, 131072}, {1e6, 1e6, 1e6}}}};
}

TEST(ChartSvg, IsWellFormedAndTheSameEveryTime) {
  const std::string svg = chart_svg(sample_chart());
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg, chart_svg(sample_chart()));
  EXPECT_NE(svg.find("window &amp; sink"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<circle"), 6);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(ChartSvg, OnePointAndEqualValuesStillHaveAxes) {
  Chart chart = sample_chart();
  for (const double value : {0.0, 5.0, -5.0, 1e-300}) {
    chart.is_log_x = false;
    chart.series = {{"one", {value}, {value}}};
    const std::string svg = chart_svg(chart);
    EXPECT_TRUE(is_well_formed(svg));
    EXPECT_EQ(svg.find("nan"), std::string::npos) << value;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << value;
  }
}

TEST(ChartSvg, ValuesOutOfRangeAreErrors) {
  Chart chart = sample_chart();
  chart.series[0].x[0] = 0;
  EXPECT_THROW(chart_svg(chart), Error);  // logarithmic
  chart = sample_chart();
  chart.series[0].y[0] = std::nan("");
  EXPECT_THROW(chart_svg(chart), Error);
  chart = sample_chart();
  chart.series[0].y.pop_back();
  EXPECT_THROW(chart_svg(chart), Error);
  chart.series.clear();
  EXPECT_THROW(chart_svg(chart), Error);
}

// Two straight lines on logarithmic axes that meet at the right end.
Chart two_lines() {
  return {.title = "time",
          .x_label = "tokens",
          .y_label = "ms",
          .is_log_x = true,
          .is_log_y = true,
          .series = {{.name = "dense", .x = {1, 10, 100}, .y = {1, 10, 100}},
                     {.name = "window", .x = {1, 100}, .y = {100, 100}}}};
}

TEST(ChartText, PutsEachPointWhereItsValuesAre) {
  const std::string text = chart_text(two_lines());
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  EXPECT_EQ(lines[2].substr(0, 12), "      100 |b");  // the top: y 100 at x 1
  EXPECT_EQ(lines[2].back(), '*');                    // both series end there
  EXPECT_EQ(lines[10].find('a'), 11 + 32U);           // the middle of both axes
  EXPECT_EQ(lines[18], "        1 |a");
  EXPECT_NE(text.find("  a dense\n  b window\n"), std::string::npos);
}

TEST(ChartText, NoLineEndsInASpace) { EXPECT_EQ(count_of(chart_text(two_lines()), " \n"), 0); }

TEST(ChartText, OnePointAndALinearAxisFromZeroAreNoTrouble) {
  Chart chart{.title = "t", .x_label = "x", .y_label = "y", .series = {{"one", {5}, {8}}}};
  const std::string text = chart_text(chart);
  EXPECT_EQ(count_of(text, "a"), 2);  // the point and the legend
  EXPECT_NE(text.find("        8 |"), std::string::npos);
  EXPECT_NE(text.find("        0 |"), std::string::npos);
}

TEST(ChartText, RefusesWhatTheSvgRefuses) {
  EXPECT_THROW(chart_text(Chart{}), Error);
  Chart chart = two_lines();
  chart.series[0].y[0] = 0;
  EXPECT_THROW(chart_text(chart), Error);
}

}  // namespace
}  // namespace lacuna

#include "report/svg_canvas.h"

#include <fmt/format.h>

#include "lacuna/svg.h"
#include "lacuna/table.h"

namespace lacuna {
namespace {

constexpr const char* anchor_name(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char letter : printable(text)) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&apos;";
        break;
      default:
        escaped += letter;
    }
  }
  return escaped;
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

SvgCanvas::SvgCanvas(double width, double height, std::string_view title) {
  body_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" font-family=\"sans-serif\">\n"
      "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      coordinate(width), coordinate(height), xml_escaped(title));
}

void SvgCanvas::text(double x, double y, std::string_view text, Anchor anchor, int size) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n",
                       coordinate(x), coordinate(y), size, anchor_name(anchor), xml_escaped(text));
}

void SvgCanvas::vertical_text(double x, double y, std::string_view text) {
  body_ += fmt::format(
      "<text transform=\"translate({},{}) rotate(-90)\" font-size=\"12\" "
      "text-anchor=\"middle\">{}</text>\n",
      coordinate(x), coordinate(y), xml_escaped(text));
}

void SvgCanvas::line(double x1, double y1, double x2, double y2, std::string_view colour) {
  body_ += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"{}\" fill=\"none\"/>\n", coordinate(x1),
                       coordinate(y1), coordinate(x2), coordinate(y2), colour);
}

void SvgCanvas::rect(double x, double y, double width, double height, std::string_view fill,
                     double opacity) {
  body_ += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" fill-opacity=\"{}\" "
      "stroke=\"#888\" stroke-width=\"0.5\"/>\n",
      coordinate(x), coordinate(y), coordinate(width), coordinate(height), fill,
      coordinate(opacity));
}

void SvgCanvas::circle(double x, double y, double radius, std::string_view fill) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", coordinate(x),
                       coordinate(y), coordinate(radius), fill);
}

void SvgCanvas::path(std::string_view data, std::string_view attributes) {
  body_ += fmt::format("<path d=\"{}\" {}/>\n", data, attributes);
}

std::string SvgCanvas::document() const { return body_ + "</svg>\n"; }

}  // namespace lacuna

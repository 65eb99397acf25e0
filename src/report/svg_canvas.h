#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

enum class Anchor { kStart, kMiddle, kEnd };

// Eight colours that stay apart for colour-blind readers and in grey print (Okabe and Ito's
// palette).
inline constexpr const char* kSeriesColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#000000", "#7f7f7f"};

// Builds one SVG document; coordinates in pixels, two decimals, so that the text is the same
// everywhere.
class SvgCanvas {
 public:
  SvgCanvas(double width, double height, std::string_view title);

  void text(double x, double y, std::string_view text, Anchor anchor, int size = 12);
  void vertical_text(double x, double y, std::string_view text);
  void line(double x1, double y1, double x2, double y2, std::string_view colour);
  void rect(double x, double y, double width, double height, std::string_view fill, double opacity);
  void circle(double x, double y, double radius, std::string_view fill);
  void path(std::string_view data, std::string_view attributes);

  // The finished document.
  std::string document() const;

 private:
  std::string body_;
};

// A coordinate: at most two decimals, no trailing zeros.
std::string coordinate(double value);

}  // namespace lacuna

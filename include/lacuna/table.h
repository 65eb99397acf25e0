#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

enum class Align { kLeft, kRight };

struct Column {
  std::string header = {};
  Align align = Align::kLeft;
};

// Columns a terminal gives to UTF-8 text: combining marks 0, East Asian wide characters 2,
// others 1.
std::int64_t display_width(std::string_view text);

// `text` fit for one line of a terminal or a file: control characters and bytes that are no UTF-8
// become '?'. Names out of model files reach tables; an escape sequence in one must not reach a
// terminal.
std::string printable(std::string_view text);

// Rows of text under headers. One mutator at a time; const calls may run at once.
class Table {
 public:
  // Throws Error without a column.
  explicit Table(std::vector<Column> columns);

  // One cell a column, made printable(). Throws Error naming the number of cells and of columns.
  void add_row(std::vector<std::string> cells);

  // A line between the rows before and after (plain text only).
  void add_rule();

  std::int64_t num_rows() const;

  // Columns two spaces apart under a ruled header; every line ends in '\n', none in a space.
  std::string text() const;

  // A pipe table; '|' in cells is escaped.
  std::string markdown() const;

 private:
  std::vector<std::int64_t> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace lacuna

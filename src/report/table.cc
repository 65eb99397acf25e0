#include "lacuna/table.h"

#include <algorithm>
#include <utility>

#include "lacuna/error.h"

namespace lacuna {
namespace {

struct Decoded {
  char32_t code = 0;
  std::size_t num_bytes = 1;
  bool is_valid = false;
};

// One UTF-8 character at the front of a text that is not empty; overlong forms, surrogates and
// values past 10FFFF are not valid.
Decoded decode(std::string_view text) {
  const auto byte = [text](std::size_t idx) { return static_cast<unsigned char>(text[idx]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t num_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < num_bytes) return {};
  char32_t code = lead & (0x7FU >> num_bytes);
  for (std::size_t idx = 1; idx < num_bytes; ++idx) {
    if ((byte(idx) & 0xC0U) != 0x80U) return {};
    code = code << 6 | (byte(idx) & 0x3FU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[num_bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    return {};
  return {code, num_bytes, true};
}

struct CodeRange {
  char32_t first;
  char32_t last;
};

template <std::size_t kSize>
bool is_within(char32_t code, const CodeRange (&ranges)[kSize]) {
  return std::any_of(std::begin(ranges), std::end(ranges), [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

std::int64_t width_of(char32_t code) {
  // Blocks of the Unicode standard; enough for the names and signs that tables hold.
  constexpr CodeRange kCombining[] = {{0x300, 0x36F},   {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
                                      {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F},
                                      {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};
  constexpr CodeRange kWide[] = {
      {0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0xA4CF}, {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
      {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  if (is_within(code, kCombining)) return 0;
  return is_within(code, kWide) ? 2 : 1;
}

// C0, DEL, C1, and the marks that reorder or break lines.
bool is_control(char32_t code) {
  constexpr CodeRange kControls[] = {
      {0, 0x1F}, {0x7F, 0x9F}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
  return is_within(code, kControls);
}

void append_padded(std::string& line, const std::string& cell, std::int64_t width, Align align) {
  const auto padding =
      static_cast<std::size_t>(std::max<std::int64_t>(width - display_width(cell), 0));
  if (align == Align::kRight) line.append(padding, ' ');
  line += cell;
  if (align == Align::kLeft) line.append(padding, ' ');
}

void end_line(std::string& text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  text += '\n';
}

std::string escaped_pipes(const std::string& cell) {
  std::string escaped;
  for (const char letter : cell) {
    if (letter == '|' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

}  // namespace

std::int64_t display_width(std::string_view text) {
  std::int64_t width = 0;
  while (!text.empty()) {
    const Decoded character = decode(text);
    width += character.is_valid ? width_of(character.code) : 1;
    text.remove_prefix(character.num_bytes);
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const Decoded character = decode(text);
    if (!character.is_valid || is_control(character.code)) {
      clean += '?';
    } else {
      clean += text.substr(0, character.num_bytes);
    }
    text.remove_prefix(character.num_bytes);
  }
  return clean;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (columns_.empty()) throw Error("table has 0 columns; allowed: at least 1");
  for (Column& column : columns_) column.header = printable(column.header);
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw Error("table row has " + std::to_string(cells.size()) +
                " cells; allowed: " + std::to_string(columns_.size()));
  }
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::add_rule() { rows_.emplace_back(); }

std::int64_t Table::num_rows() const {
  return std::count_if(rows_.begin(), rows_.end(), [](const auto& row) { return !row.empty(); });
}

std::vector<std::int64_t> Table::widths() const {
  std::vector<std::int64_t> widths;
  for (std::size_t idx = 0; idx < columns_.size(); ++idx) {
    std::int64_t width = display_width(columns_[idx].header);
    for (const auto& row : rows_) {
      if (!row.empty()) width = std::max(width, display_width(row[idx]));
    }
    widths.push_back(width);
  }
  return widths;
}

std::string Table::text() const {
  const std::vector<std::int64_t> column_widths = widths();
  std::string text;
  const auto line = [&](const auto& cell_of) {
    for (std::size_t idx = 0; idx < columns_.size(); ++idx) {
      if (idx > 0) text += "  ";
      append_padded(text, cell_of(idx), column_widths[idx], columns_[idx].align);
    }
    end_line(text);
  };
  const auto rule = [&] {
    line([&](std::size_t idx) {
      std::string dashes;
      for (std::int64_t at = 0; at < column_widths[idx]; ++at) dashes += "─";
      return dashes;
    });
  };
  line([&](std::size_t idx) { return columns_[idx].header; });
  rule();
  for (const auto& row : rows_) {
    if (row.empty()) {
      rule();
    } else {
      line([&row](std::size_t idx) { return row[idx]; });
    }
  }
  return text;
}

std::string Table::markdown() const {
  std::string text = "|";
  for (const Column& column : columns_) text += " " + escaped_pipes(column.header) + " |";
  text += "\n|";
  for (const Column& column : columns_) {
    text += column.align == Align::kRight ? " ---: |" : " --- |";
  }
  text += "\n";
  for (const auto& row : rows_) {
    if (row.empty()) continue;
    text += "|";
    for (const std::string& cell : row) text += " " + escaped_pipes(cell) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace lacuna

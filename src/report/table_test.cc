#include "lacuna/table.h"

#include <gtest/gtest.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

Table sample() {
  Table table({{"layers"}, {"attend"}, {"KV bytes", Align::kRight}});
  table.add_row({"0–4", "window 512", "33,030,656"});
  table.add_rule();
  table.add_row({"5", "full", "–"});
  return table;
}

TEST(Table, AlignsColumnsUnderARuledHeader) {
  EXPECT_EQ(sample().text(),
            "layers  attend        KV bytes\n"
            "──────  ──────────  ──────────\n"
            "0–4     window 512  33,030,656\n"
            "──────  ──────────  ──────────\n"
            "5       full                 –\n");
}

TEST(Table, LinesNeverEndInASpace) {
  Table table({{"a"}, {"b"}});
  table.add_row({"long first cell", ""});
  table.add_row({"", "long second cell"});
  table.add_row({"trailing ", "blank "});
  table.add_row({"", ""});
  const std::string text = table.text();
  EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

TEST(Table, MarkdownEscapesPipesAndHasNoRules) {
  Table table({{"a|b"}, {"n", Align::kRight}});
  table.add_row({"x|y\\z", "1"});
  table.add_rule();
  EXPECT_EQ(table.markdown(), "| a\\|b | n |\n| --- | ---: |\n| x\\|y\\\\z | 1 |\n");
}

TEST(Table, CountsRowsWithoutRules) { EXPECT_EQ(sample().num_rows(), 2); }

TEST(Table, WrongNumberOfCellsOrColumnsIsAnError) {
  Table table({{"a"}, {"b"}});
  EXPECT_THROW(table.add_row({"1"}), Error);
  EXPECT_THROW(table.add_row({}), Error);
  EXPECT_THROW(Table({}), Error);
}

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("·×–█µ"), 5);
  EXPECT_EQ(display_width("注意力"), 6);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("\xff\xfe"), 2);
  EXPECT_EQ(display_width("\xe4\xb8"), 2);  // cut short: two stray bytes
}

TEST(Printable, LeavesTextAloneAndStopsControlCharacters) {
  EXPECT_EQ(printable("Gemma 3 · 270M ×注"), "Gemma 3 · 270M ×注");
  EXPECT_EQ(printable("a\nb\tc\x1b[31m\x7f"), "a?b?c?[31m?");
  EXPECT_EQ(printable("\xc2\x9b"), "?");             // C1: a terminal reads it as escape-[
  EXPECT_EQ(printable("a\u202E"), "a?");             // reverses the line after it
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "????");  // past 10FFFF
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
}

}  // namespace
}  // namespace lacuna

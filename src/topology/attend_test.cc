#include "lacuna/attend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string refusal(const std::string& text, bool causal = true) {
  return message_of([&] { parse_attend(text, causal); });
}

Attend all_heads(Union terms) { return Attend{{HeadGroup{{}, std::move(terms)}}}; }

// A folder for the files of one test, removed at its end.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / unique_name()) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name, const std::string& bytes) const {
    write_file((path_ / name).string(), bytes);
    return (path_ / name).string();
  }

 private:
  static std::string unique_name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string("lacuna_") + test->test_suite_name() + '_' + test->name();
  }
  std::filesystem::path path_;
};

struct Said {
  std::string text;
  Term term;
  std::string canonical;  // "": the text itself
};

void expect_all(const std::vector<Said>& cases, bool causal) {
  for (const Said& each : cases) {
    SCOPED_TRACE(each.text);
    const Attend parsed = parse_attend(each.text, causal);
    EXPECT_EQ(parsed, all_heads({each.term}));
    const std::string canonical = each.canonical.empty() ? each.text : each.canonical;
    EXPECT_EQ(to_text(parsed, causal), canonical);
    EXPECT_EQ(to_text(each.term, causal), canonical);
    EXPECT_EQ(parse_attend(canonical, causal), parsed);
  }
}

TEST(AttendText, SaysEveryTermOfACausalTable) {
  expect_all(
      {
          {"full", Full{}, ""},
          {"window(512)", Window{511, 0}, ""},
          {"window(w=512)", Window{511, 0}, "window(512)"},
          {"window(511,0)", Window{511, 0}, "window(512)"},
          {"window(r=0, l=511)", Window{511, 0}, "window(512)"},
          {"window(1)", Window{0, 0}, ""},
          {"window(1099511627776)", Window{kMax - 1, 0}, ""},
          {"window(1099511627776,0)", Window{kMax, 0}, ""},
          {"dilated(4,3)", Dilated{4, 3}, ""},
          {" dilated ( d = 3 , w = 4 ) ", Dilated{4, 3}, "dilated(4,3)"},
          {"sink(4)", Sink{4}, ""},
          {"global(0,17,5,0)", GlobalPositions{{0, 5, 17}}, "global(0,5,17)"},
          {"global(first=3)", GlobalFirst{3}, ""},
          {"global(every=8)", GlobalEvery{8, 0}, ""},
          {"global(every=8,offset=7)", GlobalEvery{8, 7}, ""},
          {"global(offset=0, every=1)", GlobalEvery{1, 0}, "global(every=1)"},
          {"global(token=9,2)", GlobalTokens{{2, 9}}, "global(token=2,9)"},
          {"chunk(8192)", Chunk{8192}, ""},
          {"strided(128)", Strided{128}, ""},
          {"strided(l=128)", Strided{128}, "strided(128)"},
          {"fixed(128,8)", Fixed{128, 8}, ""},
          {"fixed(8,8)", Fixed{8, 8}, ""},
          {"window_blocks(1,1,64)", WindowBlocks{1, 1, 64}, ""},
          {"window_blocks(0,0,64)", WindowBlocks{0, 0, 64}, ""},
          {"vertical_blocks(64,16,8)", VerticalBlocks{64, 16, 8, 0, false},
           "vertical_blocks(64,16,8,0)"},
          {"vertical_blocks(64,16,8,7)", VerticalBlocks{64, 16, 8, 7, false}, ""},
          {"vertical_blocks(64,16,8,head)", VerticalBlocks{64, 16, 8, 0, true}, ""},
          {"vertical_blocks(64,16,8,offset=head)", VerticalBlocks{64, 16, 8, 0, true},
           "vertical_blocks(64,16,8,head)"},
          {"topk(2048)", TopK{2048}, ""},
          {"topk_blocks(16,128)", TopKBlocks{16, 128, 0, 1}, "topk_blocks(16,128,0,1)"},
          {"topk_blocks(k=16, block=128, init=0, local=1)", TopKBlocks{16, 128, 0, 1},
           "topk_blocks(16,128,0,1)"},
          {"topk_blocks(3,64,1,2)", TopKBlocks{3, 64, 1, 2}, ""},
          {"random(3,7)", Random{3, 7}, ""},
          {"random(r=3, seed=18446744073709551615)", Random{3, ~std::uint64_t{0}},
           "random(3,18446744073709551615)"},
          {"random_blocks(3,64,7)", RandomBlocks{3, 64, 7, false}, ""},
          {"random_blocks(3,64,7,outside=window)", RandomBlocks{3, 64, 7, true}, ""},
          {"random_blocks(3,64,7,window)", RandomBlocks{3, 64, 7, true},
           "random_blocks(3,64,7,outside=window)"},
      },
      true);
}

TEST(AttendText, SaysEveryTermOfABidirectionalTable) {
  expect_all(
      {
          {"full", Full{}, ""},
          {"window(256,256)", Window{256, 256}, ""},
          {"window(256,0)", Window{256, 0}, ""},
          {"window(l=0,r=1099511627776)", Window{0, kMax}, "window(0,1099511627776)"},
          {"dilated(4,3)", Dilated{4, 3}, ""},
          {"sink(4)", Sink{4}, ""},
          {"global(0)", GlobalPositions{{0}}, ""},
          {"global(last=64)", GlobalLast{64}, ""},
          {"chunk(64)", Chunk{64}, ""},
          {"window_blocks(1,1,64)", WindowBlocks{1, 1, 64}, ""},
          {"random(3,7)", Random{3, 7}, ""},
          {"random_blocks(3,64,7,outside=window)", RandomBlocks{3, 64, 7, true}, ""},
      },
      false);
}

TEST(AttendText, JoinsTermsAndIgnoresWhiteSpace) {
  const Attend attend = parse_attend("\t window ( 1024 )\n+sink(4)+ full ", true);
  EXPECT_EQ(attend, all_heads({Window{1023, 0}, Sink{4}, Full{}}));
  EXPECT_EQ(to_text(attend, true), "window(1024)+sink(4)+full");
}

TEST(AttendText, SplitsHeads) {
  const std::string text = "heads(0-3,6: full; 4-5,7: window(1024)+sink(4))";
  const Attend attend = parse_attend(text, true);
  ASSERT_EQ(attend.groups.size(), 2u);
  EXPECT_EQ(attend.groups[0], (HeadGroup{{0, 1, 2, 3, 6}, {Full{}}}));
  EXPECT_EQ(attend.groups[1], (HeadGroup{{4, 5, 7}, {Window{1023, 0}, Sink{4}}}));
  EXPECT_EQ(to_text(attend, true), text);
  EXPECT_EQ(parse_attend("heads ( 6 , 0 - 3:full;7,4-5 : window(1024) + sink(4) )", true), attend);
}

TEST(AttendText, ComparesData) {
  EXPECT_EQ(parse_attend("window(5)", true), parse_attend("window(4,0)", true));
  EXPECT_NE(parse_attend("window(5)", true), parse_attend("window(4)", true));
  EXPECT_NE(parse_attend("sink(5)", true), parse_attend("chunk(5)", true));
  EXPECT_NE(parse_attend("heads(0: full)", true), parse_attend("full", true));
}

TEST(AttendText, ReadsExplicitLists) {
  const Folder folder;
  folder.file("edges.txt", "# query key\n3 1\n\n  0\t0 # the first\r\n3 1\n");
  folder.file("block list.txt", "# comment\nblock 64\n1 0\n2 2");
  const Attend attend =
      parse_attend("edges(edges.txt)+blocks(\"block list.txt\")", true, folder.path());
  ASSERT_EQ(attend.groups.size(), 1u);
  const auto& edges = std::get<ExplicitEdges>(attend.groups[0].attend[0]);
  EXPECT_EQ(edges.list->pairs, (decltype(edges.list->pairs){{0, 0}, {3, 1}}));
  const auto& blocks = std::get<ExplicitBlocks>(attend.groups[0].attend[1]);
  EXPECT_EQ(blocks.block, 64);
  EXPECT_EQ(blocks.list->pairs, (decltype(blocks.list->pairs){{1, 0}, {2, 2}}));
  EXPECT_EQ(to_text(attend, true), "edges(edges.txt)+blocks(\"block list.txt\")");
  EXPECT_EQ(parse_attend(to_text(attend, true), true, folder.path()), attend);
}

TEST(AttendText, ComparesExplicitListsByTheirPairs) {
  const Folder folder;
  const std::string first = folder.file("a.txt", "1 0\n2 1\n");
  folder.file("b.txt", "2 1\n1 0\n");
  folder.file("c.txt", "2 1\n");
  const auto named = [&](const std::string& text) {
    return parse_attend(text, true, folder.path());
  };
  EXPECT_EQ(named("edges(a.txt)"), named("edges(file=b.txt)"));
  EXPECT_EQ(named("edges(a.txt)"), named("edges(file=\"" + first + "\")"));
  EXPECT_NE(named("edges(a.txt)"), named("edges(c.txt)"));
}

TEST(AttendText, QuotesFileNamesThatNeedIt) {
  const auto list = std::make_shared<const EdgeList>();
  EXPECT_EQ(to_text(Term{ExplicitEdges{"a/b-c_d.txt", list}}, true), "edges(a/b-c_d.txt)");
  EXPECT_EQ(to_text(Term{ExplicitEdges{"a\"b\\c)", list}}, true), "edges(\"a\\\"b\\\\c)\")");
  const Folder folder;
  folder.file("a\"b\\c)", "0 0\n");
  const Attend attend = parse_attend("edges(\"a\\\"b\\\\c)\")", true, folder.path());
  EXPECT_EQ(std::get<ExplicitEdges>(attend.groups[0].attend[0]).file, "a\"b\\c)");
}

TEST(AttendText, NamesFileAndLineOfABadList) {
  const Folder folder;
  const auto bad = [&](const std::string& bytes, bool blocks) {
    const std::string path = folder.file("list", bytes);
    const std::string text = blocks ? "blocks(list)" : "edges(list)";
    std::string message = message_of([&] { parse_attend(text, true, folder.path()); });
    const std::size_t found = message.find(path.substr(0, 20));
    return found == std::string::npos ? message : message.substr(message.find("line"));
  };
  EXPECT_EQ(bad("0 0\n# x\n1 x\n", false),
            "line 3: '1 x' stands here; allowed: query and key, two numbers 0..1099511627776");
  EXPECT_EQ(bad("0 0 0\n", false),
            "line 1: '0 0 0' stands here; allowed: query and key, two numbers 0..1099511627776");
  EXPECT_EQ(bad("7", false),
            "line 1: '7' stands here; allowed: query and key, two numbers 0..1099511627776");
  EXPECT_EQ(bad("1 -1", false),
            "line 1: '1 -1' stands here; allowed: query and key, two numbers 0..1099511627776");
  EXPECT_EQ(bad("1 0\n", true),
            "line 1: '1 0' stands here; allowed: 'block B', B in 1..1099511627776");
  EXPECT_EQ(bad("block 0", true),
            "line 1: 'block 0' stands here; allowed: 'block B', B in 1..1099511627776");
  EXPECT_EQ(bad("# nothing\n", true),
            "line 1: the end stands here; allowed: 'block B', B in 1..1099511627776");
  EXPECT_EQ(bad("block 1099511627776\n2 0\n", true),
            "line 2: '2 0' stands here; allowed: query_block and key_block, two numbers 0..1");
  EXPECT_EQ(
      bad("0 0\n3 9\n", false),
      "attend column 7: 'list' names query 3 and key 9; allowed in a causal table: keys up to "
      "the query");
}

TEST(AttendText, RefusesFileNamesThatAreNone) {
  EXPECT_EQ(refusal("edges()"),
            "attend column 7: no file name; allowed: a bare name or one in double quotes");
  EXPECT_EQ(refusal("edges(\"\")"),
            "attend column 7: no file name; allowed: a bare name or one in double quotes");
  EXPECT_EQ(refusal("edges(file=)"),
            "attend column 12: no file name; allowed: a bare name or one in double quotes");
  EXPECT_EQ(refusal("blocks(fil=x)"),
            "attend column 8: 'fil' is not an argument of blocks or edges; allowed: file; did you "
            "mean 'file'?");
  EXPECT_EQ(refusal("edges(\"a"), "attend column 7: a file name has no closing '\"'");
  EXPECT_EQ(refusal("edges(\"a\nb\")"),
            "attend column 9: a control character stands in a file name");
  EXPECT_EQ(refusal("edges(\"a\\n\")"),
            "attend column 9: '\\' stands in a file name; allowed: \\\" and \\\\");
  EXPECT_EQ(refusal("edges(a b)"), "attend column 9: 'b' stands here; allowed: ')'");
  EXPECT_EQ(refusal("edges(/nonexistent/x)"),
            "attend column 7: cannot open '/nonexistent/x': No such file or directory");
}

// Every message of the grammar, with its column.
TEST(AttendText, PointsAtWhatIsWrong) {
  const std::string terms =
      "full, window, dilated, sink, global, chunk, strided, fixed, window_blocks, vertical_blocks, "
      "topk, topk_blocks, random, random_blocks, blocks, edges";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "column 1: the end stands here; allowed: a term: " + terms + ", heads"},
      {"full + ", "column 8: the end stands here; allowed: a term: " + terms + ", heads"},
      {"full + windw(3)",
       "column 8: 'windw' is not a term; allowed: " + terms + ", heads; did you mean 'window'?"},
      {"512", "column 1: '512' is not a term; allowed: " + terms + ", heads"},
      {"full + heads(0: full)", "column 8: heads(…) stands alone; allowed here: a term: " + terms},
      {"window", "column 7: the end stands here; allowed: '(' and the arguments of window"},
      {"window 3", "column 8: '3' stands here; allowed: '(' and the arguments of window"},
      {"full(3)", "column 5: '(' stands here; allowed: '+' or the end"},
      {"window()", "column 8: ')' stands here; allowed: an argument"},
      {"window(w=)", "column 10: ')' stands here; allowed: a value of w"},
      {"window(3", "column 9: the end stands here; allowed: ',' or ')'"},
      {"window(3;", "column 9: ';' stands here; allowed: ',' or ')'"},
      {"window(-3)", "column 8: '-3' stands here; allowed: an argument"},
      {"window(0)", "column 8: w of window is 0; allowed: 1..1099511627776"},
      {"window(1099511627777)",
       "column 8: w of window is 1099511627777; allowed: 1..1099511627776"},
      {"window(99999999999999999999)",
       "column 8: w of window is 99999999999999999999; allowed: 1..1099511627776"},
      {"window(512k)",
       "column 8: w of window is '512k', not a whole number; allowed: 1..1099511627776, in digits "
       "without a suffix"},
      {"sink(1.5)",
       "column 6: s of sink is '1.5', not a whole number; allowed: 1..1099511627776, in digits "
       "without a suffix"},
      {"window(1,2,3)", "column 12: '3' is one argument too many for window; allowed: w, l, r"},
      {"window(w=1,r=2)", "column 12: 'r' does not go with the other arguments of window"},
      {"window(width=1)", "column 8: 'width' is not an argument of window; allowed: w, l, r"},
      {"random(r=3,sed=7)",
       "column 12: 'sed' is not an argument of random; allowed: r, seed; did you mean 'seed'?"},
      {"dilated(w=1,w=2)", "column 13: w of dilated is given twice"},
      {"dilated(1,w=2)", "column 11: w of dilated is given twice"},
      {"dilated(w=1,2)",
       "column 13: '2' stands after a named argument of dilated; allowed: name=value"},
      {"dilated(1)", "column 1: dilated needs d, in 1..1099511627776"},
      {"random(1)", "column 1: random needs seed, in 0..18446744073709551615"},
      {"random(1,18446744073709551616)",
       "column 10: seed of random is 18446744073709551616; allowed: 0..18446744073709551615"},
      {"window(4,1)", "column 1: r of window is 1; allowed in a causal table: 0"},
      {"global(last=3)",
       "column 1: global(last=g) does not exist in a causal table; allowed: bidirectional tables"},
      {"fixed(4,5)", "column 9: c of fixed is 5; allowed: up to 4 (l)"},
      {"global(every=4,offset=4)",
       "column 23: offset of global is 4; allowed: up to 3 (every - 1)"},
      {"vertical_blocks(64,16,8,8)",
       "column 25: offset of vertical_blocks is 8; allowed: up to 7 (stride - 1, or head)"},
      {"vertical_blocks(64,16,8,haed)",
       "column 25: offset of vertical_blocks is 'haed'; allowed: 0..1099511627776 or head; did you "
       "mean 'head'?"},
      {"vertical_blocks(64,16,8,hea)",
       "column 25: offset of vertical_blocks is 'hea'; allowed: 0..1099511627776 or head; did you "
       "mean 'head'?"},
      {"topk_blocks(2,64,1,2)",
       "column 20: init + local of topk_blocks is 3; allowed: up to 2 (k)"},
      {"topk_blocks(2,64,3)", "column 18: init + local of topk_blocks is 4; allowed: up to 2 (k)"},
      {"topk_blocks(2,64,2)", "column 1: init + local of topk_blocks is 3; allowed: up to 2 (k)"},
      {"random_blocks(3,64,7,outside=full)",
       "column 30: outside of random_blocks is 'full'; allowed: window"},
      {"global()", "column 8: ')' stands here; allowed: a position, in 0..1099511627776"},
      {"global(3,x)",
       "column 10: position 'x' is not a whole number; allowed: 0..1099511627776, in digits "
       "without a suffix"},
      {"global(1099511627777)",
       "column 8: position 1099511627777 is out of range; allowed: 0..1099511627776"},
      {"global(token=)", "column 14: ')' stands here; allowed: a token, in 0..1099511627776"},
      {"global(fist=3)",
       "column 8: 'fist' is not an argument of global; allowed: first, last, every, offset, "
       "token; "
       "did you mean 'first'?"},
      {"global(first)",
       "column 8: 'first' is not an argument of global; allowed: positions, or one of first, last, "
       "every, offset, token by name; did you mean 'first'?"},
      {"heads", "column 6: the end stands here; allowed: '(' and the groups of heads"},
      {"heads(a: full)",
       "column 7: head 'a' is not a whole number; allowed: 0..65535, in digits without a suffix"},
      {"heads(: full)", "column 7: ':' stands here; allowed: a head, in 0..65535"},
      {"heads(65536: full)", "column 7: head 65536 is out of range; allowed: 0..65535"},
      {"heads(3-1: full)", "column 7: '3-1' falls; allowed: the smaller number first"},
      {"heads(0 full)", "column 9: 'full' stands here; allowed: ',', '-' or ':' and a union"},
      {"heads(0: full", "column 14: the end stands here; allowed: '+', ';' or ')'"},
      {"heads(0-1: full; 1: sink(1))", "column 1: head 1 is named twice"},
      {"heads(0,0: full)", "column 1: head 0 is named twice"},
      {"heads(0: full; 2: sink(1))",
       "column 1: head 1 is in no group; allowed: each of heads 0..2 in one group"},
      {"full, full", "column 5: ',' stands here; allowed: '+' or the end"},
      {"edges(é) windw", "column 7: cannot open './é': No such file or directory"},
      {"full é", "column 6: 'é' stands here; allowed: '+' or the end"},
      {"full \x01", "column 6: '\\x01' stands here; allowed: '+' or the end"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(refusal(text), "attend " + message) << text;
  }
}

TEST(AttendText, RefusesTermsOfTheOtherDirection) {
  EXPECT_EQ(refusal("window(4)", false),
            "attend column 1: window(w) counts the query itself and needs a causal table; here say "
            "window(l,r)");
  for (const std::string text :
       {"strided(4)", "fixed(4,1)", "vertical_blocks(1,1,1)", "topk(4)", "topk_blocks(4,1)"}) {
    const std::string name = text.substr(0, text.find('('));
    EXPECT_EQ(refusal("full+" + text, false),
              "attend column 6: " + name +
                  " does not exist in a bidirectional table; allowed: causal tables");
  }
}

TEST(AttendText, BoundsWhatItReads) {
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, ' ')),
            "attend has 1048577 bytes; allowed: up to 1048576");
  std::string terms = "full";
  for (int i = 0; i < 1024; ++i) terms += "+full";
  EXPECT_EQ(refusal(terms), "attend column 5121: a union has more than 1024 terms");
  std::string list = "global(0";
  for (int i = 0; i < 65536; ++i) list += ",0";
  EXPECT_EQ(refusal(list + ")"), "attend column 131080: a list has more than 65536 items");
  EXPECT_EQ(refusal("heads(0-65535,0: full)"),
            "attend column 15: a list has more than 65536 items");
}

TEST(AttendText, RefusesToPrintWhatCannotBeRead) {
  const auto printing = [](const Term& term) { return message_of([&] { to_text(term, true); }); };
  const auto list = std::make_shared<const EdgeList>();
  EXPECT_EQ(printing(Window{-1, 0}), "w of window is 0; allowed: 1..1099511627776");
  EXPECT_EQ(printing(Window{1, 1}), "r of window is 1; allowed in a causal table: 0");
  EXPECT_EQ(printing(GlobalPositions{}), "a list of global has 0 items; allowed in text: 1..65536");
  EXPECT_EQ(printing(GlobalPositions{{5, 3}}),
            "position 5 of global stands before 3; allowed: rising numbers");
  EXPECT_EQ(printing(GlobalTokens{{-2, 3}}),
            "token -2 of global is out of range; allowed: 0..1099511627776");
  EXPECT_EQ(printing(ExplicitEdges{"a", nullptr}), "edges has no list; allowed: one that was read");
  EXPECT_EQ(printing(ExplicitBlocks{"a", 1, nullptr}),
            "blocks has no list; allowed: one that was read");
  EXPECT_EQ(printing(ExplicitBlocks{"a", 0, list}),
            "block of blocks is 0; allowed: 1..1099511627776");
  EXPECT_EQ(printing(ExplicitEdges{"", list}), "edges has no file name");
  EXPECT_EQ(printing(ExplicitEdges{"a\n", list}),
            "file name 'a\\x0a' has a control character; allowed: printed ones");
  EXPECT_EQ(message_of([] { to_text(Attend{}, true); }), "no topology; allowed: at least one term");
  EXPECT_EQ(message_of([] { to_text(all_heads({}), true); }),
            "an empty union; allowed: at least one term");
  EXPECT_EQ(message_of([] { to_text(all_heads(Union(1025, Full{})), true); }),
            "a union has 1025 terms; allowed: up to 1024");
}

}  // namespace
}  // namespace lacuna

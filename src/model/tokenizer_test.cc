// The tokenizer on small vocabularies, right and wrong ones. The ids of real files are tested in
// tokenizer_reference_test.cc.
#include "lacuna/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>

#include "lacuna/error.h"
#include "model/tokenizer_file.h"

namespace lacuna::model_test {
namespace {

using Ids = std::vector<TokenId>;

constexpr EncodeOptions kPlain{false, false};

std::string error_of(const TokenizerFile& file) {
  try {
    (void)file.make();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).substr(0, 7), "a.gguf:");
    return error.what();
  }
  return "";
}
void expect_error(const TokenizerFile& file, const std::string& part) {
  EXPECT_NE(error_of(file).find(part), std::string::npos) << error_of(file);
}

// Byte-level: 0 to 255 are the bytes.
TokenizerFile words_file(std::string_view pre = "default") {
  TokenizerFile file = TokenizerFile::byte_level(pre);
  file.merge("h", "e").merge("l", "l").merge("he", "ll").merge("hell", "o");        // 256 to 259
  file.merge("\u0120", "hello");                                                    // 260: " hello"
  file.token("<end>", PieceType::kControl).token("<ending>", PieceType::kControl);  // 261, 262
  file.token("[tool]", PieceType::kUserDefined).token("to", PieceType::kUserDefined);  // 263, 264
  return file;
}

// SentencePiece: 0 is unknown, 1 to 256 are the bytes.
TokenizerFile pieces_file() {
  TokenizerFile file = TokenizerFile::sentence_piece();
  for (const char* text : {"t", "e", "x", "\u2581", "te", "xt", "text", "\u2581text"}) {
    file.token(text, PieceType::kNormal, static_cast<float>(std::string_view(text).size()));
  }                                                                                  // 257 to 264
  file.token("<pad>", PieceType::kControl).token("<eos>", PieceType::kControl);      // 265, 266
  file.token("  ", PieceType::kUserDefined).token("\n\n", PieceType::kUserDefined);  // 267, 268
  return file;
}

// --- byte-level ----------------------------------------------------------------------------------

TEST(ByteLevel, MergesByRankWithinAWord) {
  const Tokenizer tokenizer = words_file().make();
  EXPECT_EQ(tokenizer.encode("hello"), (Ids{259}));
  EXPECT_EQ(tokenizer.encode("hello hello"), (Ids{259, 260}));
  EXPECT_EQ(tokenizer.encode("hell"), (Ids{258}));
  EXPECT_EQ(tokenizer.encode("helo"), (Ids{256, 'l', 'o'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(ByteLevel, EqualMergesGoFromTheLeft) {
  TokenizerFile file = TokenizerFile::byte_level();
  file.merge("a", "a");
  EXPECT_EQ(file.make().encode("aaaaa"), (Ids{256, 256, 'a'}));
}

TEST(ByteLevel, TextsOfControlTokensAreTextUnlessAskedFor) {
  const Tokenizer tokenizer = words_file().make();
  EXPECT_EQ(tokenizer.encode("h<end>"), (Ids{'h', 261}));
  EXPECT_EQ(tokenizer.encode("h<end>", kPlain), (Ids{'h', '<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer.encode("<ending><end>"), (Ids{262, 261})) << "the longest one";
}

TEST(ByteLevel, UserDefinedPiecesAreAlwaysFoundAndTheLeftmostFirst) {
  const Tokenizer tokenizer = words_file().make();
  EXPECT_EQ(tokenizer.encode("a[tool]b", kPlain), (Ids{'a', 263, 'b'}));
  EXPECT_EQ(tokenizer.encode("tool", kPlain), (Ids{264, 'o', 'l'}));
  EXPECT_EQ(tokenizer.encode("[too", kPlain), (Ids{'[', 264, 'o'}));
}

TEST(ByteLevel, AddsWhatTheFileAsksFor) {
  TokenizerFile file = words_file();
  file.number("bos_token_id", 261).number("eos_token_id", 262);
  file.flag("add_bos_token", true).flag("add_eos_token", true);
  const Tokenizer tokenizer = file.make();
  EXPECT_EQ(tokenizer.encode("hello"), (Ids{261, 259, 262}));
  EXPECT_EQ(tokenizer.encode("hello", {false, true}), (Ids{259}));
  EXPECT_EQ(tokenizer.encode(""), (Ids{261, 262}));
  EXPECT_EQ(tokenizer.beginning(), 261);
  EXPECT_TRUE(tokenizer.ends(262));
  EXPECT_FALSE(tokenizer.ends(261));
}

TEST(ByteLevel, AWholeWordIsATokenWithLlama3) {
  // Without its merge, "of" is one token only where whole words are looked up.
  for (const auto& [pre, ids] : {std::pair{"llama-bpe", Ids{256}}, {"qwen2", Ids{'o', 'f'}}}) {
    TokenizerFile file = TokenizerFile::byte_level(pre);
    file.token("of").flag("add_bos_token", false);
    EXPECT_EQ(file.make().encode("of"), ids) << pre;
  }
}

TEST(ByteLevel, BytesThatAreNoUtf8GoAlone) {
  const Tokenizer tokenizer = words_file().make();
  for (const char* text :
       {"\xff", "\x80hello\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f\x98hello"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  const Tokenizer latin = [] {
    TokenizerFile file = TokenizerFile::byte_level();
    file.merge("\u00c3", "\u00a9").merge("h", "\u00c3\u00a9");
    return file.make();
  }();
  EXPECT_EQ(latin.encode("h\u00e9").size(), 1U);
  EXPECT_EQ(latin.encode("h\xc3").size(), 2U);
}

TEST(ByteLevel, AByteWithoutTokenIsLeftOut) {
  TokenizerFile file;
  file.text("model", "gpt2").token("a").token("b").merge("a", "b");
  EXPECT_EQ(file.make().encode("axb"), (Ids{2})) << "as in the reference";
}

TEST(ByteLevel, TokensStandForBytes) {
  const Tokenizer tokenizer = words_file().make();
  EXPECT_EQ(tokenizer.bytes_of(260), " hello");
  EXPECT_EQ(tokenizer.bytes_of(0xe9), "\xe9");
  EXPECT_EQ(tokenizer.bytes_of(261), "");
  EXPECT_EQ(tokenizer.bytes_of(261, true), "<end>");
  EXPECT_EQ(tokenizer.bytes_of(263), "[tool]");
  EXPECT_EQ(tokenizer.vocab_size(), 265);
  EXPECT_EQ(tokenizer.find("\u0120hello"), 260);
  EXPECT_EQ(tokenizer.find("none"), std::nullopt);
  EXPECT_THROW((void)tokenizer.bytes_of(-1), Error);
  EXPECT_THROW((void)tokenizer.bytes_of(265), Error);
}

// The definition, step by step: of all pairs that have a merge, the first in the file; of equal
// ones, the leftmost.
Ids merged_slowly(Ids ids, const std::vector<std::array<TokenId, 3>>& merges) {
  for (;;) {
    std::size_t best = merges.size();
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank][0] != ids[i] || merges[rank][1] != ids[i + 1]) continue;
        best = rank;
        place = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[place] = merges[best][2];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

RC_GTEST_PROP(ByteLevel, MergesAsTheDefinitionSays, ()) {
  TokenizerFile file = TokenizerFile::byte_level();
  std::vector<std::string> pieces = {"a", "b", "c"};
  std::vector<TokenId> piece_ids = {'a', 'b', 'c'};
  std::vector<std::array<TokenId, 3>> merges;
  const int num_merges = *rc::gen::inRange(0, 20);
  for (int i = 0; i < num_merges; ++i) {
    const auto left = *rc::gen::inRange<std::size_t>(0, pieces.size());
    const auto right = *rc::gen::inRange<std::size_t>(0, pieces.size());
    const std::string both = pieces[left] + pieces[right];
    if (std::find(pieces.begin(), pieces.end(), both) != pieces.end()) continue;
    file.merge(pieces[left], pieces[right]);
    const auto id = static_cast<TokenId>(256 + merges.size());
    merges.push_back({piece_ids[left], piece_ids[right], id});
    pieces.push_back(both);
    piece_ids.push_back(id);
  }
  const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  RC_ASSERT(file.make().encode(text, kPlain) ==
            merged_slowly(Ids(text.begin(), text.end()), merges));
}

TEST(ByteLevel, SpecialTextsInPlainPartsStayText) {
  const Tokenizer tokenizer = words_file().make();
  const auto encoded = [&](std::string_view text, const std::vector<Range>& plain) {
    return tokenizer.encode(text, {.add_special = false, .plain = plain});
  };
  const Ids text = tokenizer.encode("<end>", kPlain);
  const auto joined = [](std::initializer_list<Ids> parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  EXPECT_EQ(encoded("<end><end><end>", {{5, 10}}), joined({{261}, text, {261}}));
  EXPECT_EQ(encoded("<end><end><end>", {{0, 5}, {5, 10}}), joined({text, text, {261}}));
  EXPECT_EQ(encoded("<end>", {}), (Ids{261}));
  EXPECT_EQ(encoded("<end>", {{0, 0}, {5, 5}}), (Ids{261}));
  for (std::int64_t at = 0; at < 5; ++at) EXPECT_EQ(encoded("<end>", {{at, at + 1}}), text) << at;
  // A shorter one that ends before the plain part is one.
  EXPECT_EQ(encoded("<end>hello<ending>", {{5, 10}}), (Ids{261, 259, 262}));
  // User-defined pieces are found everywhere, also where a part ends in them.
  EXPECT_EQ(encoded("<end>[tool]", {{5, 11}}), (Ids{261, 263}));
  EXPECT_EQ(encoded("[tool]<end>", {{0, 3}}), (Ids{263, 261}));
}

TEST(ByteLevel, RefusesPlainPartsThatAreNotInTheTextOrNotAscending) {
  const Tokenizer tokenizer = words_file().make();
  for (const std::vector<Range>& plain :
       {std::vector<Range>{{-1, 2}}, {{2, 1}}, {{0, 6}}, {{2, 3}, {1, 4}}}) {
    EXPECT_THROW((void)tokenizer.encode("hello", {.plain = plain}), Error);
  }
}

RC_GTEST_PROP(ByteLevel, WithoutSpecialTextsPlainPartsChangeNothing, ()) {
  const Tokenizer tokenizer = words_file().make();
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("hello", " ", "[tool]", "to", "<en", "ding", "\n", "h"));
  std::string text;
  for (const std::string& part : parts) text += part;
  const auto size = static_cast<std::int64_t>(text.size());
  const auto begin = *rc::gen::inRange<std::int64_t>(0, size + 1);
  const std::vector<Range> plain = {{begin, *rc::gen::inRange<std::int64_t>(begin, size + 1)}};
  RC_ASSERT(tokenizer.encode(text, {.add_special = false, .plain = plain}) ==
            tokenizer.encode(text, kPlain));
}

// --- SentencePiece -------------------------------------------------------------------------------

TEST(SentencePiece, MergesByScoreAndFallsBackToBytes) {
  TokenizerFile file = pieces_file();
  file.flag("add_space_prefix", false);
  const Tokenizer tokenizer = file.make();
  EXPECT_EQ(tokenizer.encode("text"), (Ids{263}));
  EXPECT_EQ(tokenizer.encode(" text"), (Ids{264}));
  EXPECT_EQ(tokenizer.encode("a\n"), (Ids{1 + 'a', 1 + '\n'}));
  EXPECT_EQ(tokenizer.encode("text\n\n  te"), (Ids{263, 268, 267, 261}));
  EXPECT_EQ(tokenizer.encode("\xff"
                             "text\xc3"),
            (Ids{1 + 0xff, 263, 1 + 0xc3}));
  EXPECT_EQ(tokenizer.decode(Ids{264, 267, 1 + 0xe2, 1 + 0x82, 1 + 0xac}), " text  \u20ac");
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(SentencePiece, O77NoSpaceIsAddedAfterASpecialToken) {
  TokenizerFile prefixed = pieces_file();
  prefixed.flag("add_space_prefix", true);
  TokenizerFile bare = pieces_file();
  bare.flag("add_space_prefix", false);
  for (const TokenizerFile& file : {prefixed, bare}) {
    const Tokenizer tokenizer = file.make();
    EXPECT_EQ(tokenizer.encode("<pad>text<eos>"), (Ids{265, 263, 266}));
    EXPECT_EQ(tokenizer.decode(Ids{265, 263, 266}, true), "<pad>text<eos>");
  }
  EXPECT_EQ(prefixed.make().encode("text<eos>text"), (Ids{264, 266, 263}));
  EXPECT_EQ(bare.make().encode("text<eos>text"), (Ids{263, 266, 263}));
}

TEST(SentencePiece, TheSpaceThatWasAddedIsTakenOff) {
  TokenizerFile file = pieces_file();  // a file that is silent asks for the space
  file.number("bos_token_id", 265);
  const Tokenizer silent = file.make();
  EXPECT_EQ(silent.encode("text"), (Ids{264}));
  EXPECT_EQ(silent.decode(Ids{264}), "text");
  EXPECT_EQ(silent.decode(Ids{263}), "text");
  EXPECT_EQ(silent.decode(silent.encode("  text")), "  text");
  EXPECT_EQ(silent.encode(""), Ids{});
  for (const std::string text : {"<pad> text", "text", " text", " <eos> text"}) {
    EXPECT_EQ(silent.decode(silent.encode(text), true), text);
  }
}

TEST(SentencePiece, TheBeginningIsAddedWhereTheFileIsSilent) {
  TokenizerFile file = TokenizerFile::sentence_piece(Additions::kSilent);
  expect_error(file, "bos_token_id: absent, though the beginning is added");
  file.token("<s>", PieceType::kControl).token("\u2581").number("bos_token_id", 257);
  EXPECT_EQ(file.make().encode("a"), (Ids{257, 258, 1 + 'a'}));
}

// --- both ----------------------------------------------------------------------------------------

std::string utf8(std::uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

rc::Gen<std::string> any_text() {
  const auto code = rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 0x80),
                                   rc::gen::element<std::uint32_t>(' ', '\n', 'e', 't'),
                                   rc::gen::inRange<std::uint32_t>(0x80, 0xd800),
                                   rc::gen::inRange<std::uint32_t>(0xe000, 0x110000));
  const auto allowed = rc::gen::suchThat(code, [](std::uint32_t c) { return c != 0x2581; });
  return rc::gen::map(rc::gen::container<std::vector<std::uint32_t>>(allowed),
                      [](const std::vector<std::uint32_t>& codes) {
                        std::string text;
                        for (const std::uint32_t c : codes) text += utf8(c);
                        return text;
                      });
}

// SentencePiece's visible space is left out: to it, that is a space.
RC_GTEST_PROP(BothFamilies, DecodingGivesTheTextBack, ()) {
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> out;
    for (const char* pre : {"default", "smollm", "llama-bpe", "qwen2"}) {
      out.push_back(words_file(pre).flag("add_bos_token", false).make());
    }
    out.push_back(pieces_file().make());
    out.push_back(pieces_file().flag("add_space_prefix", false).make());
    return out;
  }();
  const std::string text = *any_text();
  for (const Tokenizer& tokenizer : tokenizers) {
    const Ids ids = tokenizer.encode(text, kPlain);
    RC_ASSERT(tokenizer.decode(ids) == text);
  }
}

TEST(BothFamilies, ATextTooLongToCountIsRefused) {
  const std::size_t size = (std::size_t{1} << 30) + 1;
  // Memory that is never touched and so never there.
  const std::unique_ptr<void, decltype(&std::free)> text(std::calloc(size, 1), &std::free);
  ASSERT_NE(text, nullptr);
  EXPECT_THROW((void)words_file().make().encode({static_cast<const char*>(text.get()), size}),
               Error);
}

TEST(BothFamilies, EndsAreKnownByIdAndByText) {
  TokenizerFile file = words_file();
  file.number("eot_token_id", 262).token("<|im_end|>", PieceType::kControl).token("<end_of_turn>");
  const Tokenizer tokenizer = file.make();
  EXPECT_TRUE(tokenizer.ends(262));
  EXPECT_TRUE(tokenizer.ends(265));
  EXPECT_FALSE(tokenizer.ends(266)) << "a piece of text, no control token";
}

// --- hostile metadata ----------------------------------------------------------------------------

TEST(HostileTokenizer, UnknownKindsAreRefusedByName) {
  expect_error(TokenizerFile().token("a"), "tokenizer.ggml.model: absent");
  expect_error(TokenizerFile().text("model", "bert").token("a"), "'bert'; allowed are gpt2");
  expect_error(TokenizerFile().number("model", 1).token("a"), "one uint32; allowed is one string");
  expect_error(TokenizerFile::byte_level("tekken"),
               "'tekken'; known are default, gpt-2, smollm, llama-bpe, qwen2");
}

TEST(HostileTokenizer, PiecesAreCheckedOneByOne) {
  expect_error(TokenizerFile().text("model", "gpt2"), "0 of them");
  expect_error(words_file().token(""), "token 265 has no text");
  expect_error(words_file().token("\xff"), "token 265 is no UTF-8");
  expect_error(words_file().token("hello"), "tokens 259 and 265 are both 'hello'");
  expect_error(TokenizerFile().text("model", "gpt2").token("\u4e00"), "no token stands for a byte");
  TokenizerFile typed = words_file();
  typed.types()[3] = 7;
  expect_error(typed, "token 3 has type 7; allowed are 1 to 6");
}

TEST(HostileTokenizer, MergesNameTokens) {
  expect_error(words_file().merge_text("ab"), "item 5: allowed are two tokens");
  expect_error(words_file().merge_text("a b c"), "item 5: allowed are two tokens");
  expect_error(words_file().merge_text("a "), "item 5: it names a token");
  expect_error(words_file().merge_text("a b"), "item 5: it names a token");
  expect_error(words_file().merge_text("nope a"), "item 5: it names a token");
}

TEST(HostileTokenizer, ByteLevelNeedsMerges) {
  const std::vector<std::uint8_t> bytes = words_file().bytes();
  GgufHeader header = read_gguf_header(bytes, "a.gguf");
  std::erase_if(header.entries, [](const auto& e) { return e.key == "tokenizer.ggml.merges"; });
  try {
    (void)Tokenizer(bytes, header, "a.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a.gguf: tokenizer.ggml.merges: allowed is an array of texts");
  }
}

TEST(HostileTokenizer, IdsAndFlagsAreChecked) {
  expect_error(words_file().number("eos_token_id", 265), "265; allowed are 0 to 264");
  expect_error(words_file().number("bos_token_id", 0xffffffffU), "4294967295; allowed are");
  expect_error(words_file().text("eos_token_id", "2"), "one string; allowed is one uint32");
  expect_error(words_file().number("add_bos_token", 1), "one uint32; allowed is one bool");
  expect_error(words_file().flag("add_bos_token", true), "bos_token_id: absent");
  expect_error(words_file().flag("add_eos_token", true), "eos_token_id: absent");
  expect_error(words_file().flag("add_space_prefix", true), "only false is known");
}

TEST(HostileTokenizer, O74ListsHaveTheirTypeAndLength) {
  const std::vector<std::uint8_t> whole = pieces_file().bytes();
  // A header that did not come from read_gguf_header's checks must not be trusted either.
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    GgufHeader header = read_gguf_header(whole, "a.gguf");
    for (GgufEntry& entry : header.entries) {
      if (entry.key == key) entry.type = GgufType::kUint8;
    }
    EXPECT_THROW(Tokenizer(whole, header, "a.gguf"), Error) << key;
    header = read_gguf_header(whole, "a.gguf");
    for (GgufEntry& entry : header.entries) {
      if (entry.key == key) --entry.count;
    }
    EXPECT_THROW(Tokenizer(whole, header, "a.gguf"), Error) << key;
  }
}

TEST(HostileTokenizer, SentencePieceGetsOnlyWhatItTakes) {
  TokenizerFile scored = pieces_file();
  scored.scores()[260] = std::numeric_limits<float>::quiet_NaN();
  expect_error(scored, "scores: token 260 has nan");
  TokenizerFile unknown = pieces_file();
  unknown.types()[0] = 1;
  expect_error(unknown, "0 tokens are the unknown one");
  expect_error(pieces_file().token("?", PieceType::kUnknown), "2 tokens are the unknown one");
  TokenizerFile bytes = pieces_file();
  bytes.types()[10] = 1;
  expect_error(bytes, "255 tokens of type 6");
  expect_error(pieces_file().token("<0x1>", PieceType::kByte), "257 tokens of type 6");
  expect_error(pieces_file().token("\u2581\u2581"), "is another one with its spaces made visible");
  expect_error(pieces_file().token(std::string("a\0b", 3)), "token 269 holds a zero byte");
  // The id marks the unknown token too.
  TokenizerFile by_id = pieces_file();
  by_id.types()[0] = static_cast<std::uint32_t>(PieceType::kControl);
  EXPECT_EQ(error_of(by_id.number("unknown_token_id", 0)), "");
}

// --- TextStream ----------------------------------------------------------------------------------

// What comes out of each byte of a text, between bars.
std::string streamed(const std::string& bytes) {
  const Tokenizer tokenizer = words_file().make();
  TextStream stream(tokenizer);
  std::string out;
  for (const char c : bytes) out += stream.push(static_cast<std::uint8_t>(c)) + "|";
  return out + stream.finish();
}

TEST(TextStreams, O79HoldACharacterBackUntilItIsWhole) {
  EXPECT_EQ(streamed("a\U0001f642b"), "a||||\U0001f642|b|");
  EXPECT_EQ(streamed("\u00e9\u20ac"), "|\u00e9|||\u20ac|");
  EXPECT_EQ(streamed(""), "");
}

TEST(TextStreams, O79EndInsideACharacterWithOneReplacement) {
  EXPECT_EQ(streamed("a\xf0\x9f\x99"), "a||||\ufffd");
  EXPECT_EQ(streamed("\xc3"), "|\ufffd");
}

TEST(TextStreams, ReplaceWhatCanBeNoCharacter) {
  EXPECT_EQ(streamed("\xff"
                     "a"),
            "\ufffd|a|");
  EXPECT_EQ(streamed("\xc0\xaf"), "\ufffd|\ufffd|") << "overlong";
  EXPECT_EQ(streamed("\xed\xa0\x80"), "|\ufffd\ufffd|\ufffd|") << "a surrogate";
  EXPECT_EQ(streamed("\xf0\x9f"
                     "a"),
            "||\ufffd"
            "a|")
      << "cut short";
  EXPECT_EQ(streamed("\xf4\x90\x80\x80"), "|\ufffd\ufffd|\ufffd|\ufffd|") << "past U+10FFFF";
  EXPECT_EQ(streamed("\xe2\x82\xe2\x82\xac"), "||\ufffd||\u20ac|");
}

TEST(TextStreams, KeepTheSpaceOfATextThatGoesOn) {
  const Tokenizer tokenizer = pieces_file().make();
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.push(264), " text");
  EXPECT_EQ(stream.push(265), "") << "a control token";
  TextStream special(tokenizer, true);
  EXPECT_EQ(special.push(265), "<pad>");
  EXPECT_THROW((void)stream.push(-1), Error);
}

RC_GTEST_PROP(TextStreams, GiveTheWholeTextInWholeCharacters, ()) {
  static const Tokenizer tokenizer = words_file().make();
  const std::string text = *any_text();
  TextStream stream(tokenizer);
  std::string out;
  for (const TokenId id : tokenizer.encode(text, kPlain)) {
    const std::string part = stream.push(id);
    RC_ASSERT(part.empty() || (static_cast<std::uint8_t>(part[0]) & 0xc0) != 0x80);
    out += part;
  }
  out += stream.finish();
  RC_ASSERT(out == text);
}

}  // namespace
}  // namespace lacuna::model_test

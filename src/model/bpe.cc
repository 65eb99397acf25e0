#include "model/bpe.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>

#include "lacuna/error.h"

namespace lacuna::model {
namespace {

// Patterns write \s inside brackets only. PCRE2's own \s also takes U+180E, which is no space to
// the tokenizers that the merges were learned with.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s])|[\s]+)";
constexpr std::string_view kEachDigit = R"(\p{N})";
constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

struct PreTokenizer {
  std::string_view name;
  std::vector<std::string_view> patterns;
  bool whole_words = false;
};

// A name is here only if ids with it are tested against its reference.
const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> rows = {
      {"default", {kGpt2Words}},
      {"gpt-2", {kGpt2Words}},
      {"smollm", {kEachDigit, kGpt2Words}},
      {"llama-bpe", {kLlama3Words}, true},
      {"qwen2", {kQwen2Words}},
  };
  return rows;
}

const PreTokenizer& find_pre_tokenizer(const Vocabulary& vocabulary) {
  std::string known;
  for (const PreTokenizer& row : pre_tokenizers()) {
    if (row.name == vocabulary.pre) return row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  throw Error(fmt::format("{}: tokenizer.ggml.pre: '{}'; known are {}", vocabulary.file,
                          vocabulary.pre, known));
}

std::string byte_level_piece(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) piece += byte_level_characters()[static_cast<std::uint8_t>(c)];
  return piece;
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

// --- patterns ------------------------------------------------------------------------------------

class BytePairEncoder::Pattern {
 public:
  explicit Pattern(std::string_view pattern) {
    const std::string text = replaced(pattern, "\\s", kSpaces);
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
    if (code_ == nullptr) throw Error(fmt::format("pattern {}: error {} at {}", text, error, at));
    // Where the system forbids it, pcre2_match interprets.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  // The first match in text from `from` on; [size, size) where there is none.
  std::pair<std::size_t, std::size_t> next(std::string_view text, std::size_t from,
                                           pcre2_match_data* match) const {
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), from, PCRE2_NO_UTF_CHECK, match, context());
    if (result == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (result < 0) throw Error(fmt::format("cutting a text into words: PCRE2 error {}", result));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
    return {ends[0], ends[1]};
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  // PCRE2 gives up after ten million steps, which a long run of spaces takes; the patterns are ours
  // and go over a run a fixed number of times.
  static pcre2_match_context* context() {
    static const std::unique_ptr<pcre2_match_context, Free> unlimited = [] {
      std::unique_ptr<pcre2_match_context, Free> out(pcre2_match_context_create(nullptr));
      pcre2_set_match_limit(out.get(), UINT32_MAX);
      return out;
    }();
    return unlimited.get();
  }

  std::unique_ptr<pcre2_code, Free> code_;
};

// --- words ---------------------------------------------------------------------------------------

// The pieces of the word at hand and the pairs that may be merged, with their memory kept from word
// to word.
struct BytePairEncoder::Word {
  struct Symbol {
    TokenId id;
    std::int32_t left;  // neighbours; -1 at the ends
    std::int32_t right;
  };
  struct Pair {
    std::int32_t rank;
    std::int32_t place;  // of its left symbol
    TokenId left;
    TokenId right;
    TokenId merged;
    // Of a heap whose top is the first merge, and of equal ones the leftmost.
    bool operator<(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };

  std::vector<TokenId>& out;
  std::vector<Symbol> symbols;
  std::vector<Pair> heap;
  std::unique_ptr<pcre2_match_data, Free> match{pcre2_match_data_create(1, nullptr)};

  Symbol& at(std::int32_t place) { return symbols[static_cast<std::size_t>(place)]; }
};

BytePairEncoder::BytePairEncoder(const Vocabulary& vocabulary,
                                 const std::vector<std::string_view>& merges)
    : vocabulary_(&vocabulary) {
  const PreTokenizer& pre = find_pre_tokenizer(vocabulary);
  for (const std::string_view pattern : pre.patterns) patterns_.emplace_back(pattern);
  whole_words_ = pre.whole_words;
  read_merges(merges);
}

BytePairEncoder::~BytePairEncoder() = default;
BytePairEncoder::BytePairEncoder(BytePairEncoder&&) noexcept = default;

void BytePairEncoder::read_merges(const std::vector<std::string_view>& merges) {
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const auto fail = [&](const std::string& what) {
      throw Error(
          fmt::format("{}: tokenizer.ggml.merges: item {}: {}", vocabulary_->file, rank, what));
    };
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      fail("allowed are two tokens with one space between");
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    std::string both(left);
    both += right;
    const TokenId ids[] = {vocabulary_->find(left), vocabulary_->find(right),
                           vocabulary_->find(both)};
    if (std::find(std::begin(ids), std::end(ids), kNoToken) != std::end(ids)) {
      fail("it names a token that is not in the vocabulary, or makes one");
    }
    // Of equal ones the last counts, as in the reference.
    merges_[pair_key(ids[0], ids[1])] = {static_cast<std::int32_t>(rank), ids[2]};
  }
}

void BytePairEncoder::encode(std::string_view text, std::vector<TokenId>& out) const {
  Word word{out, {}, {}};
  cut(text, 0, word);
}

// What a pattern matches is a word, and so is what lies between matches.
void BytePairEncoder::cut(std::string_view text, std::size_t pattern_idx, Word& word) const {
  if (pattern_idx == patterns_.size()) {
    encode_word(text, word);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto [begin, end] = patterns_[pattern_idx].next(text, at, word.match.get());
    if (begin > at) cut(text.substr(at, begin - at), pattern_idx + 1, word);
    if (end > begin) cut(text.substr(begin, end - begin), pattern_idx + 1, word);
    at = end;
  }
}

void BytePairEncoder::encode_word(std::string_view text, Word& word) const {
  const TokenId whole = whole_words_ ? vocabulary_->find(byte_level_piece(text)) : kNoToken;
  if (whole != kNoToken) {
    word.out.push_back(whole);
    return;
  }
  word.symbols.clear();
  for (const char c : text) {
    const TokenId id = vocabulary_->byte_ids[static_cast<std::uint8_t>(c)];
    if (id == kNoToken) continue;
    const auto place = static_cast<std::int32_t>(word.symbols.size());
    word.symbols.push_back({id, place - 1, place + 1});
  }
  if (word.symbols.empty()) return;
  word.symbols.back().right = -1;
  merge(word);
  for (std::int32_t i = 0; i >= 0; i = word.at(i).right) word.out.push_back(word.at(i).id);
}

void BytePairEncoder::merge(Word& word) const {
  word.heap.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(word.symbols.size()); ++i) {
    push_pair(word, i);
  }
  while (!word.heap.empty()) {
    std::pop_heap(word.heap.begin(), word.heap.end());
    const Word::Pair pair = word.heap.back();
    word.heap.pop_back();
    Word::Symbol& left = word.at(pair.place);
    // A pair is stale once one of its symbols was merged with another neighbour.
    if (left.id != pair.left || left.right < 0 || word.at(left.right).id != pair.right) continue;
    Word::Symbol& right = word.at(left.right);
    left.id = pair.merged;
    right.id = kNoToken;
    left.right = right.right;
    if (left.right >= 0) word.at(left.right).left = pair.place;
    if (left.left >= 0) push_pair(word, left.left);
    push_pair(word, pair.place);
  }
}

// The pair of the symbol at `left` and its right neighbour, where it has a merge.
void BytePairEncoder::push_pair(Word& word, std::int32_t left) const {
  const Word::Symbol& symbol = word.at(left);
  if (symbol.right < 0) return;
  const TokenId right = word.at(symbol.right).id;
  const auto merge = merges_.find(pair_key(symbol.id, right));
  if (merge == merges_.end()) return;
  word.heap.push_back({merge->second.rank, left, symbol.id, right, merge->second.id});
  std::push_heap(word.heap.begin(), word.heap.end());
}

}  // namespace lacuna::model

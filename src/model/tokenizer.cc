#include "lacuna/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "lacuna/error.h"
#include "model/bpe.h"
#include "model/piece_finder.h"
#include "model/sentencepiece.h"
#include "model/utf8.h"
#include "model/vocabulary.h"

namespace lacuna {
namespace {

using model::BytePairEncoder;
using model::kNoToken;
using model::PieceFinder;
using model::PieceType;
using model::SentencePieceEncoder;
using model::TokenizerFamily;
using model::Utf8Head;
using model::Utf8Kind;
using model::Vocabulary;

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // the encoders count in 32 bits
constexpr std::string_view kReplacement = "\ufffd";

using Encoder = std::variant<BytePairEncoder, SentencePieceEncoder>;

Encoder make_encoder(const Vocabulary& vocabulary, std::span<const std::uint8_t> bytes,
                     const GgufHeader& header) {
  if (vocabulary.family == TokenizerFamily::kSentencePiece) {
    return SentencePieceEncoder(vocabulary);
  }
  const GgufEntry* merges = header.find("tokenizer.ggml.merges");
  if (merges == nullptr || !merges->is_array || merges->type != GgufType::kString) {
    throw Error(
        fmt::format("{}: tokenizer.ggml.merges: allowed is an array of texts", vocabulary.file));
  }
  return BytePairEncoder(vocabulary, gguf_texts(bytes, *merges));
}

bool is_special(PieceType type) {
  return type == PieceType::kControl || type == PieceType::kUnknown;
}

// The SentencePiece library finds user-defined pieces itself, after it has made spaces visible.
PieceFinder make_finder(const Vocabulary& vocabulary, bool special) {
  const bool user_defined = vocabulary.family == TokenizerFamily::kByteLevel;
  std::vector<std::pair<std::string_view, TokenId>> pieces;
  for (TokenId id = 0; id < static_cast<TokenId>(vocabulary.pieces.size()); ++id) {
    const PieceType type = vocabulary.type(id);
    if ((special && is_special(type)) || (user_defined && type == PieceType::kUserDefined)) {
      pieces.emplace_back(vocabulary.piece(id), id);
    }
  }
  return PieceFinder(std::move(pieces));
}

// The pieces of a text from left to right: special ones outside of what is plain, others anywhere.
class PieceWalk {
 public:
  using Found = PieceFinder::Found;

  PieceWalk(const PieceFinder& always, const PieceFinder& with_special, std::string_view text,
            const EncodeOptions& options)
      : always_(always), with_special_(with_special), text_(text), options_(options) {
    std::int64_t before = 0;
    for (const Range& range : options.plain) {
      if (before <= range.begin && range.begin <= range.end && range.end <= std::ssize(text)) {
        before = range.end;
        continue;
      }
      throw Error(fmt::format("plain are bytes {}..{} of {}; allowed: ascending ranges of the text",
                              range.begin, range.end, text.size()));
    }
  }

  std::optional<Found> next(std::size_t from) {
    if (!options_.parse_special) return always_.next(text_, from);
    if (options_.plain.empty()) return with_special_.next(text_, from);
    // What was found and not yet passed is not searched for again: no byte is read twice.
    if (!special_ || special_->begin < from) special_ = next_special(from).value_or(kNone);
    if (!other_ || other_->begin < from) other_ = always_.next(text_, from).value_or(kNone);
    const Found& first = special_->begin <= other_->begin ? *special_ : *other_;
    return first.id == kNoToken ? std::nullopt : std::optional(first);
  }

 private:
  static constexpr Found kNone = {kNoToken, std::string_view::npos, std::string_view::npos};

  std::optional<Found> next_special(std::size_t from) const {
    for (const Range& range : options_.plain) {
      const auto begin = static_cast<std::size_t>(range.begin);
      if (const auto found = with_special_.next(text_.substr(0, begin), from)) return found;
      from = std::max(from, static_cast<std::size_t>(range.end));
    }
    return with_special_.next(text_, from);
  }

  const PieceFinder& always_;
  const PieceFinder& with_special_;
  std::string_view text_;
  const EncodeOptions& options_;
  std::optional<Found> special_;
  std::optional<Found> other_;
};

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Encoder encoder;
  PieceFinder always;
  PieceFinder with_special;

  State(std::span<const std::uint8_t> bytes, const GgufHeader& header, const std::string& name)
      : vocabulary(bytes, header, name),
        encoder(make_encoder(vocabulary, bytes, header)),
        always(make_finder(vocabulary, false)),
        with_special(make_finder(vocabulary, true)) {}

  void encode_stretch(std::string_view text, std::vector<TokenId>& out) const;
};

// Characters go to the encoder; bytes that are none go alone.
void Tokenizer::State::encode_stretch(std::string_view text, std::vector<TokenId>& out) const {
  while (!text.empty()) {
    const std::size_t characters = model::utf8_length(text);
    if (characters > 0) {
      std::visit([&](const auto& with) { with.encode(text.substr(0, characters), out); }, encoder);
      text.remove_prefix(characters);
    } else {
      const TokenId id = vocabulary.byte_ids[static_cast<std::uint8_t>(text[0])];
      if (id != kNoToken) out.push_back(id);
      text.remove_prefix(1);
    }
  }
}

Tokenizer::Tokenizer(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                     const std::string& name)
    : state_(std::make_unique<State>(bytes, header, name)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    throw Error(
        fmt::format("a text of {} bytes to encode; allowed are {}", text.size(), kMaxTextBytes));
  }
  const Vocabulary& words = state_->vocabulary;
  PieceWalk walk(state_->always, state_->with_special, text, options);
  std::vector<TokenId> out;
  if (options.add_special && words.add_beginning) out.push_back(*words.beginning);
  std::string stretch;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = walk.next(at);
    const std::size_t end = found ? found->begin : text.size();
    stretch = text.substr(at, end - at);
    // Only before the text as a whole: after a special token the text goes on as it is.
    if (words.add_space_prefix && at == 0 && end > 0) stretch.insert(0, 1, ' ');
    state_->encode_stretch(stretch, out);
    if (found) out.push_back(found->id);
    at = found ? found->end : end;
  }
  if (options.add_special && words.add_end) out.push_back(*words.end);
  return out;
}

std::string Tokenizer::bytes_of(TokenId id, bool special) const {
  const Vocabulary& words = state_->vocabulary;
  if (id < 0 || id >= vocab_size()) {
    throw Error(fmt::format("{}: token {}; allowed are 0 to {}", words.file, id, vocab_size() - 1));
  }
  const std::string& piece = words.piece(id);
  const PieceType type = words.type(id);
  if (is_special(type)) return special ? piece : "";
  if (words.family == TokenizerFamily::kByteLevel) {
    return type == PieceType::kUserDefined ? piece : model::byte_level_bytes(piece);
  }
  if (type == PieceType::kByte) {
    const auto byte = std::find(words.byte_ids.begin(), words.byte_ids.end(), id);
    return {static_cast<char>(byte - words.byte_ids.begin())};
  }
  return model::replaced(piece, model::kVisibleSpace, " ");
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  const Vocabulary& words = state_->vocabulary;
  // Where encode() put a space: before the text, after the beginning that it added itself.
  const bool begun = words.add_beginning && !ids.empty() && ids[0] == *words.beginning;
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = bytes_of(ids[i], special);
    const bool added = words.add_space_prefix && i == (begun ? 1 : 0) &&
                       !is_special(words.type(ids[i])) && !bytes.empty() && bytes[0] == ' ';
    out += std::string_view(bytes).substr(added ? 1 : 0);
  }
  return out;
}

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(state_->vocabulary.pieces.size());
}
std::optional<TokenId> Tokenizer::beginning() const { return state_->vocabulary.beginning; }
std::optional<TokenId> Tokenizer::find(std::string_view piece) const {
  const TokenId id = state_->vocabulary.find(piece);
  return id == kNoToken ? std::nullopt : std::optional(id);
}
bool Tokenizer::ends(TokenId id) const {
  const auto& ends = state_->vocabulary.ends;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

// --- TextStream ----------------------------------------------------------------------------------

TextStream::TextStream(const Tokenizer& tokenizer, bool special)
    : tokenizer_(&tokenizer), special_(special) {}

std::string TextStream::push(TokenId id) {
  held_ += tokenizer_->bytes_of(id, special_);
  std::string out;
  std::string_view left = held_;
  while (!left.empty()) {
    const Utf8Head head = model::utf8_head(left);
    if (head.kind == Utf8Kind::kIncomplete) break;
    out += head.kind == Utf8Kind::kCharacter ? left.substr(0, head.size) : kReplacement;
    left.remove_prefix(head.size);
  }
  held_ = std::string(left);
  return out;
}

std::string TextStream::finish() {
  const bool is_cut = !held_.empty();
  held_.clear();
  return is_cut ? std::string(kReplacement) : "";
}

}  // namespace lacuna

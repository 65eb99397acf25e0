#include "model/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lacuna/error.h"
#include "model/utf8.h"

namespace lacuna::model {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 24;

// The metadata under "tokenizer.ggml.", with the types that the format gives them.
class TokenizerKeys {
 public:
  TokenizerKeys(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                const std::string& file)
      : bytes_(bytes), header_(header), file_(file) {}

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw Error(fmt::format("{}: tokenizer.ggml.{}: {}", file_, key, what));
  }
  const GgufEntry* find(std::string_view key) const {
    return header_.find(fmt::format("tokenizer.ggml.{}", key));
  }
  const GgufEntry* list(std::string_view key, std::initializer_list<GgufType> types) const {
    return typed(key, true, types);
  }
  std::optional<std::string> text(std::string_view key) const {
    const GgufEntry* entry = typed(key, false, {GgufType::kString});
    if (entry == nullptr) return std::nullopt;
    return std::string(gguf_texts(bytes_, *entry).front());
  }
  bool flag(std::string_view key, bool otherwise) const {
    const GgufEntry* entry = typed(key, false, {GgufType::kBool});
    return entry == nullptr ? otherwise : gguf_integer(bytes_, *entry) != 0;
  }
  std::optional<TokenId> id(std::string_view key, std::size_t num_tokens) const {
    const GgufEntry* entry =
        typed(key, false,
              {GgufType::kUint32, GgufType::kInt32, GgufType::kUint64, GgufType::kInt64,
               GgufType::kUint16, GgufType::kInt16, GgufType::kUint8, GgufType::kInt8});
    if (entry == nullptr) return std::nullopt;
    const std::int64_t id = gguf_integer(bytes_, *entry);
    if (id < 0 || id >= static_cast<std::int64_t>(num_tokens)) {
      fail(key, fmt::format("{}; allowed are 0 to {}", id, num_tokens - 1));
    }
    return static_cast<TokenId>(id);
  }

 private:
  const GgufEntry* typed(std::string_view key, bool is_array,
                         std::initializer_list<GgufType> types) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) return nullptr;
    if (entry->is_array != is_array ||
        std::find(types.begin(), types.end(), entry->type) == types.end()) {
      fail(key, fmt::format("{} {}; allowed is {} {}", entry->is_array ? "an array of" : "one",
                            to_string(entry->type), is_array ? "an array of" : "one",
                            to_string(*types.begin())));
    }
    return entry;
  }

  std::span<const std::uint8_t> bytes_;
  const GgufHeader& header_;
  const std::string& file_;
};

TokenizerFamily read_family(const TokenizerKeys& keys) {
  const std::optional<std::string> model = keys.text("model");
  if (!model) keys.fail("model", "absent; allowed are gpt2 and llama");
  if (*model == "gpt2") return TokenizerFamily::kByteLevel;
  if (*model == "llama") return TokenizerFamily::kSentencePiece;
  keys.fail(
      "model",
      fmt::format("'{}'; allowed are gpt2 (byte-level BPE) and llama (SentencePiece)", *model));
}

std::vector<std::string> read_pieces(const TokenizerKeys& keys,
                                     std::span<const std::uint8_t> bytes) {
  const GgufEntry* entry = keys.list("tokens", {GgufType::kString});
  if (entry == nullptr) keys.fail("tokens", "absent");
  if (entry->count < 1 || entry->count > kMaxTokens) {
    keys.fail("tokens", fmt::format("{} of them; allowed are 1 to {}", entry->count, kMaxTokens));
  }
  const std::vector<std::string_view> texts = gguf_texts(bytes, *entry);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) keys.fail("tokens", fmt::format("token {} has no text", i));
    if (utf8_length(texts[i]) != texts[i].size()) {
      keys.fail("tokens", fmt::format("token {} is no UTF-8", i));
    }
  }
  return {texts.begin(), texts.end()};
}

std::vector<PieceType> read_types(const TokenizerKeys& keys, std::span<const std::uint8_t> bytes,
                                  std::size_t num_tokens) {
  std::vector<PieceType> types(num_tokens, PieceType::kNormal);
  const GgufEntry* entry = keys.list("token_type", {GgufType::kInt32, GgufType::kUint32});
  if (entry == nullptr) return types;
  if (entry->count != static_cast<std::int64_t>(num_tokens)) {
    keys.fail("token_type", fmt::format("{} items for {} tokens", entry->count, num_tokens));
  }
  for (std::size_t i = 0; i < num_tokens; ++i) {
    const std::int64_t type = gguf_integer(bytes, *entry, static_cast<std::int64_t>(i));
    if (type < 1 || type > 6) {
      keys.fail("token_type", fmt::format("token {} has type {}; allowed are 1 to 6", i, type));
    }
    types[i] = static_cast<PieceType>(type);
  }
  return types;
}

std::vector<float> read_scores(const TokenizerKeys& keys, std::span<const std::uint8_t> bytes,
                               std::size_t num_tokens) {
  const GgufEntry* entry = keys.list("scores", {GgufType::kFloat32});
  if (entry == nullptr) keys.fail("scores", "absent; a SentencePiece vocabulary has one a token");
  if (entry->count != static_cast<std::int64_t>(num_tokens)) {
    keys.fail("scores", fmt::format("{} items for {} tokens", entry->count, num_tokens));
  }
  std::vector<float> scores(num_tokens);
  for (std::size_t i = 0; i < num_tokens; ++i) {
    scores[i] = static_cast<float>(gguf_real(bytes, *entry, static_cast<std::int64_t>(i)));
    if (!std::isfinite(scores[i])) {
      keys.fail("scores", fmt::format("token {} has {}; allowed are finite ones", i, scores[i]));
    }
  }
  return scores;
}

void index_pieces(Vocabulary& words, const TokenizerKeys& keys) {
  words.ids.reserve(words.pieces.size());
  for (std::size_t i = 0; i < words.pieces.size(); ++i) {
    const auto [place, is_new] = words.ids.emplace(words.pieces[i], static_cast<TokenId>(i));
    if (!is_new) {
      keys.fail("tokens", fmt::format("tokens {} and {} are both '{}'", place->second, i,
                                      words.pieces[i].substr(0, 40)));
    }
  }
}

// SentencePiece has exactly one unknown piece. Files mark it by its type, by its id, or by both.
void mark_unknown(Vocabulary& words, const TokenizerKeys& keys) {
  if (const auto id = keys.id("unknown_token_id", words.pieces.size())) {
    words.types[static_cast<std::size_t>(*id)] = PieceType::kUnknown;
  }
  const auto count = std::count(words.types.begin(), words.types.end(), PieceType::kUnknown);
  if (count != 1) {
    keys.fail("token_type",
              fmt::format("{} tokens are the unknown one, of type 2; allowed is 1", count));
  }
}

void find_bytes(Vocabulary& words, const TokenizerKeys& keys) {
  const bool byte_level = words.family == TokenizerFamily::kByteLevel;
  std::int64_t found = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const TokenId id =
        words.find(byte_level ? byte_level_characters()[byte] : fmt::format("<0x{:02X}>", byte));
    const bool is_byte = id != kNoToken && (byte_level || words.type(id) == PieceType::kByte);
    words.byte_ids[byte] = is_byte ? id : kNoToken;
    found += is_byte ? 1 : 0;
  }
  const auto marked = std::count(words.types.begin(), words.types.end(), PieceType::kByte);
  if (byte_level && found == 0) keys.fail("tokens", "no token stands for a byte");
  if (!byte_level && (found != 256 || marked != 256)) {
    keys.fail("token_type", fmt::format("{} tokens of type 6 (byte), {} of them <0x00> to <0xFF>; "
                                        "allowed are these 256",
                                        marked, found));
  }
}

// Files name some ends by id and leave others to be known by their text.
void find_ends(Vocabulary& words, const TokenizerKeys& keys) {
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (const auto id = keys.id(key, words.pieces.size())) words.ends.push_back(*id);
  }
  for (const char* text : {"<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>",
                           "<|end_of_text|>", "<|endoftext|>"}) {
    const TokenId id = words.find(text);
    if (id != kNoToken && words.type(id) == PieceType::kControl) words.ends.push_back(id);
  }
}

void read_additions(Vocabulary& words, const TokenizerKeys& keys) {
  const bool sentence_piece = words.family == TokenizerFamily::kSentencePiece;
  words.beginning = keys.id("bos_token_id", words.pieces.size());
  words.end = keys.id("eos_token_id", words.pieces.size());
  // What holds where the file is silent: as llama.cpp, for which these files were made.
  words.add_beginning = keys.flag("add_bos_token", sentence_piece || words.pre == "llama-bpe");
  words.add_end = keys.flag("add_eos_token", false);
  words.add_space_prefix = keys.flag("add_space_prefix", sentence_piece);
  if (words.add_beginning && !words.beginning) {
    keys.fail("bos_token_id", "absent, though the beginning is added");
  }
  if (words.add_end && !words.end) keys.fail("eos_token_id", "absent, though the end is added");
  if (words.add_space_prefix && !sentence_piece) {
    keys.fail("add_space_prefix", "true; with gpt2, only false is known");
  }
}

std::array<std::string, 256> make_byte_level_characters() {
  std::array<std::string, 256> out;
  unsigned next = 256;  // the invisible ones take the characters from U+0100 on, in order
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte < 127) || (byte >= 161 && byte != 173);
    const unsigned code = visible ? byte : next++;
    if (code < 0x80) {
      out[byte] = static_cast<char>(code);
    } else {
      out[byte] = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  return out;
}

}  // namespace

Vocabulary::Vocabulary(std::span<const std::uint8_t> bytes, const GgufHeader& header,
                       const std::string& name)
    : file(name) {
  const TokenizerKeys keys(bytes, header, file);
  family = read_family(keys);
  if (family == TokenizerFamily::kByteLevel) pre = keys.text("pre").value_or("default");
  pieces = read_pieces(keys, bytes);
  types = read_types(keys, bytes, pieces.size());
  index_pieces(*this, keys);
  if (family == TokenizerFamily::kSentencePiece) {
    scores = read_scores(keys, bytes, pieces.size());
    mark_unknown(*this, keys);
  }
  find_bytes(*this, keys);
  find_ends(*this, keys);
  read_additions(*this, keys);
}

TokenId Vocabulary::find(std::string_view piece) const {
  const auto place = ids.find(piece);
  return place == ids.end() ? kNoToken : place->second;
}

const std::array<std::string, 256>& byte_level_characters() {
  static const std::array<std::string, 256> characters = make_byte_level_characters();
  return characters;
}

std::string byte_level_bytes(std::string_view piece) {
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> out;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      out.emplace(byte_level_characters()[byte], static_cast<char>(byte));
    }
    return out;
  }();
  std::string out;
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, utf8_head(piece).size);
    const auto place = bytes.find(character);
    if (place == bytes.end()) {
      out += character;
    } else {
      out += place->second;
    }
    piece.remove_prefix(character.size());
  }
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    out += text.substr(at, found - at);
    if (found < text.size()) out += to;
    at = std::min(found + from.size(), text.size());
  }
  return out;
}

}  // namespace lacuna::model

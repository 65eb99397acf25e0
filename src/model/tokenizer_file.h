#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "config/gguf_bytes.h"
#include "lacuna/tokenizer.h"
#include "model/vocabulary.h"

// For tests: GGUF files that hold a tokenizer and nothing else.
namespace lacuna::model_test {

using config_test::GgufBytes;
using model::PieceType;

// Does the file say whether the beginning of text is added?
enum class Additions { kNone, kSilent };

class TokenizerFile {
 public:
  // With the 256 bytes as the first tokens; "llama" has <unk> before them.
  static TokenizerFile byte_level(std::string_view pre = "default") {
    TokenizerFile file;
    file.text("model", "gpt2").text("pre", pre);
    for (const std::string& character : model::byte_level_characters()) file.token(character);
    return file;
  }
  static TokenizerFile sentence_piece(Additions additions = Additions::kNone) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    TokenizerFile file;
    file.text("model", "llama").token("<unk>", PieceType::kUnknown);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      file.token({'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'}, PieceType::kByte);
    }
    file.has_scores_ = true;
    if (additions == Additions::kNone) file.flag("add_bos_token", false);
    return file;
  }

  TokenizerFile& token(const std::string& piece, PieceType type = PieceType::kNormal,
                       float score = 0.0F) {
    pieces_.push_back(piece);
    types_.push_back(static_cast<std::uint32_t>(type));
    scores_.push_back(score);
    return *this;
  }
  // Adds the merge, and its result where it is no token yet.
  TokenizerFile& merge(const std::string& left, const std::string& right) {
    merges_.push_back(left + " " + right);
    const std::string both = left + right;
    if (std::find(pieces_.begin(), pieces_.end(), both) == pieces_.end()) token(both);
    return *this;
  }
  TokenizerFile& merge_text(const std::string& text) {
    merges_.push_back(text);
    return *this;
  }
  TokenizerFile& text(std::string_view key, std::string_view value) {
    extra_.entry("tokenizer.ggml." + std::string(key), value);
    return counted();
  }
  TokenizerFile& number(std::string_view key, std::uint32_t value) {
    extra_.entry("tokenizer.ggml." + std::string(key), value);
    return counted();
  }
  TokenizerFile& flag(std::string_view key, bool value) {
    extra_.key("tokenizer.ggml." + std::string(key), GgufType::kBool).u8(value ? 1 : 0);
    return counted();
  }
  std::vector<std::uint32_t>& types() { return types_; }
  std::vector<float>& scores() { return scores_; }

  std::vector<std::uint8_t> bytes() const {
    GgufBytes out;
    out.head(0, extras_ + 3 + (has_scores_ ? 1 : 0));
    out.raw(extra_.bytes().data(), extra_.bytes().size());
    out.array("tokenizer.ggml.tokens", GgufType::kString, pieces_.size());
    for (const std::string& piece : pieces_) out.text(piece);
    out.array("tokenizer.ggml.token_type", GgufType::kInt32, types_.size());
    for (const std::uint32_t type : types_) out.u32(type);
    out.array("tokenizer.ggml.merges", GgufType::kString, merges_.size());
    for (const std::string& merge : merges_) out.text(merge);
    if (has_scores_) {
      out.array("tokenizer.ggml.scores", GgufType::kFloat32, scores_.size());
      for (const float score : scores_) out.f32(score);
    }
    return out.bytes();
  }
  Tokenizer make() const { return make(bytes()); }
  static Tokenizer make(const std::vector<std::uint8_t>& bytes) {
    return Tokenizer(bytes, read_gguf_header(bytes, "a.gguf"), "a.gguf");
  }

 private:
  TokenizerFile& counted() {
    ++extras_;
    return *this;
  }

  std::vector<std::string> pieces_;
  std::vector<std::uint32_t> types_;
  std::vector<float> scores_;
  std::vector<std::string> merges_;
  GgufBytes extra_;
  std::uint64_t extras_ = 0;
  bool has_scores_ = false;
};

}  // namespace lacuna::model_test

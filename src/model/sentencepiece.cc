#include "model/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <bit>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "lacuna/error.h"

namespace lacuna::model {
namespace {

// The few fields of the library's ModelProto (its sentencepiece_model.proto) that a GGUF file
// decides, in protobuf's wire format: a key of field number and kind before each value.
class ProtoWriter {
 public:
  ProtoWriter& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    return varint(value);
  }
  ProtoWriter& real(std::uint32_t field, float value) {
    varint(field << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) out_ += static_cast<char>(bits >> shift & 0xff);
    return *this;
  }
  ProtoWriter& bytes(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  const std::string& text() const { return out_; }

 private:
  ProtoWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
    return *this;
  }

  std::string out_;
};

// GGUF files write the spaces of user-defined pieces as spaces; the library knows the visible ones.
class LibraryPieces {
 public:
  explicit LibraryPieces(const Vocabulary& words) : words_(words) {}

  // Throws Error where the library would refuse the piece, or would not see its end.
  std::string next(std::size_t token) {
    const std::string& text = words_.pieces[token];
    if (text.find('\0') != std::string::npos) fail(token, "holds a zero byte");
    if (words_.types[token] != PieceType::kUserDefined || text.find(' ') == std::string::npos) {
      return text;
    }
    std::string visible = replaced(text, " ", kVisibleSpace);
    if (words_.find(visible) != kNoToken || !changed_.insert(visible).second) {
      fail(token, "is another one with its spaces made visible");
    }
    return visible;
  }

 private:
  [[noreturn]] void fail(std::size_t token, std::string_view what) const {
    throw Error(fmt::format("{}: tokenizer.ggml.tokens: token {} {}", words_.file, token, what));
  }

  const Vocabulary& words_;
  std::unordered_set<std::string> changed_;
};

std::string model_proto(const Vocabulary& words) {
  constexpr std::uint64_t kBpe = 2;
  ProtoWriter out;
  LibraryPieces pieces(words);
  for (std::size_t i = 0; i < words.pieces.size(); ++i) {
    ProtoWriter piece;
    piece.bytes(1, pieces.next(i)).real(2, words.scores[i]);
    piece.number(3, static_cast<std::uint64_t>(words.types[i]));
    out.bytes(1, piece.text());
  }
  ProtoWriter trainer;
  trainer.number(3, kBpe).number(35, 1);  // model_type, byte_fallback
  ProtoWriter normalizer;
  // add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces. The prefix is the caller's: it
  // stands before the text, not before each stretch of it between special tokens.
  normalizer.bytes(1, "identity").number(3, 0).number(4, 0).number(5, 1);
  out.bytes(2, trainer.text()).bytes(3, normalizer.text());
  return out.text();
}

}  // namespace

struct SentencePieceEncoder::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceEncoder::SentencePieceEncoder(const Vocabulary& vocabulary)
    : library_(std::make_unique<Library>()) {
  const auto status = library_->processor.LoadFromSerializedProto(model_proto(vocabulary));
  if (!status.ok()) {
    throw Error(fmt::format("{}: tokenizer.ggml.tokens: SentencePiece refuses them: {}",
                            vocabulary.file, status.ToString()));
  }
}

SentencePieceEncoder::~SentencePieceEncoder() = default;
SentencePieceEncoder::SentencePieceEncoder(SentencePieceEncoder&&) noexcept = default;

void SentencePieceEncoder::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<int> ids;
  const auto status = library_->processor.Encode(text, &ids);
  if (!status.ok()) throw Error(fmt::format("SentencePiece: {}", status.ToString()));
  out.insert(out.end(), ids.begin(), ids.end());
}

}  // namespace lacuna::model

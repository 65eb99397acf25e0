// Ids of the two real files against expected.json, which make_expected.py beside it makes with the
// reference tokenizers. The pre-tokenizers that neither file has are tested over SmolLM2's pieces.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/gguf_bytes.h"
#include "lacuna/file.h"
#include "lacuna/tokenizer.h"

namespace lacuna {
namespace {

using nlohmann::json;

const json& expected() {
  static const json root =
      json::parse(read_file(std::string(LACUNA_TEST_DATA) + "/tokenizer/expected.json", 1 << 20));
  return root;
}

// The file's tokenizer with what the case changes.
std::vector<std::uint8_t> changed(std::span<const std::uint8_t> bytes, const std::string& pre,
                                  bool space_prefix) {
  const GgufHeader header = read_gguf_header(bytes, "the model");
  config_test::GgufBytes body;
  std::uint64_t count = 2;
  body.entry("tokenizer.ggml.pre", std::string_view(pre));
  body.key("tokenizer.ggml.add_space_prefix", GgufType::kBool).u8(space_prefix ? 1 : 0);
  for (const GgufEntry& entry : header.entries) {
    const bool is_kept = entry.key.rfind("tokenizer.ggml.", 0) == 0 &&
                         entry.key != "tokenizer.ggml.pre" &&
                         entry.key != "tokenizer.ggml.add_space_prefix";
    if (!is_kept) continue;
    if (entry.is_array) {
      body.array(entry.key, entry.type, static_cast<std::uint64_t>(entry.count));
    } else {
      body.key(entry.key, entry.type);
    }
    body.raw(bytes.data() + entry.offset, static_cast<std::size_t>(entry.bytes));
    ++count;
  }
  config_test::GgufBytes out;
  out.head(0, count).raw(body.bytes().data(), body.bytes().size());
  return out.bytes();
}

// Repeated ids are written [id, times].
std::vector<TokenId> unpacked(const json& list) {
  std::vector<TokenId> ids;
  for (const json& item : list) {
    if (item.is_array()) {
      ids.insert(ids.end(), item.at(1).get<std::size_t>(), item.at(0).get<TokenId>());
    } else {
      ids.push_back(item.get<TokenId>());
    }
  }
  return ids;
}

std::string checksum(const std::vector<TokenId>& ids) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const TokenId id : ids) value = (value ^ static_cast<std::uint64_t>(id)) * 0x100000001b3U;
  std::string out(16, '0');
  for (std::size_t i = 0; i < 16; ++i) out[15 - i] = "0123456789abcdef"[value >> (4 * i) & 15];
  return out;
}

// As corpus_text of make_expected.py.
std::string corpus_text(std::size_t size) {
  std::vector<std::string> parts;
  for (const json& item : expected().at("texts")) {
    const auto text = item.get<std::string>();
    const bool is_plain =
        text.find('\0') == std::string::npos && text.find('<') == std::string::npos;
    if (!text.empty() && is_plain && text.find("\u2581") == std::string::npos)
      parts.push_back(text);
  }
  std::uint64_t state = 1;
  std::string out;
  while (out.size() < size) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    out += parts[(state >> 33) % parts.size()];
  }
  return out;
}

std::string long_text(const std::string& name) {
  constexpr std::size_t kSize = 1 << 20;
  if (name == "one letter") return std::string(kSize, 'a');
  if (name == "spaces") return std::string(kSize, ' ');
  if (name == "a letter after spaces") return std::string(kSize, ' ') + "x";
  if (name == "newlines") return std::string(kSize, '\n');
  if (name == "all texts") return corpus_text(kSize);
  std::string words;
  for (int i = 0; i < 52429; ++i) words += "the quick brown fox ";
  return words;
}

class TokenizerReference : public testing::TestWithParam<std::size_t> {
 protected:
  const json& expected_case() const { return expected().at("cases").at(GetParam()); }
  EncodeOptions options() const {
    const auto special = expected_case().at("special").get<bool>();
    return {special, special};
  }
  void SetUp() override {
    const std::string path =
        default_cache_dir() + "/models/" + expected_case().at("file").get<std::string>();
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: ./dev model brings it";
    const MappedFile file(path);
    bytes_ = changed({file.data(), static_cast<std::size_t>(file.size())},
                     expected_case().at("pre").get<std::string>(),
                     expected_case().at("space_prefix").get<bool>());
    tokenizer_.emplace(bytes_, read_gguf_header(bytes_, path), path);
  }

  std::vector<std::uint8_t> bytes_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(TokenizerReference, HardTextsHaveItsIds) {
  const json& texts = expected().at("texts");
  ASSERT_EQ(texts.size(), expected_case().at("ids").size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, options()), unpacked(expected_case().at("ids")[i]))
        << "text " << i << ": " << json(text);
  }
}

// SentencePiece reads U+2581 as a space; SmolLM2 has no token for the byte 4.
bool is_kept(const std::string& text) {
  return text.find("\u2581") == std::string::npos && text.find('\x04') == std::string::npos;
}

TEST_P(TokenizerReference, HardTextsComeBackWholeAndInAStream) {
  const bool special = options().parse_special;
  const bool space_prefix = expected_case().at("space_prefix").get<bool>();
  for (const json& item : expected().at("texts")) {
    const auto text = item.get<std::string>();
    if (!is_kept(text)) continue;
    const std::vector<TokenId> ids = tokenizer_->encode(text, {false, special});
    EXPECT_EQ(tokenizer_->decode(ids, special), text);
    TextStream stream(*tokenizer_, special);
    std::string streamed;
    for (const TokenId id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    EXPECT_EQ(streamed, (space_prefix && !text.empty() ? " " : "") + text);
  }
}

TEST_P(TokenizerReference, EndsAreThoseOfTheModel) {
  const bool is_gemma = expected_case().at("file").get<std::string>().rfind("gemma", 0) == 0;
  const std::vector<std::string> ends =
      is_gemma ? std::vector<std::string>{"<eos>", "<end_of_turn>"}
               : std::vector<std::string>{"<|endoftext|>", "<|im_end|>"};
  std::vector<TokenId> found;
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->ends(id)) found.push_back(id);
  }
  EXPECT_EQ(found, (std::vector<TokenId>{*tokenizer_->find(ends[0]), *tokenizer_->find(ends[1])}));
  EXPECT_EQ(tokenizer_->beginning(), tokenizer_->find(is_gemma ? "<bos>" : "<|im_start|>"));
}

TEST_P(TokenizerReference, TextsOfOneMegabyteHaveItsIds) {
  for (const auto& [name, answer] : expected_case().at("long").items()) {
    const std::vector<TokenId> ids = tokenizer_->encode(long_text(name), options());
    EXPECT_EQ(ids.size(), answer.at(0).get<std::size_t>()) << name;
    EXPECT_EQ(checksum(ids), answer.at(1).get<std::string>()) << name;
  }
}

TEST(TokenizerReferenceFile, HoldsTheCasesThatAreRun) {
  EXPECT_EQ(expected().at("cases").size(), 8U);
}

INSTANTIATE_TEST_SUITE_P(Cases, TokenizerReference, testing::Range<std::size_t>(0, 8));

}  // namespace
}  // namespace lacuna

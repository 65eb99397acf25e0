// The GGUF header reader on right and wrong bytes. O-69 to O-76 are the catalogue's public failures
// (kv-and-bugs.md, B12): each must end in one clean Error.
#include "lacuna/gguf.h"

#include <gtest/gtest.h>

#include "config/gguf_bytes.h"
#include "lacuna/error.h"

namespace lacuna::config_test {
namespace {

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;

std::string error_of(const std::vector<std::uint8_t>& bytes) {
  try {
    read_gguf_header(bytes, "a.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    EXPECT_EQ(std::string_view(error.what()).substr(0, 7), "a.gguf:");
    return error.what();
  }
  return "";
}
bool says(const std::vector<std::uint8_t>& bytes, const std::string& part) {
  const std::string error = error_of(bytes);
  EXPECT_NE(error.find(part), std::string::npos) << error;
  return error.find(part) != std::string::npos;
}

// Two tensors of 8 floats each, 32 bytes, one after the other.
GgufBytes two_tensors() {
  GgufBytes out;
  out.head(2, 1).entry("general.architecture", "llama");
  out.tensor("a", {8}, kF32, 0).tensor("b", {4, 2}, kF32, 32).data(64);
  return out;
}

TEST(GgufHeader, ReadsEntriesOfEveryTypeAndTensors) {
  GgufBytes in;
  in.head(2, 15);
  in.key("u8", GgufType::kUint8).u8(200);
  in.key("i8", GgufType::kInt8).u8(0xff);
  in.key("u16", GgufType::kUint16).u8(1).u8(2);
  in.key("i16", GgufType::kInt16).u8(0xfe).u8(0xff);
  in.entry("u32", 4000000000U);
  in.key("i32", GgufType::kInt32).u32(0xffffffffU);
  in.key("f32", GgufType::kFloat32).f32(0.5F);
  in.key("bool", GgufType::kBool).u8(1);
  in.entry("text", std::string_view("hello"));
  in.key("u64", GgufType::kUint64).u64(1ULL << 40);
  in.key("i64", GgufType::kInt64).u64(~0ULL);
  const double half = 0.25;
  in.key("f64", GgufType::kFloat64).raw(&half, 8);
  in.array("list", GgufType::kInt32, 3).u32(7).u32(8).u32(9);
  in.array("words", GgufType::kString, 2).text("one").text("");
  in.entry("general.alignment", 64);
  in.tensor("a", {256, 2}, kQ4K, 0).tensor("b", {3}, kF32, 320).data(332, 64);
  const auto& bytes = in.bytes();
  const GgufHeader header = read_gguf_header(bytes, "a.gguf");
  const auto integer = [&](std::string_view key, std::int64_t index = 0) {
    return gguf_integer(bytes, *header.find(key), index);
  };
  EXPECT_EQ(header.version, 3);
  EXPECT_EQ(header.alignment, 64);
  EXPECT_EQ(integer("u8"), 200);
  EXPECT_EQ(integer("i8"), -1);
  EXPECT_EQ(integer("u16"), 513);
  EXPECT_EQ(integer("i16"), -2);
  EXPECT_EQ(integer("u32"), 4000000000);
  EXPECT_EQ(integer("i32"), -1);
  EXPECT_EQ(gguf_real(bytes, *header.find("f32")), 0.5);
  EXPECT_EQ(integer("bool"), 1);
  EXPECT_EQ(gguf_texts(bytes, *header.find("text")).front(), "hello");
  EXPECT_EQ(integer("u64"), std::int64_t{1} << 40);
  EXPECT_EQ(integer("i64"), -1);
  EXPECT_EQ(gguf_real(bytes, *header.find("f64")), 0.25);
  EXPECT_EQ(integer("list", 2), 9);
  EXPECT_EQ(gguf_texts(bytes, *header.find("words")), (std::vector<std::string_view>{"one", ""}));
  EXPECT_EQ(header.find("none"), nullptr);
  EXPECT_THROW(gguf_integer(bytes, *header.find("text")), Error);
  EXPECT_THROW(gguf_texts(bytes, *header.find("u8")), Error);
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].bytes, 2 * 144);
  EXPECT_EQ(header.tensors[0].type_name, "q4_k");
  EXPECT_EQ(header.tensors[0].offset, header.data_offset);
  EXPECT_EQ(header.tensors[1].offset, header.data_offset + 320);
  EXPECT_EQ(header.data_offset % 64, 0);
}

TEST(GgufHeader, ReadsVersionTwo) {
  GgufBytes in;
  in.head(0, 1, 2).entry("general.architecture", "llama");
  EXPECT_EQ(read_gguf_header(in.bytes(), "a.gguf").version, 2);
}

TEST(GgufHeader, EveryTruncationIsOneCleanError) {
  const auto whole = two_tensors().bytes();
  EXPECT_EQ(error_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::uint8_t> cut(whole.begin(),
                                        whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(error_of(cut), "") << size;
  }
}

TEST(GgufHeader, O69DimensionZeroAndEmptyKeyAreRefused) {
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {4, 0}, kF32, 0).data(64).bytes(),
                   "tensor a: dimension 1 is 0"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).entry("", 1).bytes(), "a key without a name"));
}

TEST(GgufHeader, O70TooManyDimensionsAreRefused) {
  EXPECT_TRUE(says(GgufBytes()
                       .head(1, 0)
                       .tensor("a", std::vector<std::uint64_t>(9, 1), kF32, 0)
                       .data(64)
                       .bytes(),
                   "9 dimensions; allowed are 1..4"));
  EXPECT_TRUE(
      says(GgufBytes().head(1, 0).tensor("a", {}, kF32, 0).data(64).bytes(), "0 dimensions"));
}

TEST(GgufHeader, O71AlignmentZeroOrOddIsRefused) {
  for (const std::uint32_t alignment : {0U, 3U, 48U}) {
    EXPECT_TRUE(says(GgufBytes().head(0, 1).entry("general.alignment", alignment).bytes(),
                     "allowed are powers of two"));
  }
  EXPECT_TRUE(
      says(GgufBytes().head(0, 1).entry("general.alignment", std::string_view("32")).bytes(),
           "allowed is one uint32"));
}

TEST(GgufHeader, O72OffsetsOutsideTheFileAreRefused) {
  for (const std::uint64_t offset : {1ULL << 40, ~0ULL - 31, (1ULL << 63) - 32}) {
    EXPECT_NE(error_of(GgufBytes().head(1, 0).tensor("a", {8}, kF32, offset).data(64).bytes()), "")
        << offset;
  }
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {8}, kF32, 32).data(63).bytes(),
                   "end past the file"));
  EXPECT_TRUE(
      says(GgufBytes().head(1, 0).tensor("a", {1ULL << 40, 1ULL << 40}, kF32, 0).data(64).bytes(),
           "number of elements overflows"));
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {1ULL << 62}, kF32, 0).data(64).bytes(),
                   "number of bytes overflows"));
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {~0ULL}, kF32, 0).data(64).bytes(),
                   "dimension 0 is"));
}

TEST(GgufHeader, O73CountsNear64BitsUnknownTypesAndNestedArraysAreRefused) {
  EXPECT_TRUE(says(GgufBytes().head(~0ULL, 0).bytes(), "the number of tensors is"));
  EXPECT_TRUE(says(GgufBytes().head(0, ~0ULL).bytes(), "the number of metadata entries is"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).u64(~0ULL).u64(0).u64(0).bytes(), "ends past the file"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).array("a", GgufType::kUint8, ~0ULL).u64(0).bytes(),
                   "a: array length is"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).array("a", GgufType::kString, 1ULL << 61).u64(0).bytes(),
                   "a: array length is"));
  EXPECT_TRUE(
      says(GgufBytes().head(0, 1).text("a").u32(13).u64(0).bytes(), "a: unknown value type 13"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).array("a", GgufType::kArray, 1).u64(0).u64(0).bytes(),
                   "a: an array of arrays"));
  EXPECT_TRUE(says(GgufBytes().head(0, 1).key("a", GgufType::kBool).u8(2).bytes(), "a bool of 2"));
  EXPECT_TRUE(
      says(GgufBytes().head(0, 2).entry("a", 1).entry("a", 2).bytes(), "the key a stands twice"));
}

TEST(GgufHeader, O74ScoresMustBeFloats) {
  GgufBytes in;
  in.head(0, 2).array("tokenizer.ggml.tokens", GgufType::kString, 2).text("a").text("b");
  in.array("tokenizer.ggml.scores", GgufType::kUint8, 2).u8(0).u8(0);
  EXPECT_TRUE(
      says(in.bytes(), "tokenizer.ggml.scores: an array of uint8; allowed is an array of float32"));
  GgufBytes few;
  few.head(0, 2).array("tokenizer.ggml.tokens", GgufType::kString, 2).text("a").text("b");
  few.array("tokenizer.ggml.scores", GgufType::kFloat32, 1).f32(0.0F);
  EXPECT_TRUE(says(few.bytes(), "1 items for 2 tokens"));
}

TEST(GgufHeader, O75RegionsMustNotOverlap) {
  EXPECT_TRUE(says(
      GgufBytes().head(2, 0).tensor("b", {16}, kF32, 0).tensor("a", {8}, kF32, 32).data(64).bytes(),
      "tensors b and a overlap"));
  EXPECT_TRUE(says(
      GgufBytes().head(2, 0).tensor("a", {8}, kF32, 0).tensor("a", {8}, kF32, 32).data(64).bytes(),
      "the tensor a stands twice"));
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {100}, kQ4K, 0).data(64).bytes(),
                   "no multiple of q4_k's blocks of 256"));
  EXPECT_TRUE(
      says(GgufBytes().head(1, 0).tensor("a", {8}, 31, 0).data(64).bytes(), "unknown type 31"));
}

TEST(GgufHeader, O76AlignmentIsFollowedAndTrailingBytesAreTolerated) {
  EXPECT_TRUE(says(GgufBytes().head(1, 0).tensor("a", {8}, kF32, 16).data(64).bytes(),
                   "offset 16 is no multiple of the alignment 32"));
  GgufBytes wide;
  wide.head(1, 1).entry("general.alignment", 8).tensor("a", {2}, kF32, 8).data(16, 8);
  EXPECT_EQ(error_of(wide.bytes()), "");
  EXPECT_EQ(error_of(two_tensors().data(5).bytes()), "");
}

TEST(GgufHeader, O76ForeignFilesAreNamed) {
  const auto tail = [](std::string_view magic, std::uint32_t version) {
    return GgufBytes().raw(magic.data(), 4).u32(version).u64(0).u64(0).bytes();
  };
  EXPECT_TRUE(says(tail("PK\x03\x04", 3), "not a GGUF file"));
  EXPECT_TRUE(says(tail("lmgg", 3), "a GGML file from before GGUF"));
  EXPECT_TRUE(says(tail("GGML", 3), "a GGML file from before GGUF"));
  EXPECT_TRUE(says(tail("GGUF", 0), "GGUF version 0"));
  EXPECT_TRUE(says(tail("GGUF", 1), "versions 2 and 3 are read"));
  EXPECT_TRUE(says(tail("GGUF", 99), "GGUF version 99"));
  EXPECT_TRUE(says(tail("GGUF", 3U << 24), "a big-endian GGUF file"));
  EXPECT_TRUE(says({}, "fewer than 4 bytes"));
}

}  // namespace
}  // namespace lacuna::config_test

// Tensors of right and wrong GGUF files. What is wrong with a header alone, src/config/gguf_test.cc
// tests; here is that no wrong file gives a tensor, and no right tensor another's bytes.
#include "lacuna/weights.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cache/refusal.h"
#include "config/gguf_bytes.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using config_test::GgufBytes;
using rig::expect_refused;
using rig::message_of;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;
constexpr std::uint32_t kI8 = 24;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// A folder of its own for each test.
class WeightFiles : public testing::Test {
 protected:
  WeightFiles() {
    std::string name = testing::TempDir() + "lacuna_weights_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~WeightFiles() override { fs::remove_all(folder_); }

  std::string path() const { return (folder_ / "a.gguf").string(); }
  WeightFile put(const GgufBytes& bytes) const { return put(bytes.bytes()); }
  WeightFile put(const std::vector<std::uint8_t>& bytes) const {
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return WeightFile(path());
  }

  fs::path folder_;
};

// A matrix of two rows of three, a vector of four, both in f32, and NaN around them.
GgufBytes matrix_and_vector() {
  GgufBytes out;
  out.head(2, 0).tensor("layer.weight", {3, 2}, kF32, 32).tensor("layer.scale", {4}, kF32, 64);
  out.data(0);
  for (int i = 0; i < 8; ++i) out.f32(kPoison);
  for (const float number : {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}) out.f32(number);
  out.f32(kPoison).f32(kPoison);
  for (const float number : {-1.0F, -2.0F, -3.0F, -4.0F}) out.f32(number);
  return out.f32(kPoison);
}

std::vector<float> row_of(const WeightMatrix& matrix, std::int64_t row) {
  std::vector<float> numbers(static_cast<std::size_t>(matrix.cols));
  read_row(numbers, matrix, row);
  return numbers;
}

// --- what is read --------------------------------------------------------------------------------

TEST_F(WeightFiles, RowsLieOneAfterTheOther) {
  const WeightFile file = put(matrix_and_vector());
  const WeightMatrix matrix = file.matrix("layer.weight", 2, 3);
  EXPECT_EQ(matrix.rows, 2);
  EXPECT_EQ(matrix.cols, 3);
  EXPECT_EQ(matrix.row_bytes(), 12);
  EXPECT_EQ(matrix.size_bytes(), 24);
  EXPECT_EQ(row_of(matrix, 0), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(row_of(matrix, 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(file.vector("layer.scale", 4), (std::vector<float>{-1, -2, -3, -4}));
}

TEST_F(WeightFiles, AVectorIsAMatrixOfOneRowAndDimsOfOneMayStandBehind) {
  GgufBytes bytes;
  bytes.head(2, 0).tensor("a", {2, 1, 1}, kF32, 0).tensor("b", {2, 2, 1, 1}, kF32, 32).data(0);
  for (int i = 0; i < 12; ++i) bytes.f32(static_cast<float>(i));
  const WeightFile file = put(bytes);
  EXPECT_EQ(file.vector("a", 2), (std::vector<float>{0, 1}));
  EXPECT_EQ(row_of(file.matrix("a", 1, 2), 0), (std::vector<float>{0, 1}));
  EXPECT_EQ(row_of(file.matrix("b", 2, 2), 1), (std::vector<float>{10, 11}));
}

TEST_F(WeightFiles, KnowsItsPathItsBytesAndItsNames) {
  const GgufBytes bytes = matrix_and_vector();
  const WeightFile file = put(bytes);
  EXPECT_EQ(file.path(), path());
  EXPECT_EQ(file.header().tensors.size(), 2U);
  ASSERT_EQ(file.bytes().size(), bytes.bytes().size());
  EXPECT_EQ(std::memcmp(file.bytes().data(), bytes.bytes().data(), bytes.bytes().size()), 0);
  EXPECT_TRUE(file.has("layer.weight"));
  EXPECT_FALSE(file.has("layer.weigh"));
  EXPECT_FALSE(file.has(""));
}

TEST_F(WeightFiles, AMatrixOutlivesAMoveOfItsFile) {
  WeightFile file = put(matrix_and_vector());
  const WeightMatrix matrix = file.matrix("layer.weight", 2, 3);
  const WeightFile moved = std::move(file);
  EXPECT_EQ(row_of(matrix, 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(moved.matrix("layer.weight", 2, 3).data, matrix.data);
  EXPECT_TRUE(moved.has("layer.scale"));
}

TEST(WeightTypes, HaveTheNamesAndSizesOfGgmlsPackage) {
  const WeightFile file(LACUNA_TEST_DATA "/weight_blocks.gguf");
  for (const GgufTensor& tensor : file.header().tensors) {
    const auto type = static_cast<WeightType>(tensor.type);
    const WeightMatrix matrix = file.matrix(tensor.name, tensor.dims[1], tensor.dims[0]);
    EXPECT_EQ(matrix.type, type);
    // The writer of the file laid tensors one after the other, each from a multiple of 32 bytes.
    const std::int64_t end = tensor.offset + matrix.size_bytes();
    const bool is_last = &tensor == &file.header().tensors.back();
    const std::int64_t next = is_last ? std::ssize(file.bytes()) : (&tensor)[1].offset;
    EXPECT_EQ((end + 31) / 32 * 32, next) << tensor.name;
    if (!tensor.name.starts_with("expected.")) {
      EXPECT_EQ(to_string(type), tensor.name);
    }
  }
}

// --- what is refused -----------------------------------------------------------------------------

TEST_F(WeightFiles, AMissingTensorIsNamedWithTheNearestOne) {
  const WeightFile file = put(matrix_and_vector());
  EXPECT_EQ(message_of([&] { file.matrix("layer.weigth", 2, 3); }),
            path() + ": there is no tensor 'layer.weigth'; did you mean 'layer.weight'?");
  EXPECT_EQ(message_of([&] { file.vector("output", 4); }),
            path() + ": there is no tensor 'output'");
}

TEST_F(WeightFiles, OtherDimsThanWantedAreRefused) {
  const WeightFile file = put(matrix_and_vector());
  EXPECT_EQ(message_of([&] { file.matrix("layer.weight", 3, 2); }),
            path() +
                ": tensor layer.weight: its dims are [3, 2], the contiguous one first; "
                "wanted are [2, 3]");
  EXPECT_EQ(message_of([&] { file.vector("layer.scale", 5); }),
            path() +
                ": tensor layer.scale: its dims are [4], the contiguous one first; "
                "wanted are [5]");
  for (const std::int64_t rows : {-1, 0, 1, 3}) {
    expect_refused([&] { file.matrix("layer.weight", rows, 3); }, {"its dims are [3, 2]"});
  }
  expect_refused([&] { file.matrix("layer.weight", 2, 0); }, {"wanted are [0, 2]"});
  expect_refused([&] { file.matrix("layer.weight", 1, 6); }, {"wanted are [6, 1]"});
  expect_refused([&] { file.vector("layer.weight", 6); }, {"wanted are [6]"});
  expect_refused([&] { file.vector("layer.weight", 3); }, {"wanted are [3]"});
  expect_refused([&] { file.matrix("layer.scale", 2, 4); }, {"its dims are [4]"});
}

TEST_F(WeightFiles, AThirdDimIsNoMatrix) {
  const WeightFile file = put(GgufBytes().head(1, 0).tensor("a", {2, 2, 2}, kF32, 0).data(32));
  expect_refused([&] { file.matrix("a", 2, 2); }, {"its dims are [2, 2, 2]"});
  expect_refused([&] { file.matrix("a", 4, 2); }, {"its dims are [2, 2, 2]"});
}

TEST_F(WeightFiles, ATypeThatIsNotReadIsRefusedByItsName) {
  GgufBytes bytes;
  bytes.head(2, 0).tensor("a", {256}, 23, 0).tensor("b", {8, 2}, kI8, 160).data(176);
  const WeightFile file = put(bytes);
  EXPECT_EQ(message_of([&] { file.vector("a", 256); }),
            path() +
                ": tensor a: its type is iq4_xs; allowed are f32, f16, bf16, q8_0, q4_0, "
                "q4_1, q5_0, q5_1, q4_k, q5_k, q6_k");
  expect_refused([&] { file.matrix("b", 2, 8); }, {"tensor b: its type is i8; allowed are f32"});
}

TEST_F(WeightFiles, EmptyAndBrokenRowsAreRefusedWhenTheFileIsOpened) {
  expect_refused(
      [&] {
        put(GgufBytes().head(1, 0).tensor("a", {8, 0}, kF32, 0).data(64));
      },
      {path(), "tensor a: dimension 1 is 0"});
  expect_refused(
      [&] {
        put(GgufBytes().head(1, 0).tensor("a", {300, 2}, kQ4K, 0).data(640));
      },
      {path(), "tensor a: rows of 300 are no multiple of q4_k's blocks of 256"});
}

TEST_F(WeightFiles, WhatIsNoGgufFileIsNamed) {
  expect_refused([&] { put(std::vector<std::uint8_t>{}); }, {path(), "not a GGUF file"});
  const std::string text = "PK\x03\x04 and more";
  expect_refused([&] { put(std::vector<std::uint8_t>(text.begin(), text.end())); },
                 {path(), "not a GGUF file"});
  const std::string absent = (folder_ / "absent.gguf").string();
  expect_refused([&] { WeightFile file(absent); }, {absent, "No such file"});
  expect_refused([&] { WeightFile file(folder_.string()); }, {folder_.string()});
}

// --- the catalogue's public failures -------------------------------------------------------------

// A reader that takes a bad tensor for the end of the list serves the tensors before it.
TEST_F(WeightFiles, O72OneTensorOutsideTheFileSpoilsTheWholeFile) {
  for (const std::uint64_t offset : {64ULL, 1ULL << 40, ~0ULL - 31, ~0ULL - 63}) {
    GgufBytes bytes;
    bytes.head(3, 0).tensor("a", {8}, kF32, 0).tensor("b", {8}, kF32, offset);
    bytes.tensor("c", {8}, kF32, 32).data(64);
    expect_refused([&] { put(bytes); }, {path(), "tensor b: "});
  }
}

TEST_F(WeightFiles, O72AFileWithoutItsLastBytesIsRefusedWhenItIsOpened) {
  GgufBytes bytes;
  bytes.head(2, 0).tensor("a", {8}, kF32, 0).tensor("b", {256, 2}, kQ4K, 32).data(32 + 288);
  std::vector<std::uint8_t> cut = bytes.bytes();
  for (int missing = 1; missing <= 288; ++missing) {
    cut.pop_back();
    expect_refused([&] { put(cut); },
                   {path(), "tensor b: 288 bytes at offset 32 end past the file"});
  }
}

// One byte more would lie outside of the mapped pages.
TEST_F(WeightFiles, O75TheLastRowMayEndWithTheFile) {
  constexpr std::size_t kPage = 4096;
  const WeightFile seeds(LACUNA_TEST_DATA "/weight_blocks.gguf");
  for (const GgufTensor& seed : seeds.header().tensors) {
    const std::uint64_t cols = static_cast<std::uint64_t>(seed.dims[0]);
    const auto bytes_of_two = static_cast<std::size_t>(seed.bytes) / 2;
    const auto header = [&](std::uint64_t pad) {
      GgufBytes out;
      out.head(2, 1).entry("general.alignment", 1).tensor("pad", {pad}, kI8, 0);
      return out.tensor("a", {cols, 2}, seed.type, pad);
    };
    const std::size_t used = header(1).bytes().size() + bytes_of_two;
    const std::size_t pad = (used / kPage + 1) * kPage - used;
    GgufBytes bytes = header(pad);
    bytes.data(pad, 1).raw(seeds.bytes().data() + seed.offset, bytes_of_two);
    ASSERT_EQ(bytes.bytes().size() % kPage, 0U);
    const WeightFile file = put(bytes);
    const WeightMatrix matrix = file.matrix("a", 2, seed.dims[0]);
    const WeightMatrix wanted = seeds.matrix(seed.name, seed.dims[1], seed.dims[0]);
    for (const std::int64_t row : {0, 1}) {
      const std::vector<float> got = row_of(matrix, row);
      const std::vector<float> same = row_of(wanted, row);
      EXPECT_EQ(std::memcmp(got.data(), same.data(), 4 * got.size()), 0) << seed.name << row;
    }
  }
}

TEST_F(WeightFiles, O75ARowNeverTakesItsEndFromTheNextTensor) {
  GgufBytes bytes;
  bytes.head(2, 0).tensor("a", {256}, kQ4K, 0).tensor("b", {8}, kF32, 128).data(160);
  expect_refused([&] { put(bytes); }, {path(), "tensors a and b overlap"});
}

TEST_F(WeightFiles, O76TensorsAtOddAddressesAndTrailingBytesAreRead) {
  GgufBytes bytes;
  bytes.head(2, 1).entry("general.alignment", 1).tensor("pad", {3}, kI8, 0);
  bytes.tensor("a", {2}, kF32, 3).data(3, 1).f32(0.5F).f32(-2).u8(9);
  const WeightFile file = put(bytes);
  EXPECT_EQ(file.vector("a", 2), (std::vector<float>{0.5F, -2}));
}

}  // namespace
}  // namespace lacuna

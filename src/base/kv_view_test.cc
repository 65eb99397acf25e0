#include "lacuna/kv_view.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

const float kData[8] = {};  // check() looks at no element

std::string refusal(const KvView& kv) {
  try {
    check(kv);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

KvView sized() {
  KvView kv;
  kv.k = kData;
  kv.v = kData;
  kv.num_kv_heads = 2;
  kv.head_dim = 4;
  kv.v_head_dim = 3;
  kv.k_strides = {64, 8, 4, 1};
  kv.v_strides = {48, 6, 3, 1};
  return kv;
}

// Three sequences of 5, 0 and 2 keys, in pages of 2.
class Paged : public testing::Test {
 protected:
  Paged() {
    kv = sized();
    kv.lengths = lengths;
    kv.page_size = 2;
    kv.block_table = table;
    kv.table_columns = 3;
    kv.num_pages = 8;
  }

  std::vector<std::int64_t> lengths = {5, 0, 2};
  std::vector<std::int64_t> table = {-1, 7, 0, 99, 99, 99, 3, -99, 99};
  KvView kv;
};

class Contiguous : public testing::Test {
 protected:
  Contiguous() {
    kv = sized();
    kv.lengths = lengths;
    kv.starts = starts;
  }

  std::vector<std::int64_t> lengths = {5, 0, 2};
  std::vector<std::int64_t> starts = {0, 5, 5};
  KvView kv;
};

TEST_F(Contiguous, TakesGapsOverlapsMoreStartsAndAnyStrides) {
  EXPECT_EQ(refusal(kv), "accepted");
  starts = {100, 0, 100, 7};
  kv.starts = starts;
  kv.k_strides = {0, -8, 0, -1};
  EXPECT_EQ(refusal(kv), "accepted");
}

TEST_F(Contiguous, SizesOutOfRangeAreNamed) {
  const auto with = [this](std::int64_t KvView::*member, std::int64_t value) {
    KvView changed = kv;
    changed.*member = value;
    return refusal(changed);
  };
  EXPECT_EQ(with(&KvView::num_kv_heads, 0), "num_kv_heads is 0; allowed: 1..65536");
  EXPECT_EQ(with(&KvView::num_kv_heads, 65537), "num_kv_heads is 65537; allowed: 1..65536");
  EXPECT_EQ(with(&KvView::head_dim, 0), "head_dim is 0; allowed: 1..65536");
  EXPECT_EQ(with(&KvView::head_dim, 65537), "head_dim is 65537; allowed: 1..65536");
  EXPECT_EQ(with(&KvView::v_head_dim, -1), "v_head_dim is -1; allowed: 1..65536");
  EXPECT_EQ(with(&KvView::page_size, -1), "page_size is -1; allowed: 1..1099511627776");
}

TEST_F(Contiguous, LengthsAndStartsOutOfRangeAreNamed) {
  lengths[2] = -1;
  EXPECT_EQ(refusal(kv), "lengths[2] is -1; allowed: 0..1099511627776");
  lengths[2] = kMax;
  EXPECT_EQ(refusal(kv), "lengths[2] is " + std::to_string(kMax) + "; allowed: 0..1099511627776");
  lengths[2] = 2;
  starts[1] = -5;
  EXPECT_EQ(refusal(kv), "starts[1] is -5; allowed: 0..1099511627776");
  starts[1] = kMax;
  EXPECT_EQ(refusal(kv), "starts[1] is " + std::to_string(kMax) + "; allowed: 0..1099511627776");
}

TEST_F(Contiguous, FewerStartsThanLengthsAreRefused) {
  kv.starts = std::span(starts).first(2);
  EXPECT_EQ(refusal(kv), "starts has 2 entries; allowed: at least 3, one for each of lengths");
}

TEST_F(Contiguous, NullDataIsForNoKeysOnly) {
  kv.k = nullptr;
  EXPECT_EQ(refusal(kv), "k is null; allowed: null only where no sequence has a key");
  kv.k = kData;
  kv.v = nullptr;
  EXPECT_EQ(refusal(kv), "v is null; allowed: null only where no sequence has a key");
  lengths = {0, 0, 0};
  EXPECT_EQ(refusal(kv), "accepted");
  kv.lengths = {};
  kv.starts = {};
  EXPECT_EQ(refusal(kv), "accepted");
}

TEST_F(Contiguous, StridesThatLeave64BitAddressesAreRefused) {
  kv.k_strides.token = kMax / 4;
  EXPECT_NE(refusal(kv).find("k_strides reach "), std::string::npos) << refusal(kv);
  kv.k_strides.token = 8;
  kv.v_strides.dim = std::numeric_limits<std::int64_t>::min();
  EXPECT_NE(refusal(kv).find("v_strides reach "), std::string::npos) << refusal(kv);
  EXPECT_NE(refusal(kv).find("allowed: up to 4611686018427387903"), std::string::npos);
}

TEST_F(Contiguous, PageStridesAndTablesDoNotMatter) {
  kv.k_strides.page = kMax;
  kv.num_pages = -1;
  kv.table_columns = -1;
  EXPECT_EQ(refusal(kv), "accepted");
}

TEST_F(Paged, TakesNullPagesAndAnythingBehindTheLastPage) { EXPECT_EQ(refusal(kv), "accepted"); }

TEST_F(Paged, StartsDoNotMatter) {
  const std::vector<std::int64_t> starts = {-1};
  kv.starts = starts;
  EXPECT_EQ(refusal(kv), "accepted");
}

TEST_F(Paged, PagesOutsideThePoolAreNamedByTheirEntry) {
  table[2] = 8;
  EXPECT_EQ(refusal(kv), "block_table[2] is 8; allowed: -1 (no page) and pages below num_pages, 8");
  table[2] = 0;
  table[6] = -2;
  EXPECT_EQ(refusal(kv),
            "block_table[6] is -2; allowed: -1 (no page) and pages below num_pages, 8");
}

TEST_F(Paged, FewerColumnsThanASequenceHasPagesAreRefused) {
  lengths[2] = 7;
  EXPECT_EQ(refusal(kv), "table_columns is 3; allowed: at least 4, the pages of lengths[2] = 7");
  lengths[2] = 6;
  table = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(refusal(kv), "accepted");
}

TEST_F(Paged, ATableWithFewerEntriesThanItsShapeIsRefused) {
  kv.block_table = std::span(table).first(8);
  EXPECT_EQ(
      refusal(kv),
      "block_table has 8 entries; allowed: at least 9, num_sequences × num_tables × table_columns");
}

TEST_F(Paged, SizesOfPoolAndTableOutOfRangeAreNamed) {
  kv.page_size = (std::int64_t{1} << 40) + 1;
  EXPECT_EQ(refusal(kv), "page_size is 1099511627777; allowed: 1..1099511627776");
  kv.page_size = 2;
  kv.num_pages = -1;
  EXPECT_EQ(refusal(kv), "num_pages is -1; allowed: 0..1099511627776");
  kv.num_pages = 8;
  kv.table_columns = -1;
  EXPECT_EQ(refusal(kv), "table_columns is -1; allowed: 0..1099511627776");
  kv.table_columns = kMax;
  EXPECT_EQ(refusal(kv),
            "table_columns is " + std::to_string(kMax) + "; allowed: 0..1099511627776");
}

TEST_F(Paged, APoolThatLeaves64BitAddressesIsRefused) {
  kv.k_strides.page = kMax / 16;
  EXPECT_NE(refusal(kv).find("k_strides reach "), std::string::npos) << refusal(kv);
}

// Tensors of 7 tokens, 2 heads, dims 4 and 3 with strides of their own.
class FromTensors : public testing::Test {
 protected:
  FromTensors() {
    k.strides = {1, 100, 1000};
    v.strides = {-6, 3, 2};
  }

  std::string message() const {
    try {
      kv_view(k, v, starts, lengths);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  TensorView k = tensor_view(kData, DType::kF16, {7, 2, 4});
  TensorView v = tensor_view(kData + 1, DType::kF16, {7, 2, 3});
  std::vector<std::int64_t> lengths = {5, 0, 2};
  std::vector<std::int64_t> starts = {0, 7, 5};
};

TEST_F(FromTensors, TheViewHasTheTensorsSizesStridesAndData) {
  const KvView kv = kv_view(k, v, starts, lengths);
  EXPECT_EQ(kv.k, kData);
  EXPECT_EQ(kv.v, kData + 1);
  EXPECT_EQ(kv.dtype, DType::kF16);
  EXPECT_EQ(kv.num_kv_heads, 2);
  EXPECT_EQ(kv.head_dim, 4);
  EXPECT_EQ(kv.v_head_dim, 3);
  EXPECT_EQ(kv.k_strides.token, 1);
  EXPECT_EQ(kv.k_strides.head, 100);
  EXPECT_EQ(kv.k_strides.dim, 1000);
  EXPECT_EQ(kv.v_strides.token, -6);
  EXPECT_EQ(kv.v_strides.head, 3);
  EXPECT_EQ(kv.v_strides.dim, 2);
  EXPECT_EQ(kv.page_size, 0);
  EXPECT_EQ(kv.num_sequences(), 3);
  EXPECT_EQ(kv.starts.data(), starts.data());
  EXPECT_EQ(kv.lengths.data(), lengths.data());
}

TEST_F(FromTensors, KeysAndValuesOfDifferentKindsAreRefused) {
  v.dtype = DType::kBf16;
  EXPECT_EQ(message(), "v.dtype is bf16; allowed: f16, that of k");
  v.dtype = DType::kF16;
  v.shape[0] = 8;
  EXPECT_EQ(message(), "v.shape[0] is 8; allowed: 7, that of k");
  v.shape = {7, 1, 3};
  EXPECT_EQ(message(), "v.shape[1] is 1; allowed: 2, that of k");
}

TEST_F(FromTensors, SequencesBehindTheLastTokenAreRefused) {
  starts[2] = 6;
  EXPECT_EQ(message(), "starts[2] + lengths[2] is 8; allowed: up to 7, the tokens of k");
  starts = {0, 8, 5};
  EXPECT_EQ(message(), "starts[1] + lengths[1] is 8; allowed: up to 7, the tokens of k");
  starts = {0, 7};
  EXPECT_EQ(message(), "starts has 2 entries; allowed: at least 3, one for each of lengths");
}

TEST_F(FromTensors, TensorsOfNoTokensServeEmptySequences) {
  k = tensor_view(nullptr, DType::kF32, {0, 1, 4});
  v = tensor_view(nullptr, DType::kF32, {0, 1, 4});
  lengths = {0, 0};
  starts = {0, 0};
  EXPECT_EQ(message(), "accepted");
  lengths[1] = 1;
  EXPECT_EQ(message(), "k is null; allowed: null only where no sequence has a key");
}

// One sequence of 20 int8 keys in pages of 32, scales behind the numbers.
class Quantized : public Paged {
 protected:
  Quantized() {
    kv.dtype = DType::kInt8;
    kv.layout = KvLayout::kPacked;
    kv.lengths = one_length;
    kv.page_size = 32;
    kv.k_strides = {1024, 4, 128, 1};
    kv.v_strides = {1024, 16, 512, 1};
    kv.k_scales = kv.v_scales = kData;
    kv.k_scale_strides = kv.v_scale_strides = {512, 1, 32, 1};
  }
  std::vector<std::int64_t> one_length = {20};
};

TEST_F(Quantized, IsAcceptedWithScalesAndRefusedWithout) {
  EXPECT_EQ(refusal(kv), "accepted");
  kv.v_scales = nullptr;
  EXPECT_EQ(refusal(kv), "v_scales is null; allowed: null only where no sequence has a key");
}

TEST_F(Quantized, IsRefusedWhereItIsNotPacked) {
  kv.layout = KvLayout::kStrided;
  EXPECT_EQ(refusal(kv), "layout is strided; allowed: packed where dtype is int8");
}

TEST_F(Quantized, HasOneScaleAVectorAndAnInt4OneForEach32Dims) {
  kv.k_scale_strides.token = 2;
  EXPECT_EQ(refusal(kv), "k_scale_strides.token is 2; allowed: 1, the scales of a vector");
  kv.dtype = DType::kInt4;
  kv.k_strides.token = 8;
  EXPECT_EQ(refusal(kv), "head_dim is 4; allowed: multiples of 32 where dtype is int4");
}

TEST_F(Paged, HeadsMayLieInTablesOfTheirOwn) {
  const std::vector<KvHeadPlace> places = {{0, 0}, {1, 0}};
  kv.head_places = places;
  kv.num_tables = 2;
  EXPECT_EQ(refusal(kv),
            "block_table has 9 entries; allowed: at least 18, num_sequences × num_tables × "
            "table_columns");
  table.resize(18, 5);
  kv.block_table = table;
  EXPECT_EQ(refusal(kv),
            "block_table[3] is 99; allowed: -1 (no page) and pages below num_pages, 8");
  table[4] = table[3] = table[5] = 1;
  EXPECT_EQ(refusal(kv), "accepted");
  kv.num_tables = 1;
  EXPECT_EQ(refusal(kv), "head_places[1].table is 1; allowed: 0..0");
}

}  // namespace
}  // namespace lacuna

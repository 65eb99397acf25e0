#include "lacuna/cache_shape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cache/refusal.h"
#include "lacuna/kv_view.h"

namespace lacuna {
namespace {

using rig::expect_refused;

CacheShape shape_of(std::vector<CacheLayer> layers, DType dtype = DType::kBf16) {
  CacheShape shape;
  shape.layers = std::move(layers);
  shape.dtype = dtype;
  return shape;
}

TEST(CacheTables, AreOneForEachGroupOfHeadsAndShareAClassWhereTheirPagesAreEqual) {
  const CacheShape shape = shape_of({{.num_kv_heads = 4, .head_groups = {{0, 3}, {1}, {2}}},
                                     {.num_kv_heads = 2},
                                     {.num_kv_heads = 0},
                                     {.num_kv_heads = 4, .kv_from = 0},
                                     {.num_kv_heads = 1}});
  const std::vector<CacheTable> tables = cache_tables(shape);
  ASSERT_EQ(tables.size(), 5u);
  EXPECT_EQ(tables[0].kv_heads, (std::vector<int>{0, 3}));
  EXPECT_EQ(tables[3].kv_heads, (std::vector<int>{0, 1}));
  const std::vector<std::int64_t> classes = {0, 1, 1, 0, 1};
  const std::vector<int> layers = {0, 0, 0, 1, 4};
  for (std::size_t t = 0; t < tables.size(); ++t) {
    EXPECT_EQ(tables[t].size_class, classes[t]);
    EXPECT_EQ(tables[t].layer_idx, layers[t]);
    EXPECT_EQ(tables[t].page_bytes, 64 * 2 * 128 * std::ssize(tables[t].kv_heads));
  }
  EXPECT_EQ(token_bytes(shape), 7 * 2 * 128);
}

TEST(HeadLayout, HasItsPartsOneAfterAnotherAtMultiplesOf32ForEveryWidth) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4}) {
    for (const std::int64_t page_size : {16, 32, 64, 256}) {
      for (std::int64_t dim = 1; dim <= 576; ++dim) {
        if (dtype == DType::kInt4 && dim % 32 != 0) continue;
        CacheShape shape =
            shape_of({{.num_kv_heads = 3, .head_dim = dim, .v_head_dim = dim}}, dtype);
        shape.page_size = page_size;
        const HeadLayout at = head_layout(shape, shape.layers[0]);
        for (const std::int64_t part : {at.v, at.k_scales, at.v_scales, at.size_bytes}) {
          ASSERT_EQ(part % 32, 0) << to_string(dtype) << " " << dim;
        }
        ASSERT_GE(at.v * 8, page_size * dim * size_bits(dtype));
        ASSERT_GE((at.k_scales - at.v) * 8, page_size * dim * size_bits(dtype));
        const std::int64_t scales =
            is_quantized(dtype) ? page_size * num_scales(dtype, dim) * 2 : 0;
        ASSERT_EQ(at.v_scales - at.k_scales, scales);
        ASSERT_EQ(at.size_bytes - at.v_scales, scales);
      }
    }
  }
}

void expect_shape_refused(const CacheShape& shape, const std::vector<std::string>& words) {
  expect_refused([&] { cache_tables(shape); }, words);
  expect_refused([&] { token_bytes(shape); }, words);
}

TEST(CacheTables, RefuseSizesOutOfRange) {
  for (const std::int64_t page_size : {-16, 0, 8, 24, 272}) {
    CacheShape shape = shape_of({{}});
    shape.page_size = page_size;
    expect_shape_refused(shape, {"page_size is " + std::to_string(page_size), "allowed"});
  }
  expect_shape_refused(shape_of({{}, {.num_kv_heads = -1}}),
                       {"layer 1", "num_kv_heads is -1", "0..65536"});
  for (const std::int64_t dim : {0, -1, 577}) {
    const std::string value = std::to_string(dim);
    expect_shape_refused(shape_of({{.head_dim = dim}}),
                         {"layer 0", "head_dim is " + value, "1..576"});
    expect_shape_refused(shape_of({{.v_head_dim = dim}}), {"v_head_dim is " + value, "1..576"});
  }
  expect_shape_refused(shape_of({{.head_dim = 48}}, DType::kInt4),
                       {"head_dim is 48", "multiples of 32 where dtype is int4"});
}

TEST(CacheTables, RefuseGroupsThatDoNotNameEachHeadOnce) {
  const auto grouped = [](std::vector<std::vector<int>> groups) {
    return shape_of({{}, {.num_kv_heads = 3, .head_groups = std::move(groups)}});
  };
  expect_shape_refused(grouped({{0, 1}, {}, {2}}), {"layer 1", "heads of a group is 0"});
  expect_shape_refused(grouped({{0, 1}, {2, 3}}), {"layer 1", "a head of a group is 3", "0..2"});
  expect_shape_refused(grouped({{0, 1}, {2, -1}}), {"a head of a group is -1"});
  expect_shape_refused(grouped({{0, 1}, {1, 2}}), {"a head of two groups is 1"});
  expect_shape_refused(grouped({{0}, {2}}), {"a head of no group is 1", "each head in one"});
}

TEST(CacheTables, RefuseSharedLayersThatDoNotFit) {
  for (const int from : {-1, 1, 2, 7}) {
    expect_shape_refused(shape_of({{}, {.kv_from = from}, {}}),
                         {"layer 1", "kv_from is " + std::to_string(from), "an earlier layer"});
  }
  expect_shape_refused(shape_of({{}, {.kv_from = 0}, {.kv_from = 1}}), {"layer 2", "kv_from is 1"});
  expect_shape_refused(shape_of({{}, {.num_kv_heads = 2, .kv_from = 0}}),
                       {"layer 1", "num_kv_heads is 2", "layer 0's 1"});
  expect_shape_refused(shape_of({{}, {.head_dim = 32, .kv_from = 0}}), {"head_dim is 32"});
  expect_shape_refused(shape_of({{}, {.v_head_dim = 32, .kv_from = 0}}), {"v_head_dim is 32"});
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"

// Where the numbers lie in memory: strides, alignment, pages far away. What comes out must not
// know of it; what stands between the numbers is NaN, and nothing may be written there.

namespace lacuna {
namespace {

using cases::Answer;
using cases::Case;
using cases::filled;
using cases::How;
using cases::how_in;
using cases::last_rows;
using cases::whole;
using stored::Layout;

// Names, and how a [tokens, heads, dims] tensor lies.
struct NamedLayout {
  const char* name;
  Layout layout;
};
const NamedLayout kLayouts[] = {
    {"one element off every alignment", {{0, 1, 2}, 1, 0, 1}},
    {"three elements off", {{0, 1, 2}, 1, 0, 3}},
    {"a slice of a fused buffer", {{0, 1, 2}, 1, 77, 5}},
    {"heads outside", {{1, 0, 2}, 1, 0, 0}},
    {"heads outside, with gaps", {{1, 0, 2}, 1, 13, 2}},
    {"tokens inside", {{1, 2, 0}, 1, 0, 0}},
    {"dims outside", {{2, 0, 1}, 1, 3, 1}},
    {"heads inside", {{0, 2, 1}, 1, 0, 0}},
    {"every third element", {{0, 1, 2}, 3, 1, 1}},
    {"tokens inside, every second", {{1, 2, 0}, 2, 5, 1}},
};

Case case_of(DType dtype) {
  Case c;
  c.shape = {"heads", 6, 2, 19, 37};
  c.q_dtype = c.kv_dtype = dtype;
  c.attend = {{Window{20, 0}, Sink{2}, GlobalPositions{{9, 25}}}};
  c.sequences = {whole(40), last_rows(3, 21)};
  return filled(std::move(c), 51);
}

TEST(IsaLayout, OfAnyTensorChangesNoBit) {
  for (DType dtype : kDTypes) {
    const Case c = case_of(dtype);
    cases::for_each_isa([&](const std::string& isa) {
      const Answer want = cases::answer(c, how_in(isa));
      EXPECT_EQ(cases::difference(want, cases::definition(c), cases::tolerance_of(c, isa)), "");
      for (const auto& [name, layout] : kLayouts) {
        for (int which = 0; which < 4; ++which) {
          SCOPED_TRACE(std::string(name) + ", tensor " + std::to_string(which) + ", " +
                       std::string(to_string(dtype)));
          How how = how_in(isa);
          Layout* const places[] = {&how.q, &how.kv.k, &how.kv.v, &how.out};
          *places[which] = layout;
          ASSERT_EQ(cases::other_bits(cases::answer(c, how), want), "");
        }
      }
    });
  }
}

TEST(IsaLayout, OfA16BitOutChangesNoBit) {
  for (DType dtype : {DType::kBf16, DType::kF16}) {
    const Case c = case_of(dtype);
    cases::for_each_isa([&](const std::string& isa) {
      How how = how_in(isa);
      how.out_dtype = dtype;
      const Answer want = cases::answer(c, how);
      for (const auto& [name, layout] : kLayouts) {
        how.out = layout;
        ASSERT_EQ(cases::other_bits(cases::answer(c, how), want), "") << name;
      }
    });
  }
}

// A stride of 0 gives every head the same keys; a negative one walks backwards.
TEST(IsaLayout, MayRepeatOrReverseAnAxis) {
  Case c;
  c.shape = {"heads", 4, 2, 10, 10};
  c.sequences = {whole(30)};
  c = filled(std::move(c), 52);
  for (std::int64_t key = 0; key < 30; ++key) {
    for (std::int64_t d = 0; d < 10; ++d) {
      c.k[0].at(key, 1, d) = c.k[0].at(key, 0, d);
    }
  }
  oracle::Values backwards(30, 2, 10);
  for (std::int64_t key = 0; key < 30; ++key) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t d = 0; d < 10; ++d) {
        backwards.at(29 - key, 1 - head, 9 - d) = c.v[0].at(key, head, d);
      }
    }
  }
  const stored::Tensor q(c.q, DType::kF32);
  const stored::Tensor k(c.k[0], DType::kF32);
  const stored::Tensor v(backwards, DType::kF32);
  TensorView k_view = k.view();
  k_view.strides[1] = 0;
  TensorView v_view = v.view();
  v_view.data = static_cast<const float*>(v_view.data) + backwards.data.size() - 1;
  for (std::int64_t& stride : v_view.strides) stride = -stride;
  const std::vector<std::int64_t> starts = {0};
  const std::vector<std::int64_t> lengths = {30};
  const KvView kv = kv_view(k_view, v_view, starts, lengths);
  const Plan plan = cases::plan_of(c);
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer(c, how_in(isa));
    std::vector<float> out(want.out.data.size());
    AttentionOptions options;
    options.isa = isa;
    cases::Workspace workspace(workspace_bytes(plan, q.view(), kv, options));
    run(mutable_tensor_view(out.data(), DType::kF32, {30, 4, 10}), {}, plan, q.view(), kv,
        workspace.span(), options);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], want.out.data[i]) << i;
  });
}

// ---- Far addresses ------------------------------------------------------------------------------

// Address space without memory behind it until it is written.
class Reserved {
 public:
  explicit Reserved(std::size_t num_bytes)
      : num_bytes_(num_bytes),
        address_(mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (exists()) munmap(address_, num_bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  bool exists() const { return address_ != MAP_FAILED; }
  std::uint16_t* data() const { return static_cast<std::uint16_t*>(address_); }

 private:
  std::size_t num_bytes_;
  void* address_;
};

Case far_case() {
  Case c;
  c.shape = {"far", 2, 1, 8, 8};
  c.q_dtype = c.kv_dtype = DType::kBf16;
  c.sequences = {last_rows(2, 4)};
  return filled(std::move(c), 53);
}

std::vector<std::uint16_t> words_of(const oracle::Values& values) {
  std::vector<std::uint16_t> words;
  for (double value : values.data) {
    words.push_back(static_cast<std::uint16_t>(stored::bits(value, DType::kBf16)));
  }
  return words;
}

void expect_same_at(const Case& c, const KvView& kv) {
  const stored::Tensor q(c.q, c.q_dtype);
  const Plan plan = cases::plan_of(c);
  cases::for_each_isa([&](const std::string& isa) {
    const Answer want = cases::answer(c, how_in(isa));
    std::vector<float> out(want.out.data.size());
    AttentionOptions options;
    options.isa = isa;
    cases::Workspace workspace(workspace_bytes(plan, q.view(), kv, options));
    run(mutable_tensor_view(out.data(), DType::kF32, {2, 2, 8}), {}, plan, q.view(), kv,
        workspace.span(), options);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], want.out.data[i]);
  });
}

// 7768 · 276480 elements is the first page offset past 2^31.
TEST(IsaFarAddresses, APagePastTwoToTheThirtyOneElementsIsRead) {
  constexpr std::int64_t kPage = 276480;
  constexpr std::int64_t kLastPage = 7768;
  const Reserved k_pool((kLastPage + 1) * kPage * 2);
  const Reserved v_pool((kLastPage + 1) * kPage * 2);
  if (!k_pool.exists() || !v_pool.exists()) GTEST_SKIP() << "no address space for the pools";
  const Case c = far_case();
  const std::vector<std::int64_t> table = {3, kLastPage};
  const auto k = words_of(c.k[0]);
  const auto v = words_of(c.v[0]);
  for (std::size_t page = 0; page < 2; ++page) {  // two tokens a page
    std::memcpy(k_pool.data() + table[page] * kPage, k.data() + page * 16, 32);
    std::memcpy(v_pool.data() + table[page] * kPage, v.data() + page * 16, 32);
  }
  const std::vector<std::int64_t> lengths = {4};
  KvView kv;
  kv.k = k_pool.data();
  kv.v = v_pool.data();
  kv.dtype = DType::kBf16;
  kv.num_kv_heads = 1;
  kv.head_dim = kv.v_head_dim = 8;
  kv.k_strides = kv.v_strides = {kPage, 8, 8, 1};
  kv.lengths = lengths;
  kv.page_size = 2;
  kv.block_table = table;
  kv.table_columns = 2;
  kv.num_pages = kLastPage + 1;
  expect_same_at(c, kv);
}

// Token 99866 of a stride of 21504.
TEST(IsaFarAddresses, ATokenPastTwoToTheThirtyOneElementsIsRead) {
  constexpr std::int64_t kStride = 21504;
  constexpr std::int64_t kStart = 99866 - 3;
  const Reserved memory((kStart + 4) * kStride * 2);
  if (!memory.exists()) GTEST_SKIP() << "no address space for the tensor";
  const Case c = far_case();
  const auto k = words_of(c.k[0]);
  const auto v = words_of(c.v[0]);
  for (std::int64_t token = 0; token < 4; ++token) {  // K and V are slices of one fused buffer
    std::memcpy(memory.data() + (kStart + token) * kStride, k.data() + token * 8, 16);
    std::memcpy(memory.data() + (kStart + token) * kStride + 100, v.data() + token * 8, 16);
  }
  const TensorView k_view = {memory.data(), DType::kBf16, {kStart + 4, 1, 8}, {kStride, 8, 1}};
  const TensorView v_view = {
      memory.data() + 100, DType::kBf16, {kStart + 4, 1, 8}, {kStride, 8, 1}};
  const std::vector<std::int64_t> starts = {kStart};
  const std::vector<std::int64_t> lengths = {4};
  expect_same_at(c, kv_view(k_view, v_view, starts, lengths));
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"
#include "lacuna/kernels.h"
#include "problems.h"

// Keys and values in the packed layout give the bits of strided ones.

namespace lacuna {
namespace {

constexpr int kQHeads = 4;
constexpr int kKvHeads = 2;
constexpr std::int64_t kDim = 41;
constexpr std::int64_t kVDim = 23;

struct AlignedBytes {
  explicit AlignedBytes(std::int64_t size) : storage(static_cast<std::size_t>(size) + 64) {
    auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    span = std::span(storage).subspan((64 - address % 64) % 64, static_cast<std::size_t>(size));
  }
  std::vector<std::byte> storage;
  std::span<std::byte> span;
};

// Random numbers as the dtype stores them.
std::vector<std::byte> tensor(DType dtype, std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(dtype)));
  for (std::int64_t idx = 0; idx < count; ++idx) {
    const float x = normal(random);
    const std::uint16_t half = dtype == DType::kBf16 ? to_bf16(x) : to_f16(x);
    std::byte* const to = bytes.data() + idx * size_bytes(dtype);
    if (dtype == DType::kF32) {
      std::memcpy(to, &x, 4);
    } else {
      std::memcpy(to, &half, 2);
    }
  }
  return bytes;
}

void set(std::vector<std::byte>& bytes, DType dtype, std::int64_t idx, float x) {
  const std::uint16_t half = dtype == DType::kBf16 ? to_bf16(x) : to_f16(x);
  std::memcpy(bytes.data() + idx * size_bytes(dtype),
              dtype == DType::kF32 ? static_cast<const void*>(&x) : &half,
              static_cast<std::size_t>(size_bytes(dtype)));
}

class Call {
 public:
  Call(DType dtype, const char* attend)
      : dtype_(dtype),
        topology_(parse_attend(attend, true).groups[0].attend, true),
        q(tensor(dtype, (rows[0] + rows[1]) * kQHeads * kDim, 1)),
        k(tensor(dtype, (lengths[0] + lengths[1]) * kKvHeads * kDim, 2)),
        v(tensor(dtype, (lengths[0] + lengths[1]) * kKvHeads * kVDim, 3)) {
    const std::vector<SequenceRows> sequences = {{{lengths[0] - rows[0], lengths[0]}, lengths[0]},
                                                 {{lengths[1] - rows[1], lengths[1]}, lengths[1]}};
    plan = make_plan(std::span(&topology_, 1), sequences, {kQHeads, kKvHeads});
  }

  KvView strided() const {
    const std::int64_t tokens = lengths[0] + lengths[1];
    return kv_view(tensor_view(k.data(), dtype_, {tokens, kKvHeads, kDim}),
                   tensor_view(v.data(), dtype_, {tokens, kKvHeads, kVDim}), starts, lengths);
  }

  struct Result {
    std::vector<float> out;
    std::vector<float> lse;
    std::vector<float> mass;
    Ledger ledger;
    bool operator==(const Result& other) const {
      const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
        return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
      };
      return same(out, other.out) && same(lse, other.lse) && same(mass, other.mass) &&
             ledger == other.ledger;
    }
  };

  Result answer(const KvView& kv, const std::string& isa) const {
    const std::int64_t num_rows = plan.indptr.back();
    const TensorView queries = tensor_view(q.data(), dtype_, {num_rows, kQHeads, kDim});
    AttentionOptions options;
    options.isa = isa;
    AlignedBytes workspace(workspace_bytes(plan, queries, kv, options));
    Result result;
    result.out.resize(static_cast<std::size_t>(num_rows * kQHeads * kVDim));
    result.lse.resize(static_cast<std::size_t>(num_rows * kQHeads));
    result.mass.resize(static_cast<std::size_t>(kQHeads * (lengths[0] + lengths[1])));
    result.ledger =
        *run(mutable_tensor_view(result.out.data(), DType::kF32, {num_rows, kQHeads, kVDim}),
             result.lse, plan, queries, kv, workspace.span, options);
    column_mass(result.mass, plan, queries, kv, result.lse, workspace.span, options);
    return result;
  }

 private:
  DType dtype_;
  Topology topology_;

 public:
  std::vector<std::int64_t> rows = {50, 77};
  std::vector<std::int64_t> lengths = {50, 300};
  std::vector<std::int64_t> starts = {0, 50};
  std::vector<std::byte> q;
  std::vector<std::byte> k;
  std::vector<std::byte> v;
  Plan plan;
};

struct Packed {
  explicit Packed(const KvView& kv)
      : memory(packed_kv_bytes(kv, kv.dtype)), starts(kv.lengths.size()) {
    view = pack_kv(memory.span, starts, kv, kv.dtype);
  }
  AlignedBytes memory;
  std::vector<std::int64_t> starts;
  KvView view;
};

// The packed panels of `packed` on pages of a pool in another order; other pages hold NaN.
struct Paged {
  Paged(const Packed& packed, std::int64_t page_size) {
    const KvView& from = packed.view;
    const std::int64_t element = size_bytes(from.dtype);
    columns = (300 + page_size - 1) / page_size;
    const std::int64_t num_pages = 4 * columns;
    const std::int64_t k_page = page_size * from.k_strides.token * kKvHeads;
    const std::int64_t v_page = page_size * from.v_strides.token * kKvHeads;
    k.assign(static_cast<std::size_t>(num_pages * k_page * element), std::byte{0xff});
    v.assign(static_cast<std::size_t>(num_pages * v_page * element), std::byte{0xff});
    table.assign(static_cast<std::size_t>(2 * columns), KvView::kNullPage);
    std::int64_t next_page = 1;
    for (std::int64_t s = 0; s < 2; ++s) {
      const std::int64_t padded = (from.lengths[static_cast<std::size_t>(s)] + 15) / 16 * 16;
      for (std::int64_t first = 0; first < padded; first += page_size, next_page += 2) {
        table[static_cast<std::size_t>(s * columns + first / page_size)] = next_page;
        const std::int64_t tokens = std::min(page_size, padded - first);
        for (std::int64_t head = 0; head < kKvHeads; ++head) {
          const auto copy = [&](std::vector<std::byte>& to, const void* base, const KvStrides& at,
                                std::int64_t page_elements) {
            const std::int64_t source =
                head * at.head + (packed.starts[static_cast<std::size_t>(s)] + first) * at.token;
            std::memcpy(
                to.data() + (next_page * page_elements + head * page_size * at.token) * element,
                static_cast<const std::byte*>(base) + source * element,
                static_cast<std::size_t>(tokens * at.token * element));
          };
          copy(k, from.k, from.k_strides, k_page);
          copy(v, from.v, from.v_strides, v_page);
        }
      }
    }
    view = from;
    view.k = k.data();
    view.v = v.data();
    view.k_strides = {k_page, from.k_strides.token, page_size * from.k_strides.token, 1};
    view.v_strides = {v_page, from.v_strides.token, page_size * from.v_strides.token, 1};
    view.starts = {};
    view.page_size = page_size;
    view.block_table = table;
    view.table_columns = columns;
    view.num_pages = num_pages;
  }
  std::int64_t columns;
  std::vector<std::byte> k;
  std::vector<std::byte> v;
  std::vector<std::int64_t> table;
  KvView view;
};

constexpr const char* kAttends[] = {"full", "window(17)+sink(3)", "window(20)+global(3,40,41,90)"};

TEST(IsaPackedKv, HasTheBitsOfStridedKeys) {
  for (DType dtype : kDTypes) {
    for (const char* attend : kAttends) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + attend);
      const Call call(dtype, attend);
      const Packed packed(call.strided());
      for (const std::string& isa : kernel_isas()) {
        EXPECT_TRUE(call.answer(packed.view, isa) == call.answer(call.strided(), isa)) << isa;
      }
    }
  }
}

TEST(IsaPackedKv, HasTheSameBitsOnPages) {
  for (DType dtype : kDTypes) {
    for (std::int64_t page_size : {16, 48, 64}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " pages of " + std::to_string(page_size));
      const Call call(dtype, "window(20)+global(3,40,41,90)");
      const Packed packed(call.strided());
      const Paged paged(packed, page_size);
      for (const std::string& isa : kernel_isas()) {
        EXPECT_TRUE(call.answer(paged.view, isa) == call.answer(call.strided(), isa)) << isa;
      }
    }
  }
}

TEST(IsaPackedKv, KeepsNumbersThatAreNotFiniteFromRowsThatMayNotReadThem) {
  for (DType dtype : kDTypes) {
    Call call(dtype, "window(17)");
    std::vector<float> clean_out;
    for (const std::string& isa : kernel_isas()) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + isa);
      Call spoiled = call;
      const std::int64_t key = 25;  // of the first sequence: rows 25..41 read it
      for (std::int64_t d = 0; d < kKvHeads * kDim; ++d) {
        set(spoiled.k, dtype, key * kKvHeads * kDim + d, std::nanf(""));
      }
      for (std::int64_t d = 0; d < kKvHeads * kVDim; ++d) {
        set(spoiled.v, dtype, key * kKvHeads * kVDim + d, std::numeric_limits<float>::infinity());
      }
      const Packed packed(spoiled.strided());
      const Call::Result clean = call.answer(call.strided(), isa);
      const Call::Result got = spoiled.answer(packed.view, isa);
      for (std::int64_t row = 0; row < 127; ++row) {
        const bool reads = row >= 25 && row <= 41;
        const auto at = static_cast<std::size_t>(row * kQHeads * kVDim);
        const bool same = std::memcmp(&got.out[at], &clean.out[at],
                                      static_cast<std::size_t>(kQHeads * kVDim) * 4) == 0;
        EXPECT_EQ(same, !reads) << row;
      }
    }
  }
}

TEST(PackedKv, RefusesWhatDoesNotFit) {
  const Call call(DType::kBf16, "full");
  const Packed packed(call.strided());
  std::vector<std::int64_t> starts(2);
  AlignedBytes memory(packed_kv_bytes(call.strided(), DType::kBf16));
  EXPECT_THROW(pack_kv(memory.span.first(64), starts, call.strided(), DType::kBf16), Error);
  EXPECT_THROW(pack_kv(memory.span.subspan(2), starts, call.strided(), DType::kBf16), Error);
  EXPECT_THROW(pack_kv(memory.span, std::span(starts).first(1), call.strided(), DType::kBf16),
               Error);
  EXPECT_THROW(pack_kv(memory.span, starts, packed.view, DType::kBf16), Error);
  KvView bad = packed.view;
  bad.k_strides.token += 1;
  EXPECT_THROW(check(bad), Error);
  bad = packed.view;
  const std::vector<std::int64_t> odd = {0, 56};
  bad.starts = odd;
  EXPECT_THROW(check(bad), Error);
  const Paged paged(packed, 16);
  bad = paged.view;
  bad.page_size = 24;
  EXPECT_THROW(check(bad), Error);
}

}  // namespace
}  // namespace lacuna

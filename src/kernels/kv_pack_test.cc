#include "lacuna/kv_pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "lacuna/error.h"
#include "lacuna/kernels.h"

// Packed panels of every type, against a reading of kv_view.h's picture byte by byte.

namespace lacuna {
namespace {

constexpr DType kStored[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4};
constexpr DType kSources[] = {DType::kF32, DType::kBf16, DType::kF16};
constexpr std::byte kPoison{0xff};

std::size_t idx(std::int64_t n) { return static_cast<std::size_t>(n); }

// A head of one page with guards, poisoned: as 16-bit numbers, scales and f32 0xff… is NaN.
struct Page {
  Page(DType dtype, std::int64_t k_dim, std::int64_t v_dim, std::int64_t tokens)
      : bytes(packed_bytes(dtype, k_dim, v_dim, tokens)),
        memory(idx(bytes.k + bytes.v + bytes.k_scales + bytes.v_scales), kPoison) {
    std::byte* const at = memory.data();
    head = {
        at,    at + bytes.k, at + bytes.k + bytes.v, at + bytes.k + bytes.v + bytes.k_scales, dtype,
        k_dim, v_dim};
  }
  PackedBytes bytes;
  std::vector<std::byte> memory;
  PackedHead head;
};

// ---- The layout, read in the order of memory ----------------------------------------------------

// Stored bits of each key and dim of one panel: [16][padded dims].
using Grid = std::vector<std::vector<std::uint32_t>>;

Grid k_grid(const void* panel, DType dtype, std::int64_t dim) {
  Grid grid(16, std::vector<std::uint32_t>(idx(packed_k_dims(dtype, dim))));
  const auto* at = static_cast<const std::uint8_t*>(panel);
  const auto lane_dims = static_cast<std::size_t>(32 / size_bits(dtype));
  for (std::size_t first = 0; first < grid[0].size(); first += lane_dims) {
    for (std::size_t key = 0; key < 16; ++key, at += 4) {
      std::uint32_t* const to = grid[key].data() + first;
      if (dtype == DType::kF32) std::memcpy(to, at, 4);
      if (size_bits(dtype) == 16) {
        to[0] = static_cast<std::uint32_t>(at[0] | at[1] << 8);
        to[1] = static_cast<std::uint32_t>(at[2] | at[3] << 8);
      }
      for (int b = 0; b < 4 && dtype == DType::kInt8; ++b) to[b] = at[b];
      for (int b = 0; b < 4 && dtype == DType::kInt4; ++b) {
        to[b] = at[b] & 15U;
        to[b + 4] = at[b] >> 4;
      }
    }
  }
  return grid;
}

Grid v_grid(const void* panel, DType dtype, std::int64_t dim) {
  Grid grid(16, std::vector<std::uint32_t>(idx(packed_v_dims(dim))));
  const auto* at = static_cast<const std::uint8_t*>(panel);
  const std::size_t row_keys = dtype == DType::kF32 ? 1 : dtype == DType::kInt4 ? 4 : 2;
  for (std::size_t first = 0; first < grid[0].size(); first += 16) {
    for (std::size_t key = 0; key < 16; key += row_keys) {
      for (std::size_t d = first; d < first + 16; ++d) {
        if (dtype == DType::kF32) {
          std::memcpy(&grid[key][d], at, 4);
          at += 4;
        } else if (size_bits(dtype) == 16) {
          grid[key][d] = static_cast<std::uint32_t>(at[0] | at[1] << 8);
          grid[key + 1][d] = static_cast<std::uint32_t>(at[2] | at[3] << 8);
          at += 4;
        } else if (dtype == DType::kInt8) {
          grid[key][d] = at[0];
          grid[key + 1][d] = at[1];
          at += 2;
        } else {
          grid[key][d] = at[0] & 15U;
          grid[key + 1][d] = at[1] & 15U;
          grid[key + 2][d] = at[0] >> 4;
          grid[key + 3][d] = at[1] >> 4;
          at += 2;
        }
      }
    }
  }
  return grid;
}

// ---- What is to be stored -----------------------------------------------------------------------

struct Stored {
  std::vector<std::uint32_t> bits;    // of each dim
  std::vector<std::uint16_t> scales;  // of each group
};

std::uint16_t scale_of(float largest, float limit) {
  constexpr std::uint16_t kNan = 0x7e00;
  if (!std::isfinite(largest)) return kNan;
  const std::uint16_t scale = to_f16(largest / limit);
  return std::isinf(from_f16(scale)) ? kNan : scale;
}

Stored stored_of(const std::vector<float>& x, DType dtype) {
  Stored stored;
  if (!is_quantized(dtype)) {
    for (float value : x) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      if (dtype == DType::kBf16) bits = to_bf16(value);
      if (dtype == DType::kF16) bits = to_f16(value);
      stored.bits.push_back(bits);
    }
    return stored;
  }
  const float limit = dtype == DType::kInt8 ? 127.0F : 7.0F;
  const std::size_t group = dtype == DType::kInt8 ? x.size() : 32;
  for (std::size_t first = 0; first < x.size(); first += group) {
    float largest = 0;
    for (std::size_t d = first; d < first + group; ++d) {
      if (!(std::fabs(x[d]) <= largest)) largest = std::fabs(x[d]);
      if (std::isnan(largest)) break;
    }
    stored.scales.push_back(scale_of(largest, limit));
    const float scale = from_f16(stored.scales.back());
    for (std::size_t d = first; d < first + group; ++d) {
      float n = scale > 0 ? std::nearbyint(x[d] / scale) : 0.0F;
      n = std::clamp(n, -limit, limit);
      const auto integer = static_cast<std::int32_t>(n);
      stored.bits.push_back(dtype == DType::kInt8 ? static_cast<std::uint8_t>(integer)
                                                  : static_cast<std::uint32_t>(integer + 8));
    }
  }
  return stored;
}

// ---- Sources ------------------------------------------------------------------------------------

// [tokens, 2 heads, dims] at an odd address with a gap after each dim where stride is 2.
struct Source {
  Source(DType dtype, std::int64_t tokens, std::int64_t dim, std::int64_t stride, unsigned seed)
      : values(idx(tokens), std::vector<float>(idx(dim))),
        memory(idx(tokens * 2 * dim * stride * size_bytes(dtype) + 1), kPoison) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    view = {memory.data() + 1, dtype, {tokens, 2, dim}, {2 * dim * stride, dim * stride, stride}};
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t d = 0; d < dim; ++d)
        set(t, d, normal(random) * (t % 5 == 0 ? 40.0F : 1.0F));
    }
  }
  void set(std::int64_t token, std::int64_t dim, float x) {
    std::byte* const at = memory.data() + 1 +
                          (view.offset(token, 1) + dim * view.strides[2]) * size_bytes(view.dtype);
    if (view.dtype == DType::kF32) {
      std::memcpy(at, &x, 4);
    } else {
      const bool bf16 = view.dtype == DType::kBf16;
      const std::uint16_t half = bf16 ? to_bf16(x) : to_f16(x);
      std::memcpy(at, &half, 2);
      x = bf16 ? from_bf16(half) : from_f16(half);
    }
    values[idx(token)][idx(dim)] = x;
  }
  // Tokens first .. first + count - 1.
  TensorView part(std::int64_t first, std::int64_t count) const {
    TensorView some = view;
    some.data =
        static_cast<const std::byte*>(view.data) + view.offset(first, 0) * size_bytes(view.dtype);
    some.shape[0] = count;
    return some;
  }
  std::vector<std::vector<float>> values;
  std::vector<std::byte> memory;
  TensorView view;
};

// Head 1 of the tokens to one panel with a table's own packer.
void put(const std::string& isa, Page& page, int first, const Source& k, const Source& v) {
  const PanelPacker& packer = panel_packer(isa.c_str());
  const auto source = [](const Source& from) {
    const TensorView& view = from.view;
    PanelSource panel = {{}, static_cast<ElementType>(view.dtype), view.strides[2], view.shape[2]};
    for (std::int64_t t = 0; t < view.shape[0]; ++t) {
      panel.vectors[t] =
          static_cast<const std::byte*>(view.data) + view.offset(t, 1) * size_bytes(view.dtype);
    }
    return panel;
  };
  const auto type = static_cast<ElementType>(page.head.dtype);
  const auto count = static_cast<int>(k.view.shape[0]);
  auto* const k_scales = static_cast<std::uint16_t*>(page.head.k_scales);
  auto* const v_scales = static_cast<std::uint16_t*>(page.head.v_scales);
  packer.put_k({page.head.k, k_scales, type}, first, count, source(k));
  packer.put_v({page.head.v, v_scales, type}, first, count, source(v));
}

void expect_stored(const Grid& grid, const void* scales, std::size_t key, const Stored& want) {
  for (std::size_t d = 0; d < want.bits.size(); ++d) {
    ASSERT_EQ(grid[key][d], want.bits[d]) << "key " << key << " dim " << d;
  }
  for (std::size_t group = 0; group < want.scales.size(); ++group) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, static_cast<const std::byte*>(scales) + (group * 16 + key) * 2, 2);
    ASSERT_EQ(scale, want.scales[group]) << "key " << key << " group " << group;
  }
}

std::vector<std::int64_t> dims_of(DType dtype) {
  if (dtype == DType::kInt4) return {32, 96, 160};
  return {1, 7, 40, 72, 80, 129};
}

TEST(IsaKvPack, StoresWhatTheLayoutSays) {
  for (const std::string& isa : kernel_isas()) {
    for (DType stored : kStored) {
      for (DType source : kSources) {
        for (std::int64_t dim : dims_of(stored)) {
          SCOPED_TRACE(isa + " " + std::string(to_string(source)) + " to " +
                       std::string(to_string(stored)) + " dims " + std::to_string(dim));
          const Source k(source, 16, dim, 1 + dim % 2, 1);
          const Source v(source, 16, dim, 1, 2);
          Page page(stored, dim, dim, 16);
          put(isa, page, 0, k, v);
          const Grid keys = k_grid(page.head.k, stored, dim);
          const Grid values = v_grid(page.head.v, stored, dim);
          for (std::size_t t = 0; t < 16; ++t) {
            expect_stored(keys, page.head.k_scales, t, stored_of(k.values[t], stored));
            expect_stored(values, page.head.v_scales, t, stored_of(v.values[t], stored));
          }
          for (std::size_t t = 0; t < 16; ++t) {  // padding is finite
            for (std::size_t d = idx(dim); d < values[t].size(); ++d) ASSERT_EQ(values[t][d], 0U);
            for (std::size_t d = idx(dim); d < keys[t].size(); ++d) ASSERT_EQ(keys[t][d], 0U);
          }
        }
      }
    }
  }
}

TEST(IsaKvPack, HasTheBitsOfWholePanelsInAnyPieces) {
  std::mt19937 random(5);
  for (DType stored : kStored) {
    for (DType source : kSources) {
      const std::int64_t dim = stored == DType::kInt4 ? 64 : 40;
      const Source k(source, 16, dim, 1, 3);
      const Source v(source, 16, dim, 1, 4);
      Page whole(stored, dim, dim, 16);
      put(kernel_isas().front(), whole, 0, k, v);
      for (const std::string& isa : kernel_isas()) {
        SCOPED_TRACE(isa + " " + std::string(to_string(stored)));
        for (int most : {1, 3, 7, 16}) {
          Page pieces(stored, dim, dim, 16);
          for (int first = 0; first < 16;) {
            const int count = std::min(1 + static_cast<int>(random() % idx(most)), 16 - first);
            Source some_k = k;
            some_k.view = k.part(first, count);
            Source some_v = v;
            some_v.view = v.part(first, count);
            put(isa, pieces, first, some_k, some_v);
            first += count;
          }
          ASSERT_EQ(pieces.memory, whole.memory);
        }
      }
    }
  }
}

TEST(IsaKvPack, LeavesOtherSlotsAsTheyAre) {
  for (const std::string& isa : kernel_isas()) {
    for (DType stored : kStored) {
      SCOPED_TRACE(isa + " " + std::string(to_string(stored)));
      const std::int64_t dim = stored == DType::kInt4 ? 32 : 23;
      const Source k(DType::kF32, 4, dim, 1, 3);
      const Source v(DType::kF32, 4, dim, 1, 4);
      Page page(stored, dim, dim, 16);
      put(isa, page, 6, k, v);
      const Grid keys = k_grid(page.head.k, stored, dim);
      const Grid values = v_grid(page.head.v, stored, dim);
      const std::uint32_t ones = 0xffffffffU >> (32 - size_bits(stored));
      for (std::size_t t = 0; t < 16; ++t) {
        if (t >= 6 && t < 10) {
          expect_stored(keys, page.head.k_scales, t, stored_of(k.values[t - 6], stored));
          expect_stored(values, page.head.v_scales, t, stored_of(v.values[t - 6], stored));
          continue;
        }
        for (std::uint32_t bits : keys[t]) ASSERT_EQ(bits, ones) << t;
        for (std::uint32_t bits : values[t]) ASSERT_EQ(bits, ones) << t;
        if (is_quantized(stored)) {
          expect_stored({}, page.head.k_scales, t, {{}, {0xffff}});
          expect_stored({}, page.head.v_scales, t, {{}, {0xffff}});
        }
      }
    }
  }
}

TEST(IsaKvPack, RoundsHardNumbersAsTheStoredTypesDo) {
  std::vector<float> numbers = {0.0F,      -0.0F,   INFINITY, -INFINITY, 65504,
                                65519.99F, 65520,   0x1p-24F, 0x1p-25F,  0x1.8p-25F,
                                0x1p-14F,  3.4e38F, -3.4e38F, 0x1p-149F};
  for (std::uint32_t bits : {0x7f800001U, 0xff812345U, 0x7fffffffU, 0x7fc00000U}) {
    float x = 0;
    std::memcpy(&x, &bits, 4);
    numbers.push_back(x);
  }
  for (std::uint32_t bits = 0x30000000U; bits < 0x48000000U; bits += 0x1fffU) {
    float x = 0;
    std::memcpy(&x, &bits, 4);
    numbers.push_back(bits % 2 == 0 ? x : -x);
  }
  const auto dim = static_cast<std::int64_t>(numbers.size());
  Source source(DType::kF32, 1, dim, 1, 1);
  for (std::int64_t d = 0; d < dim; ++d) source.set(0, d, numbers[idx(d)]);
  for (const std::string& isa : kernel_isas()) {
    for (DType stored : {DType::kF32, DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(isa + " " + std::string(to_string(stored)));
      Page page(stored, dim, dim, 16);
      put(isa, page, 9, source, source);
      expect_stored(k_grid(page.head.k, stored, dim), nullptr, 9, stored_of(numbers, stored));
      expect_stored(v_grid(page.head.v, stored, dim), nullptr, 9, stored_of(numbers, stored));
    }
  }
}

// ---- The public functions -----------------------------------------------------------------------

// k = 0.5·n and v = 2·n, n whole and up to the limit in each group.
Source whole_numbers(std::int64_t dim, float scale, int limit, unsigned seed) {
  std::mt19937 random(seed);
  Source source(DType::kF32, 37, dim, 1, seed);
  for (std::int64_t t = 0; t < 37; ++t) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const int n = static_cast<int>(random() % idx(2 * limit + 1)) - limit;
      source.set(t, d, scale * static_cast<float>(d % 32 == 0 ? limit : n));
    }
  }
  return source;
}

TEST(KvPack, RoundTripsExactlyWhatFitsAndTellsScalesOfKAndVApart) {
  for (DType stored : {DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(stored));
    const int limit = stored == DType::kInt8 ? 127 : 7;
    const Source k = whole_numbers(64, 0.5F, limit, 1);
    const Source v = whole_numbers(64, 2.0F, limit, 2);
    Page page(stored, 64, 64, 48);
    append_tokens(page.head, 3, k.view, v.view, 1);
    PackedHead swapped = page.head;
    std::swap(swapped.k_scales, swapped.v_scales);
    std::vector<float> got(64);
    for (std::int64_t t = 0; t < 37; ++t) {
      read_k(got, page.head, 3 + t);
      EXPECT_EQ(got, k.values[idx(t)]);
      read_v(got, page.head, 3 + t);
      EXPECT_EQ(got, v.values[idx(t)]);
      read_k(got, swapped, 3 + t);
      EXPECT_NE(got, k.values[idx(t)]);
      read_v(got, swapped, 3 + t);
      EXPECT_NE(got, v.values[idx(t)]);
    }
  }
}

TEST(KvPack, AppendsAcrossPanelsWhatOneTokenAtATimeGives) {
  for (DType stored : kStored) {
    SCOPED_TRACE(to_string(stored));
    const Source k(DType::kBf16, 45, 96, 1, 1);
    const Source v(DType::kBf16, 45, 32, 1, 2);
    Page at_once(stored, 96, 32, 64);
    append_tokens(at_once.head, 5, k.view, v.view, 1);
    Page one_by_one(stored, 96, 32, 64);
    for (std::int64_t t = 0; t < 45; ++t) {
      append_tokens(one_by_one.head, 5 + t, k.part(t, 1), v.part(t, 1), 1);
    }
    EXPECT_EQ(at_once.memory, one_by_one.memory);
    std::vector<float> got(96);
    for (std::int64_t t = 0; t < 45 && stored == DType::kBf16; ++t) {
      read_k(got, at_once.head, 5 + t);
      EXPECT_EQ(got, k.values[idx(t)]);
    }
  }
}

TEST(KvPack, ErrsByHalfAScaleAndWhatTheScaleItselfIsRoundedBy) {
  for (DType stored : {DType::kInt8, DType::kInt4}) {
    const double limit = stored == DType::kInt8 ? 127 : 7;
    const std::size_t group = stored == DType::kInt8 ? 64 : 32;
    for (float size : {1.0F, 1e3F, 1e-5F, 1e-6F}) {
      Source k(DType::kF32, 40, 64, 1, 7);
      for (std::int64_t t = 0; t < 40; ++t) {
        for (std::int64_t d = 0; d < 64; ++d) k.set(t, d, k.values[idx(t)][idx(d)] * size);
      }
      Page page(stored, 64, 64, 48);
      append_tokens(page.head, 0, k.view, k.view, 1);
      std::vector<float> got(64);
      for (std::int64_t t = 0; t < 40; ++t) {
        read_k(got, page.head, t);
        for (std::size_t first = 0; first < 64; first += group) {
          double largest = 0;
          for (std::size_t d = first; d < first + group; ++d) {
            largest = std::max(largest, std::fabs(static_cast<double>(k.values[idx(t)][d])));
          }
          const double off = std::max(largest * 0x1p-11, limit * 0x1p-25);
          for (std::size_t d = first; d < first + group; ++d) {
            const double error = std::fabs(static_cast<double>(got[d]) - k.values[idx(t)][d]);
            ASSERT_LE(error, (largest + off) / limit / 2 + off) << size << " " << t << " " << d;
          }
        }
      }
    }
  }
}

TEST(KvPack, ReadsAsNanWhatIsNotFiniteOrTooLargeAndAsZeroWhatIsZero) {
  for (DType stored : {DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(stored));
    const float limit = stored == DType::kInt8 ? 127.0F : 7.0F;
    const float bad[] = {std::nanf(""), INFINITY, -INFINITY, limit * 65520, limit * 65504, 0.0F};
    Source k(DType::kF32, 6, 64, 1, 7);
    for (std::int64_t t = 0; t < 6; ++t) {
      for (std::int64_t d = 32; d < 64 && bad[t] == 0.0F; ++d) k.set(t, d, 0.0F);
      for (std::int64_t d = 0; d < 32 && bad[t] == 0.0F; ++d) k.set(t, d, 0.0F);
      k.set(t, 40, bad[t]);
    }
    Page page(stored, 64, 64, 16);
    append_tokens(page.head, 2, k.view, k.view, 1);
    std::vector<float> got(64);
    for (std::int64_t t = 0; t < 6; ++t) {
      read_v(got, page.head, 2 + t);
      for (std::size_t d = 0; d < 64; ++d) {
        const bool of_group = stored == DType::kInt8 || d >= 32;
        EXPECT_EQ(std::isnan(got[d]), of_group && t < 4) << t << " " << d;
        if (t == 5) {
          EXPECT_EQ(got[d], 0.0F);
        }
      }
      if (t == 4) {
        EXPECT_EQ(got[40], limit * 65504);
      }
    }
  }
}

TEST(KvPack, CountsBytesAsCostDoes) {
  const PackedBytes int8 = packed_bytes(DType::kInt8, 128, 64, 16);
  EXPECT_EQ(int8.k + int8.k_scales, 16 * (128 + 2));
  EXPECT_EQ(int8.v + int8.v_scales, 16 * (64 + 2));
  const PackedBytes int4 = packed_bytes(DType::kInt4, 128, 64, 32);
  EXPECT_EQ(int4.k + int4.k_scales, 32 * (64 + 4 * 2));
  EXPECT_EQ(int4.v + int4.v_scales, 32 * (32 + 2 * 2));
  EXPECT_EQ(packed_bytes(DType::kBf16, 7, 17, 16).k, 16 * 8 * 2);
  EXPECT_EQ(packed_bytes(DType::kBf16, 7, 17, 16).v, 16 * 32 * 2);
}

std::string refusal(const PackedHead& page, std::int64_t slot, const TensorView& k,
                    const TensorView& v, std::int64_t head) {
  try {
    append_tokens(page, slot, k, v, head);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KvPack, RefusesWhatDoesNotFitThePage) {
  const Page page(DType::kInt8, 8, 8, 16);
  const Source k(DType::kF32, 2, 8, 1, 1);
  const Source narrow(DType::kF32, 2, 7, 1, 1);
  EXPECT_EQ(refusal(page.head, -1, k.view, k.view, 0), "first_slot is -1; allowed: 0 and more");
  EXPECT_EQ(refusal(page.head, 0, k.view, k.part(0, 1), 0),
            "tokens of v is 1; allowed: 2, those of k");
  EXPECT_EQ(refusal(page.head, 0, narrow.view, k.view, 0), "dims of k is 7; allowed: the page's 8");
  EXPECT_EQ(refusal(page.head, 0, k.view, k.view, 2), "head is 2; allowed: 0..1");
  TensorView whole = k.view;
  whole.dtype = DType::kInt8;
  EXPECT_EQ(refusal(page.head, 0, whole, k.view, 0), "dtype of k is int8; allowed: f32, bf16, f16");
}

}  // namespace
}  // namespace lacuna

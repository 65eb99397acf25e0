#include "lacuna/kv_view.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMostKeys = std::int64_t{1} << 40;
constexpr std::int64_t kMostHeads = 1 << 16;
constexpr std::int64_t kMostDims = 1 << 16;
constexpr std::int64_t kMostPages = std::int64_t{1} << 40;

void require_range(const std::string& name, std::int64_t value, std::int64_t min,
                   std::int64_t max) {
  if (value >= min && value <= max) return;
  throw Error(name + " is " + std::to_string(value) + "; allowed: " + std::to_string(min) + ".." +
              std::to_string(max));
}

std::string indexed(const char* name, std::int64_t idx) {
  return std::string(name) + "[" + std::to_string(idx) + "]";
}

std::int64_t at(std::span<const std::int64_t> values, std::int64_t idx) {
  return values[static_cast<std::size_t>(idx)];
}

// Bytes from the first element to the farthest one along one stride.
Int128 reach(std::int64_t count, std::int64_t stride) {
  const Int128 wide = stride;
  return count < 1 ? 0 : (count - 1) * (wide < 0 ? -wide : wide);
}

void require_multiple(const std::string& name, std::int64_t value) {
  if (value % kPanelTokens == 0) return;
  throw Error(name + " is " + std::to_string(value) + "; allowed: multiples of " +
              std::to_string(kPanelTokens) + " where k and v are packed");
}

void require_stride(const char* name, std::int64_t stride, std::int64_t allowed, const char* why) {
  if (stride == allowed) return;
  throw Error(std::string(name) + " is " + std::to_string(stride) +
              "; allowed: " + std::to_string(allowed) + ", " + why);
}

// What only quantized numbers ask for.
void check_quantized(const KvView& kv) {
  if (!is_quantized(kv.dtype)) return;
  const std::string dtype(to_string(kv.dtype));
  if (kv.layout != KvLayout::kPacked) {
    throw Error("layout is strided; allowed: packed where dtype is " + dtype);
  }
  for (const auto& [name, dim] :
       {std::pair{"head_dim", kv.head_dim}, std::pair{"v_head_dim", kv.v_head_dim}}) {
    if (kv.dtype != DType::kInt4 || dim % kInt4Group == 0) continue;
    throw Error(std::string(name) + " is " + std::to_string(dim) + "; allowed: multiples of " +
                std::to_string(kInt4Group) + " where dtype is int4");
  }
  require_stride("k_scale_strides.token", kv.k_scale_strides.token,
                 num_scales(kv.dtype, kv.head_dim), "the scales of a vector");
  require_stride("v_scale_strides.token", kv.v_scale_strides.token,
                 num_scales(kv.dtype, kv.v_head_dim), "the scales of a vector");
}

// What only the packed layout asks for.
void check_packed(const KvView& kv) {
  if (kv.layout != KvLayout::kPacked) return;
  require_multiple("page_size", kv.page_size);
  for (std::int64_t sequence = 0; kv.page_size == 0 && sequence < kv.num_sequences(); ++sequence) {
    require_multiple(indexed("starts", sequence), at(kv.starts, sequence));
  }
  const char* const why = "the padded dims of the packed layout";
  require_stride("k_strides.token", kv.k_strides.token, packed_k_dims(kv.dtype, kv.head_dim), why);
  require_stride("v_strides.token", kv.v_strides.token, packed_v_dims(kv.v_head_dim), why);
}

// Addresses are computed in 64 bits: no offset of an element may leave them.
void require_reach(const char* name, const KvView& kv, const KvStrides& strides,
                   std::int64_t num_tokens, std::int64_t head_dim) {
  const Int128 elements = reach(kv.num_pages, kv.page_size > 0 ? strides.page : 0) +
                          reach(num_tokens, strides.token) + reach(kv.num_kv_heads, strides.head) +
                          reach(head_dim, strides.dim);
  const Int128 bytes = elements * size_bits(kv.dtype) / 8;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  if (bytes <= kMost) return;
  throw Error(std::string(name) + " reach " + to_string(bytes) +
              " bytes from the first element; allowed: up to " + std::to_string(kMost));
}

void require_data(const KvView& kv) {
  const bool scaled = is_quantized(kv.dtype);
  for (const auto& [name, data, needed] :
       {std::tuple{"k", kv.k, true}, std::tuple{"v", kv.v, true},
        std::tuple{"k_scales", kv.k_scales, scaled}, std::tuple{"v_scales", kv.v_scales, scaled}}) {
    if (data != nullptr || !needed) continue;
    throw Error(std::string(name) + " is null; allowed: null only where no sequence has a key");
  }
}

// Returns the tokens that k and v must have.
std::int64_t check_contiguous(const KvView& kv) {
  if (kv.starts.size() < kv.lengths.size()) {
    throw Error("starts has " + std::to_string(kv.starts.size()) + " entries; allowed: at least " +
                std::to_string(kv.lengths.size()) + ", one for each of lengths");
  }
  std::int64_t num_tokens = 0;
  for (std::int64_t sequence = 0; sequence < kv.num_sequences(); ++sequence) {
    const std::int64_t start = at(kv.starts, sequence);
    require_range(indexed("starts", sequence), start, 0, kMostKeys);
    num_tokens = std::max(num_tokens, start + at(kv.lengths, sequence));
  }
  return num_tokens;
}

void check_table_shape(const KvView& kv) {
  require_range("page_size", kv.page_size, 1, kMostKeys);
  require_range("num_pages", kv.num_pages, 0, kMostPages);
  require_range("table_columns", kv.table_columns, 0, kMostPages);
  require_range("num_tables", kv.num_tables, 1, kMostHeads);
  const Int128 entries = static_cast<Int128>(kv.num_sequences()) * kv.num_tables * kv.table_columns;
  if (static_cast<Int128>(kv.block_table.size()) >= entries) return;
  throw Error("block_table has " + std::to_string(kv.block_table.size()) +
              " entries; allowed: at least " + to_string(entries) +
              ", num_sequences × num_tables × table_columns");
}

void check_head_places(const KvView& kv) {
  if (kv.head_places.empty()) return;
  const auto num_places = static_cast<std::int64_t>(kv.head_places.size());
  require_range("the number of head_places", num_places, kv.num_kv_heads, kv.num_kv_heads);
  for (std::int64_t head = 0; head < num_places; ++head) {
    const KvHeadPlace place = kv.head_place(head);
    require_range(indexed("head_places", head) + ".table", place.table, 0, kv.num_tables - 1);
    require_range(indexed("head_places", head) + ".slot", place.slot, 0, kv.num_kv_heads - 1);
  }
}

// Entries behind a sequence's last page are never read and may hold anything.
void check_entries(const KvView& kv, std::int64_t first, std::int64_t num_used) {
  const auto is_allowed = [&](std::int64_t page) {
    return page >= KvView::kNullPage && page < kv.num_pages;
  };
  // A call of one row checks its whole table: without a branch an entry.
  bool all_allowed = true;
  for (std::int64_t idx = first; idx < first + num_used; ++idx) {
    all_allowed &= is_allowed(at(kv.block_table, idx));
  }
  if (all_allowed) return;
  for (std::int64_t idx = first; idx < first + num_used; ++idx) {
    const std::int64_t page = at(kv.block_table, idx);
    if (is_allowed(page)) continue;
    throw Error(indexed("block_table", idx) + " is " + std::to_string(page) +
                "; allowed: -1 (no page) and pages below num_pages, " +
                std::to_string(kv.num_pages));
  }
}

void check_table(const KvView& kv) {
  check_table_shape(kv);
  check_head_places(kv);
  for (std::int64_t sequence = 0; sequence < kv.num_sequences(); ++sequence) {
    const std::int64_t num_used = ceil_div(at(kv.lengths, sequence), kv.page_size);
    if (num_used > kv.table_columns) {
      throw Error("table_columns is " + std::to_string(kv.table_columns) + "; allowed: at least " +
                  std::to_string(num_used) + ", the pages of " + indexed("lengths", sequence) +
                  " = " + std::to_string(at(kv.lengths, sequence)));
    }
    for (std::int64_t table = 0; table < kv.num_tables; ++table) {
      check_entries(kv, (sequence * kv.num_tables + table) * kv.table_columns, num_used);
    }
  }
}

void require_equal(const char* name, std::int64_t value, std::int64_t of_k) {
  if (value == of_k) return;
  throw Error(std::string(name) + " is " + std::to_string(value) +
              "; allowed: " + std::to_string(of_k) + ", that of k");
}

}  // namespace

KvView kv_view(const TensorView& k, const TensorView& v, std::span<const std::int64_t> starts,
               std::span<const std::int64_t> lengths) {
  if (v.dtype != k.dtype) {
    throw Error("v.dtype is " + std::string(to_string(v.dtype)) +
                "; allowed: " + std::string(to_string(k.dtype)) + ", that of k");
  }
  require_equal("v.shape[0]", v.shape[0], k.shape[0]);
  require_equal("v.shape[1]", v.shape[1], k.shape[1]);
  KvView kv;
  kv.k = k.data;
  kv.v = v.data;
  kv.dtype = k.dtype;
  kv.num_kv_heads = k.shape[1];
  kv.head_dim = k.shape[2];
  kv.v_head_dim = v.shape[2];
  kv.k_strides = {0, k.strides[0], k.strides[1], k.strides[2]};
  kv.v_strides = {0, v.strides[0], v.strides[1], v.strides[2]};
  kv.lengths = lengths;
  kv.starts = starts;
  check(kv);
  for (std::int64_t sequence = 0; sequence < kv.num_sequences(); ++sequence) {
    const std::int64_t end = at(starts, sequence) + at(lengths, sequence);
    if (end <= k.shape[0]) continue;
    throw Error(indexed("starts", sequence) + " + " + indexed("lengths", sequence) + " is " +
                std::to_string(end) + "; allowed: up to " + std::to_string(k.shape[0]) +
                ", the tokens of k");
  }
  return kv;
}

void check(const KvView& kv) {
  require_range("num_kv_heads", kv.num_kv_heads, 1, kMostHeads);
  require_range("head_dim", kv.head_dim, 1, kMostDims);
  require_range("v_head_dim", kv.v_head_dim, 1, kMostDims);
  bool has_keys = false;
  for (std::int64_t sequence = 0; sequence < kv.num_sequences(); ++sequence) {
    require_range(indexed("lengths", sequence), at(kv.lengths, sequence), 0, kMostKeys);
    has_keys = has_keys || at(kv.lengths, sequence) > 0;
  }
  std::int64_t num_tokens = kv.page_size;
  if (kv.page_size == 0) {
    num_tokens = check_contiguous(kv);
    if (!kv.head_places.empty()) {
      throw Error("head_places has " + std::to_string(kv.head_places.size()) +
                  " entries; allowed: none where page_size is 0");
    }
  } else {
    check_table(kv);
  }
  check_packed(kv);
  check_quantized(kv);
  if (!has_keys) return;
  require_data(kv);
  const bool packed =
      kv.layout == KvLayout::kPacked;  // its last panel is whole, its dims are apart
  if (packed) num_tokens += kPanelTokens;
  require_reach("k_strides", kv, kv.k_strides, num_tokens, packed ? 1 : kv.head_dim);
  require_reach("v_strides", kv, kv.v_strides, num_tokens, packed ? 1 : kv.v_head_dim);
}

}  // namespace lacuna

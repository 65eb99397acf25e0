#pragma once

// Memory that holds the keys and values of a case, laid out in any way that a view can say.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "attention_case.h"
#include "attention_oracle.h"
#include "lacuna/kv_pack.h"
#include "lacuna/kv_view.h"
#include "stored_tensor.h"

namespace lacuna::cases {

using stored::Layout;

struct KvLayout {
  std::int64_t page_size = 0;  // 0: contiguous
  Layout k;                    // contiguous only
  Layout v;
  // Paged only: pages whose keys no row of the call reads stand as null pages.
  bool null_unread = false;
  // The packed layout, as a cache fills it: pages are multiples of 16. Quantized ones always are.
  bool packed = false;
  std::int64_t num_tables = 1;  // packed pages only: KV heads are dealt out to so many tables
};

// Where a number stands in a packed panel, in elements from its begin, as kv_view.h says it: of
// f32, or of two dims (K), two keys (V) side by side.
inline std::int64_t place_in_k_panel(DType dtype, std::int64_t key, std::int64_t dim) {
  const std::int64_t pair = dtype == DType::kF32 ? 1 : 2;
  return dim / pair * 16 * pair + key * pair + dim % pair;
}
inline std::int64_t place_in_v_panel(DType dtype, std::int64_t key, std::int64_t dim) {
  const std::int64_t pair = dtype == DType::kF32 ? 1 : 2;
  return dim / 16 * 256 + key / pair * 16 * pair + dim % 16 * pair + key % pair;
}

// Whether any head of any row of the sequence reads each key.
inline oracle::Row read_by_any(const Case& c, std::size_t sequence) {
  oracle::Row keys(idx(c.sequences[sequence].length), false);
  for (const oracle::Matrix& matrix : reads_of(c, sequence)) {
    for (const oracle::Row& row : matrix) oracle::unite_into(keys, row);
  }
  return keys;
}

// Every number that is no key's is NaN: between the sequences, past the last key of a page, in
// pages of others.
class KvMemory {
 public:
  KvMemory(const Case& c, const KvLayout& layout) : layout_(layout) {
    for (const SequenceRows& s : c.sequences) lengths_.push_back(s.length);
    if (layout.packed && layout.page_size > 0 && !is_quantized(c.kv_dtype)) {
      make_packed_pages(c);
    } else if (layout.packed || is_quantized(c.kv_dtype)) {
      make_packed(c);
    } else if (layout.page_size > 0) {
      make_pages(c);
    } else {
      make_contiguous(c);
    }
  }
  const KvView& view() const { return view_; }
  std::vector<std::int64_t>& block_table() { return table_; }

 private:
  static constexpr std::int64_t kGapTokens = 3;
  static constexpr std::int64_t kPageGap = 5;  // elements of somebody else after each page

  void make_contiguous(const Case& c) {
    std::int64_t tokens = kGapTokens;
    for (std::int64_t length : lengths_) {
      starts_.push_back(tokens);
      tokens += length + kGapTokens;
    }
    const auto packed = [&](const std::vector<Values>& parts, std::int64_t dims) {
      Values all(tokens, c.shape.num_kv_heads, dims, std::numeric_limits<double>::quiet_NaN());
      for (std::size_t s = 0; s < parts.size(); ++s) {
        std::copy(parts[s].data.begin(), parts[s].data.end(),
                  all.data.begin() + static_cast<std::ptrdiff_t>(all.index(starts_[s], 0, 0)));
      }
      return all;
    };
    k_.emplace(packed(c.k, c.shape.head_dim), c.kv_dtype, layout_.k);
    v_.emplace(packed(c.v, c.shape.v_head_dim), c.kv_dtype, layout_.v);
    view_ = kv_view(k_->view(), v_->view(), starts_, lengths_);
  }

  // K pages are [token, head, dim]; V pages [head, token, dim], or [head, dim, token] where the
  // size is odd.
  void make_pages(const Case& c) {
    const std::int64_t size = layout_.page_size;
    std::int64_t columns = 1;
    std::int64_t held = 0;
    for (std::int64_t length : lengths_) {
      columns = std::max(columns, ceil_div(length, size));
      held += ceil_div(length, size);
    }
    std::vector<std::int64_t> pages(idx(held + 2));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(7));
    const std::int64_t heads = c.shape.num_kv_heads;
    const std::int64_t k_dims = c.shape.head_dim;
    const std::int64_t v_dims = c.shape.v_head_dim;
    const std::int64_t v_page = size * heads * v_dims + kPageGap;
    view_.k_strides = {size * heads * k_dims + kPageGap, heads * k_dims, k_dims, 1};
    view_.v_strides = size % 2 == 0 ? KvStrides{v_page, v_dims, size * v_dims, 1}
                                    : KvStrides{v_page, 1, size * v_dims, size};
    k_pages_.emplace((held + 2) * view_.k_strides.page, c.kv_dtype, 1);
    v_pages_.emplace((held + 2) * view_.v_strides.page, c.kv_dtype, 3);
    table_.assign(idx(columns) * lengths_.size(), KvView::kNullPage);
    for (std::size_t s = 0; s < lengths_.size(); ++s) put_sequence(c, s, columns, pages);
    finish_view(c, columns, held + 2);
  }

  bool is_null(const oracle::Row& read, std::int64_t first, std::int64_t end) const {
    return layout_.null_unread && std::count(read.begin() + first, read.begin() + end, true) == 0;
  }

  // A page of a table holds the heads dealt to it, [head][panels]; what no key stands in is NaN,
  // but for the padding of dims, which the layout wants finite.
  void make_packed_pages(const Case& c) {
    const std::int64_t size = layout_.page_size;
    const std::int64_t tables = layout_.num_tables;
    const std::int64_t slots = ceil_div(c.shape.num_kv_heads, tables);
    const std::int64_t k_token = packed_k_dims(c.kv_dtype, c.shape.head_dim);
    const std::int64_t v_token = packed_v_dims(c.shape.v_head_dim);
    view_.layout = lacuna::KvLayout::kPacked;
    view_.k_strides = {slots * size * k_token + kPageGap, k_token, size * k_token, 1};
    view_.v_strides = {slots * size * v_token + kPageGap, v_token, size * v_token, 1};
    view_.num_tables = tables;
    std::int64_t columns = 1;
    std::int64_t held = 0;
    for (std::int64_t length : lengths_) {
      columns = std::max(columns, ceil_div(length, size));
      held += ceil_div(length, size) * tables;
    }
    std::vector<std::int64_t> pages(idx(held + 2));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(7));
    for (std::int64_t head = 0; head < c.shape.num_kv_heads && tables > 1; ++head) {
      places_.push_back({head % tables, head / tables});
    }
    view_.head_places = places_;
    k_pages_.emplace((held + 2) * view_.k_strides.page, c.kv_dtype, 1);
    v_pages_.emplace((held + 2) * view_.v_strides.page, c.kv_dtype, 3);
    table_.assign(idx(columns * tables) * lengths_.size(), KvView::kNullPage);
    for (std::size_t s = 0; s < lengths_.size(); ++s) put_packed_sequence(c, s, columns, pages);
    finish_view(c, columns, held + 2);
  }

  void put_packed_sequence(const Case& c, std::size_t s, std::int64_t columns,
                           std::vector<std::int64_t>& free_pages) {
    const std::int64_t size = layout_.page_size;
    const oracle::Row read = layout_.null_unread ? read_by_any(c, s) : oracle::Row();
    for (std::int64_t first = 0; first < lengths_[s]; first += size) {
      const std::int64_t end = std::min(first + size, lengths_[s]);
      if (is_null(read, first, end)) continue;
      for (std::int64_t t = 0; t < layout_.num_tables; ++t) {
        const std::int64_t page = free_pages.back();
        free_pages.pop_back();
        table_[(s * idx(layout_.num_tables) + idx(t)) * idx(columns) + idx(first / size)] = page;
        for (std::int64_t head = t; head < c.shape.num_kv_heads; head += layout_.num_tables) {
          for (std::int64_t key = first; key < end; ++key) {
            put_packed_key(c, s, page, head, key);
          }
        }
      }
    }
  }

  void put_packed_key(const Case& c, std::size_t s, std::int64_t page, std::int64_t head,
                      std::int64_t key) {
    const std::int64_t slot = head / layout_.num_tables;
    const std::int64_t panel = key % layout_.page_size / 16 * 16;
    const auto put_all = [&](stored::Buffer& pool, const KvStrides& strides, const Values& values,
                             const auto& place) {
      const std::int64_t begin = page * strides.page + slot * strides.head + panel * strides.token;
      for (std::int64_t dim = 0; dim < strides.token; ++dim) {
        pool.put(begin + place(c.kv_dtype, key % 16, dim),
                 dim < values.dims ? values.at(key, head, dim) : 0.0);
      }
    };
    put_all(*k_pages_, view_.k_strides, c.k[s], place_in_k_panel);
    put_all(*v_pages_, view_.v_strides, c.v[s], place_in_v_panel);
  }

  void put_sequence(const Case& c, std::size_t s, std::int64_t columns,
                    std::vector<std::int64_t>& free_pages) {
    const std::int64_t size = layout_.page_size;
    const oracle::Row read = layout_.null_unread ? read_by_any(c, s) : oracle::Row();
    for (std::int64_t first = 0; first < lengths_[s]; first += size) {
      const std::int64_t end = std::min(first + size, lengths_[s]);
      if (is_null(read, first, end)) continue;
      const std::int64_t page = free_pages.back();
      free_pages.pop_back();
      table_[s * idx(columns) + idx(first / size)] = page;
      for (std::int64_t key = first; key < end; ++key) {
        put(*k_pages_, view_.k_strides, page, key % size, c.k[s], key);
        put(*v_pages_, view_.v_strides, page, key % size, c.v[s], key);
      }
    }
  }

  static void put(stored::Buffer& pool, const KvStrides& strides, std::int64_t page,
                  std::int64_t slot, const Values& values, std::int64_t key) {
    for (std::int64_t head = 0; head < values.heads; ++head) {
      for (std::int64_t dim = 0; dim < values.dims; ++dim) {
        pool.put(
            page * strides.page + slot * strides.token + head * strides.head + dim * strides.dim,
            values.at(key, head, dim));
      }
    }
  }

  void finish_view(const Case& c, std::int64_t columns, std::int64_t num_pages) {
    view_.k = k_pages_->data();
    view_.v = v_pages_->data();
    view_.dtype = c.kv_dtype;
    view_.num_kv_heads = c.shape.num_kv_heads;
    view_.head_dim = c.shape.head_dim;
    view_.v_head_dim = c.shape.v_head_dim;
    view_.lengths = lengths_;
    view_.page_size = layout_.page_size;
    view_.block_table = table_;
    view_.table_columns = columns;
    view_.num_pages = num_pages;
  }

  // Keys appended a few at a time to pages, or to one page of all sequences, whose other slots are
  // NaN.
  void make_packed(const Case& c) {
    const std::int64_t heads = c.shape.num_kv_heads;
    layout_.page_size = (layout_.page_size + kPanelTokens - 1) / kPanelTokens * kPanelTokens;
    const bool paged = layout_.page_size > 0;
    std::int64_t columns = 1;
    std::int64_t pages = 2;  // one before and one behind
    std::int64_t tokens = kPanelTokens;
    for (std::int64_t length : lengths_) {
      starts_.push_back(tokens);
      tokens += (length + kPanelTokens - 1) / kPanelTokens * kPanelTokens;
      if (!paged) continue;
      columns = std::max(columns, ceil_div(length, layout_.page_size));
      pages += ceil_div(length, layout_.page_size);
    }
    const std::int64_t size = paged ? layout_.page_size : tokens;
    const PackedBytes bytes = packed_bytes(c.kv_dtype, c.shape.head_dim, c.shape.v_head_dim, size);
    const std::int64_t held = paged ? pages : 1;
    const std::array<std::int64_t, 4> sizes = {bytes.k, bytes.v, bytes.k_scales, bytes.v_scales};
    std::array<std::byte*, 4> places{};
    for (std::size_t i = 0; i < 4; ++i) {  // as 32-bit numbers, for their alignment
      packed_[i].assign(idx(sizes[i] * heads * held / 4), 0xffffffffU);
      places[i] = reinterpret_cast<std::byte*>(packed_[i].data());
    }
    const auto head_at = [&](std::int64_t page, std::int64_t head) {
      const std::int64_t at = page * heads + head;
      return PackedHead{places[0] + at * sizes[0],
                        places[1] + at * sizes[1],
                        places[2] + at * sizes[2],
                        places[3] + at * sizes[3],
                        c.kv_dtype,
                        c.shape.head_dim,
                        c.shape.v_head_dim};
    };
    table_.assign(idx(columns) * lengths_.size(), KvView::kNullPage);
    std::int64_t next_page = pages - 2;
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      const oracle::Row read = layout_.null_unread ? read_by_any(c, s) : oracle::Row();
      const stored::Tensor k(c.k[s], DType::kF32);
      const stored::Tensor v(c.v[s], DType::kF32);
      for (std::int64_t first = 0; first < lengths_[s]; first += size) {
        const std::int64_t end = std::min(first + size, lengths_[s]);
        if (is_null(read, first, end)) continue;
        if (paged) table_[s * idx(columns) + idx(first / size)] = next_page;
        for (std::int64_t head = 0; head < heads; ++head) {
          const PackedHead page = head_at(paged ? next_page : 0, head);
          append_in_pieces(page, paged ? 0 : starts_[s], k.view(), v.view(), {head, first, end});
        }
        --next_page;
      }
    }
    finish_packed(c, size, columns, pages);
  }

  struct Tokens {
    std::int64_t head;
    std::int64_t begin;
    std::int64_t end;
  };
  static void append_in_pieces(const PackedHead& page, std::int64_t slot, const TensorView& k,
                               const TensorView& v, const Tokens& tokens) {
    for (std::int64_t first = tokens.begin, count = 1; first < tokens.end; first += count) {
      count = std::min(1 + (first - tokens.begin) * 7 % 40, tokens.end - first);
      const auto part = [&](TensorView x) {
        x.data = static_cast<const float*>(x.data) + x.offset(first, 0);
        x.shape[0] = count;
        return x;
      };
      append_tokens(page, slot + first - tokens.begin, part(k), part(v), tokens.head);
    }
  }

  void finish_packed(const Case& c, std::int64_t size, std::int64_t columns, std::int64_t pages) {
    const std::int64_t heads = c.shape.num_kv_heads;
    const auto strides = [&](std::int64_t token) {
      return KvStrides{size * heads * token, token, size * token, 1};
    };
    view_.k = packed_[0].data();
    view_.v = packed_[1].data();
    view_.k_scales = packed_[2].data();
    view_.v_scales = packed_[3].data();
    view_.layout = lacuna::KvLayout::kPacked;
    view_.k_strides = strides(packed_k_dims(c.kv_dtype, c.shape.head_dim));
    view_.v_strides = strides(packed_v_dims(c.shape.v_head_dim));
    view_.k_scale_strides = strides(num_scales(c.kv_dtype, c.shape.head_dim));
    view_.v_scale_strides = strides(num_scales(c.kv_dtype, c.shape.v_head_dim));
    view_.dtype = c.kv_dtype;
    view_.num_kv_heads = heads;
    view_.head_dim = c.shape.head_dim;
    view_.v_head_dim = c.shape.v_head_dim;
    view_.lengths = lengths_;
    view_.starts = starts_;
    view_.page_size = layout_.page_size;
    view_.block_table = table_;
    view_.table_columns = columns;
    view_.num_pages = pages;
  }

  KvLayout layout_;
  std::array<std::vector<std::uint32_t>, 4> packed_;  // k, v and their scales
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int64_t> table_;
  std::vector<KvHeadPlace> places_;
  std::optional<stored::Tensor> k_;
  std::optional<stored::Tensor> v_;
  std::optional<stored::Buffer> k_pages_;
  std::optional<stored::Buffer> v_pages_;
  KvView view_;
};

}  // namespace lacuna::cases

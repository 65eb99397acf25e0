#include "lacuna/cache_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/page_layout.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_pack.h"
#include "lacuna/kv_view.h"

namespace lacuna {
namespace {

void require(bool holds, std::size_t layer, const char* name, std::int64_t value,
             const std::string& allowed) {
  if (holds) return;
  throw Error(fmt::format("layer {}: {} is {}; allowed: {}", layer, name, value, allowed));
}

void check_sizes(const CacheShape& shape, std::size_t idx) {
  const CacheLayer& layer = shape.layers[idx];
  require(layer.num_kv_heads >= 0 && layer.num_kv_heads <= 65536, idx, "num_kv_heads",
          layer.num_kv_heads, "0..65536");
  for (const auto& [name, dim] :
       {std::pair{"head_dim", layer.head_dim}, std::pair{"v_head_dim", layer.v_head_dim}}) {
    require(dim >= 1 && dim <= 576, idx, name, dim, "1..576");
    require(shape.dtype != DType::kInt4 || dim % kInt4Group == 0, idx, name, dim,
            fmt::format("multiples of {} where dtype is int4", kInt4Group));
  }
}

void check_sharing(const CacheShape& shape, std::size_t idx) {
  const CacheLayer& layer = shape.layers[idx];
  if (!layer.kv_from) return;
  const int from = *layer.kv_from;
  const bool stores = from >= 0 && static_cast<std::size_t>(from) < idx &&
                      !shape.layers[static_cast<std::size_t>(from)].kv_from;
  require(stores, idx, "kv_from", from, "an earlier layer that stores");
  const CacheLayer& source = shape.layers[static_cast<std::size_t>(from)];
  require(layer.num_kv_heads == source.num_kv_heads, idx, "num_kv_heads", layer.num_kv_heads,
          fmt::format("layer {}'s {}", from, source.num_kv_heads));
  require(layer.head_dim == source.head_dim, idx, "head_dim", layer.head_dim,
          fmt::format("layer {}'s {}", from, source.head_dim));
  require(layer.v_head_dim == source.v_head_dim, idx, "v_head_dim", layer.v_head_dim,
          fmt::format("layer {}'s {}", from, source.v_head_dim));
}

std::vector<std::vector<int>> groups_of(const CacheLayer& layer, std::size_t idx) {
  std::vector<std::vector<int>> groups = layer.head_groups;
  if (groups.empty() && layer.num_kv_heads > 0) {
    groups.emplace_back();
    for (int head = 0; head < layer.num_kv_heads; ++head) groups.back().push_back(head);
  }
  std::vector<int> times(static_cast<std::size_t>(layer.num_kv_heads), 0);
  for (const std::vector<int>& group : groups) {
    require(!group.empty(), idx, "heads of a group", 0, "at least 1");
    for (const int head : group) {
      require(head >= 0 && head < layer.num_kv_heads, idx, "a head of a group", head,
              fmt::format("0..{}", layer.num_kv_heads - 1));
      require(++times[static_cast<std::size_t>(head)] == 1, idx, "a head of two groups", head,
              "each head in one");
    }
  }
  for (std::size_t head = 0; head < times.size(); ++head) {
    require(times[head] == 1, idx, "a head of no group", static_cast<std::int64_t>(head),
            "each head in one");
  }
  return groups;
}

}  // namespace

HeadLayout head_layout(const CacheShape& shape, const CacheLayer& layer) {
  const PackedBytes bytes =
      packed_bytes(shape.dtype, layer.head_dim, layer.v_head_dim, shape.page_size);
  HeadLayout layout;
  layout.v = bytes.k;
  layout.k_scales = layout.v + bytes.v;
  layout.v_scales = layout.k_scales + bytes.k_scales;
  layout.size_bytes = layout.v_scales + bytes.v_scales;
  return layout;
}

std::vector<CacheTable> cache_tables(const CacheShape& shape) {
  if (shape.page_size < 16 || shape.page_size > 256 || shape.page_size % kPanelTokens != 0) {
    throw Error(fmt::format("page_size is {}; allowed: 16, 32, … 256", shape.page_size));
  }
  std::vector<CacheTable> tables;
  std::vector<std::int64_t> sizes;
  for (std::size_t idx = 0; idx < shape.layers.size(); ++idx) {
    const CacheLayer& layer = shape.layers[idx];
    check_sizes(shape, idx);
    check_sharing(shape, idx);
    if (layer.kv_from) continue;
    for (std::vector<int>& heads : groups_of(layer, idx)) {
      const auto num_heads = static_cast<std::int64_t>(heads.size());
      CacheTable table = {static_cast<int>(idx), std::move(heads), 0, 0, 0};
      table.kv_bytes = num_heads * head_layout(shape, layer).size_bytes;
      table.page_bytes = table.kv_bytes;
      if (shape.summaries) table.page_bytes += summary_bytes(num_heads, layer.head_dim);
      const auto known = std::find(sizes.begin(), sizes.end(), table.page_bytes);
      table.size_class = known - sizes.begin();
      if (known == sizes.end()) sizes.push_back(table.page_bytes);
      tables.push_back(std::move(table));
    }
  }
  return tables;
}

std::int64_t token_bytes(const CacheShape& shape) {
  std::int64_t page = 0;
  for (const CacheTable& table : cache_tables(shape)) page = checked_add64(page, table.kv_bytes);
  return page / shape.page_size;
}

}  // namespace lacuna

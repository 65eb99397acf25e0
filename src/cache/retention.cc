#include "lacuna/retention.h"

#include <fmt/format.h>

#include <algorithm>

#include "cost/stored_kv.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

void check_layer(const Layer& layer, std::size_t idx) {
  if (layer.mixer == Mixer::kMla) {
    throw Error(
        fmt::format("layer {} is mla; allowed in a cache: layers that keep a key and a "
                    "value for each KV head",
                    idx));
  }
}

std::size_t place_of(std::vector<Topology>& all, const Topology& topology) {
  const auto found = std::find(all.begin(), all.end(), topology);
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  all.push_back(topology);
  return all.size() - 1;
}

}  // namespace

Retention::Retention(const LayerTable& table, const ModelShape& shape) {
  check(shape, table);
  check(table, num_q_heads(shape));
  if (!table.causal) throw Error("the table is bidirectional; allowed in a cache: causal tables");
  for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
    const Layer& layer = table.layers[idx];
    check_layer(layer, idx);
    const LayerShape& sizes = shape.layers[idx];
    CacheLayer cached = {sizes.num_kv_heads, sizes.head_dim, sizes.v_head_dim, {}, layer.kv_from};
    if (!attends(layer.mixer) || layer.attend.groups.empty()) cached.num_kv_heads = 0;
    if (cached.num_kv_heads > 0 && !layer.kv_from) {
      const std::vector<Topology> heads = readers_of_each_head(table, shape, static_cast<int>(idx));
      std::vector<std::size_t> groups;  // into topologies_, of each head group
      for (std::size_t head = 0; head < heads.size(); ++head) {
        const std::size_t place = place_of(topologies_, heads[head]);
        auto group = std::find(groups.begin(), groups.end(), place) - groups.begin();
        if (group == std::ssize(groups)) {
          groups.push_back(place);
          cached.head_groups.emplace_back();
        }
        cached.head_groups[static_cast<std::size_t>(group)].push_back(static_cast<int>(head));
      }
      topology_of_table_.insert(topology_of_table_.end(), groups.begin(), groups.end());
    }
    layers_.push_back(std::move(cached));
  }
}

std::vector<Ranges> Retention::kept(std::int64_t first_query, std::int64_t length) const {
  std::vector<Ranges> of_topology;
  for (const Topology& topology : topologies_) {
    of_topology.push_back(topology.retained(std::max<std::int64_t>(0, first_query), length));
  }
  std::vector<Ranges> of_table;
  for (const std::size_t place : topology_of_table_) of_table.push_back(of_topology[place]);
  return of_table;
}

// A key that a sequence of h tokens needs and lacks, it needs for every shorter one that has it: so
// no length past the first such key serves, and the search goes on below it.
std::int64_t Retention::longest_prefix(const std::vector<Ranges>& present, std::int64_t length,
                                       const std::vector<std::vector<Range>>& short_pages) const {
  if (present.size() != topology_of_table_.size()) {
    throw Error(fmt::format("present has ranges for {} tables; allowed: one for each of {}",
                            present.size(), topology_of_table_.size()));
  }
  while (length > 0) {
    const std::vector<Ranges> needed = kept(length, length);
    std::int64_t serves = length;
    for (std::size_t table = 0; table < needed.size(); ++table) {
      const Ranges missing = subtract(needed[table], present[table]);
      if (!missing.empty()) serves = std::min(serves, missing.front());
      if (short_pages.empty()) continue;
      for (const Range& part : short_pages[table]) {
        if (part.end < length && !clip(needed[table], part).empty()) {
          serves = std::min(serves, part.end);
        }
      }
    }
    if (serves == length) break;
    length = serves;
  }
  return length;
}

}  // namespace lacuna

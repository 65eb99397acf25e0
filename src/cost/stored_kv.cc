#include "cost/stored_kv.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "cost/kv_bytes.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

struct Kept {
  EngineKind kind = EngineKind::kFull;
  std::int64_t width = 0;
  bool foreign = false;
};

Kept kept_of(const Union& attend) {
  std::int64_t window = 0;
  for (const Term& term : attend) {
    // A selector may choose any key: engines keep all of them on purpose.
    if (std::holds_alternative<Full>(term) || std::holds_alternative<TopK>(term) ||
        std::holds_alternative<TopKBlocks>(term)) {
      return {};
    }
    if (const auto* part = std::get_if<Window>(&term)) {
      window = std::max(window, checked_add64(part->left, 1));
    } else if (const auto* dilated = std::get_if<Dilated>(&term);
               dilated != nullptr && dilated->d == 1) {
      window = std::max(window, dilated->w);
    } else if (const auto* chunk = std::get_if<Chunk>(&term);
               chunk != nullptr && attend.size() == 1) {
      return {EngineKind::kChunk, chunk->c, false};
    } else {
      return {EngineKind::kFull, 0, true};
    }
  }
  return {EngineKind::kWindow, window, false};
}

// What keeps enough for both.
Kept joined(const Kept& a, const Kept& b) {
  if (a.kind == b.kind) {
    if (a.kind == EngineKind::kChunk && a.width != b.width) return {EngineKind::kFull, 0, true};
    return {a.kind, std::max(a.width, b.width), a.foreign || b.foreign};
  }
  const bool either_full = a.kind == EngineKind::kFull || b.kind == EngineKind::kFull;
  return {EngineKind::kFull, 0, a.foreign || b.foreign || !either_full};
}

// Every KV head apart, as a topology merged over the query heads that read it.
std::vector<Topology> topology_of_each_head(const Layer& layer, bool causal, int layer_idx,
                                            int num_q_heads, int num_kv_heads) {
  const LayerTopology layer_topology(layer, causal, layer_idx, num_q_heads, num_kv_heads);
  if (layer_topology.kv_heads().size() == 1) {
    return std::vector<Topology>(static_cast<std::size_t>(num_kv_heads),
                                 layer_topology.kv_heads().front().topology);
  }
  std::vector<std::vector<Topology>> readers(static_cast<std::size_t>(num_kv_heads));
  const int group_size = num_q_heads / num_kv_heads;
  for (const HeadGroup& group : layer.attend.groups) {
    std::vector<std::int64_t> heads = group.heads;
    for (std::int64_t head = 0; group.heads.empty() && head < num_q_heads; ++head) {
      heads.push_back(head);
    }
    for (const std::int64_t head : heads) {
      readers[static_cast<std::size_t>(head / group_size)].emplace_back(
          group.attend, causal, layer_idx, static_cast<int>(head));
    }
  }
  std::vector<Topology> merged;
  for (const std::vector<Topology>& head : readers) merged.push_back(Topology::merged(head));
  return merged;
}

class Builder {
 public:
  Builder(const LayerTable& table, const ModelShape& shape, const KvDtype& dtype)
      : table_(table), shape_(shape), dtype_(dtype), sharers_(table.layers.size()) {
    for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
      const Layer& layer = table.layers[idx];
      if (layer.kv_from) sharers_[static_cast<std::size_t>(*layer.kv_from)].push_back(idx);
    }
  }

  std::vector<Topology> each_head_of(std::size_t owner) const {
    return each_head(readers_of(owner));
  }

  std::vector<StoredKv> build() {
    std::vector<StoredKv> stored;
    for (std::size_t idx = 0; idx < table_.layers.size(); ++idx) {
      const Layer& layer = table_.layers[idx];
      const bool keeps = attends(layer.mixer);
      if (!keeps || layer.kv_from || layer.attend.groups.empty()) continue;
      StoredKv entry = with_sizes(idx);
      entry.same_as = stored.size();
      for (std::size_t other = 0; other < stored.size(); ++other) {
        if (stored[other].same_as == other && equal_readers(stored[other], entry)) {
          entry.same_as = other;
          break;
        }
      }
      if (entry.same_as == stored.size()) {
        find_readers(idx, entry);
      } else {
        const StoredKv& first = stored[entry.same_as];
        entry.kv_heads = first.kv_heads;
        entry.kind = first.kind;
        entry.width = first.width;
        entry.foreign = first.foreign;
        entry.attend = first.attend;
      }
      stored.push_back(std::move(entry));
    }
    name_bytes(stored);
    return stored;
  }

 private:
  static void name_bytes(std::vector<StoredKv>& stored) {
    std::vector<std::int64_t> distinct;
    for (const StoredKv& entry : stored) {
      if (std::ranges::find(distinct, entry.token_bytes) == distinct.end()) {
        distinct.push_back(entry.token_bytes);
      }
    }
    for (StoredKv& entry : stored) {
      const auto found = std::ranges::find(distinct, entry.token_bytes) - distinct.begin();
      entry.bytes_symbol = distinct.size() == 1 ? "c" : "c_" + std::to_string(found + 1);
    }
  }

  int kv_heads(std::size_t idx) const {
    return table_.layers[idx].mixer == Mixer::kMla ? 1 : shape_.layers[idx].num_kv_heads;
  }

  StoredKv with_sizes(std::size_t idx) const {
    StoredKv entry;
    entry.layer_idx = static_cast<int>(idx);
    entry.shape = shape_.layers[idx];
    const Mixer mixer = table_.layers[idx].mixer;
    entry.head_bytes =
        to_int64(kv_head_bytes(entry.shape, mixer, dtype_).value(), "bytes of a token and KV head");
    entry.token_bytes = checked_mul64(entry.head_bytes, kv_heads(idx));
    return entry;
  }

  // Whether the entries are known to be equal without building topologies: random draws differ from
  // layer to layer, and who shares is looked at for each.
  bool equal_readers(const StoredKv& a, const StoredKv& b) const {
    const auto a_idx = static_cast<std::size_t>(a.layer_idx);
    const auto b_idx = static_cast<std::size_t>(b.layer_idx);
    const Layer& layer = table_.layers[a_idx];
    const auto draws = [](const HeadGroup& group) {
      return std::ranges::any_of(group.attend, [](const Term& term) {
        return std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term);
      });
    };
    return sharers_[a_idx].empty() && sharers_[b_idx].empty() && a.head_bytes == b.head_bytes &&
           a.token_bytes == b.token_bytes && a.shape.num_q_heads == b.shape.num_q_heads &&
           layer.mixer == table_.layers[b_idx].mixer && a.shape.head_dim == b.shape.head_dim &&
           a.shape.v_head_dim == b.shape.v_head_dim &&
           layer.attend == table_.layers[b_idx].attend &&
           std::ranges::none_of(layer.attend.groups, draws);
  }

  std::vector<std::size_t> readers_of(std::size_t owner) const {
    std::vector<std::size_t> readers = {owner};
    readers.insert(readers.end(), sharers_[owner].begin(), sharers_[owner].end());
    return readers;
  }

  void find_readers(std::size_t owner, StoredKv& entry) const {
    const std::vector<std::size_t> readers = readers_of(owner);
    std::optional<Kept> kept;
    for (const std::size_t idx : readers) {
      for (const HeadGroup& group : table_.layers[idx].attend.groups) {
        kept = kept ? joined(*kept, kept_of(group.attend)) : kept_of(group.attend);
      }
    }
    entry.kind = kept->kind;
    entry.width = kept->width;
    entry.foreign = kept->foreign;
    entry.attend = to_text(table_.layers[owner].attend, table_.causal);
    entry.kv_heads = classes(readers);
  }

  std::vector<LayerTopology::Class> classes(const std::vector<std::size_t>& readers) const {
    const std::size_t owner = readers.front();
    std::vector<LayerTopology> layers;
    bool alike = true;
    for (const std::size_t idx : readers) {
      layers.emplace_back(table_.layers[idx], table_.causal, static_cast<int>(idx),
                          shape_.layers[idx].num_q_heads, kv_heads(owner));
      alike = alike && layers.back().kv_heads().size() == 1;
    }
    if (layers.size() == 1) {
      return {layers.front().kv_heads().begin(), layers.front().kv_heads().end()};
    }
    if (alike) {
      std::vector<Topology> parts;
      for (const LayerTopology& layer : layers) parts.push_back(layer.kv_heads().front().topology);
      return {{Topology::merged(parts), kv_heads(owner)}};
    }
    std::vector<LayerTopology::Class> apart;
    for (Topology& head : each_head(readers)) apart.push_back({std::move(head), 1});
    return apart;
  }

  std::vector<Topology> each_head(const std::vector<std::size_t>& readers) const {
    const int num_kv_heads = kv_heads(readers.front());
    std::vector<std::vector<Topology>> by_head(static_cast<std::size_t>(num_kv_heads));
    for (const std::size_t idx : readers) {
      const std::vector<Topology> heads =
          topology_of_each_head(table_.layers[idx], table_.causal, static_cast<int>(idx),
                                shape_.layers[idx].num_q_heads, num_kv_heads);
      for (std::size_t head = 0; head < by_head.size(); ++head) {
        by_head[head].push_back(heads[head]);
      }
    }
    std::vector<Topology> merged;
    for (const std::vector<Topology>& head : by_head) {
      merged.push_back(head.size() == 1 ? head.front() : Topology::merged(head));
    }
    return merged;
  }

  const LayerTable& table_;
  const ModelShape& shape_;
  const KvDtype& dtype_;
  std::vector<std::vector<std::size_t>> sharers_;  // of each layer: who reads its KV
};

}  // namespace

std::vector<StoredKv> made_kv(const LayerTable& table, const ModelShape& shape,
                              const KvDtype& dtype) {
  check(shape, table);
  check(table, num_q_heads(shape));
  return Builder(table, shape, dtype).build();
}

std::vector<Topology> readers_of_each_head(const LayerTable& table, const ModelShape& shape,
                                           int layer_idx) {
  const KvDtype any_dtype = kv_dtype("bf16");
  return Builder(table, shape, any_dtype).each_head_of(static_cast<std::size_t>(layer_idx));
}

std::vector<StoredKv> stored_kv(const LayerTable& table, const ModelShape& shape,
                                const KvDtype& dtype) {
  std::vector<StoredKv> made = made_kv(table, shape, dtype);
  if (!table.causal || !shape.has_cache) made.clear();
  return made;
}

std::string layer_list(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t begin = 0; begin < layers.size();) {
    std::size_t end = begin + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(layers[begin]);
    if (end - begin > 1) text += "-" + std::to_string(layers[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/shape.h"
#include "lacuna/topology.h"

namespace lacuna {

// The three ways in which the modelled engines keep a layer's KV. They know whole layers, one
// window or chunk each; whatever else a topology says, they keep every token.
enum class EngineKind { kFull, kWindow, kChunk };

// A layer that makes KV of its own, and everything that reads it: its query heads and those of
// every layer whose kv_from names it.
struct StoredKv {
  int layer_idx = 0;
  std::size_t same_as = 0;       // index of the first entry with equal readers, kind and bytes
  std::int64_t token_bytes = 0;  // of all KV heads
  std::int64_t head_bytes = 0;   // of one KV head, or of the one latent
  std::vector<LayerTopology::Class> kv_heads;
  EngineKind kind = EngineKind::kFull;
  std::int64_t width = 0;    // keys of the window or chunk
  bool foreign = false;      // kFull only because no modelled engine knows this topology
  std::string attend;        // text of it, for people
  std::string bytes_symbol;  // of token_bytes: "c", numbered where the table has several
  LayerShape shape;
};

// The layers that make KV of their own, in order, whether or not a cache keeps it. Throws Error
// where table and shape do not fit.
std::vector<StoredKv> made_kv(const LayerTable& table, const ModelShape& shape,
                              const KvDtype& dtype);
// Those among them that store it: none of a bidirectional table or an encoder, which keep no cache.
std::vector<StoredKv> stored_kv(const LayerTable& table, const ModelShape& shape,
                                const KvDtype& dtype);

// What each KV head of a layer that stores KV is read for: the union over the query heads that read
// it, in the layer itself and in those whose kv_from names it.
std::vector<Topology> readers_of_each_head(const LayerTable& table, const ModelShape& shape,
                                           int layer_idx);

// "0-4, 6, 8-10". REQUIRES: ascending.
std::string layer_list(const std::vector<int>& layers);

}  // namespace lacuna

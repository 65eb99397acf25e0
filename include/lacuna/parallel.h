#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/integer.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/shape.h"
#include "lacuna/topology.h"

// Context parallelism: one sequence cut into shards, each device computing the rows of its own and
// holding their KV. What crosses between devices follows from the topology alone: a window brings
// a halo of min(w-1, history before the shard) tokens, split over as many neighbours as it spans; a
// full layer all earlier shards; globals are gathered from their owners. A backward pass sends
// gradients of the same tokens back: the same bytes once more.
namespace lacuna {

struct ShardTransfer {
  int from = 0;             // device that owns the tokens
  std::int64_t tokens = 0;  // summed over layers; of the KV head that needs most
  Int128 bytes = 0;
};

struct DeviceTraffic {
  Range shard;
  std::vector<ShardTransfer> receives;  // by owner, ascending; owners of nothing left out
  Int128 received_bytes = 0;
  Int128 sent_bytes = 0;
  // What a ring would bring instead, passing every shard by every device: all KV but its own.
  Int128 ring_received_bytes = 0;
};

// `length` tokens in `num_devices` contiguous shards whose sizes differ by at most one.
std::vector<Range> even_shards(std::int64_t length, int num_devices);

// One layer in which every KV head has this topology. Device d owns shards[d]. Dynamic terms count
// every key they could choose. Throws Error where shards are not consecutive from 0.
std::vector<DeviceTraffic> context_parallel(const Topology& topology, std::span<const Range> shards,
                                            std::int64_t bytes_per_token);

// All layers, forward: KV heads of softmax layers, latents of mla layers. Layers that read
// another's KV need only what that layer did not bring already. Finite-state layers pass a state
// instead and are not counted.
std::vector<DeviceTraffic> context_parallel(const LayerTable& table, const ModelShape& shape,
                                            const KvDtype& dtype, std::span<const Range> shards);

}  // namespace lacuna

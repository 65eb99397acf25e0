#include "lacuna/parallel.h"

#include <algorithm>

#include <fmt/format.h>

#include "cost/stored_kv.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// [receiving device, owner]
struct Traffic {
  std::vector<std::vector<std::int64_t>> tokens;
  std::vector<std::vector<Int128>> bytes;
  std::vector<Int128> ring_bytes;

  explicit Traffic(std::size_t devices)
      : tokens(devices, std::vector<std::int64_t>(devices, 0)),
        bytes(devices, std::vector<Int128>(devices, 0)),
        ring_bytes(devices, 0) {}
};

void require_shards(std::span<const Range> shards) {
  std::int64_t begin = 0;
  for (const Range& shard : shards) {
    if (shard.begin != begin || shard.end < shard.begin) {
      throw Error(
          fmt::format("a shard is {}..{}; allowed: shards that follow each other from 0, "
                      "the next from {}",
                      shard.begin, shard.end, begin));
    }
    begin = shard.end;
  }
}

// Tokens that each device must receive from each owner for rows of its own shard.
std::vector<std::vector<std::int64_t>> tokens_needed(const Topology& topology,
                                                     std::span<const Range> shards) {
  const std::int64_t length = shards.empty() ? 0 : shards.back().end;
  std::vector<std::vector<std::int64_t>> needed;
  for (std::size_t device = 0; device < shards.size(); ++device) {
    const Ranges read = topology.may_read(shards[device].begin, shards[device].end, length);
    needed.emplace_back();
    for (std::size_t owner = 0; owner < shards.size(); ++owner) {
      needed.back().push_back(owner == device ? 0 : clip(read, shards[owner]).size());
    }
  }
  return needed;
}

// Adds a layer whose KV heads fall into these classes.
void add_layer(std::span<const LayerTopology::Class> classes, std::int64_t head_bytes,
               std::span<const Range> shards, Traffic& traffic) {
  const std::size_t devices = shards.size();
  std::vector<std::vector<std::int64_t>> most(devices, std::vector<std::int64_t>(devices, 0));
  for (const LayerTopology::Class& heads : classes) {
    const Int128 token_bytes = checked_mul(head_bytes, heads.count);
    const std::vector<std::vector<std::int64_t>> needed = tokens_needed(heads.topology, shards);
    for (std::size_t device = 0; device < devices; ++device) {
      for (std::size_t owner = 0; owner < devices; ++owner) {
        const std::int64_t tokens = needed[device][owner];
        most[device][owner] = std::max(most[device][owner], tokens);
        Int128& bytes = traffic.bytes[device][owner];
        bytes = checked_add(bytes, checked_mul(tokens, token_bytes));
      }
      const std::int64_t others = shards.back().end - (shards[device].end - shards[device].begin);
      Int128& ring = traffic.ring_bytes[device];
      ring = checked_add(ring, checked_mul(others, token_bytes));
    }
  }
  for (std::size_t device = 0; device < devices; ++device) {
    for (std::size_t owner = 0; owner < devices; ++owner) {
      std::int64_t& tokens = traffic.tokens[device][owner];
      tokens = checked_add64(tokens, most[device][owner]);
    }
  }
}

std::vector<DeviceTraffic> devices_of(const Traffic& traffic, std::span<const Range> shards) {
  std::vector<DeviceTraffic> devices(shards.size());
  for (std::size_t device = 0; device < shards.size(); ++device) {
    devices[device].shard = shards[device];
    devices[device].ring_received_bytes = traffic.ring_bytes[device];
    for (std::size_t owner = 0; owner < shards.size(); ++owner) {
      const Int128 bytes = traffic.bytes[device][owner];
      if (traffic.tokens[device][owner] == 0) continue;
      devices[device].receives.push_back(
          {static_cast<int>(owner), traffic.tokens[device][owner], bytes});
      devices[device].received_bytes = checked_add(devices[device].received_bytes, bytes);
      devices[owner].sent_bytes = checked_add(devices[owner].sent_bytes, bytes);
    }
  }
  return devices;
}

}  // namespace

std::vector<Range> even_shards(std::int64_t length, int num_devices) {
  if (length < 0) throw Error(fmt::format("length is {}; allowed: 0 and above", length));
  if (num_devices < 1) {
    throw Error(fmt::format("num_devices is {}; allowed: 1 and above", num_devices));
  }
  std::vector<Range> shards;
  std::int64_t begin = 0;
  for (int device = 0; device < num_devices; ++device) {
    const std::int64_t extra = device < length % num_devices ? 1 : 0;
    shards.push_back({begin, begin + length / num_devices + extra});
    begin = shards.back().end;
  }
  return shards;
}

std::vector<DeviceTraffic> context_parallel(const Topology& topology, std::span<const Range> shards,
                                            std::int64_t bytes_per_token) {
  require_shards(shards);
  if (bytes_per_token < 0) {
    throw Error(fmt::format("bytes_per_token is {}; allowed: 0 and above", bytes_per_token));
  }
  Traffic traffic(shards.size());
  const std::vector<LayerTopology::Class> classes = {{topology, 1}};
  if (!shards.empty()) add_layer(classes, bytes_per_token, shards, traffic);
  return devices_of(traffic, shards);
}

std::vector<DeviceTraffic> context_parallel(const LayerTable& table, const ModelShape& shape,
                                            const KvDtype& dtype, std::span<const Range> shards) {
  require_shards(shards);
  Traffic traffic(shards.size());
  for (const StoredKv& layer : made_kv(table, shape, dtype)) {
    if (!shards.empty()) add_layer(layer.kv_heads, layer.head_bytes, shards, traffic);
  }
  return devices_of(traffic, shards);
}

}  // namespace lacuna

#include "bench/prediction.h"

#include <string>

#include "lacuna/executed.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"
#include "lacuna/kv_dtype.h"

namespace lacuna::bench {

PredictedCall predicted_call(std::span<const Topology> topologies, const HeadCounts& heads,
                             const SequenceRows& rows) {
  const bool one = topologies.size() == 1;  // of all heads
  const auto group = static_cast<std::size_t>(heads.num_q_heads / heads.num_kv_heads);
  const auto of = [&](const Topology& topology) {
    return executed(topology, rows.rows, rows.length, kernel_tile());
  };
  Int128 pairs = 0;
  Int128 needed = 0;
  for (const Topology& topology : topologies) {
    pairs += of(topology).pairs;
    needed += topology.edges(rows.rows.begin, rows.rows.end, rows.length);
  }
  Int128 keys = 0;
  for (std::size_t first = 0; first < topologies.size(); first += group) {
    keys += of(Topology::merged(topologies.subspan(first, one ? 1 : group))).loaded_keys;
  }
  return {to_int64(checked_mul(pairs, one ? heads.num_q_heads : 1), "executed pairs"),
          to_int64(checked_mul(needed, one ? heads.num_q_heads : 1), "needed pairs"),
          to_int64(checked_mul(keys, one ? heads.num_kv_heads : 1), "keys read")};
}

std::int64_t loaded_key_bytes(DType kv_dtype, std::int64_t head_dim, std::int64_t v_head_dim) {
  const KvDtype dtype = lacuna::kv_dtype(to_string(kv_dtype));
  return to_int64(vector_bytes(dtype, "d_h", head_dim).value(), "bytes of a key") +
         to_int64(vector_bytes(dtype, "d_v", v_head_dim).value(), "bytes of a value");
}

}  // namespace lacuna::bench

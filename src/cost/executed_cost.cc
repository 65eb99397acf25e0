// What tiles execute and load, and the memory traffic of a prefill that nobody can avoid.

#include <string>

#include "cost/kv_bytes.h"
#include "cost/layer_cost.h"
#include "lacuna/executed.h"

namespace lacuna {
namespace {

// Queries, outputs and expanded keys and values are activations, whatever the cache's dtype.
Equation activation_bytes(const LayerContext& at) {
  return Equation("b_a", at.work.query().kv_dtype.name == "f32" ? 4 : 2);
}

// Widths of q and k, and of v and o. A prefill of an mla layer works on the expanded ones.
Equation query_width(const LayerContext& at) {
  if (at.layer.mixer != Mixer::kMla) return Equation("d_h", at.shape.head_dim);
  return Equation("d_n", at.shape.latent->qk_nope_head_dim) +
         Equation("d_r", at.shape.latent->qk_rope_head_dim);
}

Equation value_width(const LayerContext& at) {
  const bool mla = at.layer.mixer == Mixer::kMla;
  return Equation("d_v", mla ? at.shape.latent->v_head_dim : at.shape.v_head_dim);
}

// What all rows of one head execute. A decode step executes alone: its rows form their own tiles.
Executed executed_by_head(const LayerContext& at, const Topology& topology) {
  const Workload& work = at.work;
  const Tile tile = work.query().tile;
  Executed sum;
  const auto add = [&](Range rows, std::int64_t length, std::int64_t count, Tile its_tile) {
    const Executed part = executed(topology, rows, length, its_tile);
    sum.pairs = checked_add(sum.pairs, checked_mul(part.pairs, count));
    sum.loaded_keys = checked_add(sum.loaded_keys, checked_mul(part.loaded_keys, count));
  };
  for (const Workload::Sequence& sequence : work.sequences()) {
    const std::int64_t first = sequence.length - 1;
    if (!work.decodes()) {
      add({0, sequence.length}, sequence.length, sequence.count, tile);
    } else if (work.step_rows() == 1) {
      const std::int64_t end = first + work.num_steps();
      add({first, end}, end, sequence.count, {1, tile.k});
    } else {
      for (std::int64_t step = 0; step < work.num_steps(); ++step) {
        const std::int64_t end = first + step + work.step_rows();
        add({first + step, end}, end, sequence.count, tile);
      }
    }
  }
  return sum;
}

struct ExecutedSums {
  HeadSums pairs;        // of query heads
  HeadSums loaded_keys;  // of the heads that load keys of their own
};

ExecutedSums executed_sums(const LayerContext& at) {
  ExecutedSums sums;
  const bool expands = at.layer.mixer == Mixer::kMla;  // keys of its own for every query head
  for (const LayerTopology::Class& heads : at.topology.q_heads()) {
    const Executed of_head = executed_by_head(at, heads.topology);
    sums.pairs.emplace_back(of_head.pairs, heads.count);
    if (expands) sums.loaded_keys.emplace_back(of_head.loaded_keys, heads.count);
    // Heads that are all alike are counted once, for queries and for keys.
    if (!expands && at.topology.uniform()) {
      sums.loaded_keys.emplace_back(of_head.loaded_keys, at.shape.num_kv_heads);
    }
  }
  const bool prefills = !at.work.trains() && !at.work.decodes();
  if (expands || at.topology.uniform() || !prefills) return sums;
  for (const LayerTopology::Class& heads : at.topology.kv_heads()) {
    sums.loaded_keys.emplace_back(executed_by_head(at, heads.topology).loaded_keys, heads.count);
  }
  return sums;
}

// Bytes of a key and its value as a tile loads them, over all heads that load their own.
struct LoadedHead {
  Equation bytes;
  Equation count;
};

LoadedHead loaded_head(const LayerContext& at) {
  if (at.layer.mixer == Mixer::kMla) {
    return {(query_width(at) + value_width(at)) * activation_bytes(at),
            Equation("H", at.shape.num_q_heads)};
  }
  return {kv_head_bytes(at.kv_shape(), at.layer.mixer, at.work.query().kv_dtype),
          Equation("H_kv", at.shape.num_kv_heads)};
}

Equation compulsory_bytes(const LayerContext& at) {
  const Equation rows = at.work.rows();
  const Equation heads("H", at.shape.num_q_heads);
  const LoadedHead loaded = loaded_head(at);
  return rows * heads * (query_width(at) + value_width(at)) * activation_bytes(at) +
         rows * loaded.count * loaded.bytes + 4 * rows * heads;
}

}  // namespace

void add_executed_figures(LayerCost& cost, const LayerContext& at) {
  const bool prefills = !at.work.trains() && !at.work.decodes();
  cost.executed_pairs = known(0);
  cost.executed_exponentials = known(0);
  cost.kv_loaded_bytes = cost.compulsory_bytes =
      prefills ? known(0) : unknown("counted in prefill only");
  if (!at.attends()) return;
  const ExecutedSums sums = executed_sums(at);
  const Equation pairs = over_heads(sums.pairs, "X", "H");
  cost.executed_pairs = known(pairs);
  Equation exponentials = pairs;
  if (at.shape.learned_sink) {  // one more score in each row's softmax
    exponentials = exponentials + at.work.rows() * Equation("H", at.shape.num_q_heads);
  }
  cost.executed_exponentials = known(exponentials);
  if (!prefills) return;
  const LoadedHead loaded = loaded_head(at);
  cost.kv_loaded_bytes =
      known(over_heads(sums.loaded_keys, "K", loaded.count.symbols().c_str()) * loaded.bytes);
  cost.compulsory_bytes = known(compulsory_bytes(at));
}

}  // namespace lacuna

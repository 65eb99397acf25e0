// What a layer keeps for later steps, and what a step reads and writes of it.

#include <algorithm>
#include <variant>

#include "cost/kv_bytes.h"
#include "cost/layer_cost.h"

namespace lacuna {
namespace {

using Classes = std::vector<LayerTopology::Class>;
using Sequence = Workload::Sequence;

// Chunks of one prompt that are looked at from each end; those between repeat their neighbours.
constexpr std::int64_t kChunksFromEachEnd = 2048;

// Tokens over all KV heads (of `one_head`), times the bytes of each: "S·H_kv·(d_h + d_v)·b".
template <typename OneHead>
Equation token_bytes(const LayerContext& at, const Classes& classes, const char* symbol,
                     const OneHead& one_head) {
  const LayerShape& shape = at.kv_shape();
  const KvDtype& dtype = at.work.query().kv_dtype;
  if (classes.size() == 1) {
    return Equation(symbol, one_head(classes.front().topology)) *
           kv_bytes_per_token(shape, at.layer.mixer, dtype);
  }
  Int128 sum = 0;
  for (const LayerTopology::Class& heads : classes) {
    sum = checked_add(sum, checked_mul(one_head(heads.topology), heads.count));
  }
  return Equation(std::string(symbol) + " over all KV heads", sum) *
         kv_head_bytes(shape, at.layer.mixer, dtype);
}

Equation held_bytes(const LayerContext& at, const Classes& classes) {
  return token_bytes(at, classes, "S", [&](const Topology& topology) {
    return at.work.sum_sequences([&](const Sequence& sequence) -> Int128 {
      const std::int64_t length = at.work.last_length(sequence);
      return topology.retained(length - 1, length).size();
    });
  });
}

// The most that all KV heads hold at one time while one sequence's prompt is worked through.
Int128 peak_tokens(const LayerContext& at, const Classes& classes, const Sequence& sequence) {
  const auto held = [&](std::int64_t first_query, std::int64_t length) {
    Int128 tokens = 0;
    for (const LayerTopology::Class& heads : classes) {
      tokens += Int128{heads.topology.retained(first_query, length).size()} * heads.count;
    }
    return tokens;
  };
  const std::int64_t length = at.work.last_length(sequence);
  if (at.work.decodes()) return held(length - at.work.step_rows(), length);
  const std::int64_t chunk = at.work.query().chunk;
  if (chunk == 0 || chunk >= length) return held(0, length);
  const std::int64_t num_chunks = lacuna::ceil_div(length, chunk);
  Int128 peak = 0;
  for (std::int64_t c = 0; c < num_chunks; ++c) {
    if (c == kChunksFromEachEnd) c = std::max(c, num_chunks - kChunksFromEachEnd);
    peak = std::max(peak, held(c * chunk, std::min(length, (c + 1) * chunk)));
  }
  return peak;
}

Equation peak_bytes(const LayerContext& at, const Classes& classes) {
  const KvDtype& dtype = at.work.query().kv_dtype;
  const Int128 tokens = at.work.sum_sequences(
      [&](const Sequence& sequence) { return peak_tokens(at, classes, sequence); });
  if (classes.size() == 1) {
    return Equation("S_peak", tokens / classes.front().count) *
           kv_bytes_per_token(at.shape, at.layer.mixer, dtype);
  }
  return Equation("S_peak over all KV heads", tokens) *
         kv_head_bytes(at.shape, at.layer.mixer, dtype);
}

Equation read_bytes(const LayerContext& at) {
  const auto classes = at.topology.kv_heads();
  return token_bytes(at, {classes.begin(), classes.end()}, "R", [&](const Topology& topology) {
    return at.work.sum_sequences([&](const Sequence& sequence) -> Int128 {
      const std::int64_t length = at.work.last_length(sequence);
      const std::int64_t first = length - at.work.step_rows();
      // One row is counted without listing its keys, which may be very many single ones.
      if (length - first == 1)
        return to_int64(topology.edges(first, length, length), "a row's size");
      return topology.rows(first, length, length).size();
    });
  });
}

// Recurrent state and the tails of its short convolution, both in f32.
Equation state_bytes(const LayerContext& at) {
  const bool finite = at.layer.mixer == Mixer::kLinear || at.layer.mixer == Mixer::kSsm;
  if (!finite) return 0;
  const StateShape& state = *at.shape.state;
  Equation bytes = Equation("H_v", state.num_value_heads) * Equation("d_k", state.key_dim) *
                   Equation("d_v", state.value_dim) * 4;
  if (state.conv_kernel > 1 && state.conv_channels > 0) {
    bytes = bytes + (Equation("taps", state.conv_kernel) - 1) *
                        Equation("channels", state.conv_channels) * 4;
  }
  return at.work.num_sequences() == 0 ? Equation(0) : at.work.batch() * bytes;
}

Equation tokens_of_last_step(const LayerContext& at) {
  const Int128 sum = at.work.sum_sequences(
      [&](const Sequence& sequence) { return Int128{at.work.last_length(sequence)}; });
  return Equation(at.work.num_sequences() == 1 ? "L" : "ΣL", sum);
}

// Ids of the chosen keys or blocks that a row of a step reads, four bytes each.
Int128 chosen_ids(const Union& attend, std::int64_t length) {
  Int128 ids = 0;
  for (const Term& term : attend) {
    if (const auto* keys = std::get_if<TopK>(&term)) ids += std::min(keys->k, length);
    if (const auto* blocks = std::get_if<TopKBlocks>(&term)) {
      ids += std::min(blocks->k, lacuna::ceil_div(length, blocks->block));
    }
  }
  return ids;
}

Equation index_read_bytes(const LayerContext& at) {
  if (at.owns_index()) {
    return tokens_of_last_step(at) * Equation("c_I", at.shape.index->bytes_per_token);
  }
  if (!at.layer.index_from) return 0;
  const Int128 ids = at.work.sum_sequences([&](const Sequence& sequence) {
    Int128 most = 0;  // heads share one choice: the longest list is read
    for (const HeadGroup& group : at.layer.attend.groups) {
      most = std::max(most, chosen_ids(group.attend, at.work.last_length(sequence)));
    }
    return most;
  });
  const Equation rows = at.work.step_rows() == 1 ? Equation(1) : Equation("q", at.work.step_rows());
  return 4 * Equation("ids", ids) * rows;
}

void set_all(LayerCost& cost, const Figure128& value) {
  for (Figure128* figure :
       {&cost.kv_bytes_per_token, &cost.kv_held_bytes, &cost.kv_peak_bytes, &cost.state_held_bytes,
        &cost.index_held_bytes, &cost.kv_written_bytes_per_step, &cost.kv_read_bytes_per_step,
        &cost.index_read_bytes_per_step}) {
    *figure = value;
  }
}

void add_own_kv(LayerCost& cost, const LayerContext& at) {
  const Equation per_token = kv_bytes_per_token(at.shape, at.layer.mixer, at.work.query().kv_dtype);
  cost.kv_bytes_per_token = known(per_token);
  if (at.work.sequences().empty()) return;
  const Classes classes = at.kept_for();
  cost.kv_held_bytes = known(held_bytes(at, classes));
  cost.kv_peak_bytes = known(peak_bytes(at, classes));
  const Equation rows = at.work.step_rows() == 1 ? Equation(1) : Equation("q", at.work.step_rows());
  cost.kv_written_bytes_per_step = known(at.work.batch() * rows * per_token);
}

}  // namespace

void add_cache_figures(LayerCost& cost, const LayerContext& at) {
  if (at.work.trains()) return set_all(cost, unknown("training keeps no KV cache"));
  set_all(cost, known(0));
  if (!at.caches()) return;
  cost.state_held_bytes = known(state_bytes(at));
  if (!at.attends()) return;
  if (!at.layer.kv_from) add_own_kv(cost, at);
  if (at.work.sequences().empty()) return;
  cost.kv_read_bytes_per_step = known(read_bytes(at));
  if (at.owns_index()) {
    cost.index_held_bytes =
        known(tokens_of_last_step(at) * Equation("c_I", at.shape.index->bytes_per_token));
  }
  cost.index_read_bytes_per_step = known(index_read_bytes(at));
}

}  // namespace lacuna

#pragma once

// What the cache's tests share: a small model's cache, keys and values that follow from a token,
// its position, layer and head, and attention over the cache as a model would run it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/attention.h"
#include "lacuna/kernels.h"
#include "lacuna/kv_cache.h"
#include "lacuna/layer_table.h"
#include "lacuna/memory.h"
#include "lacuna/plan.h"
#include "lacuna/retention.h"
#include "lacuna/topology.h"

namespace lacuna::rig {

using Tokens = std::vector<std::int32_t>;

// first, first + 1, ….
inline Tokens tokens(std::int64_t count, std::int32_t first = 0) {
  Tokens all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// Sanitized programs are ten times slower: long tests do less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

struct Model {
  LayerTable table;
  ModelShape shape;
};

// `layers` as parse_layers reads it; head widths differ from layer to layer where dims say so.
inline Model model(const std::string& layers, int num_layers, LayerShape sizes) {
  return {parse_layers(layers, num_layers, true), uniform_shape(num_layers, sizes)};
}

inline LayerShape sizes(int num_q_heads, int num_kv_heads, std::int64_t head_dim,
                        std::int64_t v_head_dim) {
  LayerShape shape;
  shape.num_q_heads = num_q_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.head_dim = head_dim;
  shape.v_head_dim = v_head_dim;
  return shape;
}

// A window, all keys on pages of another size, and a window with sinks, of widths that the dtype
// has.
inline Model three_kinds(DType dtype) {
  const std::int64_t unit = dtype == DType::kInt4 ? 2 : 1;  // groups of 32 dims
  Model made =
      model("window(40), full, window(24) + sink(4)", 3, sizes(4, 2, 16 * unit, 16 * unit));
  made.shape.layers[1] = sizes(4, 1, 32 * unit, 48 * unit);
  return made;
}

inline CacheShape cache_shape(const Retention& retention, std::int64_t page_size, DType dtype) {
  CacheShape shape;
  shape.layers = retention.layers();
  shape.page_size = page_size;
  shape.dtype = dtype;
  return shape;
}

// A number between -1 and 1 for each place.
inline float number(std::uint64_t kind, std::int32_t token, std::int64_t position, int layer,
                    std::int64_t head, std::int64_t dim) {
  std::uint64_t x = kind;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(position),
        static_cast<std::uint64_t>(layer), static_cast<std::uint64_t>(head),
        static_cast<std::uint64_t>(dim)}) {
    x = (x ^ part) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
  }
  return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1;
}

// [rows, heads, dims] of some consecutive tokens.
struct Rows {
  std::vector<float> data;
  std::array<std::int64_t, 3> shape = {0, 0, 0};
  TensorView view() const { return tensor_view(data.data(), DType::kF32, shape); }
};

enum Kind : std::uint64_t { kQ = 1, kK = 2, kV = 3 };

inline void append(Rows& rows, Kind kind, std::span<const std::int32_t> tokens,
                   std::int64_t first_position, int layer) {
  std::int64_t position = first_position;
  for (const std::int32_t token : tokens) {
    for (std::int64_t head = 0; head < rows.shape[1]; ++head) {
      for (std::int64_t dim = 0; dim < rows.shape[2]; ++dim) {
        rows.data.push_back(number(kind, token, position, layer, head, dim));
      }
    }
    ++position;
    ++rows.shape[0];
  }
}

// Outputs of one layer as bits, a row after another.
struct Answer {
  std::vector<float> out;
  std::vector<float> lse;
  friend bool operator==(const Answer& a, const Answer& b) {
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      return x.size() == y.size() &&
             (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
    };
    return same(a.out, b.out) && same(a.lse, b.lse);
  }
};

inline std::vector<Topology> topologies(const Model& model, int layer) {
  const Layer& of = model.table.layers[static_cast<std::size_t>(layer)];
  const int heads = model.shape.layers[static_cast<std::size_t>(layer)].num_q_heads;
  std::vector<Topology> result;
  for (int head = 0; head < heads; ++head) {
    for (const HeadGroup& group : of.attend.groups) {
      bool reads = group.heads.empty();
      for (const std::int64_t listed : group.heads) reads = reads || listed == head;
      if (reads) result.emplace_back(group.attend, true, layer, head);
    }
  }
  return result;
}

// What a step of a sequence computes.
struct StepTokens {
  SequenceId sequence = 0;
  std::span<const std::int32_t> tokens;  // the new ones
};

inline Answer attend(const Model& model, int layer, const KvView& kv, const Rows& q,
                     std::span<const SequenceRows> rows, AttentionOptions options = {}) {
  const LayerShape& shape = model.shape.layers[static_cast<std::size_t>(layer)];
  const Plan plan =
      make_plan(topologies(model, layer), rows, {shape.num_q_heads, shape.num_kv_heads});
  const std::array<std::int64_t, 3> out_shape = {q.shape[0], q.shape[1], shape.v_head_dim};
  Answer answer;
  answer.out.resize(static_cast<std::size_t>(out_shape[0] * out_shape[1] * out_shape[2]));
  answer.lse.resize(static_cast<std::size_t>(out_shape[0] * out_shape[1]));
  const TensorView queries = q.view();
  Memory workspace(workspace_bytes(plan, queries, kv, options));
  run(mutable_tensor_view(answer.out.data(), DType::kF32, out_shape), answer.lse, plan, queries, kv,
      {workspace.data(), static_cast<std::size_t>(workspace.size())}, options);
  return answer;
}

// One step: appends every layer's keys and values, runs attention of every layer, commits the first
// num_committed[i] rows (all where it is empty), and keeps what later queries can read. Answers of
// each layer; nothing where the cache has no room.
inline std::optional<std::vector<Answer>> step(KvCache& cache, const Model& model,
                                               const Retention& retention,
                                               std::span<const StepTokens> all,
                                               std::span<const std::int64_t> num_committed = {},
                                               std::int64_t rollback = 0) {
  std::vector<StepRows> rows;
  std::vector<SequenceRows> planned;
  std::vector<SequenceId> ids;
  for (const StepTokens& of : all) {
    const std::int64_t length = cache.length(of.sequence);
    const std::int64_t end = length + std::ssize(of.tokens);
    rows.push_back({of.sequence, std::ssize(of.tokens)});
    planned.push_back({{length, end}, end});
    ids.push_back(of.sequence);
  }
  std::optional<KvCache::Step> step = cache.begin(rows);
  if (!step) return std::nullopt;
  std::vector<Answer> answers;
  for (int layer = 0; layer < std::ssize(model.table.layers); ++layer) {
    const LayerShape& shape = model.shape.layers[static_cast<std::size_t>(layer)];
    Rows q = {{}, {0, shape.num_q_heads, shape.head_dim}};
    Rows k = {{}, {0, shape.num_kv_heads, shape.head_dim}};
    Rows v = {{}, {0, shape.num_kv_heads, shape.v_head_dim}};
    for (std::size_t idx = 0; idx < all.size(); ++idx) {
      append(q, kQ, all[idx].tokens, planned[idx].rows.begin, layer);
      append(k, kK, all[idx].tokens, planned[idx].rows.begin, layer);
      append(v, kV, all[idx].tokens, planned[idx].rows.begin, layer);
    }
    if (!model.table.layers[static_cast<std::size_t>(layer)].kv_from) {
      step->append(layer, k.view(), v.view());
    }
    answers.push_back(attend(model, layer, cache.view(layer, ids).kv(), q, planned));
  }
  if (num_committed.empty()) {
    step->commit();
  } else {
    step->commit(num_committed);
  }
  for (const SequenceId id : ids) {
    const std::int64_t length = cache.length(id);
    cache.retain(id, retention.kept(length - rollback, length));
  }
  return answers;
}

// Steps of `chunk` tokens until all are committed; the answers of each step.
inline std::vector<std::vector<Answer>> run(KvCache& cache, const Model& model,
                                            const Retention& retention, SequenceId id,
                                            std::span<const std::int32_t> all, std::int64_t chunk) {
  std::vector<std::vector<Answer>> answers;
  while (!all.empty()) {
    const auto here = all.first(std::min(static_cast<std::size_t>(chunk), all.size()));
    answers.push_back(*step(cache, model, retention, {{{id, here}}}));
    all = all.subspan(here.size());
  }
  return answers;
}

}  // namespace lacuna::rig

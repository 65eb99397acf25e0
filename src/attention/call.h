#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/kernel_table.h"
#include "lacuna/attention.h"

namespace lacuna {

// A checked call: sizes, kernel and the layout of its workspace. Holds views only.
struct Call {
  const Plan& plan;
  const TensorView& q;
  const KvView& kv;
  const AttentionOptions& options;
  const TileKernel& kernel;
  BlockShape shape = {};
  float sm_scale = 1;
  std::int64_t group = 1;  // query heads of a KV head
  std::int64_t num_threads = 1;
  std::int64_t max_rows = 0;   // of an item, over its parts and heads
  std::int64_t max_parts = 0;  // of an item
  // Of a panel in the workspace: numbers, and their scales behind them.
  std::int64_t k_panel_lanes = 0;
  std::int64_t v_panel_lanes = 0;

  std::int64_t o_stride() const { return shape.dim_blocks * kDimBlock; }
  std::int64_t kv_head_index(const WorkItem& item) const {
    return item.sequence * plan.heads.num_kv_heads + item.kv_head;
  }
  ScoreRule rule(const float* slopes) const {
    return {sm_scale, options.softcap, options.alibi_slopes.empty() ? nullptr : slopes};
  }
};

// Throws Error naming what does not fit.
Call make_call(const Plan& plan, const TensorView& q, const KvView& kv,
               const AttentionOptions& options);
void check_sink_logits(std::span<const float> sink_logits);
void check_output(const Call& call, const MutableTensorView& out, std::span<float> lse);
// Every key that the plan reads lies on a page that is there.
void check_pages(const Call& call);

// Key tiles of a sequence's keys, the last one hanging over the end.
std::int64_t num_key_tiles(const Call& call, std::int64_t sequence);
std::int64_t num_panels(const Plan& plan, std::int64_t gathered_set);

// Rows of a part: tokens × heads.
inline std::int64_t num_tokens(const TilePart& part) { return part.rows_end - part.rows_begin; }
inline std::int64_t num_heads(const Plan& plan, const TilePart& part) {
  return static_cast<std::int64_t>(plan.head_sets[static_cast<std::size_t>(part.head_set)].size());
}

// Calls visit(part) for the parts of an item's tiles.
template <typename Visit>
void for_each_part(const Plan& plan, const WorkItem& item, const Visit& visit) {
  if (item.tiles_begin == item.tiles_end) return;
  const auto begin = plan.tiles[static_cast<std::size_t>(item.tiles_begin)].parts_begin;
  const auto end = plan.tiles[static_cast<std::size_t>(item.tiles_end - 1)].parts_end;
  for (std::int64_t p = begin; p < end; ++p) visit(plan.parts[static_cast<std::size_t>(p)]);
}

// Runs work(thread_idx) on the call's threads.
void on_threads(const Call& call, const std::function<void(std::int64_t)>& work);

// Hands out units 0 .. num_units-1 in order to whichever thread is free: each thread calls
// make_worker(thread_idx) and then what that gave for each unit it gets. False where stop was
// requested before all were handed out.
template <typename MakeWorker>
bool work_through(const Call& call, std::size_t num_units, const MakeWorker& make_worker) {
  std::atomic<std::size_t> next = 0;
  on_threads(call, [&](std::int64_t thread_idx) {
    auto worker = make_worker(static_cast<std::size_t>(thread_idx));
    while (!call.options.stop.stop_requested()) {
      const std::size_t unit = next.fetch_add(1, std::memory_order_relaxed);
      if (unit >= num_units) return;
      worker(unit);
    }
  });
  return next >= num_units || !call.options.stop.stop_requested();
}

}  // namespace lacuna

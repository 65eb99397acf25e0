#include "audit/best_paths.h"

#include <algorithm>
#include <utility>

#include "bench/timed_row.h"
#include "lacuna/memory.h"
#include "lacuna/plan.h"
#include "lacuna/topology.h"

namespace lacuna::audit {
namespace {

// Rows of one call, each a sequence of its own, so that its weights are not added to another's.
constexpr std::int64_t kRows = 16;

// The cache's one sequence as the rows see it: each up to itself.
struct RowsOfOne {
  RowsOfOne(const KvView& one, Range rows) : view(one) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      lengths.push_back(row + 1);
      sequences.push_back({{row, row + 1}, row + 1});
      block_table.insert(block_table.end(), one.block_table.begin(), one.block_table.end());
    }
    view.lengths = lengths;
    view.block_table = block_table;
  }

  KvView view;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> block_table;
  std::vector<SequenceRows> sequences;
};

TensorView rows_of(const TensorView& q, std::int64_t first, std::int64_t count) {
  TensorView part = q;
  part.data = static_cast<const std::byte*>(q.data) + first * q.strides[0] * size_bytes(q.dtype);
  part.shape[0] = count;
  return part;
}

}  // namespace

BestPaths::BestPaths(const LayerTable& table, std::vector<std::int64_t> evidence,
                     std::int64_t length, std::stop_token stop)
    : table_(table), evidence_(std::move(evidence)), length_(length), stop_(std::move(stop)) {
  const std::int64_t levels = std::ssize(table.layers) + 1;
  for (const std::int64_t position : evidence_) {
    std::vector<BestPath>& paths = paths_.emplace_back();
    paths.assign(static_cast<std::size_t>(levels * length), {0, -1});
    for (std::int64_t level = 0; level < levels; ++level) paths[at(level, position)] = {1, 0};
  }
}

void BestPaths::add(std::int64_t layer, const LayerAttention& done) {
  const std::int64_t end = done.kv.lengths[0];
  std::int64_t row = std::max(end - done.q.shape[0], evidence_.front());
  for (; row < end; row += kRows) add_rows(layer, done, {row, std::min(row + kRows, end)});
}

void BestPaths::add_rows(std::int64_t layer, const LayerAttention& done, Range rows) {
  const auto num_heads = static_cast<int>(done.q.shape[1]);
  const HeadCounts heads = {num_heads, static_cast<int>(done.kv.num_kv_heads)};
  const std::int64_t first = rows.begin - (done.kv.lengths[0] - done.q.shape[0]);
  const std::int64_t count = rows.end - rows.begin;
  const RowsOfOne one(done.kv, rows);
  PlanOptions plan_options;
  if (done.options.pool != nullptr) plan_options.num_threads = done.options.pool->num_threads();
  const Plan plan = make_plan(topologies_of_heads(table_.layers[static_cast<std::size_t>(layer)],
                                                  true, static_cast<int>(layer), num_heads),
                              one.sequences, heads, plan_options);
  AttentionOptions options = done.options;
  options.stop = stop_;
  const TensorView q = rows_of(done.q, first, count);
  const std::int64_t bytes = workspace_bytes(plan, q, one.view, options);
  if (workspace_.size() < bytes) workspace_ = Memory(bytes);
  std::int64_t keys = 0;
  for (const std::int64_t length : one.lengths) keys += length;
  mass_.resize(static_cast<std::size_t>(num_heads * keys));
  const auto lse = done.lse.subspan(static_cast<std::size_t>(first * num_heads),
                                    static_cast<std::size_t>(count * num_heads));
  if (!column_mass(mass_, plan, q, one.view, lse,
                   {workspace_.data(), static_cast<std::size_t>(bytes)}, options)) {
    throw bench::Stopped{};
  }
  std::int64_t offset = 0;
  std::vector<float> largest;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    largest.assign(static_cast<std::size_t>(row + 1), 0);
    for (int head = 0; head < num_heads; ++head) {
      const float* const of = mass_.data() + head * keys + offset;
      for (std::size_t key = 0; key < largest.size(); ++key) {
        largest[key] = std::max(largest[key], of[key]);
      }
    }
    extend(layer, row, largest);
    offset += row + 1;
  }
}

void BestPaths::extend(std::int64_t layer, std::int64_t row, std::span<const float> weights) {
  for (std::size_t idx = 0; idx < paths_.size(); ++idx) {
    if (row <= evidence_[idx]) continue;
    std::vector<BestPath>& paths = paths_[idx];
    BestPath best = paths[at(layer, row)];
    for (std::int64_t key = evidence_[idx]; key < row; ++key) {
      const BestPath& before = paths[at(layer, key)];
      const double weight = before.weight * weights[static_cast<std::size_t>(key)];
      if (weight > best.weight) best = {weight, before.hops + 1};
    }
    paths[at(layer + 1, row)] = best;
  }
}

std::optional<BestPath> BestPaths::to(std::int64_t query, std::size_t evidence) const {
  const BestPath& path = paths_[evidence][at(std::ssize(table_.layers), query)];
  if (path.hops < 0) return {};
  return path;
}

}  // namespace lacuna::audit

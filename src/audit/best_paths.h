#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "lacuna/audit.h"
#include "lacuna/memory.h"

namespace lacuna::audit {

// For some tokens of one sequence, the path to each later state along which attention passes most
// of them on: each edge counts as the largest weight that a query head gives it, each layer passed
// by the residual as 1. Exact, by dynamic programming over layers and positions.
class BestPaths {
 public:
  // The table that runs. `evidence` are positions below `length`, ascending.
  BestPaths(const LayerTable& table, std::vector<std::int64_t> evidence, std::int64_t length,
            std::stop_token stop);

  // Of one sequence's next tokens, each layer once, as Transformer::observe_attention() has it.
  // Throws Stopped (bench/timed_row.h).
  void add(std::int64_t layer, const LayerAttention& done);

  // nullopt: no path. REQUIRES: the query's pass was added.
  std::optional<BestPath> to(std::int64_t query, std::size_t evidence) const;

 private:
  void add_rows(std::int64_t layer, const LayerAttention& done, Range rows);
  void extend(std::int64_t layer, std::int64_t row, std::span<const float> weights);
  std::size_t at(std::int64_t level, std::int64_t position) const {
    return static_cast<std::size_t>(level * length_ + position);
  }

  LayerTable table_;
  std::vector<std::int64_t> evidence_;
  std::int64_t length_ = 0;
  std::stop_token stop_;
  // [evidence][layers + 1][length]: into layer l, the last after all; hops < 0: no path.
  std::vector<std::vector<BestPath>> paths_;
  std::vector<float> mass_;
  Memory workspace_;
};

}  // namespace lacuna::audit

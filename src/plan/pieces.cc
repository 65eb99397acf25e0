#include "plan/pieces.h"

#include <algorithm>
#include <vector>

#include "lacuna/integer.h"

namespace lacuna {
namespace {

template <typename Visit>
void for_each_part(const Plan& plan, const WorkItem& item, const Visit& visit) {
  for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
    const PlanTile& tile = plan.tiles[static_cast<std::size_t>(t)];
    for (std::int64_t p = tile.parts_begin; p < tile.parts_end; ++p) {
      visit(plan.parts[static_cast<std::size_t>(p)]);
    }
  }
}

// Rows × query heads.
std::int64_t num_rows(const Plan& plan, const TilePart& part) {
  const auto& heads = plan.head_sets[static_cast<std::size_t>(part.head_set)];
  return (part.rows_end - part.rows_begin) * std::ssize(heads);
}

std::int64_t num_rows(const Plan& plan, const WorkItem& item) {
  std::int64_t rows = 0;
  for_each_part(plan, item, [&](const TilePart& part) { rows += num_rows(plan, part); });
  return rows;
}

// Executed pairs of each split; gathered keys are not among them.
class SplitWeights {
 public:
  SplitWeights(const Plan& plan, const WorkItem& item)
      : tiles_of_split_(plan.split_tokens / plan.tile.k) {
    const std::int64_t length = plan.sequences[static_cast<std::size_t>(item.sequence)].length;
    weights_.resize(static_cast<std::size_t>(ceil_div(length, plan.split_tokens)));
    for_each_part(plan, item, [&](const TilePart& part) {
      for (std::int64_t r = part.gathered_end; r < part.runs_end; ++r) {
        add(plan.runs[static_cast<std::size_t>(r)], num_rows(plan, part) * plan.tile.k);
      }
    });
  }

  std::int64_t of(std::int64_t split) const { return weights_[static_cast<std::size_t>(split)]; }

  // From the first to the last split with a weight.
  Range read() const {
    const auto reads = [](std::int64_t weight) { return weight > 0; };
    const auto first = std::ranges::find_if(weights_, reads);
    const auto last = std::find_if(weights_.rbegin(), weights_.rend(), reads);
    return {first - weights_.begin(), weights_.rend() - last};
  }

 private:
  void add(const TileRun& run, std::int64_t weight_of_tile) {
    for (std::int64_t tile = run.first; tile < run.first + run.count;) {
      const std::int64_t split = tile / tiles_of_split_;
      const std::int64_t end = std::min((split + 1) * tiles_of_split_, run.first + run.count);
      weights_[static_cast<std::size_t>(split)] += (end - tile) * weight_of_tile;
      tile = end;
    }
  }

  std::int64_t tiles_of_split_;
  std::vector<std::int64_t> weights_;
};

// Cuts an item into pieces of about `target` executed pairs. What it gathers stands before its
// first split.
void cut(Plan& plan, std::int64_t item_idx, std::int64_t target) {
  const WorkItem& item = plan.items[static_cast<std::size_t>(item_idx)];
  const SplitWeights weights(plan, item);
  const Range splits = weights.read();
  const std::int64_t most = ceil_div(item.weight, target);
  std::int64_t ordinary = 0;
  for (std::int64_t split = splits.begin; split < splits.end; ++split)
    ordinary += weights.of(split);
  const std::size_t first_piece = plan.pieces.size();
  std::int64_t done = item.weight - ordinary;
  WorkPiece piece = {item_idx, std::ssize(plan.cuts), {splits.begin, splits.begin}, done};
  for (std::int64_t split = splits.begin; split < splits.end; ++split) {
    const std::int64_t weight = weights.of(split);
    done += weight;
    piece.weight += weight;
    piece.splits.end = split + 1;
    const std::int64_t ended = std::ssize(plan.pieces) - static_cast<std::int64_t>(first_piece);
    const bool is_full = Int128{done} * most >= Int128{item.weight} * (ended + 1);
    if (weight == 0 || (!is_full && split + 1 < splits.end)) continue;
    plan.pieces.push_back(piece);
    piece = {item_idx, piece.cut, {split + 1, split + 1}, 0};
  }
  const std::int64_t num_pieces = std::ssize(plan.pieces) - static_cast<std::int64_t>(first_piece);
  if (num_pieces > 1) {
    plan.cuts.push_back({item_idx, splits, num_pieces});
  } else {
    plan.pieces.resize(first_piece);
    plan.pieces.push_back({item_idx, -1, {}, item.weight});
  }
}

}  // namespace

std::int64_t most_rows_of_cut(const PlanOptions& options) {
  constexpr std::int64_t kShare = 16;
  if (options.num_threads == 1 || options.split_tokens % options.tile.k != 0) return 0;
  return options.split_tokens / kShare;
}

void append_pieces(Plan& plan, const PlanOptions& options) {
  plan.split_tokens = options.split_tokens;
  Int128 total = 0;
  for (const WorkItem& item : plan.items) total += item.weight;
  const std::int64_t most_rows = most_rows_of_cut(options);
  const auto target = std::max<std::int64_t>(
      1, to_int64(total / (kPiecesOfThread * options.num_threads), "pairs of a piece"));
  plan.pieces.reserve(plan.items.size());
  for (std::int64_t idx = 0; idx < std::ssize(plan.items); ++idx) {
    const WorkItem& item = plan.items[static_cast<std::size_t>(idx)];
    if (item.weight > target && num_rows(plan, item) <= most_rows) {
      cut(plan, idx, target);
    } else {
      plan.pieces.push_back({idx, -1, {}, item.weight});
    }
  }
  std::ranges::stable_sort(plan.pieces, std::greater{}, &WorkPiece::weight);
}

}  // namespace lacuna

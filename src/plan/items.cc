#include "plan/items.h"

#include <algorithm>
#include <vector>

#include "lacuna/integer.h"
#include "plan/pieces.h"
#include "plan/sums.h"

namespace lacuna {
namespace {

class ItemMaker {
 public:
  ItemMaker(Plan& plan, std::span<const HeadTiles> tiles, const PlanOptions& options)
      : plan_(plan), tiles_(tiles), options_(options) {
    pairs_below_.reserve(plan.tiles.size() + 1);
    pairs_below_.push_back(0);
    for (const PlanTile& tile : plan.tiles) {
      pairs_below_.push_back(checked_add(pairs_below_.back(), tile_pairs(plan, tile)));
    }
  }

  std::int64_t tiles_per_item() const {
    if (options_.tiles_per_item > 0) return options_.tiles_per_item;
    // So many rows × query heads that packing K and V pays.
    constexpr std::int64_t kRows = 1024;
    const std::int64_t num_items =
        options_.num_threads == 1 ? 1 : kPiecesOfThread * options_.num_threads;
    std::int64_t num_tiles = 0;
    for (const HeadTiles& head : tiles_) num_tiles += head.end - head.begin;
    const std::int64_t group_size = plan_.heads.num_q_heads / plan_.heads.num_kv_heads;
    const std::int64_t tile_rows = plan_.tile.q * group_size;
    // Where rows are few and read several splits, those make the pieces.
    const std::int64_t by_splits =
        std::min(most_rows_of_cut(options_) / tile_rows, num_tiles * splits_of_row() / num_items);
    return std::max(
        {std::int64_t{1}, std::min(kRows / tile_rows, num_tiles / num_items), by_splits});
  }

  void append(std::int64_t sequence, std::int64_t kv_head, Range tiles, std::int64_t at_a_time) {
    for (std::int64_t begin = tiles.begin; begin < tiles.end; begin += at_a_time) {
      const std::int64_t end = std::min(begin + at_a_time, tiles.end);
      plan_.items.push_back(
          {sequence, kv_head, begin, end, to_int64(pairs({begin, end}), "pairs of an item")});
    }
  }

 private:
  Int128 pairs(Range tiles) const {
    return pairs_below_[static_cast<std::size_t>(tiles.end)] -
           pairs_below_[static_cast<std::size_t>(tiles.begin)];
  }

  // Splits that a row of a head reads, in the mean.
  std::int64_t splits_of_row() const {
    Int128 all = 0;
    for (const HeadTiles& head : tiles_) all += pairs({head.begin, head.end});
    const Int128 rows = Int128{plan_.indptr.back()} * plan_.heads.num_q_heads;
    return rows == 0 ? 0 : static_cast<std::int64_t>(all / rows / options_.split_tokens);
  }

  Plan& plan_;
  std::span<const HeadTiles> tiles_;
  const PlanOptions& options_;
  std::vector<Int128> pairs_below_;  // [num_tiles + 1]
};

}  // namespace

void append_items(Draft& draft, std::span<const HeadTiles> tiles, const PlanOptions& options) {
  Plan& plan = draft.plan();
  ItemMaker maker(plan, tiles, options);
  const std::int64_t tiles_per_item = maker.tiles_per_item();
  auto head = tiles.begin();
  for (std::int64_t sequence = 0; sequence < std::ssize(plan.sequences); ++sequence) {
    for (std::int64_t kv_head = 0; kv_head < plan.heads.num_kv_heads; ++kv_head, ++head) {
      maker.append(sequence, kv_head, {head->begin, head->global_begin}, tiles_per_item);
      // Global rows read far more than others: an item each.
      maker.append(sequence, kv_head, {head->global_begin, head->end}, 1);
      plan.gathered_of_head.push_back(head->gathered);
    }
  }
  std::ranges::stable_sort(plan.items, std::greater{}, &WorkItem::weight);
  append_pieces(plan, options);
}

}  // namespace lacuna

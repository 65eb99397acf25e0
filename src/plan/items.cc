#include "plan/items.h"

#include <algorithm>
#include <vector>

#include "lacuna/integer.h"
#include "plan/sums.h"

namespace lacuna {
namespace {

// Items of about kRows rows × query heads, so that packing K and V pays, but no fewer than
// kItemsOfThread for each of several threads, so that all find work to the end.
std::int64_t choose_tiles_per_item(const Plan& plan, std::span<const HeadTiles> tiles,
                                   std::int64_t num_threads) {
  constexpr std::int64_t kRows = 1024;
  constexpr std::int64_t kItemsOfThread = 8;
  const std::int64_t num_items = num_threads == 1 ? 1 : kItemsOfThread * num_threads;
  std::int64_t num_tiles = 0;
  for (const HeadTiles& head : tiles) num_tiles += head.end - head.begin;
  const std::int64_t group_size = plan.heads.num_q_heads / plan.heads.num_kv_heads;
  const std::int64_t by_rows = kRows / (plan.tile.q * group_size);
  return std::max<std::int64_t>(1, std::min(by_rows, num_tiles / num_items));
}

class ItemMaker {
 public:
  explicit ItemMaker(Plan& plan) : plan_(plan) {
    pairs_below_.reserve(plan.tiles.size() + 1);
    pairs_below_.push_back(0);
    for (const PlanTile& tile : plan.tiles) {
      pairs_below_.push_back(checked_add(pairs_below_.back(), tile_pairs(plan, tile)));
    }
  }

  void append(std::int64_t sequence, std::int64_t kv_head, Range tiles, std::int64_t at_a_time) {
    for (std::int64_t begin = tiles.begin; begin < tiles.end; begin += at_a_time) {
      const std::int64_t end = std::min(begin + at_a_time, tiles.end);
      const Int128 pairs = pairs_below_[static_cast<std::size_t>(end)] -
                           pairs_below_[static_cast<std::size_t>(begin)];
      plan_.items.push_back({sequence, kv_head, begin, end, to_int64(pairs, "pairs of an item")});
    }
  }

 private:
  Plan& plan_;
  std::vector<Int128> pairs_below_;  // [num_tiles + 1]
};

}  // namespace

void append_items(Draft& draft, std::span<const HeadTiles> tiles, const PlanOptions& options) {
  Plan& plan = draft.plan();
  const std::int64_t tiles_per_item = options.tiles_per_item > 0
                                          ? options.tiles_per_item
                                          : choose_tiles_per_item(plan, tiles, options.num_threads);
  ItemMaker maker(plan);
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
}

}  // namespace lacuna

#include "plan/sums.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <vector>

namespace lacuna {
namespace {

template <typename T>
std::span<const T> between(const std::vector<T>& all, std::int64_t begin, std::int64_t end) {
  return std::span(all).subspan(static_cast<std::size_t>(begin),
                                static_cast<std::size_t>(end - begin));
}

std::span<const TilePart> tile_parts(const Plan& plan, const PlanTile& tile) {
  return between(plan.parts, tile.parts_begin, tile.parts_end);
}

std::int64_t num_heads(const Plan& plan, const TilePart& part) {
  return std::ssize(plan.head_sets[static_cast<std::size_t>(part.head_set)]);
}

Int128 needed_by(const Plan& plan, const TilePart& part) {
  const std::int64_t num_rows = part.rows_end - part.rows_begin;
  Int128 pairs = 0;
  for (const TileRun& run : between(plan.runs, part.runs_begin, part.runs_end)) {
    if (run.mask == TileRun::kWhole) {
      pairs += Int128{run.count} * plan.tile.k * num_rows;
      continue;
    }
    for (const std::uint16_t bits : between(plan.masks, run.mask, run.mask + num_rows)) {
      pairs += std::popcount(bits);
    }
  }
  return pairs * num_heads(plan, part);
}

// Key tiles that stand in any of the runs.
std::int64_t distinct_tiles(std::vector<Range>& runs) {
  std::ranges::sort(runs, {}, &Range::begin);
  std::int64_t count = 0;
  std::int64_t reached = 0;
  for (const Range& run : runs) {
    count += std::max<std::int64_t>(0, run.end - std::max(run.begin, reached));
    reached = std::max(reached, run.end);
  }
  return count;
}

// Key tiles that a tile's parts load, each once however many of them visit it.
std::int64_t loaded_tiles(const Plan& plan, const PlanTile& tile) {
  constexpr std::int64_t kOrdinary = -1;
  std::map<std::int64_t, std::vector<Range>> runs;  // of each gathered set, and the ordinary ones
  for (const TilePart& part : tile_parts(plan, tile)) {
    for (std::int64_t at = part.runs_begin; at < part.runs_end; ++at) {
      const TileRun& run = plan.runs[static_cast<std::size_t>(at)];
      runs[at < part.gathered_end ? part.gathered : kOrdinary].push_back(
          {run.first, run.first + run.count});
    }
  }
  std::int64_t count = 0;
  for (auto& [set, of_set] : runs) count += distinct_tiles(of_set);
  return count;
}

template <typename Count>
Int128 sum_over_tiles(const Plan& plan, const Count& count) {
  Int128 sum = 0;
  for (const WorkItem& item : plan.items) {
    for (const PlanTile& tile : between(plan.tiles, item.tiles_begin, item.tiles_end)) {
      sum = checked_add(sum, count(tile));
    }
  }
  return sum;
}

}  // namespace

Int128 tile_pairs(const Plan& plan, const PlanTile& tile) {
  Int128 pairs = 0;
  for (const TilePart& part : tile_parts(plan, tile)) {
    std::int64_t key_tiles = 0;
    for (const TileRun& run : between(plan.runs, part.runs_begin, part.runs_end)) {
      key_tiles += run.count;
    }
    pairs +=
        Int128{key_tiles} * plan.tile.k * (part.rows_end - part.rows_begin) * num_heads(plan, part);
  }
  return pairs;
}

Int128 Plan::executed_pairs() const {
  return sum_over_tiles(*this, [&](const PlanTile& one) { return tile_pairs(*this, one); });
}

Int128 Plan::loaded_keys() const {
  return sum_over_tiles(
      *this, [&](const PlanTile& one) { return Int128{loaded_tiles(*this, one)} * tile.k; });
}

Int128 Plan::needed_pairs() const {
  return sum_over_tiles(*this, [&](const PlanTile& one) {
    Int128 pairs = 0;
    for (const TilePart& part : tile_parts(*this, one)) pairs += needed_by(*this, part);
    return pairs;
  });
}

}  // namespace lacuna

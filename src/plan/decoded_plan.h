#pragma once

// For tests: what a plan reads, pair by pair, and whether its arrays hang together. Written against
// the contract in plan.h alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lacuna/plan.h"

namespace lacuna::decoded {

using Counts = std::vector<std::vector<int>>;  // [row - rows.begin][key]

// What one query head of one sequence does.
struct HeadReads {
  Counts pairs;                    // how often a pair is read
  std::vector<int> rows;           // [row - rows.begin] how often a row is computed
  std::int64_t visited_pairs = 0;  // rows × tile.k of visited tiles
};

template <typename T>
const T& at(const std::vector<T>& all, std::int64_t idx) {
  return all.at(static_cast<std::size_t>(idx));
}

// Position of bit `bit` of key tile `tile`, or -1 where the tile hangs over the end.
inline std::int64_t position(const Plan& plan, const TilePart& part, bool gathered,
                             std::int64_t tile, std::int64_t bit, std::int64_t length) {
  const std::int64_t idx = tile * plan.tile.k + bit;
  if (!gathered) return idx < length ? idx : -1;
  const auto& set = at(plan.gathered_sets, part.gathered);
  return idx < std::ssize(set) ? at(set, idx) : -1;
}

inline void add_run(const Plan& plan, const TilePart& part, std::int64_t run_idx,
                    const SequenceRows& sequence, HeadReads& reads) {
  const TileRun& run = at(plan.runs, run_idx);
  const bool whole = run.mask == TileRun::kWhole;
  ASSERT_TRUE(run.first >= 0 && run.count >= 1 && (whole || run.count == 1));
  for (std::int64_t row_idx = 0; row_idx < part.rows_end - part.rows_begin; ++row_idx) {
    const std::int64_t row = at(plan.rows, part.rows_begin + row_idx) - sequence.rows.begin;
    const int bits = whole ? (1 << plan.tile.k) - 1 : at(plan.masks, run.mask + row_idx);
    ASSERT_EQ(bits >> plan.tile.k, 0) << "a bit past the tile's keys";
    for (std::int64_t tile = run.first; tile < run.first + run.count; ++tile) {
      for (std::int64_t bit = 0; bit < plan.tile.k; ++bit) {
        if ((bits >> bit & 1) == 0) continue;
        const std::int64_t key =
            position(plan, part, run_idx < part.gathered_end, tile, bit, sequence.length);
        ASSERT_GE(key, 0) << "a key past the end";
        ++reads.pairs.at(static_cast<std::size_t>(row)).at(static_cast<std::size_t>(key));
      }
    }
    reads.visited_pairs += run.count * plan.tile.k;
  }
}

// Every head of every sequence: [num_sequences][num_q_heads].
inline std::vector<std::vector<HeadReads>> reads_of(const Plan& plan) {
  std::vector<std::vector<HeadReads>> all;
  for (const SequenceRows& sequence : plan.sequences) {
    const auto num_rows = static_cast<std::size_t>(sequence.rows.end - sequence.rows.begin);
    const HeadReads none{
        Counts(num_rows, std::vector<int>(static_cast<std::size_t>(sequence.length))),
        std::vector<int>(num_rows), 0};
    all.emplace_back(static_cast<std::size_t>(plan.heads.num_q_heads), none);
  }
  const int group_size = plan.heads.num_q_heads / plan.heads.num_kv_heads;
  for (const WorkItem& item : plan.items) {
    const SequenceRows& sequence = at(plan.sequences, item.sequence);
    for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
      const PlanTile& tile = at(plan.tiles, t);
      for (std::int64_t p = tile.parts_begin; p < tile.parts_end; ++p) {
        const TilePart& part = at(plan.parts, p);
        for (const int head : at(plan.head_sets, part.head_set)) {
          HeadReads& reads = all.at(static_cast<std::size_t>(item.sequence))
                                 .at(static_cast<std::size_t>(item.kv_head * group_size + head));
          for (std::int64_t r = part.rows_begin; r < part.rows_end; ++r) {
            ++reads.rows.at(static_cast<std::size_t>(at(plan.rows, r) - sequence.rows.begin));
          }
          for (std::int64_t r = part.runs_begin; r < part.runs_end; ++r) {
            add_run(plan, part, r, sequence, reads);
          }
        }
      }
    }
  }
  return all;
}

// "" where the head reads each pair of the matrix once and no other, and computes each row once.
inline std::string difference(const HeadReads& reads, const std::vector<std::vector<bool>>& matrix,
                              Range rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const auto row_idx = static_cast<std::size_t>(row - rows.begin);
    if (reads.rows[row_idx] != 1) {
      return "row " + std::to_string(row) + " is computed " + std::to_string(reads.rows[row_idx]) +
             " times";
    }
    const std::vector<bool>& expected = matrix.at(static_cast<std::size_t>(row));
    for (std::size_t key = 0; key < expected.size(); ++key) {
      if (reads.pairs[row_idx][key] != (expected[key] ? 1 : 0)) {
        return "row " + std::to_string(row) + " reads key " + std::to_string(key) + " " +
               std::to_string(reads.pairs[row_idx][key]) + " times";
      }
    }
  }
  return "";
}

// Runs [begin, end) ascend and none could be part of the one before it or be left out.
inline void expect_canonical_runs(const Plan& plan, const TilePart& part, std::int64_t begin,
                                  std::int64_t end) {
  const std::int64_t num_rows = part.rows_end - part.rows_begin;
  for (std::int64_t r = begin; r < end; ++r) {
    const TileRun& run = at(plan.runs, r);
    if (r > begin) {
      const TileRun& before = at(plan.runs, r - 1);
      ASSERT_LE(before.first + before.count, run.first);
      const bool both_whole = before.mask == TileRun::kWhole && run.mask == TileRun::kWhole;
      ASSERT_FALSE(both_whole && before.first + before.count == run.first);
    }
    if (run.mask == TileRun::kWhole) continue;
    int any = 0;
    int all = (1 << plan.tile.k) - 1;
    for (std::int64_t row = 0; row < num_rows; ++row) {
      any |= at(plan.masks, run.mask + row);
      all &= at(plan.masks, run.mask + row);
    }
    ASSERT_NE(any, 0) << "an edge tile that no row reads";
    ASSERT_NE(all, (1 << plan.tile.k) - 1) << "a whole tile with a mask";
  }
}

inline void expect_canonical_part(const Plan& plan, const TilePart& part) {
  ASSERT_GT(part.rows_end, part.rows_begin);
  ASSERT_LE(part.rows_end - part.rows_begin, plan.tile.q);
  for (std::int64_t r = part.rows_begin + 1; r < part.rows_end; ++r) {
    ASSERT_LT(at(plan.rows, r - 1), at(plan.rows, r));
  }
  ASSERT_LE(part.runs_begin, part.gathered_end);
  ASSERT_LE(part.gathered_end, part.runs_end);
  ASSERT_EQ(part.gathered >= 0, part.gathered_end > part.runs_begin);
  expect_canonical_runs(plan, part, part.runs_begin, part.gathered_end);
  expect_canonical_runs(plan, part, part.gathered_end, part.runs_end);
}

// The gathered sets of an item's parts are among those of its head; adds them to `used`.
inline void expect_canonical_item(const Plan& plan, const WorkItem& item,
                                  std::vector<std::vector<std::int64_t>>& used) {
  ASSERT_LT(item.tiles_begin, item.tiles_end);
  const auto head =
      static_cast<std::size_t>(item.sequence * plan.heads.num_kv_heads + item.kv_head);
  for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
    std::vector<int> heads;
    const PlanTile& tile = at(plan.tiles, t);
    ASSERT_LT(tile.parts_begin, tile.parts_end);
    for (std::int64_t p = tile.parts_begin; p < tile.parts_end; ++p) {
      const TilePart& part = at(plan.parts, p);
      expect_canonical_part(plan, part);
      const auto& set = at(plan.head_sets, part.head_set);
      heads.insert(heads.end(), set.begin(), set.end());
      if (part.gathered >= 0) used.at(head).push_back(part.gathered);
    }
    std::sort(heads.begin(), heads.end());
    ASSERT_EQ(std::adjacent_find(heads.begin(), heads.end()), heads.end())
        << "two parts of a tile compute the same head";
  }
}

inline void expect_canonical(const Plan& plan) {
  std::vector<std::vector<std::int64_t>> used(plan.sequences.size() *
                                              static_cast<std::size_t>(plan.heads.num_kv_heads));
  for (const WorkItem& item : plan.items) expect_canonical_item(plan, item, used);
  for (auto& sets : used) {
    std::sort(sets.begin(), sets.end());
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  }
  ASSERT_EQ(plan.gathered_of_head, used);
  for (const auto& set : plan.gathered_sets) {
    ASSERT_TRUE(std::is_sorted(set.begin(), set.end(), std::less_equal<>())) << "not ascending";
  }
}

// The same rows, runs and mask contents for the same heads, tile by tile; "" or the first
// difference. Where equal masks are kept is not compared.
inline std::string tile_difference(const Plan& a, const Plan& b) {
  if (a.tiles.size() != b.tiles.size() || a.items.size() != b.items.size()) return "sizes";
  for (std::size_t t = 0; t < a.tiles.size(); ++t) {
    const std::string where = "tile " + std::to_string(t);
    const PlanTile& x = a.tiles[t];
    const PlanTile& y = b.tiles[t];
    if (x.parts_end - x.parts_begin != y.parts_end - y.parts_begin) return where + ": parts";
    for (std::int64_t p = 0; p < x.parts_end - x.parts_begin; ++p) {
      const TilePart& u = at(a.parts, x.parts_begin + p);
      const TilePart& v = at(b.parts, y.parts_begin + p);
      const std::int64_t num_rows = u.rows_end - u.rows_begin;
      const auto row = a.rows.begin() + u.rows_begin;
      if (at(a.head_sets, u.head_set) != at(b.head_sets, v.head_set) ||
          num_rows != v.rows_end - v.rows_begin ||
          !std::equal(row, row + num_rows, b.rows.begin() + v.rows_begin)) {
        return where + ": rows or heads";
      }
      if (u.runs_end - u.runs_begin != v.runs_end - v.runs_begin ||
          u.gathered_end - u.runs_begin != v.gathered_end - v.runs_begin ||
          (u.gathered >= 0) != (v.gathered >= 0) ||
          (u.gathered >= 0 && at(a.gathered_sets, u.gathered) != at(b.gathered_sets, v.gathered))) {
        return where + ": number of runs, or what is gathered";
      }
      for (std::int64_t r = 0; r < u.runs_end - u.runs_begin; ++r) {
        const TileRun& m = at(a.runs, u.runs_begin + r);
        const TileRun& n = at(b.runs, v.runs_begin + r);
        const bool same_mask =
            m.mask == TileRun::kWhole || n.mask == TileRun::kWhole
                ? m.mask == n.mask
                : std::equal(a.masks.begin() + m.mask, a.masks.begin() + m.mask + num_rows,
                             b.masks.begin() + n.mask);
        if (m.first != n.first || m.count != n.count || !same_mask) {
          return where + ": run " + std::to_string(r);
        }
      }
    }
  }
  return "";
}

}  // namespace lacuna::decoded

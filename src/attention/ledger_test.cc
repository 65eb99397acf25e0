#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/executed.h"
#include "lacuna/integer.h"
#include "problems.h"

// What the kernels say they executed, against cost's count of what they must execute; and plans
// with planted faults, which the ledger must tell from sound ones.

namespace lacuna {
namespace {

using cases::Case;
using cases::filled;
using cases::how_in;
using cases::idx;
using cases::last_rows;
using cases::whole;

Case case_of(const char* attend, bool causal, std::vector<SequenceRows> sequences) {
  Case c;
  c.shape = {"heads", 4, 2, 6, 10};
  c.causal = causal;
  c.attend = cases::unions(attend, causal, 4);
  c.sequences = std::move(sequences);
  return filled(std::move(c), 81);
}

// ---- Predicted ----------------------------------------------------------------------------------

struct Predicted {
  std::int64_t executed_pairs = 0;
  std::int64_t loaded_keys = 0;
};

// cost's count, head by head and, for loaded keys, KV head by KV head.
Predicted predicted(const Case& c, Tile tile = kernel_tile()) {
  std::vector<Topology> heads = cases::topologies(c);
  heads.resize(idx(c.shape.num_q_heads), heads[0]);
  const int group = c.shape.num_q_heads / c.shape.num_kv_heads;
  Predicted sum;
  for (const SequenceRows& s : c.sequences) {
    for (std::size_t head = 0; head < heads.size(); ++head) {
      sum.executed_pairs += to_int64(executed(heads[head], s.rows, s.length, tile).pairs, "pairs");
    }
    for (std::size_t first = 0; first < heads.size(); first += idx(group)) {
      const Topology all = Topology::merged(std::span(heads).subspan(first, idx(group)));
      sum.loaded_keys += to_int64(executed(all, s.rows, s.length, tile).loaded_keys, "keys");
    }
  }
  return sum;
}

std::int64_t needed_pairs(const Case& c) {
  std::int64_t pairs = 0;
  for (std::size_t s = 0; s < c.sequences.size(); ++s) {
    const auto matrices = cases::reads_of(c, s);
    for (const oracle::Matrix& matrix : matrices) {
      pairs += oracle::edges(matrix, 0, static_cast<std::int64_t>(matrix.size())) *
               (matrices.size() == 1 ? c.shape.num_q_heads : 1);
    }
  }
  return pairs;
}

std::int64_t bytes_of_key(const Case& c) {
  return (c.shape.head_dim + c.shape.v_head_dim) * size_bytes(c.kv_dtype);
}

void expect_predicted(const Case& c, const std::string& isa) {
  const Predicted want = predicted(c);
  const Plan plan = cases::plan_of(c);
  const Ledger got = cases::answer_with(plan, c, how_in(isa)).ledger;
  EXPECT_EQ(got.executed_pairs, want.executed_pairs);
  EXPECT_EQ(got.loaded_keys, want.loaded_keys);
  EXPECT_EQ(got.needed_pairs, needed_pairs(c));
  EXPECT_EQ(got.exponentials, want.executed_pairs);
  EXPECT_EQ(got.loaded_bytes, want.loaded_keys * bytes_of_key(c));
  EXPECT_EQ(to_string(plan.executed_pairs()), std::to_string(want.executed_pairs));
  EXPECT_EQ(to_string(plan.loaded_keys()), std::to_string(want.loaded_keys));
  EXPECT_EQ(to_string(plan.needed_pairs()), std::to_string(needed_pairs(c)));
}

TEST(IsaLedger, CountsWhatCostPredictsOnEveryListedTopology) {
  for (const Problem& problem : kProblems) {
    if (problem.lengths.data() != kSmallLengths) continue;
    for (std::int64_t length : problem.lengths) {
      SCOPED_TRACE(std::string(problem.name) + " of " + std::to_string(length));
      const Case c = case_of(problem.attend, problem.causal, {whole(length)});
      cases::for_each_isa([&](const std::string& isa) { expect_predicted(c, isa); });
    }
  }
}

TEST(IsaLedger, CountsWhatCostPredictsForChunksAndBatches) {
  for (const char* attend : {"full", "window(17)", "window(8)+sink(3)+global(every=24)",
                             "dilated(7,5)", "window(8)+global(3,40,41,90)", "global(9,25,70)"}) {
    SCOPED_TRACE(attend);
    const Case c = case_of(attend, true,
                           {last_rows(1, 100), {{17, 60}, 60}, whole(0), {{3, 3}, 9}, whole(33)});
    cases::for_each_isa([&](const std::string& isa) { expect_predicted(c, isa); });
  }
}

TEST(IsaLedger, CountsEveryTileOnceForAllHeadsThatShareIt) {
  const Case c = case_of("window(17)+sink(3)", true, {whole(90)});
  cases::for_each_isa([&](const std::string& isa) {
    const Ledger got = cases::answer(c, how_in(isa)).ledger;
    EXPECT_EQ(got.tiles * kernel_tile().k, got.loaded_keys);
  });
}

TEST(IsaLedger, CountsOneExponentialMoreForEachLearnedSink) {
  Case c = case_of("window(17)", true, {whole(50), last_rows(2, 33)});
  c.sink_logits = {1, 2, 3, 4};
  cases::for_each_isa([&](const std::string& isa) {
    const Ledger got = cases::answer(c, how_in(isa)).ledger;
    EXPECT_EQ(got.exponentials, predicted(c).executed_pairs + 52 * 4);
  });
}

TEST(IsaLedger, CountsBytesAsTheInputsStoreThem) {
  for (DType dtype : kDTypes) {
    Case c = case_of("full", true, {whole(20)});
    c.kv_dtype = dtype;
    c = filled(std::move(c));
    cases::for_each_isa([&](const std::string& isa) {
      const Ledger got = cases::answer(c, how_in(isa)).ledger;
      EXPECT_EQ(got.loaded_bytes, got.loaded_keys * 16 * size_bytes(dtype));
      // Two query tiles: 0..15 visits one key tile, 16..19 both.
      EXPECT_EQ(got.loaded_keys, 2 * 3 * 16);
      EXPECT_EQ(got.distinct_bytes, 2 * 20 * 16 * size_bytes(dtype));
    });
  }
}

// Without globals: the keys that exist in each key tile that any row of any head of the KV head
// reads, once.
std::int64_t distinct_keys(const std::vector<oracle::Matrix>& reads, std::int64_t first_head,
                           std::int64_t num_heads) {
  std::set<std::size_t> keys;
  for (std::int64_t head = first_head; head < first_head + num_heads; ++head) {
    for (const oracle::Row& row : oracle::reads_of_head(reads, head)) {
      for (std::size_t key = 0; key < row.size(); ++key) {
        if (!row[key]) continue;
        const std::size_t tile = key / 16 * 16;
        for (std::size_t k = tile; k < std::min(tile + 16, row.size()); ++k) keys.insert(k);
      }
    }
  }
  return static_cast<std::int64_t>(keys.size());
}

TEST(IsaLedger, CountsEachDifferentKeyTileOfAKvHeadOnce) {
  for (const char* attend :
       {"full", "window(17)", "window(3)+sink(2)", "dilated(3,40)", "sink(5)",
        "window(8)+random(2,7)", "heads(0: window(4); 1: sink(2); 2-3: window(20))"}) {
    for (const SequenceRows rows : {whole(100), last_rows(3, 100), last_rows(40, 97)}) {
      SCOPED_TRACE(std::string(attend) + " from row " + std::to_string(rows.rows.begin));
      const Case c = case_of(attend, true, {rows, whole(20)});
      std::int64_t keys = 0;
      for (std::size_t s = 0; s < 2; ++s) {
        const auto reads = cases::reads_of(c, s);
        keys += distinct_keys(reads, 0, 2) + distinct_keys(reads, 2, 2);
      }
      cases::for_each_isa([&](const std::string& isa) {
        EXPECT_EQ(cases::answer(c, how_in(isa)).ledger.distinct_bytes, keys * bytes_of_key(c));
      });
    }
  }
}

// Rows 65..79 read tile 4 and one panel of the gathered globals 0, 32 and 64, of which 64 lies in
// that tile. Row 64 is global itself and reads five tiles in a tile of its own.
TEST(IsaLedger, CountsGatheredKeysOnceAndOnlyWhereNoTileHoldsThem) {
  const Case ordinary = case_of("window(1)+global(every=32)", true, {{{65, 80}, 80}});
  const Case all = case_of("window(1)+global(every=32)", true, {{{64, 80}, 80}});
  cases::for_each_isa([&](const std::string& isa) {
    const Ledger some = cases::answer(ordinary, how_in(isa)).ledger;
    EXPECT_EQ(some.executed_pairs, 4 * 15 * 32);
    EXPECT_EQ(some.loaded_keys, 2 * 32);
    EXPECT_EQ(some.needed_pairs, 4 * 15 * (1 + 3));
    EXPECT_EQ(some.distinct_bytes, 2 * (16 + 2) * bytes_of_key(ordinary));
    const Ledger more = cases::answer(all, how_in(isa)).ledger;
    EXPECT_EQ(more.executed_pairs, 4 * (15 * 32 + 80));
    EXPECT_EQ(more.loaded_keys, 2 * (32 + 80));
    EXPECT_EQ(more.needed_pairs, 4 * (15 * (1 + 3) + 65));
    EXPECT_EQ(more.distinct_bytes, 2 * 80 * bytes_of_key(all));
  });
}

// One query tile of two heads that read other windows and the same gathered key: two key tiles and
// one panel, each loaded once for both.
TEST(IsaLedger, CountsAGatheredPanelOnceForAllHeadsThatShareIt) {
  Case c;
  c.shape = {"heads", 2, 1, 6, 10};
  c.attend = {{Window{0, 0}, GlobalPositions{{5}}}, {Window{1, 0}, GlobalPositions{{5}}}};
  c.sequences = {last_rows(10, 20)};
  c = filled(std::move(c));
  cases::for_each_isa([&](const std::string& isa) { expect_predicted(c, isa); });
  EXPECT_EQ(predicted(c).loaded_keys, 3 * 16);
}

TEST(IsaLedger, CountsNothingWhereNothingIsAsked) {
  const Case no_rows = case_of("full", true, {whole(0), {{7, 7}, 7}});
  const Case no_sequence = case_of("window(3)+global(every=4)", true, {});
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_EQ(cases::answer(no_rows, how_in(isa)).ledger, Ledger{});
    EXPECT_EQ(cases::answer(no_sequence, how_in(isa)).ledger, Ledger{});
  });
}

// ---- Planted faults -----------------------------------------------------------------------------

// The plan with other ordinary runs for one part.
Plan with_runs(const Plan& plan, std::size_t part_idx,
               const std::function<void(std::vector<TileRun>&)>& edit) {
  Plan result = plan;
  result.runs.clear();
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const TilePart& part = plan.parts[p];
    const auto at = [&](std::int64_t run) { return plan.runs.begin() + run; };
    std::vector<TileRun> ordinary(at(part.gathered_end), at(part.runs_end));
    if (p == part_idx) edit(ordinary);
    TilePart& moved = result.parts[p];
    moved.runs_begin = static_cast<std::int64_t>(result.runs.size());
    result.runs.insert(result.runs.end(), at(part.runs_begin), at(part.gathered_end));
    moved.gathered_end = static_cast<std::int64_t>(result.runs.size());
    cases::append(result.runs, ordinary);
    moved.runs_end = static_cast<std::int64_t>(result.runs.size());
  }
  return result;
}

// The plan with one part listed twice, or not at all.
Plan with_part_times(const Plan& plan, std::size_t part_idx, int times) {
  Plan result = plan;
  result.parts.clear();
  for (PlanTile& tile : result.tiles) {
    const PlanTile from = tile;
    tile.parts_begin = static_cast<std::int64_t>(result.parts.size());
    for (std::int64_t p = from.parts_begin; p < from.parts_end; ++p) {
      for (int i = 0; i < (idx(p) == part_idx ? times : 1); ++i) {
        result.parts.push_back(plan.parts[idx(p)]);
      }
    }
    tile.parts_end = static_cast<std::int64_t>(result.parts.size());
  }
  return result;
}

// A window over whole key tiles, so that a broken plan reads no key that is not there: every query
// tile past the second has an edge to its left.
Case window_case() { return case_of("window(33)", true, {whole(112)}); }

bool has_left_edge(const Plan& plan, const TilePart& part) {
  return plan.runs[idx(part.gathered_end)].first > 0;
}

bool is_as_predicted(const Ledger& got, const Case& c) {
  const Predicted want = predicted(c);
  return got.executed_pairs == want.executed_pairs && got.loaded_keys == want.loaded_keys &&
         got.needed_pairs == needed_pairs(c) && got.exponentials == want.executed_pairs &&
         got.loaded_bytes == want.loaded_keys * bytes_of_key(c);
}

// What was executed must be seen in the pairs themselves: a count taken from the plan's sums or
// weights, which a fault leaves as they were, would not know.
void expect_other_pairs(const Ledger& got, const Case& c) {
  const Predicted want = predicted(c);
  EXPECT_NE(got.executed_pairs, want.executed_pairs);
  EXPECT_NE(got.exponentials, want.executed_pairs);
  EXPECT_NE(got.needed_pairs, needed_pairs(c));
}

using Fault = std::function<Plan(const Plan&, std::size_t part_idx)>;
using Expectation = std::function<void(const Ledger&, const Case&)>;

// Plants the fault into each part that can bear it, at least two of them.
void expect_noticed(const Fault& fault, const Expectation& expect = expect_other_pairs) {
  const Case c = window_case();
  const Plan sound = cases::plan_of(c);
  cases::for_each_isa([&](const std::string& isa) {
    ASSERT_TRUE(is_as_predicted(cases::answer_with(sound, c, how_in(isa)).ledger, c));
    int planted = 0;
    for (std::size_t part = 0; part < sound.parts.size(); ++part) {
      if (!has_left_edge(sound, sound.parts[part])) continue;
      SCOPED_TRACE("part " + std::to_string(part));
      const Plan broken = fault(sound, part);
      ++planted;
      expect(cases::answer_with(broken, c, how_in(isa)).ledger, c);
    }
    EXPECT_GE(planted, 2);
  });
}

TEST(IsaPlantedFault, ADroppedTileChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) {
    return with_runs(plan, part, [](std::vector<TileRun>& runs) { runs.pop_back(); });
  });
  expect_noticed([](const Plan& plan, std::size_t part) {
    return with_runs(plan, part, [](std::vector<TileRun>& runs) { runs.erase(runs.begin()); });
  });
}

TEST(IsaPlantedFault, ADroppedPartChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) { return with_part_times(plan, part, 0); });
}

// A tile that is visited again after others is counted again.
TEST(IsaPlantedFault, ATileVisitedTwiceChangesTheLedger) {
  const Case c = case_of("window(600)", true, {last_rows(40, 700)});
  const Plan sound = cases::plan_of(c);
  cases::for_each_isa([&](const std::string& isa) {
    ASSERT_TRUE(is_as_predicted(cases::answer_with(sound, c, how_in(isa)).ledger, c));
    for (std::size_t part = 0; part < sound.parts.size(); ++part) {
      const Plan twice =
          with_runs(sound, part, [](std::vector<TileRun>& runs) { runs.push_back(runs.front()); });
      const Ledger got = cases::answer_with(twice, c, how_in(isa)).ledger;
      expect_other_pairs(got, c);
      EXPECT_NE(got.loaded_keys, predicted(c).loaded_keys) << part;
    }
  });
}

// A tile that the plan lists twice side by side is either executed twice, and then counted twice,
// or once: then nothing of the result differs either.
TEST(IsaPlantedFault, ATileListedTwiceIsCountedAsOftenAsItIsExecuted) {
  const Case c = window_case();
  const Plan sound = cases::plan_of(c);
  cases::for_each_isa([&](const std::string& isa) {
    const auto want = cases::answer_with(sound, c, how_in(isa));
    for (std::size_t part = 0; part < sound.parts.size(); ++part) {
      const Plan twice = with_runs(
          sound, part, [](std::vector<TileRun>& runs) { runs.insert(runs.begin(), runs.front()); });
      const auto got = cases::answer_with(twice, c, how_in(isa));
      if (is_as_predicted(got.ledger, c)) {
        EXPECT_EQ(cases::other_bits(got, want), "") << part;
      }
    }
  });
}

TEST(IsaPlantedFault, APartVisitedTwiceChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) { return with_part_times(plan, part, 2); });
}

TEST(IsaPlantedFault, AnItemVisitedTwiceOrNotAtAllChangesTheLedger) {
  const Case c = window_case();
  const Plan sound = cases::plan_of(c, {kernel_tile(), 2});
  Plan twice = sound;
  twice.pieces.push_back(twice.pieces.front());
  Plan without = sound;
  without.pieces.erase(without.pieces.begin());
  cases::for_each_isa([&](const std::string& isa) {
    EXPECT_TRUE(is_as_predicted(cases::answer_with(sound, c, how_in(isa)).ledger, c));
    expect_other_pairs(cases::answer_with(twice, c, how_in(isa)).ledger, c);
    expect_other_pairs(cases::answer_with(without, c, how_in(isa)).ledger, c);
  });
}

TEST(IsaPlantedFault, AWindowRunDenselyChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) {
    return with_runs(plan, part, [](std::vector<TileRun>& runs) {
      const TileRun last = runs.back();
      runs = {{0, last.first, TileRun::kWhole}, last};
    });
  });
}

TEST(IsaPlantedFault, AnEdgeTileExecutedBeyondItsRangeChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) {
    return with_runs(plan, part, [](std::vector<TileRun>& runs) {
      TileRun more = runs.front();
      --more.first;
      runs.insert(runs.begin(), more);
    });
  });
}

TEST(IsaPlantedFault, AnEdgeTileRunAsIfItWereWholeChangesTheNeededPairs) {
  expect_noticed(
      [](const Plan& plan, std::size_t part) {
        return with_runs(plan, part,
                         [](std::vector<TileRun>& runs) { runs.back().mask = TileRun::kWhole; });
      },
      [](const Ledger& got, const Case& c) {
        EXPECT_EQ(got.executed_pairs, predicted(c).executed_pairs);
        EXPECT_GT(got.needed_pairs, needed_pairs(c));
      });
}

TEST(IsaPlantedFault, ARowDroppedFromAPartChangesTheLedger) {
  expect_noticed([](const Plan& plan, std::size_t part) {
    Plan broken = plan;
    --broken.parts[part].rows_end;
    return broken;
  });
}

}  // namespace
}  // namespace lacuna

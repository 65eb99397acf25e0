#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/plan.h"
#include "oracle.h"
#include "plan/any_union.h"
#include "plan/decoded_plan.h"
#include "problems.h"

// Plans from key ranges.

namespace lacuna {
namespace {

class KeyRangesOfProblem : public testing::TestWithParam<Problem> {};

// The same rows as ranges: the same tiles where nothing is gathered, the same pairs everywhere.
TEST_P(KeyRangesOfProblem, PlanWhatTheirTopologyPlans) {
  const Attend attend = parse_attend(GetParam().attend, GetParam().causal);
  const Topology topology(attend.groups.front().attend, GetParam().causal);
  for (const std::int64_t length : GetParam().lengths) {
    if (length > 257) continue;
    const auto matrix =
        oracle::adjacency(attend.groups.front().attend, {GetParam().causal, length, 0, 0});
    for (const Range rows : {Range{0, length}, Range{length / 3, length}}) {
      const std::vector<SequenceRows> sequences = {{rows, length}};
      const std::vector<KeyRanges> key_ranges(2, topology.key_ranges(rows.begin, rows.end, length));
      for (const Tile tile : {Tile{16, 16}, Tile{5, 7}}) {
        SCOPED_TRACE(testing::Message()
                     << length << " rows from " << rows.begin << " tile " << tile.q);
        const Plan plan = make_plan(key_ranges, sequences, {6, 2}, {.tile = tile});
        decoded::expect_canonical(plan);
        const auto reads = decoded::reads_of(plan);
        for (const auto& head : reads[0]) {
          ASSERT_EQ(decoded::difference(head, matrix, rows), "");
        }
        const Plan other = make_plan(std::span(&topology, 1), sequences, {6, 2}, {.tile = tile});
        EXPECT_EQ(to_string(plan.needed_pairs()), to_string(other.needed_pairs()));
        if (topology.without_globals() == topology) {
          EXPECT_EQ(decoded::tile_difference(plan, other), "");
          EXPECT_EQ(plan.loaded_keys(), other.loaded_keys());
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Problem>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Problems, KeyRangesOfProblem, testing::ValuesIn(kProblems), name_of);

// Any keys in any row, ranges that touch among them, for each sequence and KV head its own.
RC_GTEST_PROP(KeyRangesPlan, ReadsAnyKeysOfAnyHead, ()) {
  const HeadCounts heads{4, 2};
  std::vector<SequenceRows> sequences;
  std::vector<KeyRanges> key_ranges;
  std::vector<oracle::Matrix> matrices;
  for (int s = 0; s < 2; ++s) {
    const std::int64_t length = any_union::number(0, 60);
    const std::int64_t begin = any_union::number(0, length);
    const std::int64_t end = any_union::number(begin, length);
    sequences.push_back({{begin, end}, length});
    for (int kv_head = 0; kv_head < heads.num_kv_heads; ++kv_head) {
      oracle::Matrix matrix(static_cast<std::size_t>(length),
                            oracle::Row(static_cast<std::size_t>(length)));
      KeyRanges made;
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t key = any_union::number(0, 30); key < length;) {
          const std::int64_t stop = std::min(length, key + any_union::number(1, 40));
          made.ranges.push_back({key, stop});
          std::fill(matrix[static_cast<std::size_t>(row)].begin() + key,
                    matrix[static_cast<std::size_t>(row)].begin() + stop, true);
          key = stop + any_union::number(0, 25);
        }
        made.indptr.push_back(std::ssize(made.ranges));
      }
      key_ranges.push_back(made);
      matrices.push_back(matrix);
    }
  }
  const Tile tile{any_union::number(1, 64), any_union::number(1, 16)};
  const Plan plan = make_plan(key_ranges, sequences, heads, {.tile = tile});
  decoded::expect_canonical(plan);
  const auto reads = decoded::reads_of(plan);
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::size_t head = 0; head < 4; ++head) {
      RC_ASSERT(
          decoded::difference(reads[s][head], matrices[2 * s + head / 2], sequences[s].rows) == "");
    }
  }
  RC_ASSERT(!testing::Test::HasFailure());
}

TEST(KeyRangesPlan, KeepsKvHeadsThatReadTheSameOnce) {
  KeyRanges some;
  for (int row = 0; row < 40; ++row) some.append_row({{0, row + 1}});
  KeyRanges other = some;
  other.ranges.back().end = 39;
  const std::vector<SequenceRows> sequences = {{{0, 40}, 40}};
  const std::vector<KeyRanges> alike = {some, other, some};
  const std::vector<KeyRanges> different = {some, other};
  const Plan plan = make_plan(alike, sequences, {3, 3});
  EXPECT_EQ(plan.tiles.size(), make_plan(different, sequences, {2, 2}).tiles.size());
  EXPECT_EQ(plan.items.size(), 9u);
}

}  // namespace
}  // namespace lacuna

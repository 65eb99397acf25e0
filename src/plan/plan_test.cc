#include "lacuna/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/executed.h"
#include "oracle.h"
#include "plan/any_union.h"
#include "plan/decoded_plan.h"
#include "problems.h"

// Plans from topologies against the oracle's matrices and against cost's one count.

namespace lacuna {
namespace {

constexpr Tile kTiles[] = {{16, 16}, {5, 7}, {1, 16}};
constexpr std::int64_t kLongestMatrix = 257;

// One topology a query head of a problem, with the oracle's view of it.
class HeadsOf {
 public:
  HeadsOf(const Problem& problem, int num_q_heads)
      : attend_(parse_attend(problem.attend, problem.causal)), causal_(problem.causal) {
    for (int head = 0; head < num_q_heads; ++head) {
      topologies.emplace_back(union_of(head), causal_, 3, head);
    }
  }

  oracle::Matrix matrix(int head, std::int64_t length) const {
    const oracle::Place place{causal_, length, 3, static_cast<std::uint32_t>(head)};
    return oracle::adjacency(union_of(head), place);
  }

  std::vector<Topology> topologies;

 private:
  const Union& union_of(int head) const {
    return oracle::attend_of(attend_, static_cast<std::uint32_t>(head));
  }

  Attend attend_;
  bool causal_;
};

// Sums that cost's executed() gives for the heads of one sequence.
struct Counted {
  Int128 pairs = 0;
  Int128 loaded_keys = 0;
};

Counted counted(std::span<const Topology> topologies, HeadCounts heads,
                const SequenceRows& sequence, Tile tile) {
  Counted sum;
  const auto group_size = static_cast<std::size_t>(heads.num_q_heads / heads.num_kv_heads);
  for (std::size_t begin = 0; begin < topologies.size(); begin += group_size) {
    const auto group = topologies.subspan(begin, group_size);
    for (const Topology& topology : group) {
      sum.pairs += executed(topology, sequence.rows, sequence.length, tile).pairs;
    }
    sum.loaded_keys +=
        executed(Topology::merged(group), sequence.rows, sequence.length, tile).loaded_keys;
  }
  return sum;
}

void expect_sums(const Plan& plan, std::span<const Topology> topologies) {
  Counted sum;
  Int128 edges = 0;
  for (const SequenceRows& sequence : plan.sequences) {
    const Counted one = counted(topologies, plan.heads, sequence, plan.tile);
    sum.pairs += one.pairs;
    sum.loaded_keys += one.loaded_keys;
    for (const Topology& topology : topologies) {
      edges += topology.edges(sequence.rows.begin, sequence.rows.end, sequence.length);
    }
  }
  EXPECT_EQ(to_string(plan.executed_pairs()), to_string(sum.pairs));
  EXPECT_EQ(to_string(plan.loaded_keys()), to_string(sum.loaded_keys));
  EXPECT_EQ(to_string(plan.needed_pairs()), to_string(edges));
}

void expect_reads(const Plan& plan, const std::vector<oracle::Matrix>& matrix_of_head) {
  const auto reads = decoded::reads_of(plan);
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    Int128 visited = 0;
    for (std::size_t head = 0; head < matrix_of_head.size(); ++head) {
      EXPECT_EQ(decoded::difference(reads[s][head], matrix_of_head[head], plan.sequences[s].rows),
                "")
          << "head " << head;
      visited += reads[s][head].visited_pairs;
    }
    if (plan.sequences.size() == 1) {
      EXPECT_EQ(to_string(plan.executed_pairs()), to_string(visited));
    }
  }
}

// All rows, a chunk at the end, one that starts anywhere, a decode step, and none.
std::vector<Range> row_ranges(std::int64_t length) {
  return {{0, length},
          {length / 2, length},
          {length / 3, std::min(length, length / 3 + 37)},
          {length - 1, length},
          {length / 2, length / 2}};
}

class PlanOfProblem : public testing::TestWithParam<Problem> {};

std::vector<HeadCounts> head_counts(const Problem& problem) {
  if (std::string(problem.attend).starts_with("heads")) return {{4, 1}, {4, 2}, {4, 4}};
  return {{1, 1}, {3, 1}, {8, 2}, {8, 1}, {6, 2}};
}

TEST_P(PlanOfProblem, ReadsEachPairOfTheOracleOnceAndCountsWhatCostCounts) {
  for (const std::int64_t length : GetParam().lengths) {
    if (length > kLongestMatrix) continue;
    const int most_heads = head_counts(GetParam()).front().num_q_heads == 4 ? 4 : 8;
    const HeadsOf all_heads(GetParam(), most_heads);
    std::vector<oracle::Matrix> all_matrices;
    for (int head = 0; head < most_heads; ++head) {
      all_matrices.push_back(head > 0 && all_heads.topologies[static_cast<std::size_t>(head)] ==
                                             all_heads.topologies.front()
                                 ? all_matrices.front()
                                 : all_heads.matrix(head, length));
    }
    for (const HeadCounts heads : head_counts(GetParam())) {
      const auto topologies =
          std::span(all_heads.topologies).first(static_cast<std::size_t>(heads.num_q_heads));
      const std::vector<oracle::Matrix> matrices(all_matrices.begin(),
                                                 all_matrices.begin() + heads.num_q_heads);
      for (const Tile tile : kTiles) {
        for (const Range rows : row_ranges(length)) {
          SCOPED_TRACE(testing::Message() << "length " << length << " heads " << heads.num_q_heads
                                          << "/" << heads.num_kv_heads << " tile " << tile.q << ","
                                          << tile.k << " rows " << rows.begin << ".." << rows.end);
          const std::vector<SequenceRows> sequences = {{rows, length}};
          const Plan plan = make_plan(topologies, sequences, heads, {.tile = tile});
          decoded::expect_canonical(plan);
          expect_reads(plan, matrices);
          expect_sums(plan, topologies);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(PlanOfProblem, CountsWhatCostCountsAtRealLengths) {
  constexpr std::int64_t kLongestWalk = 131072;
  for (const std::int64_t length : GetParam().lengths) {
    if (length <= kLongestMatrix || length > kLongestWalk) continue;
    const HeadsOf heads(GetParam(), 4);
    for (const Range rows : row_ranges(length)) {
      SCOPED_TRACE(testing::Message() << "length " << length << " rows " << rows.begin);
      const std::vector<SequenceRows> sequences = {{rows, length}};
      expect_sums(make_plan(heads.topologies, sequences, {4, 2}), heads.topologies);
    }
  }
}

std::string name_of(const testing::TestParamInfo<Problem>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Problems, PlanOfProblem, testing::ValuesIn(kProblems), name_of);

// Any union in any head, any tile, any rows; some with two kinds of heads on a KV head.
RC_GTEST_PROP(Plan, ReadsAnyUnionOfTheVocabularyExactly, ()) {
  const bool causal = *rc::gen::arbitrary<bool>();
  const std::int64_t length = any_union::number(1, 130);
  const std::int64_t begin = any_union::number(0, length);
  const Range rows = {begin, any_union::number(begin, length)};
  const Tile tile{any_union::number(1, 20), any_union::number(1, 16)};
  const HeadCounts heads{4, *rc::gen::element(1, 2)};
  const auto kinds = static_cast<std::size_t>(any_union::number(1, 2));
  std::vector<Topology> topologies;
  std::vector<oracle::Matrix> matrices;
  for (std::size_t head = 0; head < 4; ++head) {
    if (head >= kinds) {
      topologies.push_back(topologies[head % kinds]);
      matrices.push_back(matrices[head % kinds]);
      continue;
    }
    const Union attend = any_union::parsed(any_union::text(causal, true), causal);
    topologies.emplace_back(attend, causal, 5, static_cast<int>(head));
    matrices.push_back(
        oracle::adjacency(attend, {causal, length, 5, static_cast<std::uint32_t>(head)}));
  }
  const std::vector<SequenceRows> sequences = {{rows, length}};
  const Plan plan = make_plan(topologies, sequences, heads, {.tile = tile});
  decoded::expect_canonical(plan);
  RC_ASSERT(!testing::Test::HasFailure());
  const auto reads = decoded::reads_of(plan);
  Int128 pairs = 0;
  for (std::size_t head = 0; head < 4; ++head) {
    RC_ASSERT(decoded::difference(reads[0][head], matrices[head], rows) == "");
    pairs += executed(topologies[head], rows, length, tile).pairs;
  }
  RC_ASSERT(plan.executed_pairs() == pairs);
  if (kinds == 1) {
    RC_ASSERT(plan.loaded_keys() ==
              executed(topologies[0], rows, length, tile).loaded_keys * heads.num_kv_heads);
  }
}

TEST(Plan, PutsSequencesOneAfterAnother) {
  const Topology topology({Window{15}, Sink{2}, GlobalEvery{24, 0}}, true);
  const std::vector<SequenceRows> sequences = {{{0, 70}, 70},    {{0, 0}, 0},   {{40, 40}, 90},
                                               {{60, 131}, 131}, {{0, 70}, 70}, {{6, 7}, 7}};
  const Plan plan = make_plan(std::span(&topology, 1), sequences, {6, 2});
  EXPECT_EQ(plan.sequences, sequences);
  EXPECT_EQ(plan.indptr, (std::vector<std::int64_t>{0, 70, 70, 70, 141, 211, 212}));
  decoded::expect_canonical(plan);
  const auto reads = decoded::reads_of(plan);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto matrix = oracle::adjacency({Window{15}, Sink{2}, GlobalEvery{24, 0}},
                                          {true, sequences[s].length, 0, 0});
    for (std::size_t head = 0; head < 6; ++head) {
      EXPECT_EQ(decoded::difference(reads[s][head], matrix, sequences[s].rows), "") << s;
    }
  }
  expect_sums(plan, std::vector<Topology>(6, topology));
}

TEST(Plan, OfNothingIsEmpty) {
  const Topology topology({Full{}}, true);
  const Plan none = make_plan(std::span(&topology, 1), {}, {8, 2});
  EXPECT_TRUE(none.items.empty());
  EXPECT_EQ(none.indptr, std::vector<std::int64_t>{0});
  EXPECT_EQ(none.executed_pairs() + none.loaded_keys() + none.needed_pairs(), 0);
  const std::vector<SequenceRows> empty = {{{0, 0}, 0}, {{5, 5}, 9}};
  const Plan rows = make_plan(std::span(&topology, 1), empty, {8, 2});
  EXPECT_TRUE(rows.items.empty());
  EXPECT_EQ(rows.gathered_of_head.size(), 4u);
}

TEST(Plan, KeepsEqualSequencesAndKvHeadsOnce) {
  const Topology topology({Window{127}, GlobalEvery{64, 0}}, true);
  const std::vector<SequenceRows> one = {{{0, 500}, 500}};
  const std::vector<SequenceRows> three(3, one.front());
  const Plan single = make_plan(std::span(&topology, 1), one, {1, 1});
  const Plan many = make_plan(std::span(&topology, 1), three, {4, 4});
  EXPECT_EQ(many.tiles.size(), single.tiles.size());
  EXPECT_EQ(many.parts.size(), single.parts.size());
  EXPECT_EQ(many.runs, single.runs);
  EXPECT_EQ(many.rows, single.rows);
  EXPECT_EQ(many.gathered_sets, single.gathered_sets);
  EXPECT_EQ(many.executed_pairs(), single.executed_pairs() * 12);
}

TEST(Plan, KeepsAsManyMasksForALongWindowAsForAShortOne) {
  const Topology topology({Window{127}}, true);
  const std::vector<SequenceRows> short_one = {{{0, 1024}, 1024}};
  const std::vector<SequenceRows> long_one = {{{0, 131072}, 131072}};
  const Plan few = make_plan(std::span(&topology, 1), short_one, {8, 2});
  const Plan many = make_plan(std::span(&topology, 1), long_one, {8, 2});
  EXPECT_EQ(few.masks, many.masks);
  EXPECT_EQ(few.masks.size(), 2u * 16u);  // the window's two edges
}

TEST(Plan, WritesRowsThatReadNothing) {
  const auto list = std::make_shared<const EdgeList>(EdgeList{{{40, 3}, {41, 3}}});
  const Topology topology({ExplicitEdges{"memory", list}}, true);
  const std::vector<SequenceRows> sequences = {{{0, 64}, 64}};
  const Plan plan = make_plan(std::span(&topology, 1), sequences, {2, 1});
  ASSERT_EQ(plan.tiles.size(), 4u);
  for (std::size_t t : {0u, 1u, 3u}) {
    const TilePart& part = decoded::at(plan.parts, plan.tiles[t].parts_begin);
    EXPECT_EQ(part.runs_begin, part.runs_end);
    EXPECT_EQ(part.rows_end - part.rows_begin, 16);
  }
  EXPECT_EQ(plan.needed_pairs(), 4);
  EXPECT_EQ(plan.executed_pairs(), 2 * 16 * 16);
}

TEST(Plan, GathersNoKeyThatNoRowMayRead) {
  const Topology topology({Window{3}, GlobalEvery{8, 5}}, true);
  const std::vector<SequenceRows> chunk = {{{20, 60}, 1000}};  // more keys than the chunk may read
  const Plan plan = make_plan(std::span(&topology, 1), chunk, {1, 1});
  ASSERT_EQ(plan.gathered_sets.size(), 1u);
  EXPECT_EQ(plan.gathered_sets[0], (std::vector<std::int64_t>{5, 13, 21, 29, 37, 45, 53}));
}

}  // namespace
}  // namespace lacuna

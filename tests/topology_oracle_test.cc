#include "lacuna/topology.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compare.h"
#include "generate.h"
#include "lacuna/attend.h"
#include "lacuna/error.h"
#include "oracle.h"
#include "problems.h"

// Production against the oracle: every term alone, exhaustively; unions, sampled.

namespace lacuna {
namespace {

using generate::Case;
using generate::kSanitized;

constexpr std::int64_t kLongest = 96;
constexpr std::int64_t kLongestRhythm = 700;

oracle::Place place(const Case& c, std::int64_t n) {
  return {c.causal, n, static_cast<std::uint32_t>(c.layer), static_cast<std::uint32_t>(c.head)};
}

// One union at one length, with a fresh matrix.
std::string at_length(const Case& c, const Topology& topology, std::int64_t n, int effort,
                      std::uint32_t seed) {
  const auto reads = oracle::adjacency(c.attend, place(c, n));
  const auto possible = oracle::possible(c.attend, place(c, n));
  return compare::all_answers({topology, reads, possible}, effort, seed);
}

std::string rhythm(const Case& c, const Topology& topology) {
  const auto found = topology.rhythm();
  if (topology.irregular()) return found ? "an irregular topology has a rhythm" : "";
  if (!found) return "a regular topology has no rhythm";
  const std::int64_t n = (c.causal ? 1 : 2) * found->regular_from + 4 * found->period;
  if (n > kLongestRhythm) return "";
  const auto reads = oracle::adjacency(c.attend, place(c, n));
  return compare::rhythm({topology, reads, reads}, *found);
}

std::string with_case(const Case& c, const std::string& message) {
  return message.empty() ? "" : message + "   [" + describe(c) + "]";
}

// ---- Every term alone ---------------------------------------------------------------------------

struct Kind {
  const char* name;
  bool causal;
  std::function<std::vector<Term>()> terms;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

std::vector<std::int64_t> sizes() {
  if (kSanitized) return {1, 3, 8, 33};
  return {1, 2, 3, 5, 7, 8, 16, 33};
}

std::vector<Term> each(const std::function<Term(std::int64_t)>& make) {
  std::vector<Term> terms;
  for (std::int64_t a : sizes()) terms.push_back(make(a));
  return terms;
}

std::vector<Term> each_pair(const std::function<Term(std::int64_t, std::int64_t)>& make) {
  std::vector<Term> terms;
  for (std::int64_t a : sizes()) {
    for (std::int64_t b : sizes()) terms.push_back(make(a, b));
  }
  return terms;
}

std::vector<Term> listed_globals() {
  return {GlobalPositions{{0}}, GlobalPositions{{5}}, GlobalPositions{{0, 1, 2, 40}},
          GlobalPositions{{7, 31, 32, 33, 95, 96, 200}}};
}

std::vector<Term> global_first() {
  return each([](auto g) { return GlobalFirst{g}; });
}

std::vector<Term> global_every() {
  return each_pair([](auto k, auto o) { return GlobalEvery{k, o % k}; });
}

std::vector<Term> vertical_blocks() {
  std::vector<Term> terms;
  for (std::int64_t block : {1, 3, 8}) {
    for (std::int64_t local : {1, 2, 5}) {
      for (std::int64_t stride : {1, 3, 7}) {
        terms.push_back(VerticalBlocks{block, local, stride, 0, false});
        terms.push_back(VerticalBlocks{block, local, stride, stride - 1, false});
        terms.push_back(VerticalBlocks{block, local, stride, 0, true});
      }
    }
  }
  return terms;
}

std::vector<Term> window_blocks_causal() {
  return each_pair([](auto before, auto block) { return WindowBlocks{before - 1, 0, block}; });
}

std::vector<Term> window_blocks_both() {
  std::vector<Term> terms;
  for (std::int64_t before : {0, 1, 3}) {
    for (std::int64_t after : {0, 1, 2}) {
      for (std::int64_t block : {1, 2, 5, 8, 33}) {
        terms.push_back(WindowBlocks{before, after, block});
      }
    }
  }
  return terms;
}

std::vector<Term> random_keys() {
  return each([](auto r) { return Random{r, 0x9000000000000007 + static_cast<std::uint64_t>(r)}; });
}

std::vector<Term> random_blocks() {
  std::vector<Term> terms;
  for (std::int64_t r : {1, 3, 8}) {
    for (std::int64_t block : {1, 2, 5, 16, 33}) {
      terms.push_back(RandomBlocks{r, block, 11, false});
    }
  }
  return terms;
}

std::shared_ptr<const EdgeList> some_pairs(bool causal) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs = {{0, 0}, {3, 1}, {3, 2}, {40, 12}};
  for (std::int64_t i = 50; i < 96; i += 9) pairs.push_back({i, i - 50});
  if (!causal) pairs.insert(pairs.begin() + 1, {{0, 90}, {1, 2}, {1, 3}});
  return std::make_shared<const EdgeList>(EdgeList{pairs});
}

std::vector<Term> explicit_lists(bool causal) {
  std::vector<Term> terms = {ExplicitEdges{"memory", some_pairs(causal)}};
  for (std::int64_t block : {1, 3, 8}) {
    terms.push_back(ExplicitBlocks{"memory", block, some_pairs(causal)});
  }
  return terms;
}

std::vector<Kind> kinds() {
  return {
      {"full", true, [] { return std::vector<Term>{Full{}}; }},
      {"window", true, [] { return each([](auto w) {
                              return Window{w - 1, 0};
                            }); }},
      {"dilated", true, [] { return each_pair([](auto w, auto d) {
                               return Dilated{w, d};
                             }); }},
      {"sink", true, [] { return each([](auto s) { return Sink{s}; }); }},
      {"global_listed", true, listed_globals},
      {"global_first", true, global_first},
      {"global_every", true, global_every},
      {"chunk", true, [] { return each([](auto c) { return Chunk{c}; }); }},
      {"strided", true, [] { return each([](auto l) { return Strided{l}; }); }},
      {"fixed", true,
       [] { return each_pair([](auto l, auto c) {
              return Fixed{l, std::min(l, c)};
            }); }},
      {"window_blocks", true, window_blocks_causal},
      {"vertical_blocks", true, vertical_blocks},
      {"topk", true, [] { return each([](auto k) { return TopK{k}; }); }},
      {"topk_blocks", true,
       [] { return each_pair([](auto k, auto b) {
              return TopKBlocks{k, b, 0, 1};
            }); }},
      {"random", true, random_keys},
      {"random_blocks", true, random_blocks},
      {"explicit", true, [] { return explicit_lists(true); }},
      {"full_both", false, [] { return std::vector<Term>{Full{}}; }},
      {"window_both", false,
       [] { return each_pair([](auto l, auto r) {
              return Window{l - 1, r - 1};
            }); }},
      {"dilated_both", false,
       [] { return each_pair([](auto w, auto d) {
              return Dilated{w, d};
            }); }},
      {"sink_both", false, [] { return each([](auto s) { return Sink{s}; }); }},
      {"global_listed_both", false, listed_globals},
      {"global_first_both", false, global_first},
      {"global_last_both", false, [] { return each([](auto g) { return GlobalLast{g}; }); }},
      {"global_every_both", false, global_every},
      {"chunk_both", false, [] { return each([](auto c) { return Chunk{c}; }); }},
      {"window_blocks_both", false, window_blocks_both},
      {"random_both", false, random_keys},
      {"random_blocks_both", false, random_blocks},
      {"explicit_both", false, [] { return explicit_lists(false); }},
  };
}

class EveryTermAlone : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Topology, EveryTermAlone, testing::ValuesIn(kinds()),
                         [](const auto& test) { return std::string(test.param.name); });

// Rows, edges, intervals of rows, tiles and globals at every length.
TEST_P(EveryTermAlone, AnswersAsDefinedAtEveryLength) {
  for (const Term& term : GetParam().terms()) {
    const Case c{{term}, GetParam().causal, 3, 2};
    const Topology topology(c.attend, c.causal, c.layer, c.head);
    const oracle::Matrix longest = oracle::adjacency(c.attend, place(c, kLongest));
    for (std::int64_t n = 0; n <= kLongest; n += kSanitized && n > 9 ? 7 : 1) {
      const auto seed = static_cast<std::uint32_t>(n);
      const oracle::Matrix reads =
          c.causal ? oracle::corner(longest, n) : oracle::adjacency(c.attend, place(c, n));
      const oracle::Matrix possible =
          oracle::is_dynamic(term) ? oracle::possible(c.attend, place(c, n)) : reads;
      const auto message = compare::all_answers({topology, reads, possible}, 5, seed);
      ASSERT_EQ(with_case(c, message), "");
    }
  }
}

// The whole of one length: all pairs, all intervals of rows, all pairs of tile sizes.
TEST_P(EveryTermAlone, AnswersAsDefinedForEveryPairIntervalAndTile) {
  const std::int64_t n = kSanitized ? 37 : 67;
  for (const Term& term : GetParam().terms()) {
    const Case c{{term}, GetParam().causal, 0, 5};
    const Topology topology(c.attend, c.causal, c.layer, c.head);
    const auto reads = oracle::adjacency(c.attend, place(c, n));
    const compare::Subject subject{topology, reads, reads};
    ASSERT_EQ(with_case(c, compare::visible(subject)), "");
    for (std::int64_t a = 0; a <= n; a += kSanitized ? 5 : 1) {
      for (std::int64_t b = a; b <= n; b += kSanitized ? 7 : 3) {
        const auto message = compare::numbers(compare::at("edges", {a, b, n}),
                                              topology.edges(a, b, n), oracle::edges(reads, a, b));
        ASSERT_EQ(with_case(c, message), "");
      }
    }
    for (std::int64_t tile_q : {1, 7, 16, 24, 64}) {
      for (std::int64_t tile_k : {1, 7, 16, 24, 64}) {
        for (Range rows : {Range{0, n}, Range{n / 3, n - 2}}) {
          ASSERT_EQ(with_case(c, compare::tiles(subject, rows, {tile_q, tile_k})), "");
        }
      }
    }
  }
}

TEST_P(EveryTermAlone, RetainsExactlyWhatALaterQueryCanRead) {
  for (const Term& term : GetParam().terms()) {
    const Case c{{term}, GetParam().causal, 1, 1};
    const Topology topology(c.attend, c.causal, c.layer, c.head);
    if (!c.causal) {  // nothing is kept for later: the question is refused
      EXPECT_THROW(topology.retained(0, 1), Error);
      continue;
    }
    const auto last = oracle::last_readers(c.attend, place(c, 0), kLongest);
    for (std::int64_t length = 0; length <= kLongest; length += kSanitized ? 5 : 1) {
      for (std::int64_t first = 0; first <= length; first += first + 8 < length ? 7 : 1) {
        ASSERT_EQ(with_case(c, compare::retention(topology, last, first, length)), "");
      }
    }
  }
}

TEST_P(EveryTermAlone, RepeatsItsRowSizesInItsRhythm) {
  for (const Term& term : GetParam().terms()) {
    const Case c{{term}, GetParam().causal, 0, 1};
    ASSERT_EQ(with_case(c, rhythm(c, Topology(c.attend, c.causal, c.layer, c.head))), "");
  }
}

TEST_P(EveryTermAlone, GivesItsGlobalsApart) {
  for (const Term& term : GetParam().terms()) {
    const Case c{{term}, GetParam().causal, 0, 1};
    const Topology topology(c.attend, c.causal, c.layer, c.head);
    for (std::int64_t n : {0, 1, 2, 3, 5, 6, 7, 8, 33, 34, 41, 96}) {
      const compare::Heads heads{{c.attend}, {place(c, n)}};
      ASSERT_EQ(with_case(c, compare::globals(topology, heads, n)), "");
    }
  }
}

TEST(Topology, RefusesTermsThatTheDirectionDoesNotHave) {
  EXPECT_THROW(Topology({Window{2, 1}}, true), Error);
  EXPECT_THROW(Topology({GlobalLast{1}}, true), Error);
  for (const Term& term : {Term{Strided{2}}, Term{Fixed{2, 1}}, Term{TopK{2}},
                           Term{TopKBlocks{1, 2, 0, 1}}, Term{VerticalBlocks{1, 1, 2, 0, false}}}) {
    EXPECT_THROW(Topology({term}, false), Error) << generate::describe(Union{term});
  }
}

TEST(Topology, RefusesPositionsOutsideTheSegmentAndUnresolvedTokens) {
  const Topology topology({Window{2, 0}}, true);
  EXPECT_THROW(topology.row(8, 8), Error);
  EXPECT_THROW(topology.row(-1, 8), Error);
  EXPECT_THROW(topology.visible(0, 8, 8), Error);
  EXPECT_THROW(topology.edges(0, 9, 8), Error);
  EXPECT_THROW(topology.edges(3, 2, 8), Error);
  EXPECT_THROW(topology.rows(-1, 2, 8), Error);
  EXPECT_THROW(topology.retained(9, 8), Error);
  EXPECT_THROW(Topology({Window{1, 1}}, false).retained(7, 8), Error);
  EXPECT_THROW(Topology({GlobalTokens{{5}}}, true).row(0, 8), Error);
  EXPECT_THROW(Topology({GlobalTokens{{5}}}, true).edges(8), Error);
}

// ---- Unions, sampled ----------------------------------------------------------------------------

Case any_union(bool causal, int min_terms, int max_terms) {
  Case c;
  c.causal = causal;
  c.attend = *generate::attend(causal, min_terms, max_terms).as("attend");
  c.layer = *rc::gen::inRange(0, 100).as("layer");
  c.head = *rc::gen::inRange(0, 64).as("head");
  return c;
}

void agrees(bool causal, int num_terms) {
  const Case c = any_union(causal, num_terms, num_terms);
  const auto n = *generate::between(0, kLongest).as("length");
  const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed of intervals");
  const Topology topology(c.attend, causal, c.layer, c.head);
  const auto message = at_length(c, topology, n, 8, seed);
  if (!message.empty()) RC_FAIL(with_case(c, message));
}

RC_GTEST_PROP(UnionsOfTerms, OfTwoCausalAnswerAsDefined, ()) { agrees(true, 2); }
RC_GTEST_PROP(UnionsOfTerms, OfThreeCausalAnswerAsDefined, ()) { agrees(true, 3); }
RC_GTEST_PROP(UnionsOfTerms, OfTwoBidirectionalAnswerAsDefined, ()) { agrees(false, 2); }
RC_GTEST_PROP(UnionsOfTerms, OfThreeBidirectionalAnswerAsDefined, ()) { agrees(false, 3); }

RC_GTEST_PROP(UnionsOfTerms, ShowEveryPairAsDefined, ()) {
  const Case c = any_union(*rc::gen::arbitrary<bool>().as("causal"), 2, 3);
  const auto n = *generate::between(0, 40).as("length");
  const Topology topology(c.attend, c.causal, c.layer, c.head);
  const auto reads = oracle::adjacency(c.attend, place(c, n));
  const auto message = compare::visible({topology, reads, reads});
  if (!message.empty()) RC_FAIL(with_case(c, message));
}

RC_GTEST_PROP(UnionsOfTerms, RetainExactlyWhatALaterQueryCanRead, ()) {
  const Case c = any_union(true, 2, 3);
  const auto length = *generate::between(0, kLongest).as("length");
  const auto first = std::min(length, *generate::between(0, kLongest).as("first query"));
  const Topology topology(c.attend, true, c.layer, c.head);
  const auto last = oracle::last_readers(c.attend, place(c, 0), length);
  for (std::int64_t query : {first, length, std::max<std::int64_t>(length - 1, 0)}) {
    const auto message = compare::retention(topology, last, query, length);
    if (!message.empty()) RC_FAIL(with_case(c, message));
  }
}

RC_GTEST_PROP(UnionsOfTerms, RepeatTheirRowSizesInTheirRhythm, ()) {
  const Case c = any_union(*rc::gen::arbitrary<bool>().as("causal"), 2, 3);
  const auto message = rhythm(c, Topology(c.attend, c.causal, c.layer, c.head));
  if (!message.empty()) RC_FAIL(with_case(c, message));
}

RC_GTEST_PROP(UnionsOfTerms, GiveTheirGlobalsApart, ()) {
  Case c = any_union(*rc::gen::arbitrary<bool>().as("causal"), 1, 2);
  c.attend.push_back(*generate::global_term(c.causal).as("global"));
  const auto n = *generate::between(0, kLongest).as("length");
  const Topology topology(c.attend, c.causal, c.layer, c.head);
  const auto message = compare::globals(topology, {{c.attend}, {place(c, n)}}, n);
  if (!message.empty()) RC_FAIL(with_case(c, message));
}

RC_GTEST_PROP(UnionsOfTerms, DoNotDependOnTheOrderOfTheirTerms, ()) {
  Case c = any_union(*rc::gen::arbitrary<bool>().as("causal"), 2, 3);
  const auto n = *generate::between(1, kLongest).as("length");
  const Topology forward(c.attend, c.causal, c.layer, c.head);
  std::reverse(c.attend.begin(), c.attend.end());
  c.attend.push_back(c.attend.front());
  const Topology backward(c.attend, c.causal, c.layer, c.head);
  RC_ASSERT(forward.edges(n) == backward.edges(n));
  for (std::int64_t q = 0; q < n; ++q) RC_ASSERT(forward.row(q, n) == backward.row(q, n));
}

// ---- The shared list ----------------------------------------------------------------------------

class SharedProblem : public testing::TestWithParam<Problem> {};

INSTANTIATE_TEST_SUITE_P(Topology, SharedProblem, testing::ValuesIn(kProblems),
                         [](const auto& test) { return std::string(test.param.name); });

// Small lengths by the oracle; at any length the rows of a partition add up.
TEST_P(SharedProblem, AnswersAsDefinedAndItsRowsAddUp) {
  constexpr std::int64_t kLongestForOracle = 300;
  const Problem& problem = GetParam();
  const Attend attend = parse_attend(problem.attend, problem.causal);
  for (const HeadGroup& group : attend.groups) {
    const int head = group.heads.empty() ? 0 : static_cast<int>(group.heads[0]);
    const Case c{group.attend, problem.causal, 0, head};
    const Topology topology(c.attend, c.causal, c.layer, c.head);
    for (std::int64_t n : problem.lengths) {
      if (n <= kLongestForOracle) {
        ASSERT_EQ(with_case(c, at_length(c, topology, n, 3, 1)), "");
      }
      for (Range rows : compare::intervals(n, 5, 2)) {
        ASSERT_EQ(topology.edges(n), topology.edges(0, rows.begin, n) +
                                         topology.edges(rows.begin, rows.end, n) +
                                         topology.edges(rows.end, n, n));
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <variant>
#include <vector>

#include "generate.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/topology.h"

// Edges at lengths that no matrix holds, against sums written down by hand (model-configs.md, 2.5),
// and against each other.

namespace lacuna {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;
const std::vector<std::int64_t> kLengths = {kHuge, kHuge - 1, 999999999989, 1000003, 8192, 100, 1};
const std::vector<std::int64_t> kSizes = {1, 2, 3, 17, 64, 1000, 4096, 100003};

Int128 triangle(Int128 n) { return n * (n + 1) / 2; }

// Σ_{i<n} min(i+1, w)
Int128 window(Int128 n, Int128 w) { return n <= w ? triangle(n) : triangle(w) + (n - w) * w; }

Int128 chunk(Int128 n, Int128 c) { return n / c * triangle(c) + triangle(n % c); }

// Σ_{i<n} floor(i/l)
Int128 floors(Int128 n, Int128 l) {
  const Int128 whole = n / l;
  return l * (whole * (whole - 1) / 2) + n % l * whole;
}

// Σ_{i<n} min(floor(i/b), m)
Int128 floors_up_to(Int128 n, Int128 b, Int128 m) {
  return n <= b * m ? floors(n, b) : floors(b * m, b) + (n - b * m) * m;
}

Int128 causal(const Union& attend, std::int64_t n) { return Topology(attend, true).edges(n); }
Int128 both_ways(const Union& attend, std::int64_t n) { return Topology(attend, false).edges(n); }

#define EXPECT_EDGES(got, want, ...)                         \
  EXPECT_EQ(to_string(Int128{got}), to_string(Int128{want})) \
      << testing::PrintToString(std::vector<std::int64_t>{__VA_ARGS__})

TEST(EdgesAtScale, FullIsATriangleOrASquare) {
  for (std::int64_t n : kLengths) {
    EXPECT_EDGES(causal({Full{}}, n), triangle(n), n);
    EXPECT_EDGES(both_ways({Full{}}, n), Int128{n} * n, n);
    EXPECT_EDGES(legal_pairs(true, 0, n, n), triangle(n), n);
    EXPECT_EDGES(legal_pairs(false, 0, n, n), Int128{n} * n, n);
    EXPECT_EDGES(legal_pairs(true, n / 3, n, n), triangle(n) - triangle(n / 3), n);
  }
}

TEST(EdgesAtScale, WindowsChunksAndDilatedFollowTheirSums) {
  for (std::int64_t n : kLengths) {
    for (std::int64_t a : kSizes) {
      EXPECT_EDGES(causal({Window{a - 1, 0}}, n), window(n, a), n, a);
      EXPECT_EDGES(causal({TopK{a}}, n), window(n, a), n, a);
      EXPECT_EDGES(causal({Sink{a}}, n), window(n, a), n, a);
      EXPECT_EDGES(causal({GlobalFirst{a}}, n), window(n, a), n, a);
      EXPECT_EDGES(causal({Chunk{a}}, n), chunk(n, a), n, a);
      EXPECT_EDGES(causal({Strided{a}}, n), n + floors(n, a), n, a);
      for (std::int64_t b : {1, 5, 100}) {
        EXPECT_EDGES(causal({Dilated{b, a}}, n), n + floors_up_to(n, a, b - 1), n, a, b);
        EXPECT_EDGES(causal({WindowBlocks{b, 0, a}}, n), chunk(n, a) + a * floors_up_to(n, a, b), n,
                     a, b);
        EXPECT_EDGES(causal({TopKBlocks{b, a, 0, 1}}, n),
                     chunk(n, a) + a * floors_up_to(n, a, b - 1), n, a, b);
        EXPECT_EDGES(causal({Fixed{a, std::min(a, b)}}, n),
                     chunk(n, a) + std::min(a, b) * floors(n, a), n, a, b);
      }
    }
  }
}

TEST(EdgesAtScale, TwoSidedTermsFollowTheirSums) {
  for (std::int64_t n : kLengths) {
    const Int128 square = Int128{n} * n;
    for (std::int64_t a : kSizes) {
      // n(2h+1) - h(h+1) for n > h
      if (n > a) {
        const Int128 want = Int128{n} * (2 * a + 1) - Int128{a} * (a + 1);
        EXPECT_EDGES(both_ways({Window{a, a}}, n), want, n, a);
      }
      // To the left i, at most a; to the right n-1-i, at most 7.
      EXPECT_EDGES(both_ways({Window{a, 7}}, n), window(n, a + 1) + window(n, 8) - n, n, a);
      EXPECT_EDGES(both_ways({Chunk{a}}, n), Int128{n / a} * a * a + Int128{n % a} * (n % a), n, a);
      const Int128 others = n - std::min(a, n);
      EXPECT_EDGES(both_ways({Sink{a}}, n), Int128{n} * std::min(a, n), n, a);
      EXPECT_EDGES(both_ways({GlobalFirst{a}}, n), square - others * others, n, a);
      EXPECT_EDGES(both_ways({GlobalLast{a}}, n), square - others * others, n, a);
      EXPECT_EDGES(both_ways({Dilated{4, a}}, n), n + 2 * floors_up_to(n, a, 3), n, a);
    }
  }
}

// Columns: a global p is read by n-p queries. Rows: a global p reads p+1 keys, all columns among
// them.
TEST(EdgesAtScale, EveryKthGlobalFollowsItsSum) {
  for (std::int64_t n : kLengths) {
    for (std::int64_t k : kSizes) {
      for (std::int64_t offset : {std::int64_t{0}, k / 2, k - 1}) {
        const Int128 globals = n <= offset ? 0 : (Int128{n} - offset + k - 1) / k;
        const Int128 positions = globals * offset + k * (globals * (globals - 1) / 2);
        const Int128 columns = globals * n - positions;
        const Int128 rows = positions + globals;
        const Int128 both = triangle(globals);
        EXPECT_EDGES(causal({GlobalEvery{k, offset}}, n), columns + rows - both, n, k, offset);
      }
    }
  }
}

// All pairs but those of two positions that are not global.
TEST(EdgesAtScale, EveryKthGlobalBothWaysFollowsItsSum) {
  for (std::int64_t n : kLengths) {
    for (std::int64_t k : kSizes) {
      const Int128 rest = n - (n + k - 1) / k;  // positions 0, k, 2k, … are global
      EXPECT_EDGES(both_ways({GlobalEvery{k, 0}}, n), Int128{n} * n - rest * rest, n, k);
    }
  }
}

TEST(EdgesAtScale, VerticalBlocksFollowTheirSum) {
  for (std::int64_t n : kLengths) {
    for (std::int64_t block : {1, 64, 1000}) {
      for (std::int64_t local : {1, 16}) {
        for (std::int64_t stride : {1, 8, 13}) {
          const std::int64_t offset = stride / 2;
          // An own block q reads blocks offset, offset + stride, … <= q - local besides local ones.
          const Int128 blocks = n / block;
          const auto vertical = [&](Int128 m) {  // Σ of their number over own blocks q < m
            const Int128 past = std::max<Int128>(m - local - offset, 0);
            return past + floors(past, stride);
          };
          const Int128 tail = n % block;
          const Int128 want = chunk(n, block) + block * floors_up_to(n, block, local - 1) +
                              block * block * vertical(blocks) +
                              block * tail * (vertical(blocks + 1) - vertical(blocks));
          EXPECT_EDGES(causal({VerticalBlocks{block, local, stride, offset, false}}, n), want, n,
                       block, local, stride);
        }
      }
    }
  }
}

TEST(EdgesAtScale, UnionsCountACommonEdgeOnce) {
  for (std::int64_t n : kLengths) {
    for (std::int64_t w : kSizes) {
      for (std::int64_t s : {1, 4, 5000}) {
        // Σ min(s, max(0, i+1-W)) beside the window
        const Int128 sinks = n <= w ? 0 : window(n - w, s);
        EXPECT_EDGES(causal({Window{w - 1, 0}, Sink{s}}, n), window(n, w) + sinks, n, w, s);
        EXPECT_EDGES(causal({Sink{s}, Window{w - 1, 0}, GlobalFirst{s}}, n), window(n, w) + sinks,
                     n, w, s);
      }
      for (std::int64_t c : {2, 100, 8192}) {
        // Row i reads the longer of i mod c + 1 and min(w, i+1): in the first chunk i+1 keys.
        const auto in_chunk = [&](Int128 rows) {
          const Int128 low = std::min<Int128>(rows, w);
          return low * w + triangle(rows) - triangle(low);
        };
        const Int128 want = n <= c   ? triangle(n)
                            : w >= c ? window(n, w)
                                     : triangle(c) + (n / c - 1) * in_chunk(c) + in_chunk(n % c);
        EXPECT_EDGES(causal({Chunk{c}, Window{w - 1, 0}}, n), want, n, w, c);
      }
      EXPECT_EDGES(causal({Window{w - 1, 0}, Full{}}, n), triangle(n), n, w);
    }
    // Strided outside a window of its own stride l: the window's keys and one a stride beyond.
    for (std::int64_t l : {2, 64, 1000}) {
      EXPECT_EDGES(causal({Window{l - 1, 0}, Strided{l}}, n), window(n, l) + floors(n, l), n, l);
    }
  }
}

TEST(EdgesAtScale, RandomTermsAreRefusedWhereRowsCannotBeCounted) {
  EXPECT_THROW(causal({Random{3, 1}}, kHuge), Error);
  EXPECT_THROW(causal({Window{7, 0}, RandomBlocks{3, 64, 1, false}}, kHuge), Error);
}

// ---- Consistency, sampled -----------------------------------------------------------------------

rc::Gen<Union> regular_union(bool causal, int max_terms) {
  // Both ways every row holds all columns of global(every=k): that has its own test above.
  auto term = causal ? rc::gen::oneOf(generate::regular_term(true), generate::causal_only_term(),
                                      generate::global_term(true))
                     : rc::gen::oneOf(generate::regular_term(false),
                                      rc::gen::suchThat(generate::global_term(false), [](Term t) {
                                        return !std::holds_alternative<GlobalEvery>(t);
                                      }));
  return rc::gen::mapcat(rc::gen::inRange(1, max_terms + 1), [term](int count) {
    return rc::gen::container<Union>(static_cast<std::size_t>(count), term);
  });
}

std::int64_t any_length(const char* name, std::int64_t longest) {
  return static_cast<std::int64_t>(*rc::gen::resize(100, generate::between(0, longest)).as(name));
}

RC_GTEST_PROP(EdgesAtScale, OfAPartitionAddUp, ()) {
  const auto is_causal = *rc::gen::arbitrary<bool>().as("causal");
  const Union attend = *regular_union(is_causal, 2).as("attend");
  const Topology topology(attend, is_causal);
  const auto n = any_length("length", kHuge);
  const auto a = std::min(n, any_length("middle", kHuge));
  RC_LOG() << generate::describe(attend);
  RC_ASSERT(to_string(topology.edges(0, a, n) + topology.edges(a, n, n)) ==
            to_string(topology.edges(n)));
  if (is_causal) RC_ASSERT(to_string(topology.edges(0, a, n)) == to_string(topology.edges(a)));
}

// Rows far out, one by one, sum to what the closed form says of them.
RC_GTEST_PROP(EdgesAtScale, OfAFewRowsAreTheSumOfThoseRows, ()) {
  const auto is_causal = *rc::gen::arbitrary<bool>().as("causal");
  const Union attend = *regular_union(is_causal, 3).as("attend");
  const Topology topology(attend, is_causal, 0, 3);
  const auto n = any_length("length", 200000) + 100;
  const auto a = std::min(n, any_length("first row", 200000));
  const auto b = std::min(n, a + any_length("rows", 60));
  Int128 sum = 0;
  for (std::int64_t i = a; i < b; ++i) sum += topology.row(i, n).size();
  RC_LOG() << generate::describe(attend);
  RC_ASSERT(to_string(topology.edges(a, b, n)) == to_string(sum));
}

}  // namespace
}  // namespace lacuna

#include "lacuna/segments.h"

#include <gtest/gtest.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

const std::vector<std::int64_t> kLengths = {3, 0, 2, 4};

TEST(Segments, StartAtPositionZeroEach) {
  const Segments packed(kLengths);
  EXPECT_EQ(packed.indptr(), (std::vector<std::int64_t>{0, 3, 3, 5, 9}));
  EXPECT_EQ(packed.segment_of(2), 0);
  EXPECT_EQ(packed.segment_of(3), 2);  // the empty segment holds no position
  EXPECT_EQ(packed.segment_of(8), 3);
}

TEST(Segments, NoRowCrossesItsSegment) {
  const Segments packed(kLengths);
  const Topology causal({Full{}}, true);
  const Topology both({Window{5, 5}}, false);
  for (std::int64_t query = 0; query < packed.num_tokens(); ++query) {
    const auto segment = static_cast<std::size_t>(packed.segment_of(query));
    const Range own = {packed.indptr()[segment], packed.indptr()[segment + 1]};
    EXPECT_EQ(packed.row(causal, query), (Ranges{{own.begin, query + 1}}));
    EXPECT_EQ(packed.row(both, query), Ranges{own});
  }
}

TEST(Segments, SinksAndGlobalsAreEachSegmentsOwn) {
  const Segments packed(kLengths);
  EXPECT_EQ(packed.row(Topology({Window{0, 0}, Sink{1}}, true), 8), (Ranges{{5, 6}, {8, 9}}));
  EXPECT_EQ(packed.row(Topology({Window{0, 0}, GlobalPositions{{1}}}, true), 8),
            (Ranges{{6, 7}, {8, 9}}));
}

TEST(Segments, KeyRangesAndEdgesAreTheSegmentsTogether) {
  const Segments packed(kLengths);
  const Topology window({Window{1, 0}}, true);
  const KeyRanges rows = packed.key_ranges(window, 1, 7);
  ASSERT_EQ(rows.indptr.size(), 7u);
  EXPECT_EQ(rows.ranges[2], (Range{3, 4}));  // row 3 opens its segment
  EXPECT_EQ(packed.edges(window), 5 + 0 + 3 + 7);
}

TEST(Segments, EdgesAreNeverOfTheMeanLength) {
  const std::vector<std::int64_t> lengths = {2048, 30720};
  EXPECT_EQ(Segments(lengths).edges(Topology({Full{}}, true)), 473972736);
}

TEST(Segments, RefuseLengthsAndPositionsOutOfRange) {
  const std::vector<std::int64_t> negative = {4, -1};
  EXPECT_THROW(Segments{negative}, Error);
  EXPECT_THROW(Segments(kLengths).segment_of(9), Error);
  EXPECT_THROW(Segments(kLengths).row(Topology({Full{}}, true), -1), Error);
}

}  // namespace
}  // namespace lacuna

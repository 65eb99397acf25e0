#include "lacuna/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

TEST(Statistics, InterpolatesBetweenNeighbours) {
  // By hand: place = (5 − 1) · p / 100.
  const std::vector<double> samples = {50, 10, 40, 20, 30};
  const Statistics statistics = statistics_of(samples);
  EXPECT_DOUBLE_EQ(statistics.p10, 14);  // place 0.4
  EXPECT_DOUBLE_EQ(statistics.p50, 30);
  EXPECT_DOUBLE_EQ(statistics.median(), 30);
  EXPECT_DOUBLE_EQ(statistics.p90, 46);    // place 3.6
  EXPECT_DOUBLE_EQ(statistics.p99, 49.6);  // place 3.96
  EXPECT_EQ(statistics.min, 10);
  EXPECT_EQ(statistics.max, 50);
  EXPECT_EQ(statistics.num_runs, 5);
}

TEST(Statistics, MedianOfAnEvenCountIsTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(statistics_of(std::vector<double>{4, 1, 3, 2}).p50, 2.5);
}

TEST(Statistics, OneSampleIsEveryPercentile) {
  const Statistics statistics = statistics_of(std::vector<double>{0.1});
  for (const double value : {statistics.p10, statistics.p50, statistics.p90, statistics.p99,
                             statistics.min, statistics.max}) {
    EXPECT_EQ(value, 0.1);
  }
}

TEST(Statistics, PercentilesNeverDecrease) {
  const std::vector<double> sorted = {-3, -3, 0, 1e-9, 7, 7.5, 1e12};
  double before = sorted.front();
  for (int percent = 0; percent <= 100; ++percent) {
    const double value = percentile(sorted, percent);
    EXPECT_GE(value, before) << percent;
    before = value;
  }
  EXPECT_EQ(before, sorted.back());
}

TEST(Statistics, HugeNeighboursDoNotOverflow) {
  const double huge = std::numeric_limits<double>::max();
  EXPECT_TRUE(std::isfinite(percentile(std::vector<double>{-huge, huge}, 50)));
}

TEST(Statistics, NoSamplesNotFiniteOrOutOfRangeAreErrors) {
  EXPECT_THROW(statistics_of({}), Error);
  EXPECT_THROW(statistics_of(std::vector<double>{1, std::nan("")}), Error);
  EXPECT_THROW(statistics_of(std::vector<double>{HUGE_VAL}), Error);
  EXPECT_THROW(percentile({}, 50), Error);
  EXPECT_THROW(percentile(std::vector<double>{1}, 100.5), Error);
  EXPECT_THROW(percentile(std::vector<double>{1}, std::nan("")), Error);
}

}  // namespace
}  // namespace lacuna

#include "lacuna/crossover.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

const std::vector<double>& lengths() {
  static const std::vector<double> kLengths = {512, 1024, 2048, 4096, 8192, 16384, 32768};
  return kLengths;
}

// Exact times of the model, with noise of a given size.
std::vector<TimePoint> dense_points(double a, double c0, double noise = 0, unsigned seed = 1) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> error(0, 1);
  std::vector<TimePoint> points;
  for (const double n : lengths()) {
    points.push_back({n, 0, a * n * n + c0 + noise * error(draw)});
  }
  return points;
}

std::vector<TimePoint> sparse_points(double b, double r, double s0, std::vector<double> chosen,
                                     double noise = 0, unsigned seed = 2) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> error(0, 1);
  std::vector<TimePoint> points;
  for (const double n : lengths()) {
    for (const double k : chosen) {
      points.push_back({n, k, b * n * k + r * n + s0 + noise * error(draw)});
    }
  }
  return points;
}

TEST(FitDense, FindsTheCoefficientsOfExactTimes) {
  const Fit fit = fit_dense(dense_points(3e-12, 2e-5));
  EXPECT_NEAR(fit.coefficients[0], 3e-12, 1e-21);
  EXPECT_NEAR(fit.coefficients[1], 2e-5, 1e-13);
  EXPECT_NEAR(fit.residual_seconds, 0, 1e-13);
}

TEST(FitSparse, TellsScanFromChoiceWhereTheChoiceVaries) {
  const Fit fit = fit_sparse(sparse_points(4e-12, 5e-9, 1e-4, {256, 1024, 2048}));
  EXPECT_NEAR(fit.coefficients[0], 4e-12, 1e-20);
  EXPECT_NEAR(fit.coefficients[1], 5e-9, 1e-17);
  EXPECT_NEAR(fit.coefficients[2], 1e-4, 1e-12);
}

TEST(FitSparse, OneChoiceGivesOneSlope) {
  const Fit fit = fit_sparse(sparse_points(4e-12, 5e-9, 1e-4, {1000}));
  EXPECT_EQ(fit.coefficients[0], 0);
  EXPECT_NEAR(fit.coefficients[1], 4e-12 * 1000 + 5e-9, 1e-17);
}

TEST(Fit, RefusesPointsThatDoNotDecide) {
  EXPECT_THROW(fit_dense(std::vector<TimePoint>{{1, 0, 1}, {2, 0, 2}}), Error);
  EXPECT_THROW(fit_dense(std::vector<TimePoint>{{2, 0, 1}, {2, 0, 2}, {2, 0, 3}}), Error);
  EXPECT_THROW(fit_dense(std::vector<TimePoint>{{2, 0, 1}, {3, 0, 2}, {0, 0, 3}}), Error);
  // Two distinct points do not decide three coefficients, however often they are repeated.
  EXPECT_THROW(
      fit_sparse(std::vector<TimePoint>{{2, 1, 1}, {2, 1, 2}, {4, 2, 3}, {4, 2, 3}, {4, 2, 3}}),
      Error);
}

TEST(Crossover, IsTheLargerRoot) {
  // 1e-12 n² = 1e-8 n + 2.4e-5 at n = 12000.
  const Fit dense = fit_dense(dense_points(1e-12, 0));
  const Fit sparse = fit_sparse(sparse_points(0, 1e-8, 2.4e-5, {1}));
  const auto crossing = crossover(dense, sparse, {1, 1e9, 2});
  ASSERT_TRUE(crossing.has_value());
  EXPECT_NEAR(crossing->tokens, 12000, 1e-3);
  EXPECT_NEAR(*crossing->least, 12000, 1e-2);
  EXPECT_NEAR(*crossing->most, 12000, 1e-2);
}

TEST(Crossover, NeverIsAnAnswer) {
  const Fit dense = fit_dense(dense_points(1e-12, 0));
  const Fit sparse = fit_sparse(sparse_points(0, 1e-8, 2.4e-5, {1}));
  EXPECT_FALSE(crossover(dense, sparse, {1, 11999, 2}).has_value());
  // Dense times that do not grow quadratically are never caught up with.
  const Fit flat = {{0, 1e-5}, {0, 0}, {0, 0, 0, 0}, 0};
  EXPECT_FALSE(crossover(flat, sparse, {1, INFINITY, 2}).has_value());
}

TEST(Crossover, SparseThatIsAlwaysFasterWinsFromTheFirstToken) {
  const Fit dense = fit_dense(dense_points(1e-12, 1e-3));
  const Fit sparse = fit_sparse(sparse_points(0, 1e-9, 1e-6, {1}));
  const auto crossing = crossover(dense, sparse, {});
  ASSERT_TRUE(crossing.has_value());
  EXPECT_EQ(crossing->tokens, 0);
}

TEST(Crossover, MoreChosenKeysMoveItToTheRight) {
  const Fit dense = fit_dense(dense_points(1e-12, 1e-5));
  const Fit sparse = fit_sparse(sparse_points(2e-12, 1e-9, 5e-5, {256, 1024}));
  double before = 0;
  for (const double k : {64.0, 512.0, 4096.0}) {
    const auto crossing = crossover(dense, sparse, {k, INFINITY, 2});
    ASSERT_TRUE(crossing.has_value());
    EXPECT_GT(crossing->tokens, before);
    before = crossing->tokens;
  }
}

TEST(Crossover, ErrorsOfEveryCoefficientReachTheCrossing) {
  // n² = (1·k + 20) n + 25 at n = 25, k = 4.
  const Fit dense = {{1, 0}, {}, {0, 0, 0, 0}, 0};
  const Fit sparse = {{1, 20, 25}, {}, std::vector<double>(9, 0), 0};
  const CrossingQuery query{4, 1e9, 2};
  const double steepness = 2 * 25 - 24;
  const auto error_with = [&](const Fit& changed_dense, const Fit& changed_sparse) {
    return crossover(changed_dense, changed_sparse, query)->standard_error;
  };
  EXPECT_NEAR(crossover(dense, sparse, query)->tokens, 25, 1e-12);
  EXPECT_EQ(error_with(dense, sparse), 0);
  Fit changed = dense;
  changed.covariance[0] = 0.01 * 0.01;
  EXPECT_NEAR(error_with(changed, sparse), 625 * 0.01 / steepness, 1e-12);
  changed = sparse;
  changed.covariance[0] = 0.01 * 0.01;
  EXPECT_NEAR(error_with(dense, changed), 25 * 4 * 0.01 / steepness, 1e-12);
  changed = sparse;
  changed.covariance[4] = 0.01 * 0.01;
  EXPECT_NEAR(error_with(dense, changed), 25 * 0.01 / steepness, 1e-12);
  changed = sparse;
  changed.covariance[8] = 0.01 * 0.01;
  EXPECT_NEAR(error_with(dense, changed), 0.01 / steepness, 1e-12);
  EXPECT_NEAR(*crossover(dense, changed, query)->most, 25 + 2 * 0.01 / steepness, 1e-12);
}

TEST(Crossover, BoundsCoverTheTrueCrossingAsOftenAsTheyPromise) {
  // 2 standard errors cover about 95 % (a little less with few points).
  int covered = 0;
  constexpr unsigned kTrials = 400;
  for (unsigned trial = 0; trial < kTrials; ++trial) {
    const Fit dense = fit_dense(dense_points(1e-12, 0, 3e-6, 2 * trial + 1));
    const Fit sparse = fit_sparse(sparse_points(0, 1e-8, 2.4e-5, {1}, 3e-6, 2 * trial + 2));
    const auto crossing = crossover(dense, sparse, {1, 1e9, 2});
    ASSERT_TRUE(crossing.has_value());
    const bool above = !crossing->least || *crossing->least <= 12000;
    const bool below = !crossing->most || *crossing->most >= 12000;
    covered += above && below ? 1 : 0;
  }
  EXPECT_GT(covered, 0.85 * kTrials);
  EXPECT_LT(covered, 0.99 * kTrials);
}

}  // namespace
}  // namespace lacuna

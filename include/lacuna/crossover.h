#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

// From which length on the sparse path is faster, from measured times.
//
//   T_dense(n)  = a n² + c0
//   T_sparse(n) = b n k + r n + s0        k chosen keys a query, r index scan, s0 fixed preparation
namespace lacuna {

struct TimePoint {
  double tokens = 0;   // n > 0
  double chosen = 0;   // k >= 0; not looked at in a dense fit
  double seconds = 0;  // e.g. the median of its runs
};

// Least squares, every point of equal weight. Coefficients in the order of the formula.
struct Fit {
  std::vector<double> coefficients;
  std::vector<double> standard_errors;
  std::vector<double> covariance;  // [num_coefficients, num_coefficients]
  double residual_seconds = 0;     // sqrt(Σ residual² / (points - coefficients))
};

// {a, c0}. Throws Error with fewer than 3 points or fewer than 2 distinct lengths.
Fit fit_dense(std::span<const TimePoint> points);
// {b, r, s0}. Where all points have one k, b and r cannot be told apart: then b is 0 and r stands
// for b k + r of that k. Throws Error with too few points or lengths, or where the points do not
// determine the coefficients.
Fit fit_sparse(std::span<const TimePoint> points);

// Above `tokens` the sparse path is faster. Bounds are tokens ± `num_sigmas` standard errors, by
// first-order propagation of both fits' covariances; an absent bound is not finite or, below, not
// positive.
struct Crossing {
  double tokens = 0;  // 0: faster from the first token on
  double standard_error = 0;
  std::optional<double> least;
  std::optional<double> most;
};

struct CrossingQuery {
  double chosen = 0;                                            // k
  double max_tokens = std::numeric_limits<double>::infinity();  // e.g. the model's context
  double num_sigmas = 2;
};

// The largest root of T_dense = T_sparse, where the sparse path stays faster above it up to
// max_tokens; nullopt: never.
std::optional<Crossing> crossover(const Fit& dense, const Fit& sparse, const CrossingQuery& query);

}  // namespace lacuna

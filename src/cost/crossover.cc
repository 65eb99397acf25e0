#include "lacuna/crossover.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

using Row = std::vector<long double>;  // of the design matrix: one value a coefficient

// Inverse of a symmetric positive matrix [size, size] by Gauss-Jordan with pivoting; empty where a
// pivot vanishes against `tolerance`.
std::vector<long double> inverse(std::vector<long double> matrix, std::size_t size) {
  constexpr long double kTolerance = 1e-12L;
  std::vector<long double> result(size * size, 0);
  for (std::size_t idx = 0; idx < size; ++idx) result[idx * size + idx] = 1;
  for (std::size_t column = 0; column < size; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column; row < size; ++row) {
      const long double candidate = std::fabs(matrix[row * size + column]);
      if (candidate > std::fabs(matrix[pivot * size + column])) pivot = row;
    }
    if (std::fabs(matrix[pivot * size + column]) < kTolerance) return {};
    for (std::size_t idx = 0; idx < size; ++idx) {
      std::swap(matrix[pivot * size + idx], matrix[column * size + idx]);
      std::swap(result[pivot * size + idx], result[column * size + idx]);
    }
    const long double scale = matrix[column * size + column];
    for (std::size_t idx = 0; idx < size; ++idx) {
      matrix[column * size + idx] /= scale;
      result[column * size + idx] /= scale;
    }
    for (std::size_t row = 0; row < size; ++row) {
      if (row == column) continue;
      const long double factor = matrix[row * size + column];
      for (std::size_t idx = 0; idx < size; ++idx) {
        matrix[row * size + idx] -= factor * matrix[column * size + idx];
        result[row * size + idx] -= factor * result[column * size + idx];
      }
    }
  }
  return result;
}

// Columns differ by twelve orders of magnitude (n² beside 1): each is scaled to length 1.
Row column_lengths(const std::vector<Row>& design) {
  Row lengths(design.front().size(), 0);
  for (const Row& row : design) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      lengths[column] += row[column] * row[column];
    }
  }
  for (long double& length : lengths) length = std::sqrt(length);
  return lengths;
}

// coefficients = (XᵀX)⁻¹ Xᵀy, covariance = s² (XᵀX)⁻¹ with s² = Σ residual² / (points - size).
Fit least_squares(const std::vector<Row>& design, std::span<const TimePoint> points) {
  const std::size_t size = design.front().size();
  const Row lengths = column_lengths(design);
  std::vector<long double> normal(size * size, 0);
  Row right(size, 0);
  for (std::size_t point = 0; point < points.size(); ++point) {
    for (std::size_t row = 0; row < size; ++row) {
      const long double left = design[point][row] / lengths[row];
      right[row] += left * static_cast<long double>(points[point].seconds);
      for (std::size_t column = 0; column < size; ++column) {
        normal[row * size + column] += left * design[point][column] / lengths[column];
      }
    }
  }
  const std::vector<long double> inverted = inverse(normal, size);
  if (inverted.empty()) {
    throw Error(
        "the measured points do not determine the coefficients; allowed: points whose "
        "lengths and chosen keys vary independently");
  }
  Row solution(size, 0);
  for (std::size_t row = 0; row < size; ++row) {
    for (std::size_t column = 0; column < size; ++column) {
      solution[row] += inverted[row * size + column] * right[column];
    }
    solution[row] /= lengths[row];
  }
  long double squares = 0;
  for (std::size_t point = 0; point < points.size(); ++point) {
    long double residual = points[point].seconds;
    for (std::size_t column = 0; column < size; ++column) {
      residual -= design[point][column] * solution[column];
    }
    squares += residual * residual;
  }
  const long double variance = squares / static_cast<long double>(points.size() - size);
  Fit fit;
  fit.residual_seconds = static_cast<double>(std::sqrt(variance));
  for (std::size_t row = 0; row < size; ++row) {
    fit.coefficients.push_back(static_cast<double>(solution[row]));
    for (std::size_t column = 0; column < size; ++column) {
      const long double unscaled = lengths[row] * lengths[column];
      fit.covariance.push_back(
          static_cast<double>(variance * inverted[row * size + column] / unscaled));
    }
    fit.standard_errors.push_back(std::sqrt(std::max(0.0, fit.covariance[row * size + row])));
  }
  return fit;
}

void require_points(std::span<const TimePoint> points, std::size_t coefficients) {
  if (points.size() <= coefficients) {
    throw Error(
        fmt::format("measured points are {}; allowed: {} and above, one more than the "
                    "coefficients",
                    points.size(), coefficients + 1));
  }
  std::set<double> lengths;
  for (const TimePoint& point : points) {
    if (!(point.tokens > 0) || !(point.chosen >= 0) || !std::isfinite(point.tokens) ||
        !std::isfinite(point.chosen) || !std::isfinite(point.seconds)) {
      throw Error(
          fmt::format("a measured point has tokens {}, chosen {}, seconds {}; allowed: "
                      "finite, tokens above 0, chosen 0 and above",
                      point.tokens, point.chosen, point.seconds));
    }
    lengths.insert(point.tokens);
  }
  if (lengths.size() < 2) throw Error("all measured points have one length; allowed: 2 and above");
}

// Variance of gᵀθ for the fit's coefficients θ.
double variance_along(const Fit& fit, const std::vector<double>& gradient) {
  double sum = 0;
  for (std::size_t row = 0; row < gradient.size(); ++row) {
    for (std::size_t column = 0; column < gradient.size(); ++column) {
      sum += gradient[row] * fit.covariance[row * gradient.size() + column] * gradient[column];
    }
  }
  return std::max(0.0, sum);
}

void require_size(const char* name, const Fit& fit, std::size_t size) {
  if (fit.coefficients.size() == size && fit.covariance.size() == size * size) return;
  throw Error(
      fmt::format("{} fit has {} coefficients; allowed: {}", name, fit.coefficients.size(), size));
}

// Largest root of a n² - slope n + constant = 0 above which the left side stays positive up to
// `most`; 0 where it is positive from the start; nullopt where there is none.
std::optional<double> last_sign_change(double a, double slope, double constant, double most) {
  const auto gain = [&](double n) { return (a * n - slope) * n + constant; };
  if (a == 0) {
    if (slope == 0) return constant > 0 ? std::optional(0.0) : std::nullopt;
    if (slope < 0) return std::max(0.0, constant / slope);
    // The gain falls for ever; it is there from the start or never.
    return std::isfinite(most) && gain(most) > 0 ? std::optional(0.0) : std::nullopt;
  }
  const double discriminant = slope * slope - 4 * a * constant;
  if (a < 0) {
    // The gain falls in the end: it lasts only where `most` comes first.
    if (std::isinf(most) || gain(most) <= 0 || discriminant < 0) return std::nullopt;
    return std::max(0.0, (slope + std::sqrt(discriminant)) / (2 * a));
  }
  if (discriminant < 0) return 0.0;
  // Of the two forms of the root the one that does not cancel.
  const double root = std::sqrt(discriminant);
  const double largest = slope >= 0 ? (slope + root) / (2 * a) : 2 * constant / (slope - root);
  return std::max(0.0, largest);
}

}  // namespace

Fit fit_dense(std::span<const TimePoint> points) {
  require_points(points, 2);
  std::vector<Row> design;
  for (const TimePoint& point : points) {
    const long double n = point.tokens;
    design.push_back({n * n, 1});
  }
  return least_squares(design, points);
}

Fit fit_sparse(std::span<const TimePoint> points) {
  const bool one_k = std::ranges::all_of(
      points, [&](const TimePoint& point) { return point.chosen == points.front().chosen; });
  require_points(points, one_k ? 2 : 3);
  std::vector<Row> design;
  for (const TimePoint& point : points) {
    const long double n = point.tokens;
    if (one_k) {
      design.push_back({n, 1});
    } else {
      design.push_back({n * static_cast<long double>(point.chosen), n, 1});
    }
  }
  Fit fit = least_squares(design, points);
  if (one_k) {  // b stays 0, without error
    fit.coefficients.insert(fit.coefficients.begin(), 0.0);
    fit.standard_errors.insert(fit.standard_errors.begin(), 0.0);
    fit.covariance = {
        0, 0, 0, 0, fit.covariance[0], fit.covariance[1], 0, fit.covariance[2], fit.covariance[3]};
  }
  return fit;
}

std::optional<Crossing> crossover(const Fit& dense, const Fit& sparse, const CrossingQuery& query) {
  require_size("dense", dense, 2);
  require_size("sparse", sparse, 3);
  if (!(query.chosen >= 0) || !(query.max_tokens > 0) || !(query.num_sigmas >= 0)) {
    throw Error(
        fmt::format("chosen is {}, max_tokens {}, num_sigmas {}; allowed: 0 and above, "
                    "above 0, 0 and above",
                    query.chosen, query.max_tokens, query.num_sigmas));
  }
  const double a = dense.coefficients[0];
  const double slope = sparse.coefficients[0] * query.chosen + sparse.coefficients[1];
  const double constant = dense.coefficients[1] - sparse.coefficients[2];
  const std::optional<double> n = last_sign_change(a, slope, constant, query.max_tokens);
  if (!n || *n > query.max_tokens) return std::nullopt;

  // With G(n, θ) = T_dense - T_sparse = 0: dn = -(∂G/∂θ · dθ) / (∂G/∂n).
  Crossing crossing;
  crossing.tokens = *n;
  if (*n == 0) {
    crossing.most = 0;
    return crossing;
  }
  const double variance =
      variance_along(dense, {*n * *n, 1}) + variance_along(sparse, {*n * query.chosen, *n, 1});
  const double steepness = std::fabs(2 * a * *n - slope);
  crossing.standard_error = steepness > 0  ? std::sqrt(variance) / steepness
                            : variance > 0 ? std::numeric_limits<double>::infinity()
                                           : 0;
  const double spread = query.num_sigmas * crossing.standard_error;
  if (*n - spread > 0) crossing.least = *n - spread;
  if (std::isfinite(spread)) crossing.most = *n + spread;
  return crossing;
}

}  // namespace lacuna

#include "bench/spot_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "problems.h"

namespace lacuna::bench {
namespace {

constexpr std::int64_t kRows = 8;

// One row of one query head by definition, and what its tolerance is stated in.
struct Exact {
  std::vector<double> out;
  std::vector<double> absolute;  // Σ p|v|
  double lse = -std::numeric_limits<double>::infinity();
  double size = 1;  // 1 + the largest Σ_d |q_d k_d| · scale
  // Where keys are read as integers: the largest error of a score, and of an output's dim.
  double score_error = 0;
  std::vector<double> value_error;
};

struct Place {
  std::int64_t position = 0;  // of the query, in the sequence
  std::int64_t head = 0;
};

class Definition {
 public:
  Definition(const KernelProblem& problem, const Inputs& inputs)
      : problem_(problem), inputs_(inputs) {}

  Exact row(Place place, const Ranges& keys) const {
    const std::int64_t kv_head =
        place.head / (problem_.heads.num_q_heads / problem_.heads.num_kv_heads);
    Exact exact;
    const std::vector<double> scores = scores_of(place, kv_head, keys, exact.size);
    exact.lse = lse_of(scores, place.head);
    const auto width = static_cast<std::size_t>(problem_.v_head_dim);
    exact.out.assign(width, 0.0);
    exact.absolute.assign(width, 0.0);
    std::size_t idx = 0;
    for_each_key(keys, [&](std::int64_t key) {
      const double weight = std::exp(scores[idx++] - exact.lse);
      const std::int64_t first =
          (key * problem_.heads.num_kv_heads + kv_head) * problem_.v_head_dim;
      for (std::size_t dim = 0; dim < width; ++dim) {
        const double value =
            element(inputs_.v.bytes.data(), problem_.dtype, first + static_cast<std::int64_t>(dim));
        exact.out[dim] += weight * value;
        exact.absolute[dim] += weight * std::abs(value);
      }
    });
    return exact;
  }

  // The bounds of attention.h for queries of 8 bits and weights of 16, keys and values being what
  // their integers and scales stand for.
  void add_integer_errors(Exact& exact, Place place, const Ranges& keys) const {
    const std::int64_t group = problem_.heads.num_q_heads / problem_.heads.num_kv_heads;
    const std::int64_t kv_head = place.head / group;
    const std::int64_t width = problem_.head_dim;
    const std::int64_t q = (place.position * problem_.heads.num_q_heads + place.head) * width;
    double largest_q = 0;
    for (std::int64_t dim = 0; dim < width; ++dim) {
      const double number = element(inputs_.q.bytes.data(), problem_.dtype, q + dim);
      largest_q = std::max(largest_q, std::abs(number));
    }
    double largest_key = 0;    // Σ_d |k_d|
    double largest_value = 0;  // of any dim
    exact.value_error.assign(exact.out.size(), 0.0);
    for_each_key(keys, [&](std::int64_t key) {
      const std::int64_t row = key * problem_.heads.num_kv_heads + kv_head;
      double size = 0;
      for (std::int64_t dim = 0; dim < width; ++dim) {
        size += std::abs(element(inputs_.k.bytes.data(), problem_.dtype, row * width + dim));
      }
      largest_key = std::max(largest_key, size);
      for (std::size_t dim = 0; dim < exact.out.size(); ++dim) {
        const double value = element(inputs_.v.bytes.data(), problem_.dtype,
                                     row * problem_.v_head_dim + static_cast<std::int64_t>(dim));
        largest_value = std::max(largest_value, std::abs(value));
        exact.value_error[dim] = std::max(exact.value_error[dim], std::abs(value - exact.out[dim]));
      }
    });
    exact.score_error = largest_q / 127 / 2 * largest_key / std::sqrt(static_cast<double>(width));
    for (double& error : exact.value_error) {
      error = std::expm1(2 * exact.score_error) * error + largest_value * (1 + 0x1p-10) / 255.97;
    }
  }

 private:
  template <typename Visit>
  static void for_each_key(const Ranges& keys, const Visit& visit) {
    for (const Range& part : keys) {
      for (std::int64_t key = part.begin; key < part.end; ++key) visit(key);
    }
  }

  std::vector<double> scores_of(Place place, std::int64_t kv_head, const Ranges& keys,
                                double& size) const {
    const std::int64_t width = problem_.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const std::int64_t q = (place.position * problem_.heads.num_q_heads + place.head) * width;
    std::vector<double> scores;
    for_each_key(keys, [&](std::int64_t key) {
      const std::int64_t k = (key * problem_.heads.num_kv_heads + kv_head) * width;
      double sum = 0;
      double absolute = 0;
      for (std::int64_t dim = 0; dim < width; ++dim) {
        const double product = element(inputs_.q.bytes.data(), problem_.dtype, q + dim) *
                               element(inputs_.k.bytes.data(), problem_.dtype, k + dim);
        sum += product;
        absolute += std::abs(product);
      }
      scores.push_back(sum * scale);
      size = std::max(size, 1 + absolute * scale);
    });
    return scores;
  }

  double lse_of(const std::vector<double>& scores, std::int64_t head) const {
    double largest = -std::numeric_limits<double>::infinity();
    for (const double score : scores) largest = std::max(largest, score);
    double sink = -std::numeric_limits<double>::infinity();
    if (problem_.learned_sinks) {
      sink = static_cast<double>(inputs_.sink_logits[static_cast<std::size_t>(head)]);
    }
    largest = std::max(largest, sink);
    if (std::isinf(largest)) return largest;
    double sum = std::exp(sink - largest);
    for (const double score : scores) sum += std::exp(score - largest);
    return largest + std::log(sum);
  }

  const KernelProblem& problem_;
  const Inputs& inputs_;
};

// Half a unit in the last place of a stored number.
double rounding(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return 0;  // inside the tolerance of the sums
    case DType::kBf16:
      return std::abs(value) * 0x1p-8;
    case DType::kF16:
      return std::abs(value) * 0x1p-11 + 0x1p-25;
    case DType::kInt8:
    case DType::kInt4:
      break;  // of no tensor
  }
  return 0;
}

// Not a number, or infinite where the other is not, is an error without bound.
double distance(double a, double b) {
  if (a == b) return 0;  // also two equal infinities
  const double error = std::abs(a - b);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

void compare(SpotCheck& check, double error, double allowed, double& largest) {
  largest = std::max(largest, error);
  if (error > 0) check.worst = std::max(check.worst, allowed > 0 ? error / allowed : HUGE_VAL);
}

// Rows spread over the call, the first and the last among them; heads in turn, from both ends.
std::vector<Place> places_of(const KernelProblem& problem) {
  const std::int64_t num_rows = problem.num_rows();
  const std::int64_t num_heads = problem.heads.num_q_heads;
  std::set<std::int64_t> rows;
  for (std::int64_t idx = 0; idx < kRows; ++idx) rows.insert(idx * (num_rows - 1) / (kRows - 1));
  std::vector<Place> places;
  std::int64_t turn = 0;
  for (const std::int64_t row : rows) {
    const std::int64_t step = turn / 2 % num_heads;
    const std::int64_t head = turn % 2 == 0 ? num_heads - 1 - step : step;
    places.push_back({problem.length - num_rows + row, head});
    ++turn;
  }
  return places;
}

}  // namespace

SpotCheck spot_check(const KernelProblem& problem, std::span<const Topology> topologies,
                     const Inputs& inputs, const Outputs& outputs, std::string_view isa) {
  const bool bf16_product = problem.dtype == DType::kBf16 && isa == "avx512_bf16";
  const AttentionTolerance tolerance = bf16_product ? kBf16ProductTolerance : kF32Tolerance;
  const Definition definition(problem, inputs);
  SpotCheck check;
  for (const Place place : places_of(problem)) {
    const auto head = static_cast<std::size_t>(place.head);
    const Topology& topology = topologies[topologies.size() == 1 ? 0 : head];
    const Ranges keys = topology.row(place.position, problem.length);
    Exact exact = definition.row(place, keys);
    exact.value_error.assign(exact.out.size(), 0.0);
    if (outputs.integer_kv) definition.add_integer_errors(exact, place, keys);
    const std::int64_t row = place.position - (problem.length - problem.num_rows());
    const std::int64_t lane = row * problem.heads.num_q_heads + place.head;
    const double lse = static_cast<double>(outputs.lse[static_cast<std::size_t>(lane)]);
    const double sums = tolerance.score * exact.size + tolerance.sum;
    compare(check, distance(lse, exact.lse),
            tolerance.score * exact.size + tolerance.sum * (1 + std::abs(exact.lse)) +
                exact.score_error,
            check.max_lse_error);
    for (std::size_t dim = 0; dim < exact.out.size(); ++dim) {
      const double out = element(outputs.out.data, outputs.out.dtype,
                                 lane * problem.v_head_dim + static_cast<std::int64_t>(dim));
      const double allowed = (2 * sums + tolerance.weight) * exact.absolute[dim] +
                             rounding(outputs.out.dtype, exact.out[dim]) + exact.value_error[dim];
      compare(check, distance(out, exact.out[dim]), allowed, check.max_error);
    }
    ++check.num_rows;
  }
  return check;
}

}  // namespace lacuna::bench

#include "lacuna/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lacuna/error.h"
#include "lacuna/random.h"

namespace lacuna {
namespace {

void require(bool allowed, std::string_view name, double value, std::string_view range) {
  if (!allowed) throw Error(fmt::format("{} is {}; allowed: {}", name, value, range));
}

// In [0, 1), of 53 bits.
double uniform(std::uint64_t seed, std::uint64_t draw) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto bits = philox({low(draw), high(draw), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t both = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(both) * 0x1p-53;
}

// NaN is below all; −∞ where there is nothing. In lanes, which compilers use vectors for: a large
// vocabulary looked at number after number took a tenth of a step.
float largest_of(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes];
  std::ranges::fill(lanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](const float* x, std::size_t lane) {
    lanes[lane] = x[lane] > lanes[lane] ? x[lane] : lanes[lane];
  };
  std::size_t first = 0;
  for (; first + kLanes <= logits.size(); first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(logits.data() + first, lane);
  }
  for (std::size_t lane = 0; first + lane < logits.size(); ++lane) {
    take(logits.data() + first, lane);
  }
  return *std::ranges::max_element(lanes);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
          options.temperature, "0 and more");
  require(options.top_k >= 0, "top_k", static_cast<double>(options.top_k), "0 (all) and more");
  require(options.top_p > 0 && options.top_p <= 1, "top_p", options.top_p, "above 0, at most 1");
  require(options.min_p >= 0 && options.min_p <= 1, "min_p", options.min_p, "0..1");
}

TokenId Sampler::pick(std::span<const float> logits) {
  const float largest = largest_of(logits);
  if (!std::isfinite(largest)) throw Error("the largest of the model's logits is not finite");
  if (options_.temperature == 0) {
    return static_cast<TokenId>(std::ranges::find(logits, largest) - logits.begin());
  }
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::erase_if(order_,
                [&](TokenId id) { return std::isnan(logits[static_cast<std::size_t>(id)]); });
  const auto before = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const std::size_t top_k = options_.top_k == 0 || options_.top_k > std::ssize(order_)
                                ? order_.size()
                                : static_cast<std::size_t>(options_.top_k);
  std::ranges::partial_sort(order_, order_.begin() + static_cast<std::ptrdiff_t>(top_k), before);
  order_.resize(top_k);

  std::vector<double> weights;
  double total = 0;
  for (const TokenId id : order_) {
    const double below = double{logits[static_cast<std::size_t>(id)]} - largest;
    weights.push_back(std::exp(below / options_.temperature));
    total += weights.back();
  }
  double kept = 0;
  std::size_t count = 0;
  // A weight of 0 is never drawn, also not where the draw's rounding leaves something to the end.
  while (count < weights.size() && weights[count] > 0 && weights[count] >= options_.min_p) {
    kept += weights[count++];
    if (kept >= options_.top_p * total) break;
  }
  double left = uniform(options_.seed, num_drawn_++) * kept;
  for (std::size_t idx = 0; idx + 1 < count; ++idx) {
    left -= weights[idx];
    if (left < 0) return order_[idx];
  }
  return order_[count - 1];
}

}  // namespace lacuna

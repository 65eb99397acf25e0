#include "lacuna/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "cache/refusal.h"

namespace lacuna {
namespace {

using rig::expect_refused;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Logits = std::vector<float>;

// Each token's probability by the words of the header, in double, by looking at all tokens for
// each: a token stays where those before it do not suffice.
std::vector<double> probabilities(const Logits& logits, const SamplerOptions& options) {
  const std::size_t size = logits.size();
  const auto weight = [&](std::size_t id) {
    const double largest = *std::ranges::max_element(logits);
    return std::exp((double{logits[id]} - largest) / options.temperature);
  };
  const auto is_before = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const auto rank = [&](std::size_t id) {
    std::int64_t before = 0;
    for (std::size_t other = 0; other < size; ++other) before += is_before(other, id) ? 1 : 0;
    return before;
  };
  const std::int64_t most = options.top_k == 0 ? std::ssize(logits) : options.top_k;
  double of_top_k = 0;
  for (std::size_t id = 0; id < size; ++id) of_top_k += rank(id) < most ? weight(id) : 0;
  std::vector<double> result(size, 0);
  double total = 0;
  for (std::size_t id = 0; id < size; ++id) {
    double before = 0;
    for (std::size_t other = 0; other < size; ++other) {
      before += is_before(other, id) ? weight(other) : 0;
    }
    const bool stays = rank(id) < most &&
                       (options.top_p == 1 || before < options.top_p * of_top_k) &&
                       weight(id) >= options.min_p;
    if (stays) result[id] = weight(id);
    total += result[id];
  }
  for (double& one : result) one /= total;
  return result;
}

std::vector<double> frequencies(const Logits& logits, const SamplerOptions& options, int draws) {
  Sampler sampler(options);
  std::vector<double> result(logits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    result.at(static_cast<std::size_t>(sampler.pick(logits))) += 1.0 / draws;
  }
  return result;
}

// Every draw must be one that is allowed, and each token's share within five standard deviations.
void expect_drawn_as_defined(const Logits& logits, const SamplerOptions& options) {
  constexpr int kDraws = 20000;
  const std::vector<double> wanted = probabilities(logits, options);
  const std::vector<double> found = frequencies(logits, options, kDraws);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double deviation = std::sqrt(wanted[id] * (1 - wanted[id]) / kDraws);
    EXPECT_NEAR(found[id], wanted[id], 5 * deviation + 1e-9)
        << "token " << id << ", temperature " << options.temperature << ", top_k " << options.top_k
        << ", top_p " << options.top_p << ", min_p " << options.min_p;
    EXPECT_TRUE(wanted[id] > 0 || found[id] == 0) << id;
  }
}

const Logits kSome = {0.5F, -1, 2, 2, 1.25F, -3, 0, 2};

TEST(Sampler, TemperatureZeroPicksTheFirstOfTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.pick(kSome), 2);
  EXPECT_EQ(sampler.pick(Logits{7}), 0);
  EXPECT_EQ(sampler.pick(Logits{1, 1, 1}), 0);
  EXPECT_EQ(sampler.pick(Logits{-1, -0.5F}), 1);
  Sampler with_others({.temperature = 0, .top_k = 1, .top_p = 0.1, .min_p = 1, .seed = 3});
  EXPECT_EQ(with_others.pick(kSome), 2);
}

TEST(Sampler, TemperatureZeroFindsTheFirstOfTheLargestAnywhere) {
  std::mt19937 generator(1);
  for (std::size_t size = 1; size <= 70; ++size) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Logits logits(size);
      for (float& x : logits) {
        const auto drawn = static_cast<int>(generator() % 12);  // few values, so many are equal
        x = drawn == 0 ? kNan : drawn == 1 ? -kInfinity : static_cast<float>(drawn) - 9;
      }
      logits[generator() % size] = -8.5F;
      std::size_t expected = size;
      for (std::size_t id = 0; id < size; ++id) {
        if (expected == size ? !std::isnan(logits[id]) : logits[id] > logits[expected]) {
          expected = id;
        }
      }
      ASSERT_EQ(Sampler({}).pick(logits), static_cast<TokenId>(expected)) << size;
    }
  }
}

TEST(Sampler, DrawsByTemperatureAlone) {
  for (const double temperature : {0.1, 0.7, 1.0, 3.0, 1000.0}) {
    expect_drawn_as_defined(kSome, {.temperature = temperature});
  }
}

TEST(Sampler, DrawsFromTheTopKAndTiesGoToLowerIds) {
  for (const std::int64_t top_k : {1, 2, 3, 4, 7, 8, 9, 1000}) {
    expect_drawn_as_defined(kSome, {.temperature = 1, .top_k = top_k, .seed = 5});
  }
}

TEST(Sampler, DrawsFromTheFewestThatReachTopP) {
  for (const double top_p : {1e-9, 0.2, 0.27, 0.5, 0.77, 0.95, 1.0}) {
    expect_drawn_as_defined(kSome, {.temperature = 1, .top_p = top_p, .seed = 6});
  }
}

TEST(Sampler, DrawsFromThoseOfAtLeastMinP) {
  for (const double min_p : {0.0, 0.006, 0.1, 0.3, 0.5, 1.0}) {
    expect_drawn_as_defined(kSome, {.temperature = 1, .min_p = min_p, .seed = 7});
  }
}

TEST(Sampler, TopPCountsThoseThatTopKLeft) {
  // Four of equal size: of the two that stay, half is one; of all four it would be two.
  expect_drawn_as_defined({0, 0, 0, 0}, {.temperature = 1, .top_k = 2, .top_p = 0.5});
  EXPECT_EQ(probabilities({0, 0, 0, 0}, {.temperature = 1, .top_k = 2, .top_p = 0.5}),
            (std::vector<double>{1, 0, 0, 0}));
}

TEST(Sampler, DrawsAsDefinedForAnyOptionsTogether) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 2);
  for (int trial = 0; trial < 40; ++trial) {
    Logits logits(1 + random() % 40);
    for (float& logit : logits) logit = std::round(4 * normal(random)) / 4;  // some are equal
    const SamplerOptions options = {.temperature = 0.2 + 0.1 * static_cast<double>(random() % 20),
                                    .top_k = static_cast<std::int64_t>(random() % 45),
                                    .top_p = 0.0371 * static_cast<double>(1 + random() % 26),
                                    .min_p = 0.0173 * static_cast<double>(random() % 10),
                                    .seed = random()};
    expect_drawn_as_defined(logits, options);
  }
}

std::vector<TokenId> draws(const SamplerOptions& options, int count) {
  Sampler sampler(options);
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(sampler.pick(Logits(1000, 0)));
  return ids;
}

TEST(Sampler, TheSameSeedGivesTheSameDrawsAndAnotherSeedOthers) {
  const SamplerOptions options = {.temperature = 1, .seed = 1};
  EXPECT_EQ(draws(options, 100), draws(options, 100));
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1} << 32}) {
    EXPECT_NE(draws(options, 100), draws({.temperature = 1, .seed = seed}, 100)) << seed;
  }
}

TEST(Sampler, ADrawDependsOnItsNumberAndNotOnEarlierLogits) {
  Sampler one({.temperature = 1, .seed = 4});
  Sampler other({.temperature = 1, .seed = 4});
  one.pick(Logits{0, 0, 0});
  other.pick(Logits(50, 1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(one.pick(Logits(500, 0)), other.pick(Logits(500, 0)));
}

TEST(Sampler, NeverPicksWhatIsNoNumberOrMinusInfinity) {
  const Logits logits = {kNan, -kInfinity, 1, kNan, 1, -kInfinity, kNan};
  EXPECT_EQ(Sampler({}).pick(logits), 2);
  Sampler sampler({.temperature = 100});
  std::map<TokenId, int> counts;
  for (int i = 0; i < 2000; ++i) ++counts[sampler.pick(logits)];
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_GT(counts[2], 800);
  EXPECT_GT(counts[4], 800);
}

TEST(Sampler, ExtremeTemperaturesAndLogitsStayDefined) {
  Sampler coldest({.temperature = 5e-324});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(coldest.pick(Logits{1, 3, 2.999F}), 1);
  const Logits far = {-3e38F, 3e38F, -kInfinity};
  for (const double temperature : {1e-300, 1.0, 1e30}) {
    Sampler sampler({.temperature = temperature});
    for (int i = 0; i < 50; ++i) EXPECT_EQ(sampler.pick(far), 1);
  }
}

TEST(Sampler, RefusesLogitsWithoutALargestNumber) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    for (const Logits& logits : {Logits{}, Logits{kNan}, Logits{kNan, kNan}, Logits{-kInfinity},
                                 Logits{0, kInfinity}, Logits{kInfinity, kNan}}) {
      expect_refused([&] { sampler.pick(logits); }, {"largest", "not finite"});
    }
  }
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const auto refused = [](const SamplerOptions& options, const std::vector<std::string>& words) {
    expect_refused([&] { Sampler{options}; }, words);
  };
  refused({.temperature = -1}, {"temperature is -1", "allowed: 0 and more"});
  refused({.temperature = kNan}, {"temperature is nan"});
  refused({.temperature = kInfinity}, {"temperature is inf"});
  refused({.top_k = -1}, {"top_k is -1"});
  for (const double top_p : {0.0, -0.5, 1.01, double{kNan}}) {
    refused({.top_p = top_p}, {"top_p is", "above 0, at most 1"});
  }
  for (const double min_p : {-0.1, 1.5, double{kNan}}) {
    refused({.min_p = min_p}, {"min_p is", "0..1"});
  }
}

}  // namespace
}  // namespace lacuna

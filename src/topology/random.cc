#include "lacuna/random.h"

#include <algorithm>
#include <unordered_set>

#include "lacuna/error.h"

namespace lacuna {
namespace {

struct Product {
  std::uint32_t high;
  std::uint32_t low;
};

Product multiply(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t product = std::uint64_t{a} * b;
  return {static_cast<std::uint32_t>(product >> 32), static_cast<std::uint32_t>(product)};
}

// Uniform over 0..bound-1. Values below 2^64 mod bound are rejected, so that every residue is hit
// by the same number of accepted ones.
std::uint64_t uniform_below(const DrawKey& key, std::uint32_t draw, std::uint64_t bound) {
  constexpr std::uint32_t kAttempts = 1u << 16;
  const std::uint64_t rejected_below = (0 - bound) % bound;
  for (std::uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    const auto word =
        philox({static_cast<std::uint32_t>(key.row),
                static_cast<std::uint32_t>(key.row >> 32) | (attempt << 16),
                (key.layer << 16) | key.head, draw},
               {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
    const std::uint64_t value = (std::uint64_t{word[1]} << 32) | word[0];
    if (value >= rejected_below) return value % bound;
  }
  throw Error("a random draw found no value in 65536 attempts");
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const Product first = multiply(kMultiplier0, counter[0]);
    const Product second = multiply(kMultiplier1, counter[2]);
    counter = {second.high ^ counter[1] ^ key[0], second.low, first.high ^ counter[3] ^ key[1],
               first.low};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::vector<std::int64_t> draw_distinct(const DrawKey& key, std::int64_t count,
                                        std::int64_t population) {
  if (key.layer >= 65536 || key.head >= 65536 || key.row >= (std::uint64_t{1} << 48)) {
    throw Error("a random draw is keyed by layer and head below 65536 and row below 2^48");
  }
  count = std::min(count, population);
  std::vector<std::int64_t> drawn;
  drawn.reserve(static_cast<std::size_t>(count));
  // A few values are found faster by looking at all of them than by hashing.
  constexpr std::int64_t kFew = 64;
  std::unordered_set<std::int64_t> taken;
  const auto is_taken = [&](std::int64_t value) {
    return count <= kFew ? std::find(drawn.begin(), drawn.end(), value) != drawn.end()
                         : taken.contains(value);
  };
  // Floyd's sampling: every subset of `count` values is equally likely, one draw for each value.
  for (std::int64_t draw = 0; draw < count; ++draw) {
    const std::int64_t last = population - count + draw;
    const auto value = static_cast<std::int64_t>(
        uniform_below(key, static_cast<std::uint32_t>(draw), static_cast<std::uint64_t>(last) + 1));
    const std::int64_t chosen = is_taken(value) ? last : value;
    if (count > kFew) taken.insert(chosen);
    drawn.push_back(chosen);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace lacuna

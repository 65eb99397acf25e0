#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lacuna {

// Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2,
// 3, SC11): a counter-based generator, so that any row's draw can be rebuilt alone, in any order,
// on any platform.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// What keys one row's draw.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  std::uint64_t row = 0;  // a token row, or a block row; < 2^48
};

// min(count, population) distinct values of 0..population-1, uniform over subsets, sorted. The
// sampling rule is part of the stored format and stands in docs/math.md. REQUIRES: both >= 0.
std::vector<std::int64_t> draw_distinct(const DrawKey& key, std::int64_t count,
                                        std::int64_t population);

}  // namespace lacuna

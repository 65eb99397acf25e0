#pragma once

#include <cstdint>

#include "lacuna/integer.h"

namespace lacuna {

// Behind a page's keys and values, with summaries: which slots they cover, and for each head
// [minimum, maximum, sum][head_dim] in f32. docs/kv_layout.md has it as bytes.
struct SummaryHeader {
  std::int32_t first_slot = 0;
  std::int32_t end_slot = 0;  // slots first_slot .. end_slot - 1; none where they are equal
  std::int32_t unused[6] = {};
};
static_assert(sizeof(SummaryHeader) == 32);

// A multiple of 32.
constexpr std::int64_t summary_bytes(std::int64_t num_heads, std::int64_t head_dim) {
  const std::int64_t floats = num_heads * 3 * head_dim * 4;
  return static_cast<std::int64_t>(sizeof(SummaryHeader)) + ceil_div(floats, 32) * 32;
}

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "lacuna/tensor.h"

namespace lacuna {

// THE list of topologies × shapes × dtypes × tolerances that tests and benchmarks share.

// ---- Topologies ---------------------------------------------------------------------------------

// Counts are exact: no tolerance beside them. `attend` is text for parse_attend; `lengths` are
// segment lengths, odd ones among them.
struct Problem {
  const char* name;
  const char* attend;
  bool causal;
  std::span<const std::int64_t> lengths;
};

inline std::ostream& operator<<(std::ostream& out, const Problem& p) { return out << p.name; }

// Every row can be looked at.
inline constexpr std::int64_t kSmallLengths[] = {1, 2, 63, 64, 65, 257};
// Real prompts: what closed forms are for.
inline constexpr std::int64_t kLargeLengths[] = {4096, 8191, 32768, 131072, 1048576};

inline constexpr Problem kProblems[] = {
    {"full", "full", true, kSmallLengths},
    {"window_one", "window(1)", true, kSmallLengths},
    {"window", "window(17)", true, kSmallLengths},
    {"window_sink", "window(16)+sink(4)", true, kSmallLengths},
    {"window_sink_globals", "window(16)+sink(4)+global(every=24)", true, kSmallLengths},
    {"window_listed_globals", "window(8)+global(3,40,41,90)", true, kSmallLengths},
    {"chunk", "chunk(48)", true, kSmallLengths},
    {"dilated", "dilated(7,5)", true, kSmallLengths},
    {"strided", "window(8)+strided(8)", true, kSmallLengths},
    {"fixed", "fixed(16,3)", true, kSmallLengths},
    {"phi3_small", "vertical_blocks(8,4,3,head)", true, kSmallLengths},
    {"topk", "topk(24)", true, kSmallLengths},
    {"topk_blocks", "topk_blocks(4,8,1,1)", true, kSmallLengths},
    {"random", "window(8)+random(4,7)", true, kSmallLengths},
    {"random_blocks", "window_blocks(1,0,8)+random_blocks(2,8,7)", true, kSmallLengths},
    {"split_heads", "heads(0: full; 1-3: window(16)+sink(4))", true, kSmallLengths},
    {"two_sided", "window(9,5)", false, kSmallLengths},
    {"longformer", "window(16,16)+global(first=2)", false, kSmallLengths},
    {"bigbird",
     "window_blocks(1,1,8)+global(first=8)+global(last=8)+random_blocks(3,8,1,outside=window)",
     false, kSmallLengths},
    {"encoder_full", "full", false, kSmallLengths},
    {"full_large", "full", true, kLargeLengths},
    {"window_large", "window(1024)", true, kLargeLengths},
    {"window_sink_large", "window(4096)+sink(4)", true, kLargeLengths},
    {"window_sink_globals_large", "window(1024)+sink(4)+global(every=4096)", true, kLargeLengths},
    {"chunk_large", "chunk(8192)", true, kLargeLengths},
    {"two_sided_large", "window(256,256)+global(first=64)", false, kLargeLengths},
};

// ---- Shapes -------------------------------------------------------------------------------------

// The heads of one attention call. Query head h reads KV head h / (num_q_heads / num_kv_heads).
struct AttentionShape {
  const char* name;
  int num_q_heads;
  int num_kv_heads;
  std::int64_t head_dim;    // of q and k
  std::int64_t v_head_dim;  // of v and out
};

inline std::ostream& operator<<(std::ostream& out, const AttentionShape& s) {
  return out << s.name;
}

// Ratios of query to KV heads 1, 2, 3, 4, 7 and 8 (never only square ones: a wrong mapping h /
// num_kv_heads looks right there), and head dims that no vector width divides.
inline constexpr AttentionShape kAttentionShapes[] = {
    {"one", 1, 1, 1, 1},
    {"odd_7", 2, 2, 7, 7},
    {"odd_40", 6, 2, 40, 40},
    {"odd_59", 7, 1, 59, 59},
    {"smollm2", 9, 3, 64, 64},
    {"many_kv_heads", 12, 12, 64, 64},
    {"gpt_oss", 64, 8, 64, 64},
    {"odd_72", 8, 1, 72, 72},
    {"phi2", 4, 4, 80, 80},
    {"phi3", 6, 3, 96, 96},
    {"llama", 8, 2, 128, 128},
    {"qwen2", 28, 4, 128, 128},
    {"mla_expanded", 4, 4, 192, 128},
    {"gemma3", 4, 1, 256, 256},
    {"wider_values", 3, 1, 24, 88},
    {"mla_latent", 8, 1, 576, 512},
};

// ---- Dtypes and tolerances ----------------------------------------------------------------------

inline constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
// Of keys and values.
inline constexpr DType kStoredDTypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8,
                                          DType::kInt4};

// How far a result may lie from the definition in double over the stored numbers:
//
//   |lse - definition| <= score · size + sum · (1 + |lse|)
//   |out - definition| <= (2 · (score · size + sum) + weight) · Σ p|v|, and half a unit in its last
//                         place where it is stored in 16 bits
//
// size is 1 + the largest Σ_d |q_d k_d| · |scale| + |bias| + softcap that the row meets. A weight
// e^(s - lse) is off by as much, relatively, as its score and the lse are off absolutely.
struct AttentionTolerance {
  double score;
  double sum;
  double weight;
};

// f32 accumulation. `score`: dims are summed one after another, each step rounding by 2^-24 of the
// partial sum, in directions that do not add up: √576 / √3 steps at most, four units in practice.
// `sum`: a 2^x good to two units, and sums in 16 lanes, then over splits, of positive numbers.
// Products of 16-bit numbers are exact in f32, so bf16 and f16 inputs are no worse than f32 ones.
inline constexpr AttentionTolerance kF32Tolerance = {0x1p-22, 0x1p-21, 0};

// Where bf16 values meet the machine's bf16 product, weights are rounded to bf16 too: 8 bits, by at
// most 2^-8 of each. Scores, and so the lse, are not touched by that.
inline constexpr AttentionTolerance kBf16ProductTolerance = {0x1p-22, 0x1p-21, 0x1p-8};

}  // namespace lacuna

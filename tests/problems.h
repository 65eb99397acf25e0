#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

namespace lacuna {

// THE list of topologies that tests and benchmarks share. Counts are exact: no tolerance beside
// them. `attend` is text for parse_attend; `lengths` are segment lengths, odd ones among them.
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

}  // namespace lacuna

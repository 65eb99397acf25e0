#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lacuna {

// The vocabulary of topologies as plain data. What each term means stands in docs/math.md and, as
// sets, in topology.h; == compares the data. `i` is the query position, `n` the length of its
// segment, 0-based.
struct Full {
  friend bool operator==(const Full&, const Full&) = default;
};
struct Window {           // i-left .. i+right; text in a causal table: window(w), w = left + 1 keys
  std::int64_t left = 0;  // >= 0
  std::int64_t right = 0;  // >= 0; 0 in a causal table
  friend bool operator==(const Window&, const Window&) = default;
};
struct Dilated {  // i, i-d, …, i-(w-1)d; bidirectional: to both sides
  std::int64_t w = 1, d = 1;
  friend bool operator==(const Dilated&, const Dilated&) = default;
};
struct Sink {  // 0 .. s-1
  std::int64_t s = 1;
  friend bool operator==(const Sink&, const Sink&) = default;
};
// Globals: every query reads them, and they read everything (in a causal table: up to themselves).
struct GlobalPositions {
  std::vector<std::int64_t> positions;  // sorted, unique
  friend bool operator==(const GlobalPositions&, const GlobalPositions&) = default;
};
struct GlobalFirst {
  std::int64_t g = 1;
  friend bool operator==(const GlobalFirst&, const GlobalFirst&) = default;
};
struct GlobalLast {  // the last g positions of the segment; bidirectional only
  std::int64_t g = 1;
  friend bool operator==(const GlobalLast&, const GlobalLast&) = default;
};
struct GlobalEvery {  // positions p with p mod k = offset
  std::int64_t k = 1, offset = 0;
  friend bool operator==(const GlobalEvery&, const GlobalEvery&) = default;
};
struct GlobalTokens {  // token ids, resolved to positions once the tokens are known
  std::vector<std::int64_t> tokens;
  friend bool operator==(const GlobalTokens&, const GlobalTokens&) = default;
};
struct Chunk {
  std::int64_t c = 1;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};
struct Strided {
  std::int64_t l = 1;
  friend bool operator==(const Strided&, const Strided&) = default;
};
struct Fixed {
  std::int64_t l = 1, c = 1;
  friend bool operator==(const Fixed&, const Fixed&) = default;
};
struct WindowBlocks {
  std::int64_t before = 0, after = 0, block = 1;
  friend bool operator==(const WindowBlocks&, const WindowBlocks&) = default;
};
struct VerticalBlocks {
  std::int64_t block = 1, local = 1, stride = 1;
  std::int64_t offset = 0;      // earlier block b is read where b mod stride = offset
  bool offset_is_head = false;  // then b is read where (b + head + 1) mod stride = 0
  friend bool operator==(const VerticalBlocks&, const VerticalBlocks&) = default;
};
struct TopK {  // dynamic: a selector's min(k, i+1) keys
  std::int64_t k = 1;
  friend bool operator==(const TopK&, const TopK&) = default;
};
struct TopKBlocks {  // dynamic: k blocks, among them the `init` first and the `local` last ones
  std::int64_t k = 1, block = 1, init = 0, local = 1;
  friend bool operator==(const TopKBlocks&, const TopKBlocks&) = default;
};
struct Random {
  std::int64_t r = 1;
  std::uint64_t seed = 0;
  friend bool operator==(const Random&, const Random&) = default;
};
struct RandomBlocks {
  std::int64_t r = 1, block = 1;
  std::uint64_t seed = 0;
  bool outside_window = false;  // draw only blocks that no window or global of the union touches
  friend bool operator==(const RandomBlocks&, const RandomBlocks&) = default;
};
// Explicit lists, read once from a file (format in docs/topology_text.md) and shared. Two are equal
// where their pairs are, whatever file they were read from.
struct EdgeList {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;  // (query, key), sorted, unique
  friend bool operator==(const EdgeList&, const EdgeList&) = default;
};
// Layers share a list, so most comparisons end at the pointer.
inline bool same_pairs(const std::shared_ptr<const EdgeList>& a,
                       const std::shared_ptr<const EdgeList>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}
struct ExplicitBlocks {
  std::string file;
  std::int64_t block = 1;
  std::shared_ptr<const EdgeList> list;  // block indices
  friend bool operator==(const ExplicitBlocks& a, const ExplicitBlocks& b) {
    return a.block == b.block && same_pairs(a.list, b.list);
  }
};
struct ExplicitEdges {
  std::string file;
  std::shared_ptr<const EdgeList> list;
  friend bool operator==(const ExplicitEdges& a, const ExplicitEdges& b) {
    return same_pairs(a.list, b.list);
  }
};

using Term =
    std::variant<Full, Window, Dilated, Sink, GlobalPositions, GlobalFirst, GlobalLast, GlobalEvery,
                 GlobalTokens, Chunk, Strided, Fixed, WindowBlocks, VerticalBlocks, TopK,
                 TopKBlocks, Random, RandomBlocks, ExplicitBlocks, ExplicitEdges>;

using Union = std::vector<Term>;  // never empty in a layer that attends

struct HeadGroup {
  std::vector<std::int64_t> heads;  // query heads, sorted; empty: all query heads of the layer
  Union attend;
  friend bool operator==(const HeadGroup&, const HeadGroup&) = default;
};

// What one layer attends to: one group for all heads, or disjoint groups that name every head.
struct Attend {
  std::vector<HeadGroup> groups;  // empty only in a layer without attention
  friend bool operator==(const Attend&, const Attend&) = default;
};

// Text of the specification's grammar: `union` or `heads(list: union; …)`. Throws Error with the
// column, what stood there, and what was allowed. Files of explicit lists are read relative to
// `base_dir`. A window of one argument counts the query itself and needs `causal`.
Attend parse_attend(std::string_view text, bool causal, const std::string& base_dir = ".");

// Text that parse_attend reads back to the same data.
std::string to_text(const Term& term, bool causal);
std::string to_text(const Attend& attend, bool causal);

// Reads an explicit list: lines `query key` (for blocks: block indices), '#' starts a comment.
// Throws Error naming file and line.
std::shared_ptr<const EdgeList> read_edge_list(const std::string& path);

}  // namespace lacuna

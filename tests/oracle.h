#pragma once

// What topology.md says, by definition and by brute force: predicates over (query, key), boolean
// matrices, sums over all pairs. It shares data types with production and no code: no range, no
// closed form, no clever step, so that it is easier to believe than what it judges. For small
// lengths only.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "lacuna/attend.h"
#include "lacuna/layer_table.h"

namespace lacuna::oracle {

using Row = std::vector<bool>;    // [key]
using Matrix = std::vector<Row>;  // [query][key]
using Position = std::int64_t;

// Where a term stands: the direction, the length of the segment, and what keys its random draws.
struct Place {
  bool causal = true;
  Position n = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
};

// ---- Random draws -------------------------------------------------------------------------------

// Philox4x32-10 of Salmon, Moraes, Dror, Shaw, SC11, from the paper's description of one round.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint32_t key0,
                                           std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t right = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(right >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(right),
               static_cast<std::uint32_t>(left >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(left)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

struct Stream {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  std::uint64_t row = 0;
};

// Uniform over 0 .. size-1: draw number `draw` of the stream, by rejection.
inline std::uint64_t uniform(const Stream& stream, std::uint32_t draw, std::uint64_t size) {
  for (std::uint32_t attempt = 0;; ++attempt) {
    const std::uint32_t row_low = static_cast<std::uint32_t>(stream.row & 0xFFFFFFFF);
    const std::uint32_t row_high = static_cast<std::uint32_t>((stream.row >> 32) & 0xFFFF);
    const auto out =
        philox({row_low, row_high + (attempt << 16), (stream.layer << 16) + stream.head, draw},
               static_cast<std::uint32_t>(stream.seed & 0xFFFFFFFF),
               static_cast<std::uint32_t>(stream.seed >> 32));
    const std::uint64_t value = (std::uint64_t{out[1]} << 32) + out[0];
    // 2^64 mod size, in 128 bits.
    __extension__ typedef unsigned __int128 Wide;
    if (value >= static_cast<std::uint64_t>((Wide{1} << 64) % size)) return value % size;
  }
}

// min(count, population) distinct members of 0 .. population-1, by Floyd's algorithm.
inline std::set<Position> draw_distinct(const Stream& stream, Position count, Position population) {
  std::set<Position> taken;
  const Position wanted = std::min(count, population);
  for (Position draw = 0; draw < wanted; ++draw) {
    const Position top = population - wanted + draw;
    const Position value = static_cast<Position>(
        uniform(stream, static_cast<std::uint32_t>(draw), static_cast<std::uint64_t>(top) + 1));
    taken.insert(taken.count(value) != 0 ? top : value);
  }
  return taken;
}

// ---- Terms --------------------------------------------------------------------------------------

// Whether position `p` is one of the term's globals.
inline bool is_global(const Term& term, const Place& at, Position p) {
  if (const auto* listed = std::get_if<GlobalPositions>(&term)) {
    return std::count(listed->positions.begin(), listed->positions.end(), p) != 0;
  }
  if (const auto* first = std::get_if<GlobalFirst>(&term)) return p < first->g;
  if (const auto* last = std::get_if<GlobalLast>(&term)) return p >= at.n - last->g;
  if (const auto* every = std::get_if<GlobalEvery>(&term)) return p % every->k == every->offset;
  return false;
}

inline bool is_global(const Union& whole, const Place& at, Position p) {
  return std::any_of(whole.begin(), whole.end(),
                     [&](const Term& term) { return is_global(term, at, p); });
}

// A selector chooses the keys at run time; counted by the most recent ones.
inline bool is_dynamic(const Term& term) {
  return std::holds_alternative<TopK>(term) || std::holds_alternative<TopKBlocks>(term);
}

inline bool is_random(const Term& term) {
  return std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term);
}

inline bool listed(const EdgeList& list, Position query, Position key) {
  return std::find(list.pairs.begin(), list.pairs.end(), std::pair(query, key)) != list.pairs.end();
}

// The specification's table, one line a term: does query i read key j? Both are positions of the
// segment, and j <= i in a causal table. `drawn` is what this row of a random term drew.
struct ReadsKey {
  const Place& at;
  const std::set<Position>& drawn;
  Position i;
  Position j;

  bool operator()(const Full&) const { return true; }
  bool operator()(const Window& t) const { return i - j <= t.left && j - i <= t.right; }
  bool operator()(const Dilated& t) const {
    return std::abs(i - j) % t.d == 0 && std::abs(i - j) / t.d < t.w;
  }
  bool operator()(const Sink& t) const { return j < t.s; }
  bool operator()(const GlobalPositions& t) const { return touches_global(t); }
  bool operator()(const GlobalFirst& t) const { return touches_global(t); }
  bool operator()(const GlobalLast& t) const { return touches_global(t); }
  bool operator()(const GlobalEvery& t) const { return touches_global(t); }
  bool operator()(const GlobalTokens&) const { throw std::logic_error("unresolved token ids"); }
  bool operator()(const Chunk& t) const { return i / t.c == j / t.c; }
  bool operator()(const Strided& t) const { return (i - j) % t.l == 0; }
  bool operator()(const Fixed& t) const {
    return i / t.l == j / t.l || (j / t.l < i / t.l && j % t.l >= t.l - t.c);
  }
  bool operator()(const WindowBlocks& t) const {
    return i / t.block - j / t.block <= t.before && j / t.block - i / t.block <= t.after;
  }
  bool operator()(const VerticalBlocks& t) const {
    const Position own = i / t.block;
    const Position b = j / t.block;
    const bool vertical = t.offset_is_head
                              ? (b + static_cast<Position>(at.head) + 1) % t.stride == 0
                              : b % t.stride == t.offset;
    return own - b < t.local || vertical;
  }
  bool operator()(const TopK& t) const { return i - j < t.k; }
  bool operator()(const TopKBlocks& t) const { return i / t.block - j / t.block < t.k; }
  bool operator()(const Random&) const { return drawn.count(j) != 0; }
  bool operator()(const RandomBlocks& t) const { return drawn.count(j / t.block) != 0; }
  bool operator()(const ExplicitBlocks& t) const {
    return listed(*t.list, i / t.block, j / t.block);
  }
  bool operator()(const ExplicitEdges& t) const { return listed(*t.list, i, j); }

 private:
  bool touches_global(const Term& t) const { return is_global(t, at, i) || is_global(t, at, j); }
};

// Does query `i` see key `j` through a window or as a global column: what outside=window avoids.
inline bool window_or_column(const Term& term, const Place& at, Position i, Position j) {
  if (at.causal && j > i) return false;
  if (is_global(term, at, j)) return true;
  const bool is_window = std::holds_alternative<Window>(term) ||
                         std::holds_alternative<WindowBlocks>(term) ||
                         std::holds_alternative<Dilated>(term);
  return is_window && std::visit(ReadsKey{at, {}, i, j}, term);
}

// Blocks 0 .. population-1 that no row of query block `own` touches through a window or a global
// column of the union. In a causal table the rows run to the block's end whatever the length.
inline std::vector<Position> untouched_blocks(const Union& whole, const Place& at, Position block,
                                              Position own, Position population) {
  const Position rows_end = at.causal ? (own + 1) * block : std::min((own + 1) * block, at.n);
  const Position keys_end = at.causal ? (own + 1) * block : at.n;
  std::set<Position> touched;
  for (const Term& term : whole) {
    for (Position i = own * block; i < rows_end; ++i) {
      for (Position j = 0; j < keys_end; ++j) {
        if (window_or_column(term, at, i, j)) touched.insert(j / block);
      }
    }
  }
  std::vector<Position> untouched;
  for (Position b = 0; b < population; ++b) {
    if (touched.count(b) == 0) untouched.push_back(b);
  }
  return untouched;
}

// What row `i` of a random term draws: keys, or blocks. Nothing for other terms.
inline std::set<Position> drawn_by(const Term& term, const Place& at, const Union& whole,
                                   Position i) {
  if (const auto* keys = std::get_if<Random>(&term)) {
    const Stream stream{keys->seed, at.layer, at.head, static_cast<std::uint64_t>(i)};
    return draw_distinct(stream, keys->r, at.causal ? i + 1 : at.n);
  }
  const auto* blocks = std::get_if<RandomBlocks>(&term);
  if (blocks == nullptr) return {};
  const Position own = i / blocks->block;
  const Position population = at.causal ? own + 1 : (at.n + blocks->block - 1) / blocks->block;
  const Stream stream{blocks->seed, at.layer, at.head, static_cast<std::uint64_t>(own)};
  if (!blocks->outside_window) return draw_distinct(stream, blocks->r, population);
  const auto untouched = untouched_blocks(whole, at, blocks->block, own, population);
  std::set<Position> drawn;
  for (Position ordinal :
       draw_distinct(stream, blocks->r, static_cast<Position>(untouched.size()))) {
    drawn.insert(untouched[static_cast<std::size_t>(ordinal)]);
  }
  return drawn;
}

// Keys 0 .. num_keys-1 that query `i` reads through one term of the union `whole`.
inline Row term_row(const Term& term, const Place& at, const Union& whole, Position i,
                    Position num_keys) {
  const std::set<Position> drawn = drawn_by(term, at, whole, i);
  Row row(static_cast<std::size_t>(num_keys), false);
  for (Position j = 0; j < num_keys; ++j) {
    if (j >= at.n || (at.causal && j > i)) continue;
    row[static_cast<std::size_t>(j)] = std::visit(ReadsKey{at, drawn, i, j}, term);
  }
  return row;
}

inline bool reads(const Union& whole, const Place& at, Position i, Position j) {
  return std::any_of(whole.begin(), whole.end(), [&](const Term& term) {
    return term_row(term, at, whole, i, at.n)[static_cast<std::size_t>(j)];
  });
}

// ---- Matrices -----------------------------------------------------------------------------------

inline void unite_into(Row& into, const Row& other) {
  for (std::size_t j = 0; j < into.size(); ++j) {
    if (other[j]) into[j] = true;
  }
}

inline Matrix united(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.size(); ++i) unite_into(a[i], b[i]);
  return a;
}

inline Matrix adjacency(const Union& attend, const Place& at) {
  const auto n = static_cast<std::size_t>(at.n);
  Matrix matrix(n, Row(n, false));
  for (std::size_t i = 0; i < n; ++i) {
    for (const Term& term : attend) {
      unite_into(matrix[i], term_row(term, at, attend, static_cast<Position>(i), at.n));
    }
  }
  return matrix;
}

// The first `n` rows and keys. A causal row does not depend on the length, so the matrix of a
// longer causal segment begins with that of a shorter one.
inline Matrix corner(const Matrix& matrix, Position n) {
  Matrix part(matrix.begin(), matrix.begin() + n);
  for (Row& row : part) row.resize(static_cast<std::size_t>(n));
  return part;
}

inline Position count(const Row& row) { return std::count(row.begin(), row.end(), true); }

inline Position edges(const Matrix& matrix, Position q_begin, Position q_end) {
  Position sum = 0;
  for (Position i = q_begin; i < q_end; ++i) sum += count(matrix[static_cast<std::size_t>(i)]);
  return sum;
}

inline Position largest_row(const Matrix& matrix) {
  Position largest = 0;
  for (const Row& row : matrix) largest = std::max(largest, count(row));
  return largest;
}

// Keys that any of the rows reads.
inline Row rows(const Matrix& matrix, Position q_begin, Position q_end) {
  Row keys(matrix.size(), false);
  for (Position i = q_begin; i < q_end; ++i) unite_into(keys, matrix[static_cast<std::size_t>(i)]);
  return keys;
}

// Keys that any query could read once dynamic terms may choose any key.
inline Matrix possible(const Union& attend, const Place& at) {
  if (std::any_of(attend.begin(), attend.end(), is_dynamic)) return adjacency({Full{}}, at);
  return adjacency(attend, at);
}

// ---- Retention ----------------------------------------------------------------------------------

// No position from here on reads a key for the first or the last time that it does not read again
// within as many positions: how far past a length one must look to see every later reader.
inline Position horizon(const Term& term) {
  struct Horizon {
    Position operator()(const Full&) const { return 1; }
    Position operator()(const Window& t) const { return t.left + 1; }
    Position operator()(const Dilated& t) const { return t.w * t.d; }
    Position operator()(const Sink&) const { return 1; }
    Position operator()(const GlobalPositions& t) const { return t.positions.back() + 1; }
    Position operator()(const GlobalFirst& t) const { return t.g; }
    Position operator()(const GlobalLast&) const { throw std::logic_error("not causal"); }
    Position operator()(const GlobalEvery& t) const { return 2 * t.k; }
    Position operator()(const GlobalTokens&) const { throw std::logic_error("unresolved"); }
    Position operator()(const Chunk& t) const { return t.c; }
    Position operator()(const Strided& t) const { return t.l; }
    Position operator()(const Fixed& t) const { return 2 * t.l; }
    Position operator()(const WindowBlocks& t) const { return (t.before + 1) * t.block; }
    Position operator()(const VerticalBlocks& t) const { return (t.local + 1) * t.block; }
    Position operator()(const TopK&) const { return 0; }
    Position operator()(const TopKBlocks&) const { return 0; }
    Position operator()(const Random&) const { return 0; }
    Position operator()(const RandomBlocks&) const { return 0; }
    Position operator()(const ExplicitBlocks& t) const {
      return t.list->pairs.empty() ? 0 : (t.list->pairs.back().first + 1) * t.block;
    }
    Position operator()(const ExplicitEdges& t) const {
      return t.list->pairs.empty() ? 0 : t.list->pairs.back().first + 1;
    }
  };
  return std::visit(Horizon{}, term);
}

// For each key below `length` the last query of a long continuation that reads it, -1 for none. A
// selector or a random row may read any key at any time. Enough for any first_query <= length.
inline std::vector<Position> last_readers(const Union& attend, const Place& at, Position length) {
  constexpr Position kForever = std::numeric_limits<Position>::max();
  std::vector<Position> last(static_cast<std::size_t>(length), -1);
  for (const Term& term : attend) {
    if (is_dynamic(term) || is_random(term)) {
      std::fill(last.begin(), last.end(), kForever);
      break;
    }
    Place longer = at;
    longer.n = length + horizon(term) + 1;
    for (Position i = 0; i < longer.n; ++i) {
      const Row row = term_row(term, longer, attend, i, length);
      for (std::size_t j = 0; j < row.size(); ++j) {
        if (row[j]) last[j] = std::max(last[j], i);
      }
    }
  }
  return last;
}

// Keys below `length` that `first_query` or a later query reads.
inline Row retained(const std::vector<Position>& last_readers, Position first_query,
                    Position length) {
  Row keys(static_cast<std::size_t>(length), false);
  for (std::size_t j = 0; j < keys.size(); ++j) keys[j] = last_readers[j] >= first_query;
  return keys;
}

// ---- Tiles --------------------------------------------------------------------------------------

struct TileRow {
  Position q_begin = 0;
  Position q_end = 0;
  std::vector<bool> visited;  // [key tile]
  std::vector<bool> whole;
};

// Query tiles of rows q_begin .. q_end-1, from the first of them on; key tiles at absolute
// multiples. A tile that hangs over the end of the segment holds positions that no row reads: it is
// not whole.
inline std::vector<TileRow> tiles(const Matrix& matrix, Position q_begin, Position q_end,
                                  Tile tile) {
  const Position n = static_cast<Position>(matrix.size());
  const auto num_key_tiles = static_cast<std::size_t>((n + tile.k - 1) / tile.k);
  std::vector<TileRow> result;
  for (Position begin = q_begin; begin < q_end; begin += tile.q) {
    TileRow row{begin, std::min(begin + tile.q, q_end), Row(num_key_tiles), Row(num_key_tiles)};
    for (std::size_t t = 0; t < num_key_tiles; ++t) {
      Position pairs = 0;
      for (Position i = row.q_begin; i < row.q_end; ++i) {
        for (Position j = static_cast<Position>(t) * tile.k;
             j < std::min(n, (static_cast<Position>(t) + 1) * tile.k); ++j) {
          if (matrix[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]) ++pairs;
        }
      }
      row.visited[t] = pairs > 0;
      row.whole[t] = pairs == (row.q_end - row.q_begin) * tile.k;
    }
    result.push_back(std::move(row));
  }
  return result;
}

// ---- Layers and the graph over them -------------------------------------------------------------

inline const Union& attend_of(const Attend& attend, std::uint32_t head) {
  for (const HeadGroup& group : attend.groups) {
    if (group.heads.empty() ||
        std::count(group.heads.begin(), group.heads.end(), std::int64_t{head}) != 0) {
      return group.attend;
    }
  }
  throw std::logic_error("no such head");
}

struct LayerReads {
  Matrix reads;               // [query][key] through any head
  std::size_t states_of = 0;  // keys are made from the states that went into this layer
};

inline LayerReads layer_reads(const LayerTable& table, std::size_t layer_idx, int num_q_heads,
                              Position n) {
  const Layer& layer = table.layers[layer_idx];
  LayerReads result{Matrix(static_cast<std::size_t>(n), Row(static_cast<std::size_t>(n))),
                    layer.kv_from ? static_cast<std::size_t>(*layer.kv_from) : layer_idx};
  Place at{table.causal, n, static_cast<std::uint32_t>(layer_idx), 0};
  if (layer.mixer == Mixer::kNone) return result;
  if (layer.mixer == Mixer::kLinear || layer.mixer == Mixer::kSsm) {
    at.causal = true;  // a state carries anything earlier
    result.reads = adjacency({Full{}}, at);
    return result;
  }
  for (at.head = 0; at.head < static_cast<std::uint32_t>(num_q_heads); ++at.head) {
    result.reads = united(result.reads, possible(attend_of(layer.attend, at.head), at));
  }
  return result;
}

// Which token can influence which state, and over how few edges, for every pair at once.
struct Paths {
  std::vector<std::vector<std::optional<int>>> hops;         // [evidence][query]
  std::vector<std::vector<std::optional<int>>> first_layer;  // [evidence][query]
};

// Edges to the nearest state of each layer's input from one token: distance[l][i] is the fewest
// edges from the token to the state of `i` that goes into layer l.
inline std::vector<std::vector<std::optional<int>>> distances(const std::vector<LayerReads>& layers,
                                                              std::size_t evidence, std::size_t n) {
  std::vector<std::vector<std::optional<int>>> distance(1, std::vector<std::optional<int>>(n));
  distance[0][evidence] = 0;
  for (const LayerReads& layer : layers) {
    auto next = distance.back();  // the residual
    const auto& keys = distance[layer.states_of];
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (!layer.reads[i][j] || !keys[j]) continue;
        if (!next[i] || *keys[j] + 1 < *next[i]) next[i] = *keys[j] + 1;
      }
    }
    distance.push_back(std::move(next));
  }
  return distance;
}

inline Paths paths(const LayerTable& table, const std::vector<int>& num_q_heads, Position length) {
  const auto n = static_cast<std::size_t>(length);
  std::vector<LayerReads> layers;
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    layers.push_back(layer_reads(table, l, num_q_heads[l], length));
  }
  Paths result;
  for (std::size_t evidence = 0; evidence < n; ++evidence) {
    const auto distance = distances(layers, evidence, n);
    result.hops.push_back(distance.back());
    std::vector<std::optional<int>> first(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t l = 0; l < distance.size() && !first[i]; ++l) {
        if (distance[l][i]) first[i] = static_cast<int>(l) - 1;
      }
    }
    result.first_layer.push_back(std::move(first));
  }
  return result;
}

}  // namespace lacuna::oracle

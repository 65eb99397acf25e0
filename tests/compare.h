#pragma once

// Production's answers beside the oracle's: each function returns "" where they agree, and
// otherwise what was asked, what was answered and what the definition says.

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/ranges.h"
#include "lacuna/tiles.h"
#include "lacuna/topology.h"
#include "oracle.h"

namespace lacuna::compare {

// One topology at one length.
struct Subject {
  const Topology& topology;
  const oracle::Matrix& reads;     // by definition
  const oracle::Matrix& possible;  // with every key that a dynamic term could choose
  std::int64_t length() const { return static_cast<std::int64_t>(reads.size()); }
};

inline std::vector<Range> runs(const oracle::Row& row) {
  std::vector<Range> ranges;
  for (std::size_t j = 0; j < row.size(); ++j) {
    const auto position = static_cast<std::int64_t>(j);
    if (!row[j]) continue;
    if (ranges.empty() || ranges.back().end < position) ranges.push_back({position, position});
    ranges.back().end = position + 1;
  }
  return ranges;
}

inline std::string text(std::span<const Range> ranges) {
  std::string out = "{";
  for (const Range& r : ranges) {
    out += " " + std::to_string(r.begin) + ".." + std::to_string(r.end - 1);
  }
  return out + " }";
}

inline std::string disagreement(const std::string& question, const std::string& answer,
                                const std::string& definition) {
  return question + " is " + answer + ", by definition " + definition;
}

inline bool same(std::span<const Range> answer, const oracle::Row& definition) {
  const std::vector<Range> want = runs(definition);
  return std::equal(answer.begin(), answer.end(), want.begin(), want.end());
}

inline std::string sets(const std::string& question, std::span<const Range> answer,
                        const oracle::Row& definition) {
  if (same(answer, definition)) return "";
  return disagreement(question, text(answer), text(runs(definition)));
}

inline std::string numbers(const std::string& question, Int128 answer, Int128 definition) {
  if (answer == definition) return "";
  return disagreement(question, to_string(answer), to_string(definition));
}

inline std::string at(const std::string& name, std::initializer_list<std::int64_t> arguments) {
  std::string out = name;
  for (std::int64_t a : arguments) out += (out == name ? "(" : ", ") + std::to_string(a);
  return out + ")";
}

// The first message that is not empty.
inline std::string first(std::initializer_list<std::string> messages) {
  for (const std::string& message : messages) {
    if (!message.empty()) return message;
  }
  return "";
}

inline std::string rows(const Subject& s) {
  const std::int64_t n = s.length();
  for (std::int64_t q = 0; q < n; ++q) {
    const Ranges row = s.topology.row(q, n);
    const oracle::Row& want = s.reads[static_cast<std::size_t>(q)];
    if (!same(row.parts(), want)) return sets(at("row", {q, n}), row.parts(), want);
    if (row.size() != oracle::count(want)) {
      return numbers(at("|row|", {q, n}), row.size(), oracle::count(want));
    }
  }
  return first(
      {numbers(at("edges", {n}), s.topology.edges(n), oracle::edges(s.reads, 0, n)),
       numbers(at("largest_row", {n}), s.topology.largest_row(n), oracle::largest_row(s.reads))});
}

inline std::string visible(const Subject& s) {
  const std::int64_t n = s.length();
  for (std::int64_t q = 0; q < n; ++q) {
    for (std::int64_t k = 0; k < n; ++k) {
      const bool want = s.reads[static_cast<std::size_t>(q)][static_cast<std::size_t>(k)];
      if (s.topology.visible(q, k, n) != want) {
        return disagreement(at("visible", {q, k, n}), want ? "false" : "true",
                            want ? "true" : "false");
      }
    }
  }
  return "";
}

inline std::string key_ranges(const Subject& s, Range rows) {
  const KeyRanges csr = s.topology.key_ranges(rows.begin, rows.end, s.length());
  const std::string question = at("key_ranges", {rows.begin, rows.end, s.length()});
  const auto num_rows = static_cast<std::size_t>(rows.end - rows.begin);
  if (csr.indptr.size() != num_rows + 1 || csr.indptr[0] != 0 ||
      csr.indptr.back() != static_cast<std::int64_t>(csr.ranges.size())) {
    return disagreement(question, "no CSR of its rows", std::to_string(num_rows) + " rows");
  }
  for (std::size_t r = 0; r < num_rows; ++r) {
    const auto begin = static_cast<std::size_t>(csr.indptr[r]);
    const auto end = static_cast<std::size_t>(csr.indptr[r + 1]);
    const std::span<const Range> row(csr.ranges.data() + begin, end - begin);
    const oracle::Row& want = s.reads[static_cast<std::size_t>(rows.begin) + r];
    if (!same(row, want)) return sets(question + " row " + std::to_string(r), row, want);
  }
  return "";
}

inline std::string span_of_rows(const Subject& s, Range rows) {
  const auto [a, b] = std::pair(rows.begin, rows.end);
  const std::int64_t n = s.length();
  return first(
      {numbers(at("edges", {a, b, n}), s.topology.edges(a, b, n), oracle::edges(s.reads, a, b)),
       sets(at("rows", {a, b, n}), s.topology.rows(a, b, n).parts(), oracle::rows(s.reads, a, b)),
       sets(at("may_read", {a, b, n}), s.topology.may_read(a, b, n).parts(),
            oracle::rows(s.possible, a, b)),
       key_ranges(s, rows)});
}

inline std::string tiles(const Subject& s, Range rows, Tile tile) {
  const auto want = oracle::tiles(s.reads, rows.begin, rows.end, tile);
  const std::string question =
      at("tiles", {rows.begin, rows.end, s.length()}) + at(" of", {tile.q, tile.k});
  TileCount sum;
  std::string message;
  std::size_t seen = 0;
  for_each_query_tile(s.topology, rows, s.length(), tile, [&](const QueryTile& got) {
    if (!message.empty() || seen >= want.size()) {
      ++seen;
      return;
    }
    const oracle::TileRow& row = want[seen++];
    const std::string name = question + " tile " + std::to_string(seen - 1);
    message = first({numbers(name + " begin", got.q_begin, row.q_begin),
                     numbers(name + " end", got.q_end, row.q_end),
                     sets(name + " visited", got.visited.parts(), row.visited),
                     sets(name + " whole", got.whole.parts(), row.whole)});
    sum.visited += oracle::count(row.visited);
    sum.whole += oracle::count(row.whole);
    sum.executed_pairs += oracle::count(row.visited) * (row.q_end - row.q_begin) * tile.k;
  });
  if (!message.empty()) return message;
  const TileCount got = count_tiles(s.topology, rows, s.length(), tile);
  return first({numbers(question + " query tiles", static_cast<std::int64_t>(seen),
                        static_cast<std::int64_t>(want.size())),
                numbers(question + " visited", got.visited, sum.visited),
                numbers(question + " whole", got.whole, sum.whole),
                numbers(question + " edge", got.edge, sum.visited - sum.whole),
                numbers(question + " executed", got.executed_pairs, sum.executed_pairs)});
}

// `last_readers` of the union, for at least `length` keys.
inline std::string retention(const Topology& topology,
                             const std::vector<std::int64_t>& last_readers,
                             std::int64_t first_query, std::int64_t length) {
  return sets(at("retained", {first_query, length}), topology.retained(first_query, length).parts(),
              oracle::retained(last_readers, first_query, length));
}

// ---- Globals ------------------------------------------------------------------------------------

// The unions of the heads whose keys a topology holds together; one for a query head.
struct Heads {
  std::vector<Union> attends;
  std::vector<oracle::Place> places;
};

// A listed or every-k-th global that has neither neighbour in its term, wherever the segment ends.
inline bool is_scattered(const Term& term, const oracle::Place& place, std::int64_t p) {
  if (std::holds_alternative<GlobalFirst>(term) || std::holds_alternative<GlobalLast>(term)) {
    return false;
  }
  const bool before = p > 0 && oracle::is_global(term, place, p - 1);
  return oracle::is_global(term, place, p) && !before && !oracle::is_global(term, place, p + 1);
}

inline bool has_globals(const Term& term) {
  return std::holds_alternative<GlobalPositions>(term) ||
         std::holds_alternative<GlobalFirst>(term) || std::holds_alternative<GlobalLast>(term) ||
         std::holds_alternative<GlobalEvery>(term);
}

// What a global term leaves behind: its columns but the scattered ones, and no row.
inline oracle::Row columns_left(const Term& term, const oracle::Place& place, std::int64_t i) {
  oracle::Row row(static_cast<std::size_t>(place.n), false);
  for (std::int64_t j = 0; j < place.n; ++j) {
    row[static_cast<std::size_t>(j)] = oracle::is_global(term, place, j) &&
                                       !is_scattered(term, place, j) && (!place.causal || j <= i);
  }
  return row;
}

inline std::string globals(const Topology& topology, const Heads& heads, std::int64_t n) {
  const Topology rest = topology.without_globals();
  oracle::Row rows(static_cast<std::size_t>(n), false);
  oracle::Row scattered = rows;
  oracle::Matrix left(rows.size(), rows);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto query = static_cast<std::size_t>(i);
    for (std::size_t h = 0; h < heads.attends.size(); ++h) {
      const oracle::Place& place = heads.places[h];
      for (const Term& term : heads.attends[h]) {
        rows[query] = rows[query] || oracle::is_global(term, place, i);
        scattered[query] = scattered[query] || is_scattered(term, place, i);
        oracle::unite_into(
            left[query], has_globals(term) ? columns_left(term, place, i)
                                           : oracle::term_row(term, place, heads.attends[h], i, n));
      }
    }
  }
  auto message = first(
      {sets(at("global_rows", {0, n, n}), topology.global_rows(0, n, n).parts(), rows),
       sets(at("scattered_globals", {n}), topology.scattered_globals({0, n}, n).parts(), scattered),
       numbers(at("num_scattered_globals", {n}), topology.num_scattered_globals(n),
               std::count(scattered.begin(), scattered.end(), true))});
  for (std::int64_t i = 0; i < n && message.empty(); ++i) {
    const Ranges row = rest.row(i, n);
    const oracle::Row& want = left[static_cast<std::size_t>(i)];
    if (!same(row.parts(), want)) {
      message = sets(at("without_globals row", {i, n}), row.parts(), want);
    }
  }
  return message;
}

// ---- Rhythm -------------------------------------------------------------------------------------

// Sizes of rows a period apart grow by a fixed number of keys, once past the irregular ends.
inline std::string rhythm(const Subject& s, const Topology::Rhythm& rhythm) {
  const std::int64_t end = s.length() - (s.topology.causal() ? 0 : rhythm.regular_from);
  const auto size = [&](std::int64_t i) {
    return oracle::count(s.reads[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t i = rhythm.regular_from; i + 2 * rhythm.period < end; ++i) {
    const std::int64_t grown = size(i + rhythm.period) - size(i);
    const std::int64_t again = size(i + 2 * rhythm.period) - size(i + rhythm.period);
    if (grown != again || grown < 0) {
      return disagreement(at("rhythm period, from", {rhythm.period, rhythm.regular_from}),
                          "growth of " + std::to_string(grown) + " keys after row " +
                              std::to_string(i) + " of " + std::to_string(s.length()),
                          std::to_string(again) + " a period later");
    }
  }
  return "";
}

// ---- Everything ---------------------------------------------------------------------------------

// `count` intervals of 0..n, the whole and an empty one among them, the same for the same seed.
inline std::vector<Range> intervals(std::int64_t n, int count, std::uint32_t seed) {
  std::vector<Range> result = {{0, n}, {n / 2, n / 2}};
  std::minstd_rand random(seed + 1);
  for (int c = 0; c < count; ++c) {
    std::int64_t a = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 1));
    std::int64_t b = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 1));
    result.push_back({std::min(a, b), std::max(a, b)});
  }
  return result;
}

// What one length can be asked, but pairs and globals; `effort` says how many intervals and tiles.
inline std::string all_answers(const Subject& s, int effort, std::uint32_t seed) {
  const std::int64_t n = s.length();
  std::string message = rows(s);
  for (Range interval : intervals(n, effort, seed)) {
    if (message.empty()) message = span_of_rows(s, interval);
  }
  constexpr std::int64_t kTiles[] = {1, 7, 16, 24, 64};
  const auto some_rows = intervals(n, 1, seed + 1);
  for (std::uint32_t t = 0; t < static_cast<std::uint32_t>(effort); ++t) {
    const Tile tile{kTiles[(seed + t) % 5], kTiles[(seed / 5 + 2 * t) % 5]};
    if (message.empty()) message = tiles(s, some_rows[t % 2 * 2], tile);
  }
  return message;
}

}  // namespace lacuna::compare

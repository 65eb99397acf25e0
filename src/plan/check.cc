#include "plan/check.h"

#include <string>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "plan/runs.h"
#include "topology/terms.h"

namespace lacuna {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

[[noreturn]] void refuse(const std::string& what, const std::string& value,
                         const std::string& allowed) {
  throw Error(what + " is " + value + "; allowed: " + allowed);
}

void check_heads(HeadCounts heads) {
  constexpr int kMostHeads = 65536;  // as random draws tell apart
  if (heads.num_q_heads < 1 || heads.num_kv_heads < 1 || heads.num_q_heads > kMostHeads ||
      heads.num_q_heads % heads.num_kv_heads != 0) {
    refuse("num_q_heads", text(heads.num_q_heads) + " on " + text(heads.num_kv_heads) + " KV heads",
           "1.." + text(kMostHeads) + ", and query heads a multiple of KV heads");
  }
}

void check_options(const PlanOptions& options) {
  const Tile tile = options.tile;
  if (tile.q < 1 || tile.q > kMostTileRows || tile.k < 1 || tile.k > kMostTileKeys) {
    refuse("tile", text(tile.q) + "," + text(tile.k),
           "1.." + text(kMostTileRows) + " rows and 1.." + text(kMostTileKeys) + " keys");
  }
  if (options.tiles_per_item < 0) {
    refuse("tiles_per_item", text(options.tiles_per_item), "0, which chooses, or at least 1");
  }
  if (options.split_tokens < 1) {
    refuse("split_tokens", text(options.split_tokens), "at least 1");
  }
  if (options.num_threads < 1 || options.num_threads > kMostThreads) {
    refuse("num_threads", text(options.num_threads), "1.." + text(kMostThreads));
  }
}

void check_sequence(const SequenceRows& sequence, const std::string& name) {
  if (sequence.length < 0 || sequence.length >= kForever) {
    refuse(name + ".length", text(sequence.length), "0..2^60-1");
  }
  const Range rows = sequence.rows;
  if (rows.begin < 0 || rows.begin > rows.end || rows.end > sequence.length) {
    refuse(name + ".rows", text(rows.begin) + ".." + text(rows.end),
           "an ascending pair inside 0.." + text(sequence.length));
  }
}

void check_row(const KeyRanges& key_ranges, std::size_t row_idx, std::int64_t length,
               const std::string& name) {
  std::int64_t reached = 0;
  for (std::int64_t at = key_ranges.indptr[row_idx]; at < key_ranges.indptr[row_idx + 1]; ++at) {
    const Range part = key_ranges.ranges[static_cast<std::size_t>(at)];
    if (part.begin < reached || part.begin >= part.end || part.end > length) {
      refuse(name + ".ranges[" + text(at) + "]", text(part.begin) + ".." + text(part.end),
             "not empty, inside " + text(reached) + ".." + text(length) +
                 ", sorted and disjoint in each row");
    }
    reached = part.end;
  }
}

void check_rows(const KeyRanges& key_ranges, const SequenceRows& sequence,
                const std::string& name) {
  const std::int64_t num_rows = sequence.rows.end - sequence.rows.begin;
  const auto& indptr = key_ranges.indptr;
  if (std::ssize(indptr) != num_rows + 1) {
    refuse(name + ".indptr", "of " + text(std::ssize(indptr)) + " entries",
           text(num_rows + 1) + ", one more than its sequence has rows");
  }
  if (indptr.front() != 0) refuse(name + ".indptr[0]", text(indptr.front()), "0");
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    if (indptr[row + 1] < indptr[row] || indptr[row + 1] > std::ssize(key_ranges.ranges)) {
      refuse(name + ".indptr[" + std::to_string(row + 1) + "]", text(indptr[row + 1]),
             text(indptr[row]) + ".." + text(std::ssize(key_ranges.ranges)));
    }
    check_row(key_ranges, row, sequence.length, name);
  }
  if (indptr.back() != std::ssize(key_ranges.ranges)) {
    refuse(name + ".indptr's end", text(indptr.back()),
           text(std::ssize(key_ranges.ranges)) + ", the number of ranges");
  }
}

}  // namespace

void check_call(std::span<const SequenceRows> sequences, HeadCounts heads,
                const PlanOptions& options) {
  check_heads(heads);
  check_options(options);
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;  // their positions alone are 16 GiB
  std::int64_t num_rows = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::string name = "sequences[" + std::to_string(s) + "]";
    check_sequence(sequences[s], name);
    num_rows = checked_add64(num_rows, sequences[s].rows.end - sequences[s].rows.begin);
    if (num_rows > kMostRows) {
      refuse("the number of rows up to " + name, text(num_rows), "up to " + text(kMostRows));
    }
  }
}

void check_num_topologies(std::size_t num_topologies, HeadCounts heads) {
  if (num_topologies == 1 || num_topologies == static_cast<std::size_t>(heads.num_q_heads)) return;
  refuse("the number of topologies", std::to_string(num_topologies),
         "1 for all query heads, or one for each of " + text(heads.num_q_heads));
}

void check_key_ranges(std::span<const KeyRanges> key_ranges,
                      std::span<const SequenceRows> sequences, HeadCounts heads) {
  const std::int64_t expected =
      checked_mul64(std::ssize(sequences), std::int64_t{heads.num_kv_heads});
  if (std::ssize(key_ranges) != expected) {
    refuse("the number of key_ranges", text(std::ssize(key_ranges)),
           text(expected) + ": one for each of " + text(std::ssize(sequences)) + " sequences and " +
               text(heads.num_kv_heads) + " KV heads");
  }
  for (std::size_t at = 0; at < key_ranges.size(); ++at) {
    check_rows(key_ranges[at], sequences[at / static_cast<std::size_t>(heads.num_kv_heads)],
               "key_ranges[" + std::to_string(at) + "]");
  }
}

}  // namespace lacuna

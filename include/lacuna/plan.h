#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/integer.h"
#include "lacuna/layer_table.h"
#include "lacuna/ranges.h"
#include "lacuna/topology.h"

namespace lacuna {

// Query heads on KV heads: query head h reads KV head h / (num_q_heads / num_kv_heads).
struct HeadCounts {
  int num_q_heads = 1;
  int num_kv_heads = 1;
  friend bool operator==(const HeadCounts&, const HeadCounts&) = default;
};

// The rows of one sequence that a call computes: queries `rows` of a sequence of `length` keys.
// Decode: {length - 1, length}; a chunk of a prefill: {q_begin, q_end} of q_end keys.
struct SequenceRows {
  Range rows;
  std::int64_t length = 0;
  friend bool operator==(const SequenceRows&, const SequenceRows&) = default;
};

// Key tiles first .. first+count-1 of tile.k keys each, at absolute multiples (or, gathered, of the
// sequence's gathered keys). Whole: every row reads every key. Otherwise count is 1 and bit b of
// masks[mask + row] says whether that row of the tile reads key first·tile.k + b.
struct TileRun {
  static constexpr std::int64_t kWhole = -1;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t mask = kWhole;
  friend bool operator==(const TileRun&, const TileRun&) = default;
};

// Up to tile.q rows of the query heads that share them, and the key tiles they visit, ascending:
// gathered ones in runs[runs_begin..gathered_end), then ordinary ones in runs[gathered_end..
// runs_end). No key stands in both for any row. Rows that read nothing stand in a part, too, if
// need be in one without runs: what they get is written like any other row's.
struct TilePart {
  std::int64_t head_set = 0;  // into head_sets
  // rows[rows_begin .. rows_end): positions in the sequence, ascending
  std::int64_t rows_begin = 0;
  std::int64_t rows_end = 0;
  std::int64_t runs_begin = 0;
  std::int64_t gathered_end = 0;
  std::int64_t runs_end = 0;
  std::int64_t gathered = -1;  // into gathered_sets; -1: none
};

// The parts of one KV head that cover the same stretch of rows: what one visit of K and V serves.
// Each query head has at most one of them. Global rows are in tiles of their own, of one part.
struct PlanTile {
  std::int64_t parts_begin = 0;
  std::int64_t parts_end = 0;
};

// Consecutive tiles of one KV head that one thread computes: K and V are packed once for all of
// them. `weight` is what `executed` counts for them, over all their query heads.
struct WorkItem {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t tiles_begin = 0;
  std::int64_t tiles_end = 0;
  std::int64_t weight = 0;  // executed pairs
};

// An item whose keys are cut among pieces: those of splits.begin .. splits.end-1, which hold all
// that it reads but gathered keys. States of splits merge in ascending order, so that a row has the
// same bits as uncut.
struct ItemCut {
  std::int64_t item = 0;  // into items
  Range splits;           // of split_tokens keys each, at absolute multiples
  std::int64_t num_pieces = 0;
};

// What one thread computes at a time: an item, or some splits of one; its first piece has the
// gathered keys, too.
struct WorkPiece {
  std::int64_t item = 0;  // into items
  std::int64_t cut = -1;  // into cuts; -1: the whole item
  Range splits;           // of a cut item
  std::int64_t weight = 0;
};

struct PlanOptions {
  Tile tile = {16, 16};             // the chosen kernel's unit: q 1..64, k 1..16
  std::int64_t tiles_per_item = 0;  // 0: chosen from the heads and rows; else at least 1
  // Threads that the work is cut for: several items for each, where there are as many tiles. A row
  // has the same bits whatever is chosen.
  std::int64_t num_threads = 2;
  // Keys after which the kernels merge a row's state: where items of few rows are too few for the
  // threads, they are cut there. A multiple of tile.k; any other is never cut at.
  std::int64_t split_tokens = 4096;
};

// Which tiles a call visits and in what order: made once, run for every layer and step with the
// same topologies, heads and lengths. It holds no mask but those of edge tiles; equal ones are
// kept once, and so are the tiles of KV heads and of sequences that read the same. Its memory is 8
// bytes a row, 72 a tile and 24 a run: a few runs a tile for windows, sinks and chunks, one for
// each block that a tile touches for strided, vertical and random blocks, and for random single
// keys one for nearly every key drawn, with a mask of 2 bytes a row where no equal one is kept yet.
// Immutable after make_plan; shareable between threads. Plain arrays, so that a test can break one
// and a backward pass can walk it the other way round.
struct Plan {
  Tile tile;
  HeadCounts heads;
  std::vector<SequenceRows> sequences;
  std::vector<std::int64_t> indptr;  // [num_sequences + 1] rows of q, lse and out

  std::vector<WorkItem> items;  // heaviest first; equal ones by sequence, KV head and tile
  // Each item once, whole or cut: heaviest first, equal ones by item and split.
  std::vector<WorkPiece> pieces;
  std::vector<ItemCut> cuts;
  std::int64_t split_tokens = 0;
  std::vector<PlanTile> tiles;
  std::vector<TilePart> parts;
  std::vector<TileRun> runs;
  std::vector<std::int64_t> rows;
  std::vector<std::uint16_t> masks;
  std::vector<std::vector<int>> head_sets;  // query heads inside the KV head's group: 0..G-1
  // Scattered single keys that are packed once a KV head: their positions, ascending. Each is read
  // by some row of every sequence whose parts use the set.
  std::vector<std::vector<std::int64_t>> gathered_sets;
  // [num_sequences, num_kv_heads]: which gathered sets that KV head's parts use.
  std::vector<std::vector<std::int64_t>> gathered_of_head;

  // Sums over what the items list. Executed pairs over all query heads equal cost's executed().
  Int128 executed_pairs() const;
  // Over all KV heads; a key tile that several parts of a tile visit counts once. Where query heads
  // of one KV head differ this is executed(Topology::merged(…)), unless they have scattered globals
  // or different global rows: each head gathers what it does not find in its own ranges, and global
  // rows of some heads only are taken out of theirs alone, while the merged topology knows one set.
  Int128 loaded_keys() const;
  Int128 needed_pairs() const;  // pairs inside the masks, over all query heads
};

// `topologies` holds one for all query heads, or one for each; a dynamic term's stand-in is
// planned. Throws Error naming what is out of range: heads that KV heads do not divide or more than
// 65536, another number of topologies, rows outside their sequence or more than 2^31, a tile the
// kernels do not have.
Plan make_plan(std::span<const Topology> topologies, std::span<const SequenceRows> sequences,
               HeadCounts heads, const PlanOptions& options = {});

// From key ranges, as a selector makes them: key_ranges holds, for each sequence and in it for each
// KV head, the ranges of that sequence's rows, for all query heads. In each row they must be
// sorted, disjoint, not empty, and inside 0..length-1. Nothing is gathered.
Plan make_plan(std::span<const KeyRanges> key_ranges, std::span<const SequenceRows> sequences,
               HeadCounts heads, const PlanOptions& options = {});

}  // namespace lacuna

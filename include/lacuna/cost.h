#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lacuna/equation.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/shape.h"

namespace lacuna {

enum class Phase { kTrain, kPrefill, kDecode };
std::string_view to_string(Phase phase);

// What is asked. A sequence's prompt length n counts all its tokens.
//
// Decode step t = 0, 1, … has length L = n + t + verify_rows - 1, which counts all its rows, and
// computes rows L - verify_rows .. L-1: with one row, lengths n .. n+generate-1, the one query at
// L-1. Steps advance by one token; who commits more of a step's rows makes fewer steps.
struct CostQuery {
  Phase phase = Phase::kPrefill;
  std::vector<std::int64_t> lengths;  // prompt length of each sequence of the batch, >= 0
  std::int64_t generate = 0;          // decode: number of steps; 0: one step
  std::int64_t verify_rows = 1;       // decode: rows a step computes (drafts + 1)
  // Prefill: queries in flight at a time; 0: the whole prompt. Only kv_peak_bytes depends on it:
  // executed tiles are those of a chunk that is a multiple of tile.q. Of a prompt in more than 4096
  // chunks the first and last 2048 are looked at.
  std::int64_t chunk = 0;
  // Smallest executed unit, rows × keys, of one query head. The rows of a decode step are tiled
  // alone, whatever other steps execute.
  Tile tile;
  KvDtype kv_dtype;
  bool mac = false;  // count a multiply-add as 1 instead of 2 FLOPs
};

// A figure: an exact integer with its equation, or not known (a size is missing; `why` says which).
struct Figure128 {
  std::optional<Equation> known;
  std::string why;
  bool has_value() const { return known.has_value(); }
  Int128 value() const { return known->value(); }
};

// The figures of one layer, or of all layers, over all heads and the batch. In decode counts and
// FLOPs are sums over the steps, `…_per_step` and held bytes those of the last step. In training
// FLOPs are forward plus backward (twice the forward) and exponentials those of the forward;
// recomputed scores stand apart, and cache figures are unknown. A layer without attention has no
// pairs, legal ones neither. An encoder (bidirectional, or no cache) keeps 0 bytes. Empty sequences
// cost and hold nothing.
struct LayerCost {
  Figure128 edges;           // of one query head, summed over sequences; unknown where heads differ
  Figure128 pairs;           // over all query heads
  Figure128 executed_pairs;  // rounded up to tiles, see executed.h
  Figure128 legal_pairs;     // what a dense layer would need: the denominator of the pair density
  Figure128 pair_flops;
  Figure128 recompute_flops;  // training: scores computed again in the backward pass
  Figure128 exponentials;
  Figure128 executed_exponentials;  // of executed pairs, and one a row and head with a learned sink
  // A selector's dense scan, and below its cache: where the layer has an index, chooses keys
  // (topk, topk_blocks), and does not use another layer's choice; 0 elsewhere.
  Figure128 index_flops;
  // kv_from: without K and V (mla: without the latent's down-projection). Unknown in linear and ssm
  // layers: their projections are not in the cost model.
  Figure128 projection_flops;
  Figure128 mlp_flops;
  Figure128 logits_flops;        // unknown in a layer, known in the total
  Figure128 kv_bytes_per_token;  // what this layer stores; 0 with kv_from
  Figure128 kv_held_bytes;       // needed; prefill: as for a one-token step at length n
  // With the chunk, or the step's rows, in flight: the most at any one time of a sequence's
  // prefill. The total adds the layers' own peaks, which may lie in different chunks.
  Figure128 kv_peak_bytes;
  Figure128 state_held_bytes;  // state and convolution tails, four bytes an element
  Figure128 index_held_bytes;
  Figure128 kv_written_bytes_per_step;
  Figure128 kv_read_bytes_per_step;     // keys that a row of the step reads, each once
  Figure128 index_read_bytes_per_step;  // the whole index, or with index_from the chosen ids
  // Prefill only. K and V loaded by the executed tiles, once for all query heads of a KV head; and
  // Q, K, V, O and log-sum-exp once. Q and O, and the keys and values that an mla layer expands for
  // each head, have two bytes an element (four with kv_dtype f32).
  Figure128 kv_loaded_bytes;
  Figure128 compulsory_bytes;
};

// The figures by their JSON names, in the order of the documentation.
std::vector<std::pair<std::string_view, const Figure128*>> figures(const LayerCost& cost);

struct PhaseCost {
  Phase phase = Phase::kPrefill;
  std::vector<LayerCost> layers;
  LayerCost total;
};

// Exact figures of one phase. Equal layers are computed once. A total is unknown as soon as one
// layer's figure is, and says which. Throws Error where table and shape do
// not fit, a length is negative, decode is asked of a bidirectional table, or a step of length 0.
PhaseCost cost(const LayerTable& table, const ModelShape& shape, const CostQuery& query);

// The same batch with every sequence padded to the longest: what its cost exceeds is the waste.
CostQuery padded(const CostQuery& query);

}  // namespace lacuna

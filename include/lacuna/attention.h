#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "lacuna/kv_view.h"
#include "lacuna/plan.h"
#include "lacuna/tensor.h"
#include "lacuna/thread_pool.h"

namespace lacuna {

// What the kernels executed, counted where a tile executes and never read from the plan.
struct Ledger {
  std::int64_t tiles = 0;  // (query tile, key tile) visits, over heads that share them once
  std::int64_t executed_pairs = 0;  // rows × query heads × keys of visited tiles
  std::int64_t needed_pairs = 0;    // those that masks let through
  std::int64_t exponentials = 0;    // of executed pairs, and one a row and head with a learned sink
  std::int64_t loaded_keys = 0;     // keys of visited tiles, once for all query heads of a KV head
  std::int64_t loaded_bytes = 0;    // K and V of loaded_keys, as the inputs store them
  std::int64_t distinct_bytes =
      0;  // the different ones among them: each key tile of a KV head once
  friend bool operator==(const Ledger&, const Ledger&) = default;
  // Of several calls: distinct_bytes are those of each.
  Ledger& operator+=(const Ledger& other);
};

// A score is dot → scale → softcap → bias → mask. A softmax row may have one more logit, a learned
// sink, without a value.
struct AttentionOptions {
  std::optional<float> sm_scale;        // absent: 1/√head_dim
  float softcap = 0;                    // c·tanh(s/c); 0: off; negative is refused
  std::span<const float> alibi_slopes;  // [num_q_heads] bias −slope·|q−k|; empty: off
  std::span<const float> sink_logits;   // [num_q_heads] natural logarithm; empty: off
  ThreadPool* pool = nullptr;           // absent: the caller's thread alone
  std::stop_token stop = {};            // tested between work items
  std::string isa = {};                 // "": kernel_isa(q, kv); else one of kernel_isas()
  // How quantized keys and values are read. True: widened to f32, exactly, with the f32 kernels.
  // False: as whole numbers; q and the softmax's weights are rounded too (see below).
  bool exact_kv = false;
};

// Quantized keys and values, exact_kv false, every number of K and V being n · scale:
//   q becomes n · q_scale, q_scale = max|q| / 127 for a row and head, so that before the softcap
//     |score error| <= ε = sm_scale · q_scale/2 · Σ_d |k_d|                     (ε: its largest)
//   lse is off by at most ε, and an output by at most
//     (e^(2ε) − 1) · max_j |v_j − out|    from the scores (a learned sink counts as a v_j of 0)
//     + 0.497 · max_j v_scale_j           from weights; int4: 0.0274, each group of dims alone
// beside f32's rounding: weights of a block of 256 keys are whole numbers of 1/32767 of the largest
// P · v_scale (docs/math.md). A q that is not finite gives NaN.

// Bytes of workspace that run() needs. With the length of the sequences grow only a bit for each 16
// keys of a KV head, gathered keys, which are packed once a KV head, and where the plan has cut an
// item a state, v_head_dim + 17 floats, for each of its rows, heads and splits.
std::int64_t workspace_bytes(const Plan& plan, const TensorView& q, const KvView& kv,
                             const AttentionOptions& options = {});

// out [rows, num_q_heads, v_head_dim] in f32 or q's dtype, lse [rows, num_q_heads] f32 or empty:
// natural logarithm of the softmax's denominator, learned sink included. q [rows, num_q_heads,
// head_dim], rows being plan.indptr.back() rows of all sequences one after another. Any strides,
// no alignment. The workspace is 64-byte aligned and belongs to the call.
//
// A row that reads no key gives 0 and lse −inf (with a learned sink: its logit). Keys that no row
// may read are not read. The bits of a row depend only on its own keys, the instruction set and the
// dtypes, never on the call's other rows, chunks, pages, batch or threads.
//
// Returns nothing once options.stop is requested; out and lse then hold some of the rows. Throws
// Error, before anything is computed, naming an argument, its value and what was allowed.
std::optional<Ledger> run(const MutableTensorView& out, std::span<float> lse, const Plan& plan,
                          const TensorView& q, const KvView& kv, std::span<std::byte> workspace,
                          const AttentionOptions& options = {});

// A kernel-ready copy: the same keys and values, contiguous, in the packed layout of kv_view.h, so
// that calls need not pack them again. Sequence s begins at token starts[s], which pack_kv fills
// [num_sequences]; slots past a sequence's end are zeros. The memory is 64-byte aligned and holds
// packed_kv_bytes(kv, stored). A page that is null becomes zeros. Numbers are rounded as in
// kv_pack.h; with kv's own dtype results of run() have the same bits.
std::int64_t packed_kv_bytes(const KvView& kv, DType stored);
KvView pack_kv(std::span<std::byte> memory, std::span<std::int64_t> starts, const KvView& kv,
               DType stored);

// The merge of two partial results over disjoint sets of keys, a learned sink in neither:
// out = Σ out_x · e^(lse_x − lse). (0, −inf) is the empty state and an exact identity; an lse of
// +inf, which some kernels return for no keys, is refused. All are [rows, heads, dims] f32 and
// [rows, heads]; `out` may be one of the inputs. `sink_logits` as in AttentionOptions enters once,
// here.
void merge(const MutableTensorView& out, std::span<float> lse, const TensorView& out_a,
           std::span<const float> lse_a, const TensorView& out_b, std::span<const float> lse_b,
           std::span<const float> sink_logits = {});

// mass [num_q_heads, Σ lengths]: for each key of each sequence Σ over the plan's rows of
// e^(s − lse), s being the very scores of run() and lse what it gave. Keys that no row reads get 0.
// A second pass over the same tiles; the same bits for any number of threads. nullopt, ledger and
// errors as run().
std::optional<Ledger> column_mass(std::span<float> mass, const Plan& plan, const TensorView& q,
                                  const KvView& kv, std::span<const float> lse,
                                  std::span<std::byte> workspace,
                                  const AttentionOptions& options = {});

// The same function computed the usual way: full scores, mask to −inf, softmax, product, one query
// row of every head at a time over all keys of its sequence. What a mask without skipping costs.
// Quantized keys and values are read exactly.
// The ledger counts every pair.
std::optional<Ledger> masked_dense(const MutableTensorView& out, std::span<float> lse,
                                   const Plan& plan, const TensorView& q, const KvView& kv,
                                   const AttentionOptions& options = {});

}  // namespace lacuna

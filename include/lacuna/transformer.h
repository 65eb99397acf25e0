#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lacuna/attention.h"
#include "lacuna/kv_cache.h"
#include "lacuna/layer_table.h"
#include "lacuna/model.h"
#include "lacuna/pass_times.h"
#include "lacuna/thread_pool.h"

namespace lacuna {

// Faults on purpose, so that an audit can be seen to find them. None by default.
struct PlantedFaults {
  bool masked_dense = false;  // attention computes every pair and then masks
  bool keep_all = false;      // nothing is freed that no later query reads
  bool leak = false;          // pages of a sequence that nobody knows stay in the cache
  bool count_twice = false;   // the ledger counts one key of each row twice
  bool summaries = false;     // pages carry summaries that nobody asked for
  bool local_rotary = false;  // every layer rotates as the first one does
  bool one_thread = false;    // all work on the caller's thread
  double hidden_seconds = 0;  // of a pass, in none of its parts
};

struct TransformerOptions {
  std::optional<LayerTable> table;  // absent: the model's own
  DType kv_dtype = DType::kBf16;
  bool exact_kv = false;  // widen quantized keys instead of rounding queries
  std::int64_t page_size = 64;
  std::int64_t cache_bytes = std::int64_t{1} << 30;  // never exceeded
  bool populate = false;      // the system gives the cache's memory at once, not as it is written
  std::int64_t rollback = 0;  // tokens that truncate() may take back
  std::string isa = {};       // of all kernels; "": the best for each
  PlantedFaults planted = {};
};

// Tokens of a prompt in one pass, unless told otherwise: many rows for one reading of the weights.
inline constexpr std::int64_t kPassTokens = 1024;

// New tokens of one sequence: a chunk of its prompt, or the token to go on with (and drafts).
struct NewTokens {
  SequenceId sequence = 0;
  std::span<const TokenId> tokens;
};

// Of each sequence. The last layer computes keys and values of all rows, and the rest of those rows
// alone whose logits are wanted.
enum class LogitRows { kNone, kLast, kAll };

// What attention did in one layer of a pass.
struct LayerPass {
  Ledger ledger;
  double seconds = 0;  // of PassTimes::attention
};

// What attention read and gave in one layer of a pass, valid while it is shown.
struct LayerAttention {
  const TensorView& q;  // [rows, num_q_heads, head_dim] of the pass, as the kernels take them
  const KvView& kv;     // with the pass's own keys
  std::span<const float> lse;  // [rows, num_q_heads]
  const AttentionOptions& options;
};

// A model that runs: tokens in, logits out, keys and values in a cache of its own that keeps for
// each layer what its topology can still read. The model's weights do not depend on the table; one
// that it was not trained with gives other results, not wrong ones. One user at a time.
//
// The bits of a position's logits depend on its sequence's tokens up to it, the table, the type of
// the model's products, kv_dtype, exact_kv and the instruction set alone: never on chunks, pages,
// batches, threads, drafts that were not accepted, or whether keys were computed here, adopted from
// another sequence, loaded from a file or woken.
class Transformer {
 public:
  // The model and the pool must outlive it. Throws Error where table and model do not fit.
  Transformer(const Model& model, const TransformerOptions& options, ThreadPool& pool);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const LayerTable& table() const;
  // Goes on with another table, e.g. for decode alone. A pass that needs keys which the table
  // before has freed is refused. Throws Error where table and model do not fit, or where the KV
  // heads of a layer are parted otherwise than in the table that the cache was made for.
  void use(const LayerTable& table);
  KvCache& cache();  // to create, fork and free sequences
  // Of all later passes, whose last layer computes all rows then: called after each layer with the
  // residual stream of the pass's rows, one sequence after another [rows, hidden_size]. Empty:
  // nobody looks.
  using LayerObserver = std::function<void(std::int64_t layer, std::span<const float> hidden)>;
  void observe(LayerObserver observer);
  // Likewise, after the attention of each layer.
  using AttentionObserver = std::function<void(std::int64_t layer, const LayerAttention& done)>;
  void observe_attention(AttentionObserver observer);

  // One pass over all new tokens. Not yet committed: dropping it leaves the cache as it was.
  class Pass {
   public:
    Pass(Pass&&) noexcept;
    ~Pass();
    // [rows, vocab_size], the rows asked for, one sequence after another. Valid until the next
    // forward().
    std::span<const float> logits(std::int64_t row) const;
    std::int64_t num_logits() const;
    std::span<const LayerPass> layers() const;
    Ledger ledger() const;  // over all layers
    // Until now: commit() adds to it.
    const PassTimes& times() const;
    // The first num_committed[i] tokens of each sequence are its own now, and what no later query
    // reads is freed.
    void commit(std::span<const std::int64_t> num_committed);
    void commit();  // all

   private:
    friend class Transformer;
    struct State;
    explicit Pass(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  // nullopt where the cache has no room, or once `stop` is requested; the cache is as before then.
  // Throws Error for an unknown sequence, no tokens, or a token that the vocabulary does not have.
  std::optional<Pass> forward(std::span<const NewTokens> batch, LogitRows rows = LogitRows::kLast,
                              std::stop_token stop = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lacuna

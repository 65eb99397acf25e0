#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/tensors.h"
#include "lacuna/attention.h"
#include "lacuna/decode_bench.h"
#include "lacuna/kv_cache.h"
#include "lacuna/plan.h"
#include "lacuna/probe.h"
#include "lacuna/retention.h"
#include "lacuna/thread_pool.h"
#include "lacuna/topology.h"

namespace lacuna::bench {

// One problem with its filled cache, ready to be timed.
class DecodeTimer {
 public:
  // Throws Error, and Stopped.
  DecodeTimer(const DecodeProblem& problem, const DecodeBenchOptions& options);
  DecodeTimer(const DecodeTimer&) = delete;
  DecodeTimer& operator=(const DecodeTimer&) = delete;

  const DecodeRow& row() const { return row_; }
  // Throws Stopped.
  void time_once(std::int64_t round);

 private:
  // What one layer computes: layers of one kind share plans.
  struct Kind {
    std::vector<Topology> topologies;
    HeadCounts heads;
    std::int64_t head_dim = 0;
    std::int64_t v_head_dim = 0;
    std::vector<int> layers;
  };

  void find_kinds();
  void draw();
  void fill();
  void fill_sequence(SequenceId sequence, std::int64_t length);
  std::vector<SequenceRows> step_rows() const;
  KvCache::Step begin_step(DecodeRound& times);
  // One step; seconds are added to `times`.
  void step(DecodeRound& times);
  std::vector<Ledger> attend_kind(std::size_t kind, const Plan& plan, KvCache::Step& step,
                                  DecodeRound& times);
  void first_step();
  void predict(DecodeKind& figures, const Kind& kind) const;
  void check_layer(int layer, const Kind& kind);
  Plan plan_of(const Kind& kind, std::span<const SequenceRows> rows, DecodeRound& times) const;
  void retain(SequenceId sequence);
  void stop_if_asked() const;

  const DecodeBenchOptions& options_;
  DecodeRow row_;
  Retention retention_;
  std::vector<Kind> kinds_;
  std::optional<KvCache> cache_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<ReadProbe> reads_;
  std::vector<SequenceId> sequences_;
  Tensor q_;  // of the widest layer: [rows of a step, num_q_heads, head_dim]
  Tensor k_;  // [most rows at once, num_kv_heads, head_dim]
  Tensor v_;
  Tensor out_;
  std::vector<float> lse_;
  AlignedBytes workspace_;
};

}  // namespace lacuna::bench

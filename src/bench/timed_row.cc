#include "bench/timed_row.h"

#include <algorithm>
#include <cmath>

#include "bench/limits.h"
#include "bench/problem.h"
#include "lacuna/kernels.h"
#include "lacuna/stopwatch.h"

namespace lacuna::bench {
namespace {

constexpr double kLongCallSeconds = 1;
constexpr double kMostCalls = 1e6;
constexpr double kLeastSeconds = 1e-9;  // of a call; a clock may not have moved

// Seconds on the wall, or of the process's CPU time.
class RowWatch {
 public:
  explicit RowWatch(bool cpu_time) : cpu_time_(cpu_time) {}
  double seconds() const { return cpu_time_ ? cpu_.seconds() : wall_.seconds(); }
  double wall_seconds() const { return wall_.seconds(); }
  double cpu_seconds() const { return cpu_.seconds(); }

 private:
  bool cpu_time_;
  Stopwatch wall_;
  CpuStopwatch cpu_;
};

}  // namespace

std::shared_ptr<const Inputs> Shared::inputs(const KernelProblem& problem) {
  for (const auto& [known, inputs] : inputs_) {
    if (same_inputs(known, problem)) return inputs;
  }
  inputs_.emplace_back(problem, std::make_shared<const Inputs>(draw_inputs(problem, seed_)));
  return inputs_.back().second;
}

ThreadPool& Shared::pool(std::int64_t num_threads) {
  std::unique_ptr<ThreadPool>& pool = pools_[num_threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(num_threads);
  return *pool;
}

std::span<std::byte> Shared::workspace(std::int64_t size_bytes) {
  if (workspace_.size() < size_bytes) workspace_ = AlignedBytes(size_bytes);
  return workspace_.first(size_bytes);
}

std::span<std::byte> Shared::out(std::int64_t size_bytes) {
  if (out_.size() < size_bytes) out_ = AlignedBytes(size_bytes);
  return out_.first(size_bytes);
}

std::span<float> Shared::lse(std::int64_t count) {
  if (static_cast<std::int64_t>(lse_.size()) < count) lse_.resize(static_cast<std::size_t>(count));
  return std::span(lse_).first(static_cast<std::size_t>(count));
}

TimedRow::TimedRow(const KernelProblem& problem, Shared& shared, const KernelBenchOptions& options)
    : shared_(shared), cpu_time_(options.cpu_time) {
  check(problem);
  if (cpu_time_) require("threads", problem.threads, 1, 1);
  row_.problem = problem;
  row_.isa = problem.isa.empty() ? kernel_isa(problem.dtype, problem.dtype) : problem.isa;
  row_.tile = kernel_tile();
  topologies_ = topologies_of(problem);
  const PredictedCall predicted = predicted_pairs(problem, topologies_);
  row_.needed_pairs = predicted.needed_pairs;
  row_.predicted_pairs = predicted.pairs;
  inputs_ = shared.inputs(problem);
  prepare();
  choose_calls(options.run_ns);
}

void TimedRow::prepare() {
  kv_ = inputs_->kv();
  if (row_.problem.path == KernelPath::kPrepacked) {
    packed_ = AlignedBytes(packed_kv_bytes(kv_, kv_.dtype));
    kv_ = pack_kv(packed_.first(packed_.size()), packed_starts_, kv_, kv_.dtype);
  }
  const Stopwatch planning;
  plan_ = plan_of(row_.problem, topologies_);
  row_.first_plan_seconds = planning.seconds();
  const Stopwatch running;
  row_.ledger = call(plan_);
  row_.first_run_seconds = running.seconds();
  row_.check = spot_check(row_.problem, topologies_, *inputs_, outputs(), row_.isa);
}

void TimedRow::choose_calls(std::int64_t run_ns) {
  double one_call = row_.first_plan_seconds + row_.first_run_seconds;
  if (one_call < kLongCallSeconds) {  // the first call of all also meets untouched memory
    const Stopwatch watch;
    call(plan_);
    one_call = watch.seconds();
  }
  const double wanted = static_cast<double>(run_ns) * 1e-9 / std::max(one_call, 1e-9);
  row_.calls_per_run = static_cast<std::int64_t>(std::clamp(std::ceil(wanted), 1.0, kMostCalls));
}

Outputs TimedRow::outputs() const {
  const KernelProblem& problem = row_.problem;
  const std::array<std::int64_t, 3> shape = {problem.num_rows(), problem.heads.num_q_heads,
                                             problem.v_head_dim};
  const std::int64_t bytes = shape[0] * shape[1] * shape[2] * size_bytes(problem.dtype);
  return {tensor_view(shared_.out(bytes).data(), problem.dtype, shape),
          shared_.lse(shape[0] * shape[1])};
}

Ledger TimedRow::call(const Plan& plan) {
  const KernelProblem& problem = row_.problem;
  AttentionOptions options;
  options.isa = problem.isa;
  options.stop = shared_.stop();
  if (problem.threads > 1) options.pool = &shared_.pool(problem.threads);
  if (problem.learned_sinks) options.sink_logits = inputs_->sink_logits;
  const TensorView q = inputs_->q_rows(problem.num_rows());
  const Outputs into = outputs();
  const MutableTensorView out =
      mutable_tensor_view(const_cast<void*>(into.out.data), problem.dtype, into.out.shape);
  const std::span<float> lse = shared_.lse(static_cast<std::int64_t>(into.lse.size()));
  std::optional<Ledger> ledger;
  if (problem.path == KernelPath::kMaskedDense) {
    ledger = masked_dense(out, lse, plan, q, kv_, options);
  } else {
    row_.workspace_bytes = workspace_bytes(plan, q, kv_, options);
    ledger = run(out, lse, plan, q, kv_, shared_.workspace(row_.workspace_bytes), options);
  }
  if (!ledger) throw Stopped{};
  return *ledger;
}

void TimedRow::time_once(std::int64_t round) {
  if (shared_.stop().stop_requested()) throw Stopped{};
  KernelRound figures;
  figures.round = round;
  const ProductRates rates =
      measure_product_rates(row_.problem.threads, row_.problem.dtype != DType::kF32, cpu_time_);
  figures.f32_flops_per_s = rates.f32_flops_per_s;
  figures.bf16_flops_per_s = rates.bf16_flops_per_s;
  // Steady state: other rows ran since, and a short call would be timed bringing its keys back.
  if (row_.first_run_seconds < kLongCallSeconds) call(plan_);
  const auto num_calls = static_cast<double>(row_.calls_per_run);
  const RowWatch whole(cpu_time_);
  for (std::int64_t idx = 0; idx < row_.calls_per_run; ++idx) {
    const RowWatch planning(cpu_time_);
    const Plan plan = plan_of(row_.problem, topologies_);
    figures.plan_seconds += planning.seconds() / num_calls;
    row_.ledger = call(plan);
  }
  figures.whole_seconds = std::max(whole.seconds() / num_calls, kLeastSeconds);
  const auto num_threads = static_cast<double>(row_.problem.threads);
  figures.cpu_share = std::min(whole.cpu_seconds() / (whole.wall_seconds() * num_threads), 1.0);
  figures.planned_seconds = figures.whole_seconds - figures.plan_seconds;
  if (figures.whole_seconds < kLongCallSeconds) {
    const RowWatch planned(cpu_time_);
    for (std::int64_t idx = 0; idx < row_.calls_per_run; ++idx) row_.ledger = call(plan_);
    figures.planned_seconds = std::max(planned.seconds() / num_calls, kLeastSeconds);
  }
  row_.rounds.push_back(figures);
}

}  // namespace lacuna::bench

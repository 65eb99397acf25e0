#include "bench/decode_row.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/decode_check.h"
#include "bench/limits.h"
#include "bench/prediction.h"
#include "bench/problem.h"
#include "bench/timed_row.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"
#include "lacuna/policy.h"
#include "lacuna/stopwatch.h"

namespace lacuna::bench {
namespace {

constexpr std::int64_t kFillRows = 4096;  // appended at once

// The first rows, heads and dims of a tensor.
TensorView part_of(const Tensor& tensor, std::int64_t rows, std::int64_t heads, std::int64_t dims) {
  TensorView view = tensor.view();
  view.shape = {rows, heads, dims};
  return view;
}

// Pages of a slab leave a rest at its end: room for what every sequence holds while it is filled.
std::int64_t budget_bytes(const CacheShape& shape, const DecodeProblem& problem) {
  std::int64_t pages = 0;
  for (const std::int64_t length : problem.lengths) {
    pages = checked_add64(pages, ceil_div(length + (std::int64_t{1} << 16), shape.page_size) + 2);
  }
  std::int64_t bytes = 0;
  for (const CacheTable& table : cache_tables(shape)) {
    bytes = checked_add64(bytes, checked_mul64(pages, table.page_bytes));
  }
  constexpr std::int64_t kSlab = std::int64_t{2} << 20;
  return checked_add64(checked_mul64(bytes, 2), 64 * kSlab);  // addresses only, until it is written
}

}  // namespace

DecodeTimer::DecodeTimer(const DecodeProblem& problem, const DecodeBenchOptions& options)
    : options_(options), retention_(problem.table, problem.shape) {
  row_.problem = problem;
  require("the number of sequences", std::ssize(problem.lengths), 1, 65536);
  for (const std::int64_t length : problem.lengths) require("length", length, 1, 1 << 24);
  require("rows", problem.rows, 1, 4096);
  require("threads", problem.threads, 1, 4096);
  if (problem.exact_kv && !is_quantized(problem.kv_dtype)) {
    throw Error(fmt::format("exact_kv is given with {} keys; allowed: with int8 and int4",
                            to_string(problem.kv_dtype)));
  }
  CacheShape shape;
  shape.layers = retention_.layers();
  shape.page_size = problem.page_size;
  shape.dtype = problem.kv_dtype;
  cache_.emplace(shape, PoolOptions{.budget_bytes = budget_bytes(shape, problem)});
  pool_ = std::make_unique<ThreadPool>(problem.threads);
  find_kinds();
  draw();
  fill();
  first_step();
  const std::int64_t read = row_.sum(&DecodeKind::read_bytes);
  row_.bandwidth_set_bytes = std::max<std::int64_t>(read, 1 << 20);
  ProbeOptions probe_options;
  probe_options.num_runs = 3;
  probe_options.run_ns = 10'000'000;
  probe_options.stop = options.stop;
  reads_ = std::make_unique<ReadProbe>(problem.threads, row_.bandwidth_set_bytes, probe_options);
  DecodeRound times;
  step(times);
  row_.steps_per_round =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(options.run_ns) *
                                                         1e-9 / std::max(times.step_seconds, 1e-7)),
                               1, 1000);
}

void DecodeTimer::stop_if_asked() const {
  if (options_.stop.stop_requested()) throw Stopped{};
}

void DecodeTimer::find_kinds() {
  const DecodeProblem& problem = row_.problem;
  for (int layer = 0; layer < std::ssize(problem.table.layers); ++layer) {
    const LayerShape& sizes = problem.shape.layers[static_cast<std::size_t>(layer)];
    if (!attends(problem.table.layers[static_cast<std::size_t>(layer)].mixer)) continue;
    Kind kind = {topologies_of_heads(problem.table.layers[static_cast<std::size_t>(layer)],
                                     problem.table.causal, layer, sizes.num_q_heads),
                 {sizes.num_q_heads, sizes.num_kv_heads},
                 sizes.head_dim,
                 sizes.v_head_dim,
                 {layer}};
    const auto known = std::ranges::find_if(kinds_, [&](const Kind& other) {
      return other.topologies == kind.topologies && other.heads == kind.heads &&
             other.head_dim == kind.head_dim && other.v_head_dim == kind.v_head_dim;
    });
    if (known != kinds_.end()) {
      known->layers.push_back(layer);
    } else {
      kinds_.push_back(std::move(kind));
    }
  }
  if (kinds_.empty()) throw Error("no layer attends; allowed: tables with attention");
  const DType q_dtype = problem.q_dtype();
  row_.isa = kernel_isa(q_dtype, problem.exact_kv ? DType::kF32 : problem.kv_dtype);
}

void DecodeTimer::draw() {
  KernelProblem widest;  // what draw_inputs takes
  widest.dtype = row_.problem.q_dtype();
  widest.heads = {1, 1};
  widest.head_dim = widest.v_head_dim = 1;
  for (const Kind& kind : kinds_) {
    widest.heads.num_q_heads = std::max(widest.heads.num_q_heads, kind.heads.num_q_heads);
    widest.heads.num_kv_heads = std::max(widest.heads.num_kv_heads, kind.heads.num_kv_heads);
    widest.head_dim = std::max(widest.head_dim, kind.head_dim);
    widest.v_head_dim = std::max(widest.v_head_dim, kind.v_head_dim);
  }
  const std::int64_t step = std::ssize(row_.problem.lengths) * row_.problem.rows;
  const std::int64_t longest = *std::ranges::max_element(row_.problem.lengths);
  widest.length = std::max(step, std::min(longest, kFillRows));
  Inputs inputs = draw_inputs(widest, options_.seed);
  q_ = std::move(inputs.q);
  k_ = std::move(inputs.k);
  v_ = std::move(inputs.v);
  const DType out_dtype = is_quantized(row_.problem.kv_dtype) ? DType::kF32 : widest.dtype;
  const std::array<std::int64_t, 3> out = {step, widest.heads.num_q_heads, widest.v_head_dim};
  out_ = {out_dtype, out, AlignedBytes(out[0] * out[1] * out[2] * size_bytes(out_dtype))};
  lse_.resize(static_cast<std::size_t>(out[0] * out[1]));
}

void DecodeTimer::fill() {
  const Stopwatch watch;
  for (const std::int64_t length : row_.problem.lengths) {
    sequences_.push_back(cache_->create());
    fill_sequence(sequences_.back(), length);
    row_.fill_tokens += length;
  }
  row_.fill_seconds = watch.seconds();
}

void DecodeTimer::fill_sequence(SequenceId sequence, std::int64_t length) {
  for (std::int64_t first = 0; first < length; first += kFillRows) {
    stop_if_asked();
    const std::int64_t count = std::min(kFillRows, length - first);
    const StepRows rows = {sequence, count};
    std::optional<KvCache::Step> step = cache_->begin({&rows, 1});
    if (!step) throw Error("the cache has no room for row " + row_.problem.name);
    for (std::size_t layer = 0; layer < cache_->shape().layers.size(); ++layer) {
      const CacheLayer& sizes = cache_->shape().layers[layer];
      if (sizes.kv_from || sizes.num_kv_heads == 0) continue;
      step->append(static_cast<int>(layer), part_of(k_, count, sizes.num_kv_heads, sizes.head_dim),
                   part_of(v_, count, sizes.num_kv_heads, sizes.v_head_dim), pool_.get());
    }
    step->commit();
    retain(sequence);
  }
}

std::vector<SequenceRows> DecodeTimer::step_rows() const {
  std::vector<SequenceRows> rows;
  for (const SequenceId sequence : sequences_) {
    const std::int64_t length = cache_->length(sequence);
    rows.push_back({{length, length + row_.problem.rows}, length + row_.problem.rows});
  }
  return rows;
}

std::vector<Ledger> DecodeTimer::attend_kind(std::size_t kind_idx, const Plan& plan,
                                             KvCache::Step& step, DecodeRound& times) {
  const Kind& kind = kinds_[kind_idx];
  const std::int64_t num_rows = plan.indptr.back();
  const TensorView q = part_of(q_, num_rows, kind.heads.num_q_heads, kind.head_dim);
  MutableTensorView out = mutable_tensor_view(out_.bytes.data(), out_.dtype,
                                              {num_rows, kind.heads.num_q_heads, kind.v_head_dim});
  const auto lse = std::span(lse_).first(static_cast<std::size_t>(num_rows) *
                                         static_cast<std::size_t>(kind.heads.num_q_heads));
  AttentionOptions options;
  options.pool = pool_.get();
  options.stop = options_.stop;
  options.exact_kv = row_.problem.exact_kv;
  std::vector<Ledger> ledgers;
  for (const int layer : kind.layers) {
    const CacheLayer& sizes = cache_->shape().layers[static_cast<std::size_t>(layer)];
    if (!sizes.kv_from) {
      const Timed appending(times.append_seconds);
      step.append(layer, part_of(k_, num_rows, sizes.num_kv_heads, sizes.head_dim),
                  part_of(v_, num_rows, sizes.num_kv_heads, sizes.v_head_dim), pool_.get());
    }
    const Timed of_kind(times.kind_seconds[kind_idx]);
    const CacheView view = cache_->view(layer, sequences_);
    const std::int64_t bytes = workspace_bytes(plan, q, view.kv(), options);
    if (workspace_.size() < bytes) workspace_ = AlignedBytes(bytes);
    const std::optional<Ledger> ledger =
        lacuna::run(out, lse, plan, q, view.kv(), workspace_.first(bytes), options);
    if (!ledger) throw Stopped{};
    ledgers.push_back(*ledger);
  }
  return ledgers;
}

KvCache::Step DecodeTimer::begin_step(DecodeRound& times) {
  const Timed taking(times.cache_seconds);
  std::vector<StepRows> wanted;
  for (const SequenceId sequence : sequences_) wanted.push_back({sequence, row_.problem.rows});
  std::optional<KvCache::Step> step = cache_->begin(wanted);
  if (!step) throw Error("the cache has no room for a step of row " + row_.problem.name);
  return std::move(*step);
}

void DecodeTimer::step(DecodeRound& times) {
  times.kind_seconds.resize(kinds_.size(), 0);
  const Timed whole(times.step_seconds);
  const std::vector<SequenceRows> rows = step_rows();
  KvCache::Step step = begin_step(times);
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    const Plan plan = plan_of(kinds_[kind], rows, times);
    attend_kind(kind, plan, step, times);
  }
  const Timed keeping(times.cache_seconds);
  step.commit(std::vector<std::int64_t>(sequences_.size(), 1));
  for (const SequenceId sequence : sequences_) retain(sequence);
}

Plan DecodeTimer::plan_of(const Kind& kind, std::span<const SequenceRows> rows,
                          DecodeRound& times) const {
  const Timed planning(times.plan_seconds);
  PlanOptions options;
  options.num_threads = row_.problem.threads;
  return make_plan(kind.topologies, rows, kind.heads, options);
}

void DecodeTimer::retain(SequenceId sequence) {
  const std::int64_t length = cache_->length(sequence);
  cache_->retain(sequence, retention_.kept(length, length));
}

void DecodeTimer::predict(DecodeKind& figures, const Kind& kind) const {
  const DecodeProblem& problem = row_.problem;
  const auto& layer = problem.table.layers[static_cast<std::size_t>(kind.layers.front())];
  figures.attend = to_text(layer.attend, problem.table.causal);
  figures.num_layers = std::ssize(kind.layers);
  const KvDtype dtype = kv_dtype(to_string(problem.kv_dtype));
  const Policy paged = parse_policy("paged(P=" + std::to_string(problem.page_size) +
                                    ", in_flight=" + std::to_string(problem.rows) + ")");
  const std::int64_t key_bytes = loaded_key_bytes(problem.kv_dtype, kind.head_dim, kind.v_head_dim);
  for (const SequenceRows& rows : step_rows()) {
    const Held all = held(paged, problem.table, problem.shape, {rows.length, rows.length, dtype});
    for (const int idx : kind.layers) {
      figures.predicted_held_bytes += all.layers[static_cast<std::size_t>(idx)].bytes;
    }
    figures.predicted_read_bytes += predicted_call(kind.topologies, kind.heads, rows).loaded_keys *
                                    key_bytes * figures.num_layers;
  }
}

void DecodeTimer::first_step() {
  for (const Kind& kind : kinds_) predict(row_.kinds.emplace_back(), kind);
  DecodeRound times;
  const std::vector<SequenceRows> rows = step_rows();
  KvCache::Step step = begin_step(times);
  row_.live_bytes = cache_->live_bytes();
  times.kind_seconds.resize(kinds_.size(), 0);
  for (std::size_t idx = 0; idx < kinds_.size(); ++idx) {
    stop_if_asked();
    const Kind& kind = kinds_[idx];
    DecodeKind& figures = row_.kinds[idx];
    const Plan plan = plan_of(kind, rows, times);
    for (const Ledger& ledger : attend_kind(idx, plan, step, times)) {
      figures.read_bytes += ledger.loaded_bytes;
      figures.pairs += ledger.executed_pairs;
    }
    figures.pair_flops = 2.0 * static_cast<double>(kind.head_dim + kind.v_head_dim) *
                         static_cast<double>(figures.pairs);
    for (const SequenceId sequence : sequences_) {
      const std::vector<std::int64_t> held = cache_->held_bytes(sequence);
      for (const int layer : kind.layers) {
        figures.held_bytes += held[static_cast<std::size_t>(layer)];
      }
    }
    check_layer(kind.layers.back(), kind);
  }
}  // dropped: the cache is as it was

// The last layer's outputs, of the first and of the last sequence.
void DecodeTimer::check_layer(int layer, const Kind& kind) {
  DecodeAnswer answer;
  answer.problem = row_.problem;
  answer.isa = row_.isa;
  answer.layer = layer;
  answer.topologies = kind.topologies;
  const std::int64_t num_rows = row_.problem.rows * std::ssize(sequences_);
  answer.q = part_of(q_, num_rows, kind.heads.num_q_heads, kind.head_dim);
  answer.out = tensor_view(out_.bytes.data(), out_.dtype,
                           {num_rows, kind.heads.num_q_heads, kind.v_head_dim});
  answer.lse = lse_;
  answer.kv_heads = kind.heads.num_kv_heads;
  for (const std::size_t idx : {std::size_t{0}, sequences_.size() - 1}) {
    const SpotCheck check = check_decode(answer, *cache_, sequences_[idx],
                                         static_cast<std::int64_t>(idx) * row_.problem.rows);
    row_.max_error = std::max(row_.max_error, check.max_error);
    row_.worst = std::max(row_.worst, check.worst);
  }
}

void DecodeTimer::time_once(std::int64_t round) {
  stop_if_asked();
  DecodeRound times;
  const std::optional<ReadBandwidthRow> before = reads_->measure();
  if (!before) throw Stopped{};
  const ProductRates rates = measure_product_rates(
      row_.problem.threads, row_.problem.kv_dtype != DType::kF32, /*cpu_time=*/false);
  DecodeRound warm;
  step(warm);
  const CpuStopwatch cpu;
  for (std::int64_t idx = 0; idx < row_.steps_per_round; ++idx) step(times);
  const double cpu_spent = cpu.seconds();
  times.cpu_share =
      std::min(1.0, cpu_spent / (times.step_seconds * static_cast<double>(row_.problem.threads)));
  const std::optional<ReadBandwidthRow> after = reads_->measure();
  if (!after) throw Stopped{};
  const auto steps = static_cast<double>(row_.steps_per_round);
  for (const DecodeStage stage : {&DecodeRound::plan_seconds, &DecodeRound::cache_seconds,
                                  &DecodeRound::append_seconds, &DecodeRound::step_seconds}) {
    times.*stage /= steps;
  }
  for (double& seconds : times.kind_seconds) {
    seconds /= steps;
    times.attend_seconds += seconds;
  }
  times.round = round;
  times.read_bytes_per_s = (before->bytes_per_s.median + after->bytes_per_s.median) / 2;
  times.f32_flops_per_s = rates.f32_flops_per_s;
  times.bf16_flops_per_s = rates.bf16_flops_per_s;
  row_.rounds.push_back(std::move(times));
}

}  // namespace lacuna::bench

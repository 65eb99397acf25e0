#include "lacuna/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "lacuna/error.h"
#include "lacuna/kernels.h"
#include "lacuna/plan.h"
#include "lacuna/retention.h"
#include "lacuna/stopwatch.h"
#include "model/model_state.h"
#include "model/planted.h"
#include "model/row_math.h"

namespace lacuna {
namespace {

// Layers that read the same keys in the same way share a plan.
struct PlanKind {
  std::vector<Topology> topologies;
  HeadCounts heads;
  friend bool operator==(const PlanKind&, const PlanKind&) = default;
};

// Numbers of all rows of a pass, in large pages. Grows to the largest pass and stays.
class Buffer {
 public:
  float* take(std::int64_t rows, std::int64_t width) {
    const std::int64_t bytes = rows * width * std::int64_t{sizeof(float)};
    if (numbers_.size() < bytes) numbers_ = Memory(bytes);
    return reinterpret_cast<float*>(numbers_.data());
  }

 private:
  Memory numbers_;
};

LayerTable checked(const Model::State& model, const LayerTable& table) {
  if (!table.causal) throw Error("the layer table is bidirectional; allowed: causal ones");
  check(model.config.shape, table);
  for (std::size_t layer = 0; layer < table.layers.size(); ++layer) {
    if (table.layers[layer].mixer == Mixer::kSoftmax && !table.layers[layer].kv_from) continue;
    throw Error(fmt::format(
        "layer {} of the table has {}; allowed: softmax over keys of its own", layer,
        table.layers[layer].kv_from ? "kv_from" : to_string(table.layers[layer].mixer)));
  }
  return table;
}

CacheShape cache_shape(const Retention& retention, const TransformerOptions& options) {
  CacheShape shape;
  shape.layers = retention.layers();
  shape.page_size = options.page_size;
  shape.dtype = options.kv_dtype;
  shape.summaries = options.planted.summaries;
  return shape;
}

}  // namespace

struct Transformer::State {
  State(const Model& of, const TransformerOptions& with, ThreadPool& threads);

  void find_kinds();
  void use(const LayerTable& other);

  // A pass, in the order in which it computes.
  std::optional<KvCache::Step> begin(std::span<const StepRows> new_rows);
  void start(std::span<const NewTokens> batch);
  void find_angles();
  void embed(std::span<const NewTokens> batch);
  void plan_kinds(std::span<const NewTokens> batch);
  Plan plan_of(const PlanKind& kind, std::span<const SequenceRows> of_sequences);
  void extend(std::size_t layer, KvCache::Step& step);
  void keep_rows(std::span<const NewTokens> batch, LogitRows wanted);
  bool attend(std::size_t layer, std::stop_token stop);
  void project_q_k_v(std::size_t layer);
  void rotate_q_k(std::size_t layer);
  TensorView projected_heads(std::size_t layer, std::int64_t first, std::int64_t count);
  void append(std::size_t layer, KvCache::Step& step);
  TensorView queries(std::size_t layer);
  bool attention(std::size_t layer, std::stop_token stop);
  void feed_forward(std::size_t layer);
  void output();

  void take_normed(const Vector& weight);
  float* product(const DenseWeights& weights, Buffer& to);
  void add(float* rows, std::int64_t stride, const Vector& norm_after);

  const Model::State& model;
  TransformerOptions options;
  ThreadPool alone{1};
  ThreadPool& pool;
  LayerObserver observer;
  AttentionObserver on_attention;
  LayerTable table;
  Retention retention;
  KvCache cache;
  std::vector<PlanKind> kinds;
  std::vector<std::size_t> kind_of_layer;
  std::vector<Rotary> rotaries;  // different ones
  std::vector<std::size_t> rotary_of_layer;

  // Of the pass at hand.
  std::int64_t num_rows = 0;
  std::vector<SequenceId> sequences;
  std::vector<std::int64_t> positions;      // [num_rows]
  std::vector<std::vector<Angles>> angles;  // [rotaries][num_rows]
  std::vector<Plan> plans;                  // [kinds]
  std::vector<LayerPass> layers;
  PassTimes times;
  Vector hidden;   // [num_rows, hidden_size]: the residual stream
  DenseRows rows;  // what the next product reads
  Buffer q_k_v, attended, projected, gate_up, logits;
  std::vector<std::uint16_t> q_halves;
  std::vector<float> lse;
  Memory workspace;
  std::int64_t num_logits = 0;
};

Transformer::State::State(const Model& of, const TransformerOptions& with, ThreadPool& threads)
    : model(of.state()),
      options(with),
      pool(with.planted.one_thread ? alone : threads),
      table(checked(model, with.table.value_or(model.config.table))),
      retention(table, model.config.shape),
      cache(cache_shape(retention, with),
            PoolOptions{.budget_bytes = with.cache_bytes, .populate = with.populate}),
      rows(model.output.type(), with.isa) {
  find_kinds();
  for (const Rotary& rotary : model.architecture.rotary) {
    const auto same = std::ranges::find(rotaries, rotary);
    rotary_of_layer.push_back(static_cast<std::size_t>(same - rotaries.begin()));
    if (same == rotaries.end()) rotaries.push_back(rotary);
  }
  if (options.planted.local_rotary) rotary_of_layer.assign(rotary_of_layer.size(), 0);
  if (options.planted.leak) leak(cache);
}

void Transformer::State::find_kinds() {
  kinds.clear();
  kind_of_layer.clear();
  for (std::size_t layer = 0; layer < table.layers.size(); ++layer) {
    const LayerShape& shape = model.config.shape.layers[layer];
    PlanKind kind = {topologies_of_heads(table.layers[layer], table.causal, static_cast<int>(layer),
                                         shape.num_q_heads),
                     {shape.num_q_heads, shape.num_kv_heads}};
    const auto known = std::ranges::find(kinds, kind);
    kind_of_layer.push_back(static_cast<std::size_t>(known - kinds.begin()));
    if (known == kinds.end()) kinds.push_back(std::move(kind));
  }
}

void Transformer::State::use(const LayerTable& other) {
  Retention keeps(checked(model, other), model.config.shape);
  if (keeps.layers() != retention.layers()) {
    throw Error(
        "the layer table parts its KV heads otherwise than the cache does; allowed: one "
        "that keeps the same positions for the same heads");
  }
  table = other;
  retention = std::move(keeps);
  find_kinds();
}

std::optional<KvCache::Step> Transformer::State::begin(std::span<const StepRows> new_rows) {
  layers.assign(table.layers.size(), {});
  times = {};
  const Timed taking(times.scheduling);
  return cache.begin(new_rows);
}

// ---- Rows ---------------------------------------------------------------------------------------

void Transformer::State::start(std::span<const NewTokens> batch) {
  sequences.clear();
  positions.clear();
  for (const NewTokens& of : batch) {
    sequences.push_back(of.sequence);
    const std::int64_t length = cache.length(of.sequence);
    for (std::int64_t i = 0; i < std::ssize(of.tokens); ++i) positions.push_back(length + i);
  }
  num_rows = std::ssize(positions);
}

void Transformer::State::find_angles() {
  const Timed rotating(times.rotary);
  const std::int64_t head_dim = model.config.shape.layers.front().head_dim;
  angles.assign(rotaries.size(), std::vector<Angles>(positions.size()));
  for_rows(pool, num_rows, [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    for (std::size_t idx = 0; idx < rotaries.size(); ++idx) {
      angles[idx][at] =
          angles_of(rotaries[idx], model.architecture.rotary_divisors, head_dim, positions[at]);
    }
  });
}

void Transformer::State::embed(std::span<const NewTokens> batch) {
  const Timed embedding(times.embedding);
  const auto width = static_cast<std::size_t>(model.architecture.hidden_size);
  hidden.resize(positions.size() * width);
  std::size_t row = 0;
  for (const NewTokens& of : batch) {
    for (const TokenId token : of.tokens) {
      const auto to = std::span(hidden).subspan(row++ * width, width);
      read_row(to, model.embedding, token);
      for (float& x : to) x *= model.architecture.embedding_scale;
    }
  }
}

void Transformer::State::plan_kinds(std::span<const NewTokens> batch) {
  const Timed planning(times.scheduling);
  std::vector<SequenceRows> of_sequences;
  for (const NewTokens& of : batch) {
    const std::int64_t length = cache.length(of.sequence);
    const std::int64_t end = length + std::ssize(of.tokens);
    of_sequences.push_back({{length, end}, end});
  }
  plans.clear();
  for (const PlanKind& kind : kinds) plans.push_back(plan_of(kind, of_sequences));
}

Plan Transformer::State::plan_of(const PlanKind& kind, std::span<const SequenceRows> of_sequences) {
  PlanOptions plan_options;
  plan_options.num_threads = pool.num_threads();
  return make_plan(kind.topologies, of_sequences, kind.heads, plan_options);
}

void Transformer::State::take_normed(const Vector& weight) {
  const auto width = static_cast<std::int64_t>(weight.size());
  rows.make(
      [&](float* to, std::int64_t row) {
        rms_norm(to, hidden.data() + row * width, weight, model.architecture.norm_epsilon);
      },
      num_rows, width, &pool);
}

float* Transformer::State::product(const DenseWeights& weights, Buffer& to) {
  float* const out = to.take(num_rows, weights.padded_outputs());
  multiply(out, weights.padded_outputs(), rows, weights, &pool);
  return out;
}

// hidden += rows, which are normed before, in place, where the architecture norms what a block
// gives.
void Transformer::State::add(float* from, std::int64_t stride, const Vector& norm_after) {
  const std::int64_t width = model.architecture.hidden_size;
  for_rows(pool, num_rows, [&](std::int64_t row) {
    float* const x = from + row * stride;
    if (!norm_after.empty()) rms_norm(x, x, norm_after, model.architecture.norm_epsilon);
    lacuna::add(hidden.data() + row * width, x, width);
  });
}

// ---- A layer ------------------------------------------------------------------------------------

void Transformer::State::project_q_k_v(std::size_t layer) {
  const Timed projecting(times.projection);
  const LayerWeights& weights = model.layers[layer];
  take_normed(weights.attention_norm);
  product(weights.q_k_v, q_k_v);
}

// q and k, normed by head before where the model does so.
void Transformer::State::rotate_q_k(std::size_t layer) {
  const Timed rotating(times.rotary);
  const LayerWeights& weights = model.layers[layer];
  const LayerShape& shape = model.config.shape.layers[layer];
  const Architecture& architecture = model.architecture;
  const std::int64_t stride = weights.q_k_v.padded_outputs();
  float* const all = q_k_v.take(num_rows, stride);
  for_rows(pool, num_rows, [&](std::int64_t row) {
    const Angles& turn = angles[rotary_of_layer[layer]][static_cast<std::size_t>(row)];
    for (int head = 0; head < shape.num_q_heads + shape.num_kv_heads; ++head) {
      float* const x = all + row * stride + head * shape.head_dim;
      if (architecture.norms_heads) {
        rms_norm(x, x, head < shape.num_q_heads ? weights.q_norm : weights.k_norm,
                 architecture.norm_epsilon);
      }
      rotate(x, turn, architecture.rotates_neighbours);
    }
  });
}

// Of the heads of q, k and v, one after another: [num_rows, count, head_dim].
TensorView Transformer::State::projected_heads(std::size_t layer, std::int64_t first,
                                               std::int64_t count) {
  const std::int64_t head_dim = model.config.shape.layers[layer].head_dim;
  const std::int64_t stride = model.layers[layer].q_k_v.padded_outputs();
  TensorView view = tensor_view(q_k_v.take(num_rows, stride) + first * head_dim, DType::kF32,
                                {num_rows, count, head_dim});
  view.strides[0] = stride;
  return view;
}

void Transformer::State::append(std::size_t layer, KvCache::Step& step) {
  const Timed appending(times.append);
  const LayerShape& shape = model.config.shape.layers[layer];
  step.append(
      static_cast<int>(layer), projected_heads(layer, shape.num_q_heads, shape.num_kv_heads),
      projected_heads(layer, shape.num_q_heads + shape.num_kv_heads, shape.num_kv_heads), &pool);
}

// As the kernels for the cache's keys take them.
TensorView Transformer::State::queries(std::size_t layer) {
  const LayerShape& shape = model.config.shape.layers[layer];
  const TensorView q = projected_heads(layer, 0, shape.num_q_heads);
  if (options.kv_dtype != DType::kBf16) return q;
  const std::int64_t q_size = shape.num_q_heads * shape.head_dim;
  const auto* const all = static_cast<const float*>(q.data);
  q_halves.resize(static_cast<std::size_t>(num_rows * q_size));
  for_rows(pool, num_rows, [&](std::int64_t row) {
    round_to_bf16(q_halves.data() + row * q_size, all + row * q.strides[0], q_size);
  });
  return tensor_view(q_halves.data(), DType::kBf16, {num_rows, shape.num_q_heads, shape.head_dim});
}

bool Transformer::State::attention(std::size_t layer, std::stop_token stop) {
  const Timed of_layer(layers[layer].seconds);
  const Timed of_pass(times.attention);
  const LayerShape& shape = model.config.shape.layers[layer];
  const TensorView q = queries(layer);
  const CacheView view = cache.view(static_cast<int>(layer), sequences);
  AttentionOptions attention_options;
  attention_options.sm_scale = model.architecture.sm_scale;
  attention_options.softcap = model.architecture.attention_softcap;
  attention_options.pool = &pool;
  attention_options.stop = std::move(stop);
  attention_options.isa = options.isa;
  attention_options.exact_kv = options.exact_kv;
  const Plan& plan = plans[kind_of_layer[layer]];
  const std::int64_t bytes = workspace_bytes(plan, q, view.kv(), attention_options);
  if (workspace.size() < bytes) workspace = Memory(bytes);
  const MutableTensorView out =
      mutable_tensor_view(attended.take(num_rows, shape.num_q_heads * shape.head_dim), DType::kF32,
                          {num_rows, shape.num_q_heads, shape.head_dim});
  lse.resize(static_cast<std::size_t>(num_rows * shape.num_q_heads));
  const auto attend_to = options.planted.masked_dense ? run_masked_dense : lacuna::run;
  const std::optional<Ledger> done =
      attend_to(out, lse, plan, q, view.kv(), {workspace.data(), static_cast<std::size_t>(bytes)},
                attention_options);
  if (!done) return false;
  layers[layer].ledger = *done;
  const LayerAttention shown = {q, view.kv(), lse, attention_options};
  if (on_attention) on_attention(static_cast<std::int64_t>(layer), shown);
  if (options.planted.count_twice) {
    layers[layer].ledger.executed_pairs += num_rows * shape.num_q_heads;
    layers[layer].ledger.needed_pairs += num_rows * shape.num_q_heads;
  }
  return true;
}

void Transformer::State::extend(std::size_t layer, KvCache::Step& step) {
  project_q_k_v(layer);
  rotate_q_k(layer);
  append(layer, step);
}

bool Transformer::State::attend(std::size_t layer, std::stop_token stop) {
  const LayerWeights& weights = model.layers[layer];
  if (!attention(layer, std::move(stop))) return false;
  const Timed projecting(times.output_projection);
  const std::int64_t width = weights.attention_output.inputs();
  rows.set(attended.take(num_rows, width), num_rows, width, &pool);
  float* const out = product(weights.attention_output, projected);
  add(out, weights.attention_output.padded_outputs(), weights.after_attention_norm);
  return true;
}

void Transformer::State::feed_forward(std::size_t layer) {
  const Timed in_mlp(times.mlp);
  const LayerWeights& weights = model.layers[layer];
  const std::int64_t inner = weights.down.inputs();
  take_normed(weights.mlp_norm);
  const float* const both = product(weights.gate_up, gate_up);
  const std::int64_t stride = weights.gate_up.padded_outputs();
  rows.make(
      [&](float* to, std::int64_t row) {
        const float* const x = both + row * stride;
        gate(to, x, x + inner, inner, model.architecture.activation, options.isa);
      },
      num_rows, inner, &pool);
  float* const out = product(weights.down, projected);
  add(out, weights.down.padded_outputs(), weights.after_mlp_norm);
}

// Goes on with the rows whose logits are wanted: of the others nothing is read after their keys and
// values in the last layer.
void Transformer::State::keep_rows(std::span<const NewTokens> batch, LogitRows wanted) {
  const Timed planning(times.scheduling);
  const bool one_row_each = num_rows == std::ssize(batch);
  if (wanted == LogitRows::kAll || (wanted == LogitRows::kLast && one_row_each)) return;
  const std::int64_t width = model.architecture.hidden_size;
  const std::int64_t stride = model.layers.back().q_k_v.padded_outputs();
  float* const all = q_k_v.take(num_rows, stride);
  std::int64_t end = 0;
  std::int64_t kept = 0;
  std::vector<SequenceRows> of_sequences;
  for (const NewTokens& of : batch) {
    end += std::ssize(of.tokens);
    if (wanted == LogitRows::kNone) continue;
    std::copy_n(hidden.data() + (end - 1) * width, width, hidden.data() + kept * width);
    std::copy_n(all + (end - 1) * stride, stride, all + kept * stride);
    const std::int64_t length = positions[static_cast<std::size_t>(end - 1)] + 1;
    of_sequences.push_back({{length - 1, length}, length});
    ++kept;
  }
  num_rows = kept;
  if (kept > 0) plans[kind_of_layer.back()] = plan_of(kinds[kind_of_layer.back()], of_sequences);
}

void Transformer::State::output() {
  const Timed in_output(times.logits);
  num_logits = num_rows;
  if (num_rows == 0) return;
  take_normed(model.output_norm);
  product(model.output, logits);
  const float cap = model.architecture.logit_softcap;
  if (cap == 0) return;
  const std::int64_t stride = model.output.padded_outputs();
  float* const all = logits.take(num_rows, stride);
  for_rows(pool, num_rows, [&](std::int64_t row) {
    soft_cap({all + row * stride, static_cast<std::size_t>(stride)}, cap);
  });
}

// ---- A pass -------------------------------------------------------------------------------------

struct Transformer::Pass::State {
  Transformer::State& of;
  KvCache::Step step;
  std::vector<std::int64_t> num_tokens;
  std::vector<SequenceId> sequences;
};

Transformer::Pass::Pass(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transformer::Pass::Pass(Pass&&) noexcept = default;
Transformer::Pass::~Pass() = default;

std::span<const float> Transformer::Pass::logits(std::int64_t row) const {
  Transformer::State& of = state_->of;
  if (row < 0 || row >= of.num_logits) {
    throw Error(fmt::format("row is {}; allowed: 0..{}", row, of.num_logits - 1));
  }
  const float* const all = of.logits.take(0, 0);
  return {all + row * of.model.output.padded_outputs(),
          static_cast<std::size_t>(of.model.architecture.vocab_size)};
}

std::int64_t Transformer::Pass::num_logits() const { return state_->of.num_logits; }
std::span<const LayerPass> Transformer::Pass::layers() const { return state_->of.layers; }
const PassTimes& Transformer::Pass::times() const { return state_->of.times; }

Ledger Transformer::Pass::ledger() const {
  Ledger all;
  for (const LayerPass& layer : layers()) all += layer.ledger;
  return all;
}

void Transformer::Pass::commit() { commit(std::vector<std::int64_t>(state_->num_tokens)); }

void Transformer::Pass::commit(std::span<const std::int64_t> num_committed) {
  Transformer::State& of = state_->of;
  const Timed committing(of.times.scheduling);
  state_->step.commit(num_committed);
  for (const SequenceId sequence : state_->sequences) {
    const std::int64_t length = of.cache.length(sequence);
    if (of.options.planted.keep_all) continue;
    const std::int64_t first = std::max<std::int64_t>(length - of.options.rollback, 0);
    of.cache.retain(sequence, of.retention.kept(first, length));
  }
}

Transformer::Transformer(const Model& model, const TransformerOptions& options, ThreadPool& pool)
    : state_(std::make_unique<State>(model, options, pool)) {}
Transformer::~Transformer() = default;

const LayerTable& Transformer::table() const { return state_->table; }
KvCache& Transformer::cache() { return state_->cache; }
void Transformer::use(const LayerTable& table) { state_->use(table); }
void Transformer::observe(LayerObserver observer) { state_->observer = std::move(observer); }
void Transformer::observe_attention(AttentionObserver observer) {
  state_->on_attention = std::move(observer);
}

std::optional<Transformer::Pass> Transformer::forward(std::span<const NewTokens> batch,
                                                      LogitRows wanted, std::stop_token stop) {
  State& state = *state_;
  if (batch.empty()) throw Error("the batch is empty; allowed: at least one sequence");
  std::vector<StepRows> rows;
  std::vector<std::int64_t> num_tokens;
  for (const NewTokens& of : batch) {
    for (const TokenId token : of.tokens) {
      if (token >= 0 && token < state.model.architecture.vocab_size) continue;
      throw Error(fmt::format("token is {}; allowed: 0..{}", token,
                              state.model.architecture.vocab_size - 1));
    }
    num_tokens.push_back(std::ssize(of.tokens));
    rows.push_back({of.sequence, num_tokens.back()});
  }
  std::optional<KvCache::Step> step = state.begin(rows);
  if (!step) return std::nullopt;
  state.start(batch);
  state.find_angles();
  state.plan_kinds(batch);
  state.embed(batch);
  const bool observed = state.observer || state.on_attention;
  const std::size_t num_layers = state.table.layers.size();
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    state.extend(layer, *step);
    if (layer + 1 == num_layers && !observed) state.keep_rows(batch, wanted);
    if (state.num_rows == 0) break;
    if (!state.attend(layer, stop)) return std::nullopt;
    state.feed_forward(layer);
    if (state.observer) state.observer(static_cast<std::int64_t>(layer), state.hidden);
  }
  if (observed) state.keep_rows(batch, wanted);
  state.output();
  spend(state.options.planted.hidden_seconds);
  return Pass(std::make_unique<Pass::State>(
      Pass::State{state, std::move(*step), std::move(num_tokens), state.sequences}));
}

}  // namespace lacuna

// Steps: pages taken all at once, tokens written, and then committed or taken back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_pack.h"

namespace lacuna {
namespace {

constexpr PageId kNull = KvView::kNullPage;

// A page that a step must take: where a table has none for new rows, or has one that others refer
// to, too, and that rows will be written into.
struct Need {
  SequenceId sequence;
  std::size_t table;
  std::int64_t column;
  PageId shared = kNull;  // what is copied
};

// Calls visit with each page that one sequence's rows need, until it says false.
template <typename Visit>
bool visit_needs(const KvCache::State& state, const StepRows& rows, Visit visit) {
  const Sequence& sequence = state.sequence(rows.sequence);
  const std::int64_t page_size = state.shape.page_size;
  const std::int64_t end = sequence.length + rows.num_rows;
  for (std::size_t table = 0; table < sequence.tables.size(); ++table) {
    const std::vector<PageId>& columns = sequence.tables[table];
    for (std::int64_t column = sequence.length / page_size; column * page_size < end; ++column) {
      const PageId page =
          column < std::ssize(columns) ? columns[static_cast<std::size_t>(column)] : kNull;
      if (page != kNull && state.pool.references(page) == 1) continue;
      if (!visit(Need{rows.sequence, table, column, page})) return false;
    }
  }
  return true;
}

// What begin takes and step_bytes adds up: one function.
template <typename Visit>
bool visit_needs(const KvCache::State& state, std::span<const StepRows> rows, Visit visit) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;  // as plans have
  for (std::size_t idx = 0; idx < rows.size(); ++idx) {
    const auto& [id, num_rows] = rows[idx];
    state.idle_sequence(id);
    if (num_rows < 1 || num_rows > kMostRows) {
      throw Error(
          fmt::format("num_rows of sequence {} is {}; allowed: 1..{}", id, num_rows, kMostRows));
    }
    for (std::size_t other = 0; other < idx; ++other) {
      if (rows[other].sequence != id) continue;
      throw Error(fmt::format("sequence {} stands twice in a step; allowed: once", id));
    }
  }
  return std::all_of(rows.begin(), rows.end(),
                     [&](const StepRows& of) { return visit_needs(state, of, visit); });
}

// Rows of one sequence that lie on one page.
struct PageRows {
  SequenceId sequence;
  std::int64_t first_row;  // of k and v
  std::int64_t num_rows;
  std::int64_t column;
  std::int64_t first_slot;
};

TensorView rows_of(const TensorView& all, std::int64_t first_row, std::int64_t num_rows) {
  TensorView rows = all;
  rows.data =
      static_cast<const std::byte*>(all.data) + first_row * all.strides[0] * size_bytes(all.dtype);
  rows.shape[0] = num_rows;
  return rows;
}

void require_open(bool is_open) {
  if (!is_open) throw Error("the step was committed or moved from; allowed: a step in progress");
}

void check_rows(const char* name, const TensorView& rows,
                const std::array<std::int64_t, 3>& shape) {
  if (rows.shape != shape) {
    throw Error(fmt::format(
        "the shape of {} is {}×{}×{}; allowed: {}×{}×{}, the step's rows and "
        "the layer's heads and dims",
        name, rows.shape[0], rows.shape[1], rows.shape[2], shape[0], shape[1], shape[2]));
  }
  if (is_quantized(rows.dtype)) {
    throw Error(
        fmt::format("dtype of {} is {}; allowed: f32, bf16, f16", name, to_string(rows.dtype)));
  }
  if (rows.data == nullptr && rows.shape[0] > 0)
    throw Error(fmt::format("data of {} is null", name));
}

}  // namespace

struct KvCache::Step::State {
  KvCache::State& cache;
  std::vector<StepRows> rows;
  std::vector<Need> needs;
  std::vector<PageId> pages;   // [needs] what was taken
  std::vector<bool> appended;  // [layers]

  std::int64_t num_rows() const;
  std::vector<PageRows> page_rows() const;
  void check_append(int layer_idx, const TensorView& k, const TensorView& v) const;
  // The step is over: so many rows of each sequence stay.
  void end(std::span<const std::int64_t> num_committed);
  void settle(const Need& need, PageId page, std::int64_t new_length);
  void extend_summaries(const Sequence& sequence, std::int64_t old_length);
};

std::optional<KvCache::Step> KvCache::begin(std::span<const StepRows> rows) {
  std::vector<Need> needs;
  std::vector<std::size_t> tables;
  std::int64_t bytes = 0;
  const auto note = [&](const Need& need) {
    needs.push_back(need);
    tables.push_back(need.table);
    bytes += state_->tables[need.table].page_bytes;
    return bytes <= state_->pool.num_units() * kPageUnitBytes;  // else no list is long enough
  };
  if (!visit_needs(*state_, rows, note)) return std::nullopt;
  std::optional<std::vector<PageId>> pages = state_->take(tables);
  if (!pages) return std::nullopt;
  for (std::size_t idx = 0; idx < needs.size(); ++idx) {
    const Need& need = needs[idx];
    std::vector<PageId>& columns = state_->sequence(need.sequence).tables[need.table];
    if (std::ssize(columns) <= need.column) {
      columns.resize(static_cast<std::size_t>(need.column + 1), kNull);
    }
    const PageId page = (*pages)[idx];
    columns[static_cast<std::size_t>(need.column)] = page;
    const std::int64_t length = state_->sequence(need.sequence).length;
    const std::int64_t first_slot =
        std::max<std::int64_t>(0, length - need.column * state_->shape.page_size);
    if (need.shared != kNull) {
      std::copy_n(state_->pool.bytes(need.shared), state_->tables[need.table].page_bytes,
                  state_->pool.bytes(page));
      state_->set_first_slot(page, state_->first_slot(need.shared));
    } else {
      state_->set_first_slot(page, first_slot);
      state_->start_summary(need.table, page, first_slot);
    }
  }
  for (const StepRows& of : rows) {
    state_->cut_last_summaries(state_->sequence(of.sequence));
    state_->sequence(of.sequence).pending_rows = of.num_rows;
  }
  return Step(std::make_unique<Step::State>(
      Step::State{*state_,
                  {rows.begin(), rows.end()},
                  std::move(needs),
                  std::move(*pages),
                  std::vector<bool>(state_->shape.layers.size(), false)}));
}

std::int64_t KvCache::step_bytes(std::span<const StepRows> rows) const {
  std::int64_t bytes = 0;
  visit_needs(*state_, rows, [&](const Need& need) {
    bytes = checked_add64(bytes, state_->tables[need.table].page_bytes);
    return true;
  });
  return bytes;
}

KvCache::Step::Step(std::unique_ptr<State> state) : state_(std::move(state)) {}
KvCache::Step::Step(Step&& other) noexcept = default;

KvCache::Step::~Step() {
  if (state_ == nullptr) return;
  const std::vector<std::int64_t> none(state_->rows.size(), 0);
  state_->end(none);
}

std::int64_t KvCache::Step::State::num_rows() const {
  std::int64_t sum = 0;
  for (const StepRows& of : rows) sum += of.num_rows;
  return sum;
}

std::vector<PageRows> KvCache::Step::State::page_rows() const {
  std::vector<PageRows> pieces;
  const std::int64_t page_size = cache.shape.page_size;
  std::int64_t row = 0;
  for (const StepRows& of : rows) {
    std::int64_t position = cache.sequence(of.sequence).length;
    const std::int64_t end = position + of.num_rows;
    while (position < end) {
      const std::int64_t column = position / page_size;
      const std::int64_t here = std::min(end, (column + 1) * page_size) - position;
      pieces.push_back({of.sequence, row, here, column, position % page_size});
      row += here;
      position += here;
    }
  }
  return pieces;
}

void KvCache::Step::State::check_append(int layer_idx, const TensorView& k,
                                        const TensorView& v) const {
  const auto layer = static_cast<std::size_t>(layer_idx);
  const auto num_layers = std::ssize(cache.shape.layers);
  if (layer_idx < 0 || layer_idx >= num_layers || cache.tables_of_layer[layer].empty() ||
      cache.shape.layers[layer].kv_from) {
    throw Error(fmt::format("layer_idx is {}; allowed: layers below {} that store KV", layer_idx,
                            num_layers));
  }
  if (appended[layer]) {
    throw Error(fmt::format("layer {} was appended before; allowed: once a step", layer_idx));
  }
  const CacheLayer& sizes = cache.shape.layers[layer];
  check_rows("k", k, {num_rows(), sizes.num_kv_heads, sizes.head_dim});
  check_rows("v", v, {num_rows(), sizes.num_kv_heads, sizes.v_head_dim});
}

void KvCache::Step::append(int layer_idx, const TensorView& k, const TensorView& v,
                           ThreadPool* pool) {
  require_open(state_ != nullptr);
  state_->check_append(layer_idx, k, v);
  KvCache::State& cache = state_->cache;
  const auto layer = static_cast<std::size_t>(layer_idx);
  const std::vector<PageRows> pieces = state_->page_rows();
  const auto& places = cache.head_places[layer];
  // A unit is a piece of one head; they go head after head of a page.
  const std::size_t num_units = pieces.size() * places.size();
  const auto head_of = [&](std::size_t unit) {
    const PageRows& piece = pieces[unit / places.size()];
    const KvHeadPlace place = places[unit % places.size()];
    const std::size_t table = cache.tables_of_layer[layer][static_cast<std::size_t>(place.table)];
    const PageId page =
        cache.sequences.at(piece.sequence).tables[table][static_cast<std::size_t>(piece.column)];
    return cache.packed_head(table, page, place.slot);
  };
  const auto append_units = [&](std::size_t first, std::size_t stride) {
    for (std::size_t unit = first; unit < num_units; unit += stride) {
      const std::size_t next = unit + stride;
      if (next < num_units) {
        ask_for_slot(head_of(next), pieces[next / places.size()].first_slot);
      }
      const PageRows& piece = pieces[unit / places.size()];
      append_tokens(head_of(unit), piece.first_slot, rows_of(k, piece.first_row, piece.num_rows),
                    rows_of(v, piece.first_row, piece.num_rows),
                    static_cast<std::int64_t>(unit % places.size()));
    }
  };
  const std::int64_t num_threads = pool == nullptr ? 1 : pool->num_threads();
  if (num_threads > 1 && num_units > 64) {  // less is done before a thread wakes up
    pool->run([&](std::int64_t thread) {
      append_units(static_cast<std::size_t>(thread), static_cast<std::size_t>(num_threads));
    });
  } else {
    append_units(0, 1);
  }
  state_->appended[layer] = true;
}

void KvCache::Step::commit() {
  require_open(state_ != nullptr);
  std::vector<std::int64_t> all;
  for (const StepRows& of : state_->rows) all.push_back(of.num_rows);
  commit(all);
}

void KvCache::Step::commit(std::span<const std::int64_t> num_committed) {
  require_open(state_ != nullptr);
  const std::vector<StepRows>& rows = state_->rows;
  if (num_committed.size() != rows.size()) {
    throw Error(fmt::format("num_committed has {} entries; allowed: one for each of {} sequences",
                            num_committed.size(), rows.size()));
  }
  for (std::size_t idx = 0; idx < rows.size(); ++idx) {
    if (num_committed[idx] >= 0 && num_committed[idx] <= rows[idx].num_rows) continue;
    throw Error(fmt::format("num_committed of sequence {} is {}; allowed: 0..{}",
                            rows[idx].sequence, num_committed[idx], rows[idx].num_rows));
  }
  for (const CacheTable& table : state_->cache.tables) {
    if (state_->appended[static_cast<std::size_t>(table.layer_idx)]) continue;
    throw Error(
        fmt::format("layer {} was not appended; allowed: a step in which every layer that "
                    "stores was",
                    table.layer_idx));
  }
  state_->end(num_committed);
  state_.reset();
}

// Keeps a page that was taken, or gives it back and what stood there before its place.
void KvCache::Step::State::settle(const Need& need, PageId page, std::int64_t new_length) {
  const std::int64_t first_position =
      std::max(cache.sequence(need.sequence).length, need.column * cache.shape.page_size);
  if (new_length > first_position) {
    if (need.shared != kNull) cache.pool.drop(need.shared);
    return;
  }
  cache.pool.drop(page);
  cache.sequence(need.sequence).tables[need.table][static_cast<std::size_t>(need.column)] =
      need.shared;
}

void KvCache::Step::State::extend_summaries(const Sequence& sequence, std::int64_t old_length) {
  const std::int64_t page_size = cache.shape.page_size;
  for (std::size_t table = 0; table < sequence.tables.size(); ++table) {
    for (std::int64_t column = old_length / page_size; column * page_size < sequence.length;
         ++column) {
      const std::int64_t end = std::min(page_size, sequence.length - column * page_size);
      cache.extend_summary(table, sequence.tables[table][static_cast<std::size_t>(column)], end);
    }
  }
}

void KvCache::Step::State::end(std::span<const std::int64_t> num_committed) {
  std::map<SequenceId, std::int64_t> committed;
  for (std::size_t idx = 0; idx < rows.size(); ++idx) {
    committed[rows[idx].sequence] = num_committed[idx];
  }
  for (std::size_t idx = 0; idx < needs.size(); ++idx) {
    const SequenceId id = needs[idx].sequence;
    settle(needs[idx], pages[idx], cache.sequence(id).length + committed.at(id));
  }
  for (const auto& [id, count] : committed) {
    Sequence& sequence = cache.sequence(id);
    const std::int64_t old_length = std::exchange(sequence.length, sequence.length + count);
    sequence.pending_rows = 0;
    for (std::vector<PageId>& columns : sequence.tables) {
      columns.resize(static_cast<std::size_t>(ceil_div(sequence.length, cache.shape.page_size)));
    }
    if (cache.shape.summaries && count > 0) extend_summaries(sequence, old_length);
  }
}

}  // namespace lacuna

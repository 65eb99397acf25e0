#include "topology/terms.h"

#include <algorithm>
#include <type_traits>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/random.h"

namespace lacuna {
namespace {

// a·b, or kForever where that is more: extents of hostile parameters must not wrap.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  return a > kForever / b ? kForever : a * b;
}

// A row of more ranges than this is refused instead of filling the memory.
constexpr std::int64_t kMostRanges = std::int64_t{1} << 22;

void require_feasible(std::int64_t num_ranges) {
  if (num_ranges > kMostRanges) {
    throw Error("a row of this topology has " + std::to_string(num_ranges) +
                " separate ranges; allowed: up to " + std::to_string(kMostRanges));
  }
}

// Collects the ranges of one term for rows [a, b), cut to the keys that exist.
class RowSink {
 public:
  RowSink(const Scope& scope, std::int64_t q_begin, std::int64_t q_end, std::vector<Range>& out)
      : a(q_begin),
        b(q_end),
        key_end(scope.causal ? std::min(scope.length, q_end) : scope.length),
        out_(out) {}

  void add(std::int64_t begin, std::int64_t end) {
    begin = std::max<std::int64_t>(begin, 0);
    end = std::min(end, key_end);
    if (begin < end) out_.push_back({begin, end});
  }

  const std::int64_t a;
  const std::int64_t b;
  const std::int64_t key_end;

 private:
  std::vector<Range>& out_;
};

// Rows [a, b) each read i, i-d, …: `count` keys at steps of `d` to the left.
void add_steps_back(RowSink& sink, std::int64_t d, std::int64_t count) {
  if (sink.b - sink.a >= d) {  // every residue has a row: no gaps
    const std::int64_t back = count > sink.b / d ? sink.b : (count - 1) * d;
    sink.add(sink.a - back, sink.b);
    return;
  }
  const std::int64_t steps = std::min(count - 1, (sink.b - 1) / d);
  require_feasible(steps);
  for (std::int64_t m = steps; m >= 0; --m) sink.add(sink.a - m * d, sink.b - m * d);
}

void add_steps_ahead(RowSink& sink, std::int64_t d, std::int64_t count) {
  for (std::int64_t m = 1; m < count && sink.a + m * d < sink.key_end; ++m) {
    sink.add(sink.a + m * d, sink.b + m * d);
    require_feasible(m);
  }
}

// Every query reads `columns`; a row that is one of them reads all it may.
void add_global(RowSink& sink, const Scope& scope, const Ranges& columns, bool columns_only) {
  for (const Range& part : columns) sink.add(part.begin, part.end);
  if (columns_only) return;
  const Ranges rows = clip(columns, {sink.a, sink.b});
  if (!rows.empty()) sink.add(0, scope.causal ? rows.back() + 1 : scope.length);
}

// Positions p of `within` with p mod k = offset.
Ranges every_positions(const GlobalEvery& term, Range within) {
  const std::int64_t first =
      term.offset +
      std::max<std::int64_t>(0, ceil_div(within.begin - term.offset, term.k)) * term.k;
  if (first >= within.end) return {};
  const std::int64_t count = (within.end - 1 - first) / term.k + 1;
  require_feasible(count);
  std::vector<Range> parts;
  parts.reserve(static_cast<std::size_t>(count));
  for (std::int64_t p = first; p < within.end; p += term.k) parts.push_back({p, p + 1});
  return Ranges(std::move(parts));
}

void add_blocks_back(RowSink& sink, std::int64_t block, std::int64_t before) {
  const std::int64_t own = sink.a / block;
  sink.add(before > own ? 0 : (own - before) * block, sink.b);
}

// Blocks 0..last_block-1 of a vertical pattern: b mod stride = offset.
void add_vertical(RowSink& sink, const VerticalBlocks& term) {
  add_blocks_back(sink, term.block, term.local - 1);
  const std::int64_t last_block = (std::min(sink.b, sink.key_end) - 1) / term.block;
  require_feasible(last_block / term.stride);
  for (std::int64_t b = term.offset; b <= last_block; b += term.stride) {
    // A block not yet earlier than the last row's own block is read through the local part only.
    if (b < (sink.b - 1) / term.block) sink.add(b * term.block, (b + 1) * term.block);
  }
}

void add_fixed(RowSink& sink, const Fixed& term) {
  sink.add(sink.a / term.l * term.l, sink.b);
  const std::int64_t own = (sink.b - 1) / term.l;
  if (term.c == term.l) {
    sink.add(0, own * term.l);
    return;
  }
  const std::int64_t columns = std::min(own, sink.key_end / term.l + 1);
  require_feasible(columns);
  for (std::int64_t t = 0; t < columns; ++t) sink.add((t + 1) * term.l - term.c, (t + 1) * term.l);
}

DrawKey draw_key(const Topology::PlacedTerm& placed, std::uint64_t seed, std::int64_t row) {
  return {seed, static_cast<std::uint32_t>(placed.layer), static_cast<std::uint32_t>(placed.head),
          static_cast<std::uint64_t>(row)};
}

void add_random(RowSink& sink, const Scope& scope, const Topology::PlacedTerm& placed,
                const Random& term) {
  if (sink.b == kForever) return sink.add(0, scope.length);
  for (std::int64_t i = sink.a; i < sink.b; ++i) {
    const std::int64_t population = scope.causal ? i + 1 : scope.length;
    for (std::int64_t key : draw_distinct(draw_key(placed, term.seed, i), term.r, population)) {
      sink.add(key, key + 1);
    }
  }
}

// Key blocks that rows of query block `q_block` read through window and global columns.
Ranges blocks_outside_draw(const Topology::PlacedTerm& placed, const Scope& scope,
                           std::int64_t block, std::int64_t q_block) {
  Scope whole_block = scope;
  const std::int64_t block_end = (q_block + 1) * block;
  // A causal row must not depend on the segment's length.
  if (scope.causal) whole_block.length = block_end;
  const std::int64_t rows_end = std::min(block_end, whole_block.length);
  std::vector<Range> keys;
  for (const Term& term : *placed.outside) {
    Topology::PlacedTerm column{.term = term, .outside = nullptr, .columns_only = true};
    append_rows(column, whole_block, q_block * block, rows_end, keys);
  }
  return tiles_touched(Ranges(std::move(keys)), block);
}

// The `index`-th block (from 0) that is not in `taken`.
std::int64_t nth_free(const Ranges& taken, std::int64_t index) {
  for (const Range& part : taken) {
    if (index < part.begin) break;
    index += part.end - part.begin;
  }
  return index;
}

void add_random_blocks(RowSink& sink, const Scope& scope, const Topology::PlacedTerm& placed,
                       const RandomBlocks& term) {
  if (sink.b == kForever) return sink.add(0, scope.length);
  for (std::int64_t q = sink.a / term.block; q * term.block < sink.b; ++q) {
    const std::int64_t num_blocks = scope.causal ? q + 1 : ceil_div(scope.length, term.block);
    const Ranges taken =
        placed.outside ? clip(blocks_outside_draw(placed, scope, term.block, q), {0, num_blocks})
                       : Ranges{};
    const std::int64_t last_row = std::min(sink.b, (q + 1) * term.block) - 1;
    for (std::int64_t index :
         draw_distinct(draw_key(placed, term.seed, q), term.r, num_blocks - taken.size())) {
      const std::int64_t b = nth_free(taken, index);
      const std::int64_t end = (b + 1) * term.block;
      sink.add(b * term.block, scope.causal ? std::min(end, last_row + 1) : end);
    }
  }
}

void add_listed(RowSink& sink, const Scope& scope, const EdgeList& list, std::int64_t block) {
  const std::int64_t first = sink.a / block;
  auto pair =
      std::lower_bound(list.pairs.begin(), list.pairs.end(), std::pair{first, std::int64_t{0}});
  for (; pair != list.pairs.end() && pair->first <= (sink.b - 1) / block; ++pair) {
    const std::int64_t last_row = std::min(sink.b, (pair->first + 1) * block) - 1;
    const std::int64_t end = bounded_product(pair->second + 1, block);
    sink.add(bounded_product(pair->second, block),
             scope.causal ? std::min(end, last_row + 1) : end);
  }
}

// The stand-in for a dynamic term's choice: the most recent keys. Counts do not depend on which.
Term stand_in(const Term& term) {
  if (const auto* topk = std::get_if<TopK>(&term)) return Window{topk->k - 1, 0};
  const auto& blocks = std::get<TopKBlocks>(term);
  return WindowBlocks{blocks.k - 1, 0, blocks.block};
}

struct RowVisitor {
  const Topology::PlacedTerm& placed;
  const Scope& scope;
  RowSink& sink;

  void operator()(const Full&) { sink.add(0, sink.key_end); }
  void operator()(const Window& t) { sink.add(sink.a - t.left, sink.b + t.right); }
  void operator()(const Dilated& t) {
    add_steps_back(sink, t.d, t.w);
    if (!scope.causal) add_steps_ahead(sink, t.d, t.w);
  }
  void operator()(const Sink& t) { sink.add(0, t.s); }
  void operator()(const GlobalPositions& t) { global(t, sink.key_end); }
  void operator()(const GlobalFirst& t) { global(t, sink.key_end); }
  void operator()(const GlobalLast& t) { global(t, scope.length); }
  void operator()(const GlobalEvery& t) {
    if (t.k == 1) return sink.add(0, sink.key_end);
    if (sink.b == kForever) return sink.add(0, scope.length);
    global(t, sink.key_end);
  }
  void operator()(const GlobalTokens&) {
    // Retention may be asked before the tokens are known: such a row may still come.
    if (sink.b == kForever) return sink.add(0, scope.length);
    throw Error("global(token=…) has no positions yet; resolve it with the tokens first");
  }
  void operator()(const Chunk& t) {
    const std::int64_t end = scope.causal ? sink.b : ((sink.b - 1) / t.c + 1) * t.c;
    sink.add(sink.a / t.c * t.c, end);
  }
  void operator()(const Strided& t) { add_steps_back(sink, t.l, sink.b / t.l + 1); }
  void operator()(const Fixed& t) { add_fixed(sink, t); }
  void operator()(const WindowBlocks& t) {
    add_blocks_back(sink, t.block, t.before);
    if (scope.causal) return;
    const std::int64_t blocks = (sink.b - 1) / t.block + t.after + 1;
    sink.add(sink.b - 1, bounded_product(blocks, t.block));
  }
  void operator()(const VerticalBlocks& t) { add_vertical(sink, t); }
  void operator()(const TopK&) { dynamic(); }
  void operator()(const TopKBlocks&) { dynamic(); }
  void operator()(const Random& t) { add_random(sink, scope, placed, t); }
  void operator()(const RandomBlocks& t) { add_random_blocks(sink, scope, placed, t); }
  void operator()(const ExplicitBlocks& t) { add_listed(sink, scope, *t.list, t.block); }
  void operator()(const ExplicitEdges& t) { add_listed(sink, scope, *t.list, 1); }

 private:
  void global(const Term& t, std::int64_t limit) {
    // Rows to come count: a listed global past the last key still reads every key there is.
    const std::int64_t row_limit = std::min(sink.b, kForever - 1);
    const std::int64_t end = scope.causal ? std::max(limit, row_limit) : limit;
    add_global(sink, scope, global_positions(t, {0, end}, end), placed.columns_only);
  }
  void dynamic() {
    if (scope.every_choice) return sink.add(0, sink.key_end);
    const Term term = stand_in(placed.term);
    std::visit(*this, term);
  }
};

// The first row from `query` on at which a term's description changes; rows up to it read ranges
// whose ends at the query's own position move with the row and whose other ends stand.
struct ChangeVisitor {
  const Topology::PlacedTerm& placed;
  const Scope& scope;
  std::int64_t query;

  std::int64_t operator()(const Full&) const { return kForever; }
  std::int64_t operator()(const Sink& t) const { return scope.causal ? before(t.s) : kForever; }
  std::int64_t operator()(const GlobalFirst& t) const { return before(t.g); }
  std::int64_t operator()(const GlobalLast& t) const { return before(scope.length - t.g); }
  std::int64_t operator()(const GlobalPositions& t) const {
    const auto next = std::lower_bound(t.positions.begin(), t.positions.end(), query);
    if (next == t.positions.end()) return kForever;
    return *next == query ? query + 1 : *next;
  }
  std::int64_t operator()(const GlobalEvery& t) const {
    if (t.k == 1) return kForever;
    const std::int64_t past = floor_div(query - t.offset, t.k) * t.k + t.offset;
    return past == query ? query + 1 : past + t.k;
  }
  std::int64_t operator()(const Chunk& t) const { return boundary(t.c); }
  std::int64_t operator()(const Fixed& t) const { return boundary(t.l); }
  std::int64_t operator()(const WindowBlocks& t) const { return boundary(t.block); }
  std::int64_t operator()(const VerticalBlocks& t) const { return boundary(t.block); }
  std::int64_t operator()(const TopKBlocks& t) const { return boundary(t.block); }
  template <typename Other>
  std::int64_t operator()(const Other&) const {  // irregular: each row for itself
    return query + 1;
  }

 private:
  std::int64_t before(std::int64_t row) const { return query < row ? row : kForever; }
  std::int64_t boundary(std::int64_t size) const { return (query / size + 1) * size; }
};

std::int64_t append_moving_window(const Window& term, const Scope& scope, std::int64_t query,
                                  std::vector<MovingRange>& out) {
  MovingRange moving{{std::max<std::int64_t>(0, query - term.left), query + term.right + 1},
                     query >= term.left,
                     true};
  std::int64_t change = moving.begin_moves ? kForever : term.left;
  if (!scope.causal) {
    const std::int64_t full_end = scope.length - term.right - 1;  // from here the end stands still
    moving.end_moves = query < full_end;
    moving.range.end = std::min(moving.range.end, scope.length);
    if (moving.end_moves) change = std::min(change, full_end);
  }
  out.push_back(moving);
  return change;
}

// Single keys at steps of `d` from the query: `count` of them with its own, to the left;
// bidirectional to both sides.
std::int64_t append_moving_steps(std::int64_t d, std::int64_t count, const Scope& scope,
                                 std::int64_t query, std::vector<MovingRange>& out) {
  const std::int64_t back = std::min(count - 1, query / d);
  require_feasible(back);
  for (std::int64_t m = 0; m <= back; ++m) {
    out.push_back({{query - m * d, query - m * d + 1}, true, true});
  }
  std::int64_t change = back < count - 1 ? (query / d + 1) * d : kForever;
  if (scope.causal) return change;
  const std::int64_t ahead = std::min(count - 1, (scope.length - 1 - query) / d);
  require_feasible(ahead);
  for (std::int64_t m = 1; m <= ahead; ++m) {
    out.push_back({{query + m * d, query + m * d + 1}, true, true});
  }
  return ahead > 0 ? std::min(change, scope.length - ahead * d) : change;
}

// The first pair of an explicit list whose key lies ahead of its query, or nullptr.
const std::pair<std::int64_t, std::int64_t>* first_ahead(const Term& term) {
  const EdgeList* list = nullptr;
  if (const auto* blocks = std::get_if<ExplicitBlocks>(&term)) list = blocks->list.get();
  if (const auto* edges = std::get_if<ExplicitEdges>(&term)) list = edges->list.get();
  if (list == nullptr) return nullptr;
  for (const auto& pair : list->pairs) {
    if (pair.second > pair.first) return &pair;
  }
  return nullptr;
}

}  // namespace

void append_rows(const Topology::PlacedTerm& placed, const Scope& scope, std::int64_t q_begin,
                 std::int64_t q_end, std::vector<Range>& out) {
  RowSink sink(scope, q_begin, q_end, out);
  std::visit(RowVisitor{placed, scope, sink}, placed.term);
}

std::int64_t add_moving(const Topology::PlacedTerm& placed, const Scope& scope, std::int64_t query,
                        MovingRow& row) {
  std::vector<MovingRange>& out = row.ranges;
  if (const auto* window = std::get_if<Window>(&placed.term)) {
    return append_moving_window(*window, scope, query, out);
  }
  if (const auto* topk = std::get_if<TopK>(&placed.term)) {
    return append_moving_window({topk->k - 1, 0}, scope, query, out);
  }
  if (const auto* dilated = std::get_if<Dilated>(&placed.term)) {
    return append_moving_steps(dilated->d, dilated->w, scope, query, out);
  }
  if (const auto* strided = std::get_if<Strided>(&placed.term)) {
    return append_moving_steps(strided->l, query / strided->l + 2, scope, query, out);
  }
  const std::int64_t change = std::visit(ChangeVisitor{placed, scope, query}, placed.term);
  const auto* every = std::get_if<GlobalEvery>(&placed.term);
  if (every != nullptr && !placed.columns_only && query % every->k == every->offset) {
    out.push_back({{0, scope.causal ? query + 1 : scope.length}, false, scope.causal});
    return change;
  }
  if (every != nullptr && row.lattice.end == 0) {
    row.lattice = {every->k, every->offset, scope.causal ? query + 1 : scope.length};
    return change;
  }
  std::vector<Range> ranges;
  append_rows(placed, scope, query, query + 1, ranges);
  for (const Range& range : ranges) {
    out.push_back({range, false, scope.causal && range.end == query + 1});
  }
  return change;
}

std::optional<Topology::Rhythm> rhythm_of(const Term& term) {
  using Rhythm = Topology::Rhythm;
  return std::visit(
      [](const auto& t) -> std::optional<Rhythm> {
        using T = std::decay_t<decltype(t)>;
        if constexpr (std::is_same_v<T, Full>) return Rhythm{1, 0};
        if constexpr (std::is_same_v<T, Window>) return Rhythm{1, t.left + t.right + 1};
        if constexpr (std::is_same_v<T, Dilated>) {
          return Rhythm{1, bounded_product(2 * (t.w - 1), t.d) + 1};
        }
        if constexpr (std::is_same_v<T, Sink>) return Rhythm{1, t.s};
        if constexpr (std::is_same_v<T, GlobalPositions>) {
          return Rhythm{1, t.positions.empty() ? 0 : t.positions.back() + 1};
        }
        if constexpr (std::is_same_v<T, GlobalFirst>) return Rhythm{1, t.g};
        if constexpr (std::is_same_v<T, GlobalLast>) return Rhythm{1, t.g};
        if constexpr (std::is_same_v<T, GlobalEvery>) return Rhythm{t.k, t.offset + 1};
        if constexpr (std::is_same_v<T, Chunk>) return Rhythm{t.c, t.c};
        if constexpr (std::is_same_v<T, Strided>) return Rhythm{t.l, t.l};
        if constexpr (std::is_same_v<T, Fixed>) return Rhythm{t.l, t.l};
        if constexpr (std::is_same_v<T, WindowBlocks>) {
          return Rhythm{t.block, bounded_product(t.before + t.after + 2, t.block)};
        }
        if constexpr (std::is_same_v<T, VerticalBlocks>) {
          return Rhythm{bounded_product(t.block, t.stride),
                        bounded_product(t.block, t.local + t.stride + 1)};
        }
        if constexpr (std::is_same_v<T, TopK>) return Rhythm{1, t.k};
        if constexpr (std::is_same_v<T, TopKBlocks>) {
          return Rhythm{t.block, bounded_product(t.k + 1, t.block)};
        }
        return std::nullopt;
      },
      term);
}

void check_direction(const Term& term, bool causal) {
  const auto refuse = [&](const char* name, const char* instead) {
    throw Error(std::string(name) + " does not exist in a " +
                (causal ? "causal" : "bidirectional") + " table; " + instead);
  };
  if (causal) {
    const auto* window = std::get_if<Window>(&term);
    if (window != nullptr && window->right > 0) {
      refuse("a window that reads ahead", "allowed: window(w), or window(l,0)");
    }
    if (std::holds_alternative<GlobalLast>(term)) {
      refuse("global(last=g)", "allowed: global(first=g), global(every=k), or positions");
    }
    if (const auto* ahead = first_ahead(term)) {
      throw Error("an explicit list lets query " + std::to_string(ahead->first) + " read key " +
                  std::to_string(ahead->second) + " in a causal table; allowed: keys 0.." +
                  std::to_string(ahead->first));
    }
    return;
  }
  if (std::holds_alternative<Strided>(term)) refuse("strided", "allowed: dilated(w,d)");
  if (std::holds_alternative<Fixed>(term)) refuse("fixed", "allowed: chunk(c) + global(every=k)");
  if (std::holds_alternative<VerticalBlocks>(term)) {
    refuse("vertical_blocks", "allowed: window_blocks(before,after,block)");
  }
  if (is_dynamic(term)) refuse("topk", "allowed: terms whose keys are known beforehand");
}

bool is_dynamic(const Term& term) {
  return std::holds_alternative<TopK>(term) || std::holds_alternative<TopKBlocks>(term);
}

Ranges scattered_positions(const Term& term, Range within, std::int64_t length) {
  const auto* every = std::get_if<GlobalEvery>(&term);
  if (every != nullptr && every->k > 1) return global_positions(term, within, length);
  const auto* listed = std::get_if<GlobalPositions>(&term);
  if (listed == nullptr) return {};
  std::vector<Range> alone;
  for (const Range& part : global_positions(term, {0, kForever}, kForever)) {
    if (part.end - part.begin == 1) alone.push_back(part);
  }
  return clip(Ranges(std::move(alone)), {within.begin, std::min(within.end, length)});
}

bool is_global(const Term& term) {
  return std::holds_alternative<GlobalPositions>(term) ||
         std::holds_alternative<GlobalFirst>(term) || std::holds_alternative<GlobalLast>(term) ||
         std::holds_alternative<GlobalEvery>(term) || std::holds_alternative<GlobalTokens>(term);
}

Ranges global_positions(const Term& term, Range within, std::int64_t length) {
  within.begin = std::max<std::int64_t>(within.begin, 0);
  within.end = std::min(within.end, length);
  if (const auto* listed = std::get_if<GlobalPositions>(&term)) {
    std::vector<Range> parts;
    for (std::int64_t p : listed->positions) {
      if (p >= within.begin && p < within.end) parts.push_back({p, p + 1});
    }
    return Ranges(std::move(parts));
  }
  if (const auto* first = std::get_if<GlobalFirst>(&term)) {
    return {{within.begin, std::min(first->g, within.end)}};
  }
  if (const auto* last = std::get_if<GlobalLast>(&term)) {
    return {{std::max(within.begin, length - last->g), within.end}};
  }
  if (const auto* every = std::get_if<GlobalEvery>(&term)) return every_positions(*every, within);
  if (std::holds_alternative<GlobalTokens>(term)) {
    throw Error("global(token=…) has no positions yet; resolve it with the tokens first");
  }
  return {};
}

}  // namespace lacuna

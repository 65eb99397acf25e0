#include "lacuna/topology.h"

#include <algorithm>
#include <string>

#include "lacuna/error.h"
#include "topology/periodic.h"
#include "topology/terms.h"

namespace lacuna {
namespace {

using PlacedTerm = Topology::PlacedTerm;

// Beyond this many range evaluations an exact count would take minutes.
constexpr std::int64_t kMostWork = std::int64_t{1} << 29;

std::shared_ptr<const std::vector<Term>> window_and_global_terms(const Union& attend) {
  auto found = std::make_shared<std::vector<Term>>();
  for (const Term& term : attend) {
    if (std::holds_alternative<Window>(term) || std::holds_alternative<WindowBlocks>(term) ||
        std::holds_alternative<Dilated>(term) || is_global(term)) {
      found->push_back(term);
    }
  }
  return found;
}

PlacedTerm place(const Term& term, const Union& whole, bool causal, int layer, int head) {
  PlacedTerm placed{.term = term, .layer = 0, .head = 0, .outside = nullptr};
  if (const auto* dilated = std::get_if<Dilated>(&term); dilated != nullptr && dilated->d == 1) {
    placed.term = Window{dilated->w - 1, causal ? 0 : dilated->w - 1};
  } else if (const auto* vertical = std::get_if<VerticalBlocks>(&term)) {
    VerticalBlocks resolved = *vertical;
    if (resolved.offset_is_head) {  // block b where (b + head + 1) mod stride = 0
      const std::int64_t phase = (std::int64_t{head} + 1) % resolved.stride;
      resolved.offset = (resolved.stride - phase) % resolved.stride;
      resolved.offset_is_head = false;
    }
    placed.term = resolved;
  } else if (const auto* blocks = std::get_if<RandomBlocks>(&term)) {
    placed.layer = layer;
    placed.head = head;
    if (blocks->outside_window) placed.outside = window_and_global_terms(whole);
  } else if (std::holds_alternative<Random>(term)) {
    placed.layer = layer;
    placed.head = head;
  }
  return placed;
}

void require_rows(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) {
  if (length < 0 || length >= kForever) {
    throw Error("length is " + std::to_string(length) + "; allowed: 0..2^60-1");
  }
  if (q_begin < 0 || q_begin > q_end || q_end > length) {
    throw Error("rows are " + std::to_string(q_begin) + ".." + std::to_string(q_end) +
                "; allowed: an ascending pair inside 0.." + std::to_string(length));
  }
}

// Number of keys in the union of a row, moved on by `step` rows.
std::int64_t union_size(const MovingRow& row, std::int64_t step, std::vector<Range>& scratch) {
  scratch.clear();
  for (const MovingRange& part : row.ranges) {
    scratch.push_back({part.range.begin + (part.begin_moves ? step : 0),
                       part.range.end + (part.end_moves ? step : 0)});
  }
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(scratch.begin(), scratch.end(), by_begin)) {
    std::sort(scratch.begin(), scratch.end(), by_begin);
  }
  const Lattice& lattice = row.lattice;
  std::int64_t size = lattice.count_below(lattice.end);
  std::int64_t reached = std::numeric_limits<std::int64_t>::min();
  for (const Range& part : scratch) {
    const std::int64_t begin = std::max(part.begin, reached);
    if (begin >= part.end) continue;
    size += part.end - begin - (lattice.count_below(part.end) - lattice.count_below(begin));
    reached = part.end;
  }
  return size;
}

// How many rows on a moving end first meets a standing one, or a key of the lattice: until then the
// union's size is linear.
std::int64_t rows_until_meeting(const MovingRow& row, std::vector<std::int64_t>& standing) {
  standing.clear();
  for (const MovingRange& part : row.ranges) {
    if (!part.begin_moves) standing.push_back(part.range.begin);
    if (!part.end_moves) standing.push_back(part.range.end);
  }
  std::sort(standing.begin(), standing.end());
  std::int64_t nearest = kForever;
  const auto meet = [&](std::int64_t moving) {
    const auto ahead = std::upper_bound(standing.begin(), standing.end(), moving);
    if (ahead != standing.end()) nearest = std::min(nearest, *ahead - moving);
    const Lattice& lattice = row.lattice;
    if (moving >= lattice.end) return;
    const std::int64_t steps =
        std::max<std::int64_t>(0, ceil_div(moving - lattice.offset, lattice.k));
    nearest =
        std::min(nearest, std::max<std::int64_t>(1, lattice.offset + steps * lattice.k - moving));
  };
  for (const MovingRange& part : row.ranges) {
    if (part.begin_moves) meet(part.range.begin);
    if (part.end_moves) meet(part.range.end);
  }
  return nearest;
}

// Rows begin .. begin+count-1, of sizes first, first + growth, first + 2 growth, …
struct Run {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t growth = 0;
};

// Visits rows [begin, end) as runs in which the size of a row is linear.
template <typename Visit>
void for_each_run(std::span<const PlacedTerm> terms, const Scope& scope, std::int64_t begin,
                  std::int64_t end, const Visit& visit) {
  MovingRow row;
  std::vector<Range> scratch;
  std::vector<std::int64_t> standing;
  std::int64_t work = 0;
  for (std::int64_t at = begin; at < end;) {
    row.ranges.clear();
    row.lattice = {};
    std::int64_t run_end = end;
    for (const PlacedTerm& placed : terms) {
      run_end = std::min(run_end, add_moving(placed, scope, at, row));
    }
    run_end = std::min(run_end, at + rows_until_meeting(row, standing));
    const std::int64_t first = union_size(row, 0, scratch);
    const std::int64_t growth = run_end - at > 1 ? union_size(row, 1, scratch) - first : 0;
    visit(Run{at, run_end - at, first, growth});
    at = run_end;
    work += static_cast<std::int64_t>(row.ranges.size()) + 1;
    if (work > kMostWork) {
      throw Error(
          "this topology has no closed form that can be counted over rows " +
          std::to_string(begin) + ".." + std::to_string(end) +
          "; allowed: shorter lengths, or terms whose periods have a small common multiple");
    }
  }
}

Int128 sum_of_rows(std::span<const PlacedTerm> terms, const Scope& scope, std::int64_t begin,
                   std::int64_t end) {
  Int128 sum = 0;
  for_each_run(terms, scope, begin, end, [&](const Run& run) {
    const Int128 count = run.count;
    sum = checked_add(sum, checked_add(checked_mul(run.first, count),
                                       checked_mul(run.growth, count * (count - 1) / 2)));
  });
  return sum;
}

bool depends_on_head(const Term& term) {
  const auto* vertical = std::get_if<VerticalBlocks>(&term);
  return std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term) ||
         (vertical != nullptr && vertical->offset_is_head);
}

}  // namespace

Topology::Topology(const Union& attend, bool causal, int layer, int head) : causal_(causal) {
  if (attend.empty()) throw Error("a topology needs at least one term");
  auto terms = std::make_shared<std::vector<PlacedTerm>>();
  for (const Term& term : attend) {
    check_direction(term, causal);
    PlacedTerm placed = place(term, attend, causal, layer, head);
    if (std::find(terms->begin(), terms->end(), placed) == terms->end()) {
      terms->push_back(std::move(placed));
    }
  }
  terms_ = std::move(terms);
}

Topology::Topology(bool causal, std::vector<PlacedTerm> terms)
    : causal_(causal), terms_(std::make_shared<const std::vector<PlacedTerm>>(std::move(terms))) {}

Topology Topology::merged(std::span<const Topology> parts) {
  if (parts.empty()) throw Error("merged() needs at least one topology");
  std::vector<PlacedTerm> terms;
  for (const Topology& part : parts) {
    if (part.causal_ != parts.front().causal_) {
      throw Error("merged() got a causal and a bidirectional topology; allowed: one direction");
    }
    for (const PlacedTerm& placed : *part.terms_) {
      if (std::find(terms.begin(), terms.end(), placed) == terms.end()) terms.push_back(placed);
    }
  }
  return Topology(parts.front().causal_, std::move(terms));
}

std::span<const Topology::PlacedTerm> Topology::terms() const { return *terms_; }

bool operator==(const Topology& a, const Topology& b) {
  return a.causal_ == b.causal_ && *a.terms_ == *b.terms_;
}

bool Topology::dynamic() const {
  return std::any_of(terms_->begin(), terms_->end(),
                     [](const PlacedTerm& placed) { return is_dynamic(placed.term); });
}

bool Topology::irregular() const { return !rhythm().has_value(); }

Ranges Topology::row(std::int64_t query, std::int64_t length) const {
  require_rows(query, query + 1, length);
  return rows(query, query + 1, length);
}

bool Topology::visible(std::int64_t query, std::int64_t key, std::int64_t length) const {
  if (key < 0 || key >= length) {
    throw Error("key is " + std::to_string(key) + "; allowed: 0.." + std::to_string(length - 1));
  }
  return row(query, length).contains(key);
}

Ranges Topology::rows(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const {
  require_rows(q_begin, q_end, length);
  std::vector<Range> parts;
  if (q_begin == q_end) return {};
  const Scope scope{causal_, length, false};
  for (const PlacedTerm& placed : *terms_) append_rows(placed, scope, q_begin, q_end, parts);
  return Ranges(std::move(parts));
}

Ranges Topology::may_read(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const {
  require_rows(q_begin, q_end, length);
  std::vector<Range> parts;
  if (q_begin == q_end) return {};
  const Scope scope{causal_, length, true};
  for (const PlacedTerm& placed : *terms_) append_rows(placed, scope, q_begin, q_end, parts);
  return Ranges(std::move(parts));
}

KeyRanges Topology::key_ranges(std::int64_t q_begin, std::int64_t q_end,
                               std::int64_t length) const {
  require_rows(q_begin, q_end, length);
  KeyRanges result;
  for (std::int64_t query = q_begin; query < q_end; ++query) {
    result.append_row(rows(query, query + 1, length));
  }
  return result;
}

Int128 Topology::edges(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const {
  require_rows(q_begin, q_end, length);
  // A causal row does not depend on what follows it; the base periods may lie past the segment.
  const Scope scope{causal_, causal_ ? kForever : length, false};
  return periodic_sum<Int128>({q_begin, q_end}, regular_zone(*this, length),
                              [&](std::int64_t begin, std::int64_t end) {
                                return sum_of_rows(*terms_, scope, begin, end);
                              });
}

std::int64_t Topology::largest_row(std::int64_t length) const {
  require_rows(0, length, length);
  const Scope scope{causal_, length, false};
  std::int64_t largest = 0;
  const auto walk = [&](std::int64_t begin, std::int64_t end) {
    for_each_run(*terms_, scope, begin, end, [&](const Run& run) {
      largest = std::max({largest, run.first, run.first + run.growth * (run.count - 1)});
    });
  };
  const std::optional<RegularZone> zone = regular_zone(*this, length);
  if (!zone) require_countable({0, length});
  const std::int64_t zone_end = zone ? std::min(zone->rows.end, length) : 0;
  if (!zone || zone_end - zone->rows.begin < 3 * zone->period) {
    walk(0, length);
    return largest;
  }
  walk(0, zone->rows.begin);
  walk(zone_end, length);
  // In the zone rows grow by a fixed number of keys a period, so the zone's last period holds the
  // longest: at an end of one of the runs that its first period shows.
  const std::int64_t base = zone->rows.begin + (zone_end - zone->rows.begin) % zone->period;
  const std::int64_t last = zone_end - zone->period;
  for_each_run(*terms_, scope, base, base + zone->period, [&](const Run& run) {
    for (const std::int64_t row : {run.begin, run.begin + run.count - 1}) {
      const std::int64_t there = last + (row - base);
      largest = std::max(largest, to_int64(edges(there, there + 1, length), "a row's size"));
    }
  });
  return largest;
}

Ranges Topology::retained(std::int64_t first_query, std::int64_t length) const {
  if (!causal_) throw Error("a bidirectional table keeps no KV: retention is asked of causal ones");
  require_rows(first_query, length, length);
  std::vector<Range> parts;
  const Scope scope{true, length, true};
  for (const PlacedTerm& placed : *terms_) append_rows(placed, scope, first_query, kForever, parts);
  return Ranges(std::move(parts));
}

std::optional<Topology::Rhythm> Topology::rhythm() const {
  std::optional<std::int64_t> period = 1;
  std::int64_t regular_from = 0;
  for (const PlacedTerm& placed : *terms_) {
    const std::optional<Rhythm> part = rhythm_of(placed.term);
    if (!part) return std::nullopt;
    period = common_period(period, part->period);
    if (!period || part->regular_from > kForever / 4 - regular_from) return std::nullopt;
    regular_from += part->regular_from;
  }
  return Rhythm{*period, regular_from};
}

std::optional<RegularZone> regular_zone(const Topology& topology, std::int64_t length) {
  const std::optional<Topology::Rhythm> beat = topology.rhythm();
  if (!beat) return std::nullopt;
  const std::int64_t end = topology.causal() ? kForever : length - beat->regular_from;
  return RegularZone{beat->period, {beat->regular_from, end}};
}

void require_countable(Range rows) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 26;
  if (rows.end - rows.begin > kMostRows) {
    throw Error("random and explicit terms are counted row by row, and rows " +
                std::to_string(rows.begin) + ".." + std::to_string(rows.end) +
                " are too many; allowed: up to 67108864 rows");
  }
}

Ranges Topology::scattered_globals(Range within, std::int64_t length) const {
  Ranges all;
  for (const PlacedTerm& placed : *terms_) {
    if (!placed.columns_only) all = unite(all, scattered_positions(placed.term, within, length));
  }
  return all;
}

std::int64_t Topology::num_scattered_globals(std::int64_t length) const {
  const GlobalEvery* lattice = nullptr;
  std::vector<Range> listed;
  for (const PlacedTerm& placed : *terms_) {
    if (placed.columns_only) continue;
    const auto* every = std::get_if<GlobalEvery>(&placed.term);
    if (every == nullptr || every->k == 1) {
      const Ranges found = scattered_positions(placed.term, {0, length}, length);
      listed.insert(listed.end(), found.begin(), found.end());
    } else if (lattice == nullptr) {
      lattice = every;
    } else {  // two lattices: where they meet is counted by listing them
      return scattered_globals({0, length}, length).size();
    }
  }
  const Ranges others(std::move(listed));
  if (lattice == nullptr) return others.size();
  std::int64_t count = Lattice{lattice->k, lattice->offset, length}.count_below(length);
  for (const Range& part : others) {
    for (std::int64_t p = part.begin; p < part.end; ++p) {
      if (p % lattice->k != lattice->offset) ++count;
    }
  }
  return count;
}

Ranges Topology::global_rows(std::int64_t q_begin, std::int64_t q_end, std::int64_t length) const {
  require_rows(q_begin, q_end, length);
  Ranges all;
  for (const PlacedTerm& placed : *terms_) {
    if (!is_global(placed.term) || placed.columns_only) continue;
    all = unite(all, global_positions(placed.term, {q_begin, q_end}, causal_ ? q_end : length));
  }
  return all;
}

Topology Topology::without_globals() const {
  std::vector<PlacedTerm> kept;
  for (const PlacedTerm& placed : *terms_) {
    PlacedTerm column = placed;
    column.columns_only = is_global(placed.term);
    if (auto* listed = std::get_if<GlobalPositions>(&column.term)) {
      const Ranges scattered = scattered_positions(placed.term, {0, kForever}, kForever);
      std::erase_if(listed->positions, [&](std::int64_t p) { return scattered.contains(p); });
      if (listed->positions.empty()) continue;
    }
    const auto* every = std::get_if<GlobalEvery>(&placed.term);
    if (every != nullptr && every->k > 1) continue;
    kept.push_back(std::move(column));
  }
  return Topology(causal_, std::move(kept));
}

Int128 legal_pairs(bool causal, std::int64_t q_begin, std::int64_t q_end, std::int64_t length) {
  require_rows(q_begin, q_end, length);
  const Int128 rows = q_end - q_begin;
  if (!causal) return checked_mul(rows, length);
  return rows * (Int128{q_begin} + q_end + 1) / 2;
}

LayerTopology::LayerTopology(const Layer& layer, bool causal, int layer_idx, int num_q_heads,
                             int num_kv_heads) {
  if (num_q_heads < 1 || num_kv_heads < 1 || num_q_heads % num_kv_heads != 0) {
    throw Error("layer " + std::to_string(layer_idx) + " has " + std::to_string(num_q_heads) +
                " query heads and " + std::to_string(num_kv_heads) +
                " KV heads; allowed: query heads a multiple of KV heads");
  }
  if (layer.attend.groups.empty()) return;
  const auto count_into = [](std::vector<Class>& classes, Topology topology, int count) {
    for (Class& known : classes) {
      if (known.topology == topology) {
        known.count += count;
        return;
      }
    }
    classes.push_back({std::move(topology), count});
  };
  const auto attend_of = [&](int head) -> const Union& {
    for (const HeadGroup& group : layer.attend.groups) {
      if (group.heads.empty() || std::ranges::binary_search(group.heads, std::int64_t{head})) {
        return group.attend;
      }
    }
    throw Error("layer " + std::to_string(layer_idx) + " names no topology for query head " +
                std::to_string(head) + "; allowed: every head 0.." +
                std::to_string(num_q_heads - 1) + " in exactly one group");
  };
  const bool alike = layer.attend.groups.size() == 1 &&
                     std::ranges::none_of(layer.attend.groups.front().attend, depends_on_head);
  if (alike) {  // the usual case: one topology, whatever the number of heads
    const Topology topology(attend_of(0), causal, layer_idx, 0);
    q_heads_.push_back({topology, num_q_heads});
    kv_heads_.push_back({topology, num_kv_heads});
    return;
  }
  const int group_size = num_q_heads / num_kv_heads;
  for (int kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
    std::vector<Topology> read_for;
    for (int head = kv_head * group_size; head < (kv_head + 1) * group_size; ++head) {
      read_for.emplace_back(attend_of(head), causal, layer_idx, head);
      count_into(q_heads_, read_for.back(), 1);
    }
    count_into(kv_heads_, Topology::merged(read_for), 1);
  }
}

std::vector<Topology> topologies_of_heads(const Layer& layer, bool causal, int layer_idx,
                                          int num_q_heads) {
  const LayerTopology all(layer, causal, layer_idx, num_q_heads, 1);
  if (all.uniform()) return {all.q_heads().front().topology};
  std::vector<Topology> each;
  for (int head = 0; head < num_q_heads; ++head) {
    for (const HeadGroup& group : layer.attend.groups) {
      if (!group.heads.empty() && !std::ranges::binary_search(group.heads, head)) continue;
      each.emplace_back(group.attend, causal, layer_idx, head);
    }
  }
  return each;
}

}  // namespace lacuna

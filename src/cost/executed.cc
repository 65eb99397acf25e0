#include "lacuna/executed.h"

#include <algorithm>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/tiles.h"
#include "topology/periodic.h"

namespace lacuna {
namespace {

Executed one_tile(std::int64_t num_rows, std::int64_t num_key_tiles, std::int64_t tile_k) {
  const Int128 keys = Int128{num_key_tiles} * tile_k;
  return {keys * num_rows, keys};
}

// Counts one head's query tiles of ordinary rows; the global rows are counted apart.
class OrdinaryTiles {
 public:
  OrdinaryTiles(const Topology& topology, std::int64_t length, Tile tile)
      : topology_(topology), rest_(topology.without_globals()), length_(length), tile_(tile) {}

  Executed sum(std::int64_t begin, std::int64_t end) const {
    Executed total;
    for (std::int64_t q = begin; q < end; q += tile_.q) {
      total = total + tile({q, std::min(q + tile_.q, end)});
    }
    return total;
  }

 private:
  Executed tile(Range q_rows) const {
    const Ranges rows =
        subtract(Ranges{q_rows}, topology_.global_rows(q_rows.begin, q_rows.end, length_));
    if (rows.empty()) return {};
    Ranges keys;
    for (const Range& part : rows) keys = unite(keys, rest_.rows(part.begin, part.end, length_));
    const std::int64_t num_tiles = tiles_touched(keys, tile_.k).size();
    return one_tile(rows.size(), num_tiles + num_panels(rows, keys), tile_.k);
  }

  // Panels of gathered globals that some row reads a key of and does not find in its own ranges:
  // all panels but those whose every key each row that may read it finds there.
  std::int64_t num_panels(const Ranges& rows, const Ranges& keys) const {
    const std::int64_t key_end = topology_.causal() ? rows.back() + 1 : length_;
    const std::int64_t num_keys = topology_.num_scattered_globals(key_end);
    if (num_keys == 0) return 0;
    const Ranges found = found_by_all(rows, keys, key_end);
    std::int64_t panels = ceil_div(num_keys, tile_.k);
    std::int64_t last_panel = -1;
    std::int64_t found_in_panel = 0;
    for (const Range& part : found) {
      for (std::int64_t key = part.begin; key < part.end; ++key) {
        const std::int64_t panel = topology_.num_scattered_globals(key) / tile_.k;
        found_in_panel = panel == last_panel ? found_in_panel + 1 : 1;
        last_panel = panel;
        if (found_in_panel == std::min(tile_.k, num_keys - panel * tile_.k)) --panels;
      }
    }
    return panels;
  }

  // Scattered globals that every row which may read them has among its own ranges.
  Ranges found_by_all(const Ranges& rows, const Ranges& keys, std::int64_t key_end) const {
    std::vector<Range> found;
    Ranges common;
    for (const Range& part : keys) {
      for (const Range& one : topology_.scattered_globals(part, key_end)) {
        if (common.empty()) common = common_keys(rows);
        for (std::int64_t key = one.begin; key < one.end; ++key) {
          if (common.contains(key) || found_by_later_rows(key, rows))
            found.push_back({key, key + 1});
        }
      }
    }
    return Ranges(std::move(found));
  }

  // Keys that every row has among its own ranges.
  Ranges common_keys(const Ranges& rows) const {
    Ranges common = rest_.row(rows.front(), length_);
    for (const Range& part : rows) {
      for (std::int64_t row = part.begin; row < part.end && !common.empty(); ++row) {
        common = intersect(common, rest_.row(row, length_));
      }
    }
    return common;
  }

  // Causal rows before a key do not read it; do all others have it among their own ranges?
  bool found_by_later_rows(std::int64_t key, const Ranges& rows) const {
    if (!topology_.causal() || key <= rows.front()) return false;
    for (const Range& part : rows) {
      for (std::int64_t row = std::max(part.begin, key); row < part.end; ++row) {
        if (!rest_.row(row, length_).contains(key)) return false;
      }
    }
    return true;
  }

  const Topology& topology_;
  const Topology rest_;
  const std::int64_t length_;
  const Tile tile_;
};

// Global rows read all they may, and share tiles only among themselves, tile.q at a time.
Executed global_tiles(const Topology& topology, Range rows, std::int64_t length, Tile tile) {
  constexpr std::int64_t kSlab = std::int64_t{1} << 20;  // bounds the memory of one look
  Executed total;
  std::int64_t pending = 0;
  std::int64_t last_row = -1;
  const auto flush = [&] {
    const std::int64_t key_end = topology.causal() ? last_row + 1 : length;
    if (pending > 0) total = total + one_tile(pending, ceil_div(key_end, tile.k), tile.k);
    pending = 0;
  };
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += kSlab) {
    const std::int64_t end = std::min(begin + kSlab, rows.end);
    for (const Range& part : topology.global_rows(begin, end, length)) {
      for (std::int64_t row = part.begin; row < part.end; ++row) {
        last_row = row;
        if (++pending == tile.q) flush();
      }
    }
  }
  flush();
  return total;
}

// The zone in which tiles repeat; gathered keys fill whole panels in each period.
std::optional<RegularZone> executed_zone(const Topology& topology, std::int64_t length, Tile tile) {
  std::optional<RegularZone> zone = regular_zone(topology, length, tile);
  if (!zone) return zone;
  for (const Topology::PlacedTerm& placed : topology.terms()) {
    const auto* every = std::get_if<GlobalEvery>(&placed.term);
    if (every == nullptr || every->k == 1) continue;
    constexpr std::int64_t kLongestStep = std::int64_t{1}
                                          << 32;  // its product with a tile side fits
    if (every->k > kLongestStep) return std::nullopt;
    const auto period = common_period(zone->period, every->k * tile.k);
    if (!period) return std::nullopt;
    zone->period = *period;
  }
  return zone;
}

bool has_global_rows(const Topology& topology) {
  return std::ranges::any_of(topology.terms(), [](const Topology::PlacedTerm& placed) {
    return is_global(placed.term) && !placed.columns_only;
  });
}

}  // namespace

Executed executed(const Topology& topology, Range rows, std::int64_t length, Tile tile) {
  require_tiles(rows, length, tile);
  // A causal row does not depend on what follows it; the base periods may lie past the segment.
  const OrdinaryTiles ordinary(topology, topology.causal() ? kForever - 1 : length, tile);
  Executed total = periodic_sum<Executed>(
      rows, executed_zone(topology, length, tile),
      [&](std::int64_t begin, std::int64_t end) { return ordinary.sum(begin, end); });
  if (has_global_rows(topology)) total = total + global_tiles(topology, rows, length, tile);
  return total;
}

}  // namespace lacuna

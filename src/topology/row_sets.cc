#include "topology/row_sets.h"

#include <algorithm>
#include <map>

namespace lacuna {
namespace {

Topology::PlacedTerm placed_as(const Topology::PlacedTerm& like, Term term) {
  Topology::PlacedTerm placed = like;
  placed.term = std::move(term);
  return placed;
}

void append_parts(const Topology::PlacedTerm& placed, const Scope& scope,
                  std::span<const Range> parts, std::vector<Range>& out) {
  for (const Range& part : parts) append_rows(placed, scope, part.begin, part.end, out);
}

// A term whose far keys only grow with the row: the last part's keys in full, of the others only
// the near ones, which `near` reads.
void append_last_and_near(const Topology::PlacedTerm& placed, const Scope& scope,
                          const Ranges& rows, Term near, std::vector<Range>& out) {
  append_parts(placed, scope, rows.parts().last(1), out);
  append_parts(placed_as(placed, std::move(near)), scope,
               rows.parts().first(rows.parts().size() - 1), out);
}

Ranges shifted(const Ranges& rows, std::int64_t by, const Scope& scope) {
  std::vector<Range> parts;
  for (const Range& part : rows) {
    parts.push_back(
        {std::max<std::int64_t>(part.begin + by, 0), std::min(part.end + by, scope.length)});
  }
  return Ranges(std::move(parts));
}

// rows, rows + step, …, rows + (count-1)·step, in about log2(count) unions.
Ranges repeated(const Ranges& rows, std::int64_t step, std::int64_t count, const Scope& scope) {
  Ranges all = rows;
  for (std::int64_t have = 1; have < count && have <= scope.length;) {
    const std::int64_t more = std::min(have, count - have);
    all = unite(all, shifted(all, more * step, scope));
    have += more;
  }
  return all;
}

void append_dilated(const Dilated& term, const Scope& scope, const Ranges& rows,
                    std::vector<Range>& out) {
  // Steps past the segment's ends read nothing, and must not overflow.
  const std::int64_t count = std::min(term.w, scope.length / term.d + 1);
  const auto append = [&](const Ranges& keys) { out.insert(out.end(), keys.begin(), keys.end()); };
  append(repeated(rows, -term.d, count, scope));
  if (!scope.causal) append(repeated(rows, term.d, count, scope));
}

// Of the rows with one residue the last reads what the others do.
void append_strided(const Topology::PlacedTerm& placed, std::int64_t l, const Scope& scope,
                    const Ranges& rows, std::vector<Range>& out) {
  std::map<std::int64_t, std::int64_t> last_of_residue;
  for (const Range& part : rows) {
    if (part.end - part.begin >= l) {  // every residue: nothing below is left out
      out.push_back({0, part.end});
      last_of_residue.clear();
      continue;
    }
    for (std::int64_t row = part.begin; row < part.end; ++row) last_of_residue[row % l] = row;
  }
  for (const auto& [residue, row] : last_of_residue) append_rows(placed, scope, row, row + 1, out);
}

void append_global(const Topology::PlacedTerm& placed, const Scope& scope, const Ranges& rows,
                   std::vector<Range>& out) {
  append_parts(placed, scope, rows.parts().last(1), out);
  if (placed.columns_only) return;
  // The last global row among the others; the columns below the last part are in already.
  for (std::size_t p = rows.parts().size(); p-- > 0;) {
    const Range part = rows.parts()[p];
    const Ranges found =
        global_positions(placed.term, part, scope.causal ? part.end : scope.length);
    if (found.empty()) continue;
    out.push_back({0, scope.causal ? found.back() + 1 : scope.length});
    return;
  }
}

}  // namespace

void append_read_by(const Topology::PlacedTerm& placed, const Scope& scope, const Ranges& rows,
                    std::vector<Range>& out) {
  if (rows.empty()) return;
  const Term& term = placed.term;
  if (std::holds_alternative<Full>(term) || std::holds_alternative<Sink>(term)) {
    return append_parts(placed, scope, rows.parts().last(1), out);
  }
  if (const auto* dilated = std::get_if<Dilated>(&term)) {
    return append_dilated(*dilated, scope, rows, out);
  }
  if (const auto* strided = std::get_if<Strided>(&term)) {
    return append_strided(placed, strided->l, scope, rows, out);
  }
  if (const auto* fixed = std::get_if<Fixed>(&term)) {
    return append_last_and_near(placed, scope, rows, Chunk{fixed->l}, out);
  }
  if (const auto* vertical = std::get_if<VerticalBlocks>(&term)) {
    return append_last_and_near(placed, scope, rows,
                                WindowBlocks{vertical->local - 1, 0, vertical->block}, out);
  }
  if (is_global(term)) return append_global(placed, scope, rows, out);
  append_parts(placed, scope, rows.parts(), out);
}

}  // namespace lacuna

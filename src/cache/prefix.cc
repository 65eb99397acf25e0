#include "lacuna/prefix.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_cache.h"

namespace lacuna {
namespace {

constexpr PageId kNull = KvView::kNullPage;

// Slots of the last column of `length` tokens from the first position of `of` in it to the end.
Range last_slots_of(const Ranges& of, std::int64_t length, std::int64_t page_size) {
  const std::int64_t first = (length - 1) / page_size * page_size;
  const Ranges here = clip(of, {first, length});
  if (here.empty()) return {};
  return {here.front() - first, length - first};
}

// Of the path, pages with any position of `needed` below `length`.
std::vector<PrefixIndex::EntryList::iterator> pages_with(KvCache::State& state,
                                                         const PrefixIndex::Path& path,
                                                         std::span<const Ranges> needed,
                                                         std::int64_t length) {
  const std::int64_t page_size = state.shape.page_size;
  const auto none = state.prefixes.none();
  std::vector<PrefixIndex::EntryList::iterator> pages(path.pages.size(), none);
  for (std::size_t table = 0; table < needed.size(); ++table) {
    for (const Range& part : clip(needed[table], {0, length})) {
      for (std::int64_t column = part.begin / page_size; column * page_size < part.end; ++column) {
        const std::size_t place = static_cast<std::size_t>(column) * needed.size() + table;
        const std::int64_t first = column * page_size;
        const std::int64_t begin = std::max(part.begin, first);
        const auto page = path.pages[place];
        const Range held = page == none ? Range{} : page->held.slots;
        std::int64_t there = begin;  // the first position that is not
        // A page that ends early would leave a hole: what is behind its end counts as held then.
        const bool whole = first + held.end >= std::min(length, first + page_size);
        if (whole && first + held.begin <= begin) there = std::max(begin, first + held.end);
        if (there < std::min(part.end, first + page_size)) {
          throw Error(
              fmt::format("a prefix of {} tokens cannot be adopted: layer {} no longer holds "
                          "position {}",
                          length, state.tables[table].layer_idx, there));
        }
        pages[place] = page;
      }
    }
  }
  return pages;
}

}  // namespace

std::int64_t hit_length(const PrefixMatch& match, const Retention& retention,
                        std::int64_t num_tokens) {
  const std::int64_t most = std::max<std::int64_t>(0, num_tokens - 1);
  return retention.longest_prefix(match.present, std::min(match.matched, most), match.short_pages);
}

void KvCache::publish(SequenceId sequence, std::string_view identity,
                      std::span<const std::int32_t> tokens, double seconds) {
  const Sequence& of = state_->idle_sequence(sequence);
  if (std::ssize(tokens) != of.length) {
    throw Error(fmt::format("tokens are {}; allowed: as many as sequence {} has, {}", tokens.size(),
                            sequence, of.length));
  }
  const std::int64_t page_size = state_->shape.page_size;
  std::vector<HeldPage> pages;
  for (std::int64_t column = 0; column * page_size < of.length; ++column) {
    const std::int64_t end = std::min(page_size, of.length - column * page_size);
    for (const std::vector<PageId>& columns : of.tables) {
      const PageId page = columns[static_cast<std::size_t>(column)];
      pages.push_back({page, {page == kNull ? 0 : state_->first_slot(page), end}});
    }
  }
  state_->prefixes.publish(identity, tokens, pages, seconds);
}

PrefixMatch KvCache::match(std::string_view identity, std::span<const std::int32_t> tokens) {
  PrefixIndex& index = state_->prefixes;
  const PrefixIndex::Path path = index.find(identity, tokens, {});
  ++index.statistics().lookups;
  const std::size_t num_tables = state_->tables.size();
  const std::int64_t page_size = state_->shape.page_size;
  PrefixMatch result = {path.matched, {}, std::vector<std::vector<Range>>(num_tables)};
  for (std::size_t table = 0; table < num_tables; ++table) {
    std::vector<Range> parts;
    std::int64_t first = 0;
    for (std::size_t place = table; place < path.pages.size(); place += num_tables) {
      if (path.pages[place] != index.none()) {
        const Range slots = path.pages[place]->held.slots;
        parts.push_back({first + slots.begin, std::min(first + slots.end, path.matched)});
        const bool whole = first + slots.end >= std::min(path.matched, first + page_size);
        if (!whole) result.short_pages[table].push_back(parts.back());
      }
      first += page_size;
    }
    result.present.emplace_back(std::move(parts));
  }
  return result;
}

SequenceId KvCache::adopt(std::string_view identity, std::span<const std::int32_t> tokens,
                          std::span<const Ranges> needed) {
  state_->check_ranges(needed, "needed");
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::int64_t page_size = state_->shape.page_size;
  const std::int64_t num_columns = ceil_div(length, page_size);
  const std::size_t num_tables = needed.size();
  std::vector<Range> last_slots;
  for (const Ranges& of : needed) last_slots.push_back(last_slots_of(of, length, page_size));
  PrefixIndex& index = state_->prefixes;
  const PrefixIndex::Path path = index.find(identity, tokens, last_slots);
  if (path.matched < length) {
    throw Error(fmt::format("tokens are {}; allowed: the first {}, which were published", length,
                            path.matched));
  }
  const std::vector<PrefixIndex::EntryList::iterator> shared =
      pages_with(*state_, path, needed, length);
  Sequence sequence;
  sequence.length = length;
  sequence.tables.assign(num_tables,
                         std::vector<PageId>(static_cast<std::size_t>(num_columns), kNull));
  index.tick();
  for (std::size_t place = shared.size(); place-- > 0;) {
    if (shared[place] == index.none()) continue;
    const PageId page = shared[place]->held.page;
    state_->pool.share(page);
    index.touch(shared[place]);
    sequence.tables[place % num_tables][place / num_tables] = page;
  }
  if (length > 0) ++index.statistics().hits;
  index.statistics().saved_tokens += length;
  return state_->add(std::move(sequence));
}

void KvCache::clear_prefixes() { state_->prefixes.clear(); }

PrefixStatistics KvCache::prefix_statistics() const {
  return state_->prefixes.current_statistics();
}

void KvCache::for_each_published(const std::function<void(PageId)>& visit) const {
  state_->prefixes.for_each_page(visit);
}

}  // namespace lacuna

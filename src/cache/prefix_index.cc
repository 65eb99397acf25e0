#include "cache/prefix_index.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lacuna/integer.h"

namespace lacuna {
namespace {

std::int64_t common_tokens(PrefixIndex::Tokens a, PrefixIndex::Tokens b) {
  const std::size_t count = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin()).first -
         a.begin();
}

bool covers(Range outer, Range inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

std::int64_t overlap(Range a, Range b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

}  // namespace

PrefixIndex::Tokens PrefixIndex::ByTokens::tokens_of(const Node* node) { return node->tokens; }

bool PrefixIndex::ByTokens::less(Tokens a, Tokens b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixIndex::PrefixIndex(PagePool& pool, std::int64_t page_size, std::vector<int> size_classes)
    : pool_(pool), page_size_(page_size), size_classes_(std::move(size_classes)) {}

PrefixIndex::Node& PrefixIndex::add_node(Node* parent, Tokens tokens) {
  Node& node = nodes_.emplace_back();
  node.parent = parent;
  if (parent != nullptr) node.column = parent->column + 1;
  node.tokens.assign(tokens.begin(), tokens.end());
  node.pages.assign(size_classes_.size(), entries_.end());
  node.self = std::prev(nodes_.end());
  if (parent != nullptr) parent->children.insert(&node);
  return node;
}

PrefixIndex::Node& PrefixIndex::root(std::string_view identity) {
  const auto found = roots_.find(identity);
  if (found != roots_.end()) return *found->second;
  Node& node = add_node(nullptr, {});
  node.identity = identity;
  roots_.emplace(identity, &node);
  return node;
}

// A node whose tokens begin with these, or that grows to them: what it held stays true. Growing
// keeps the order of siblings, since none of them lies between a beginning and what continues it.
PrefixIndex::Node& PrefixIndex::child(Node& parent, Tokens tokens) {
  const auto after = parent.children.lower_bound(tokens);
  const std::int64_t count = std::ssize(tokens);
  if (after != parent.children.end() && common_tokens((*after)->tokens, tokens) == count) {
    return **after;
  }
  if (after != parent.children.begin()) {
    Node& before = **std::prev(after);
    const std::int64_t old_count = std::ssize(before.tokens);
    if (common_tokens(before.tokens, tokens) == old_count) {
      before.tokens.assign(tokens.begin(), tokens.end());
      statistics_.built_tokens += count - old_count;
      return before;
    }
  }
  statistics_.built_tokens += count;
  return add_node(&parent, tokens);
}

// The first page stays, unless a new one holds more of the same tokens.
void PrefixIndex::add_page(Node& node, std::size_t table, const HeldPage& held) {
  const auto known = entry_of_page_.find(held.page);
  if (known != entry_of_page_.end()) {
    Entry& entry = *known->second;
    if (covers(entry.held.slots, held.slots)) return touch(known->second);
    if (entry.node == &node) {
      entry.held.slots = held.slots;
      return touch(known->second);
    }
    Node* const other = entry.node;
    remove(known->second);
    prune(other);
  }
  const EntryList::iterator old = node.pages[table];
  if (old != entries_.end()) {
    if (covers(old->held.slots, held.slots) || !covers(held.slots, old->held.slots)) {
      return touch(old);
    }
    remove(old);
  }
  pool_.share(held.page);
  node.pages[table] = entries_.insert(entries_.end(), {held, &node, table, clock_});
  entry_of_page_.emplace(held.page, node.pages[table]);
  ++node.num_pages;
  ++statistics_.published_pages;
  statistics_.built_bytes += pool_.page_bytes(size_classes_[table]);
}

void PrefixIndex::publish(std::string_view identity, Tokens tokens, std::span<const HeldPage> pages,
                          double seconds) {
  tick();
  const std::int64_t old_tokens = statistics_.built_tokens;
  const std::size_t num_tables = size_classes_.size();
  std::vector<Node*> path = {&root(identity)};
  for (std::size_t column = 0; column * num_tables < pages.size(); ++column) {
    const std::size_t first = column * static_cast<std::size_t>(page_size_);
    path.push_back(&child(*path.back(),
                          tokens.subspan(first, std::min(tokens.size() - first,
                                                         static_cast<std::size_t>(page_size_)))));
  }
  for (std::size_t column = path.size() - 1; column-- > 0;) {
    Node& node = *path[column + 1];
    for (std::size_t table = 0; table < num_tables; ++table) {
      const HeldPage& held = pages[column * num_tables + table];
      if (held.page != KvView::kNullPage) add_page(node, table, held);
    }
  }
  if (statistics_.built_tokens > old_tokens) statistics_.built_seconds += seconds;
  prune(path.back());
}

// The best page of each table among siblings.
struct PrefixIndex::Choice {
  std::span<EntryList::iterator> pages;  // [tables]
  std::span<const Range> wanted;
  std::int64_t common;
  EntryList::iterator none;
  std::vector<std::int64_t> held = std::vector<std::int64_t>(pages.size(), 0);
  std::size_t num_complete = 0;

  Range wanted_slots(std::size_t table) const {
    const Range all = {0, common};
    return wanted.empty() ? all : Range{wanted[table].begin, std::min(wanted[table].end, common)};
  }
  bool complete() const { return num_complete == pages.size(); }

  void look_at(const Node& node) {
    num_complete = 0;
    for (std::size_t table = 0; table < pages.size(); ++table) {
      const Range slots = wanted_slots(table);
      if (node.pages[table] != none) {
        const std::int64_t here = overlap(node.pages[table]->held.slots, slots);
        if (here > held[table]) {
          held[table] = here;
          pages[table] = node.pages[table];
        }
      }
      if (held[table] >= slots.end - slots.begin) ++num_complete;
    }
  }
};

PrefixIndex::Path PrefixIndex::find(std::string_view identity, Tokens tokens,
                                    std::span<const Range> wanted) {
  Path path;
  const auto found = roots_.find(identity);
  const Node* parent = found == roots_.end() ? nullptr : found->second;
  while (parent != nullptr && path.matched < std::ssize(tokens)) {
    const auto rest = tokens.subspan(static_cast<std::size_t>(path.matched));
    const Tokens part = rest.first(std::min(rest.size(), static_cast<std::size_t>(page_size_)));
    const Siblings& siblings = parent->children;
    const auto common_with = [&](auto sibling) { return common_tokens((*sibling)->tokens, part); };
    const auto after = siblings.lower_bound(part);
    std::int64_t common = after == siblings.end() ? 0 : common_with(after);
    if (after != siblings.begin()) common = std::max(common, common_with(std::prev(after)));
    if (common == 0) break;
    const std::size_t first = path.pages.size();
    path.pages.resize(first + size_classes_.size(), none());
    const bool last = part.size() == rest.size();
    Choice choice = {std::span(path.pages).subspan(first), last ? wanted : std::span<const Range>(),
                     common, none()};
    for (auto at = after; at != siblings.end() && !choice.complete(); ++at) {
      if (common_with(at) < common) break;
      choice.look_at(**at);
    }
    for (auto at = after; at != siblings.begin() && !choice.complete();) {
      if (common_with(--at) < common) break;
      choice.look_at(**at);
    }
    path.matched += common;
    parent = common == page_size_ ? *after : nullptr;
  }
  return path;
}

void PrefixIndex::remove(EntryList::iterator entry) {
  entry->node->pages[entry->table] = entries_.end();
  --entry->node->num_pages;
  entry_of_page_.erase(entry->held.page);
  pool_.drop(entry->held.page);
  entries_.erase(entry);
}

void PrefixIndex::evict(EntryList::iterator entry) {
  Node* const node = entry->node;
  remove(entry);
  ++statistics_.evicted_pages;
  prune(node);
}

void PrefixIndex::prune(Node* node) {
  while (node != nullptr && node->num_pages == 0 && node->children.empty()) {
    Node* const parent = node->parent;
    if (parent != nullptr) {
      parent->children.erase(node);
    } else {
      roots_.erase(roots_.find(node->identity));
    }
    nodes_.erase(node->self);
    node = parent;
  }
}

bool PrefixIndex::make_room(std::span<const std::int64_t> num_pages) {
  if (pool_.can_take(num_pages)) return true;
  std::vector<std::int64_t> missing(num_pages.begin(), num_pages.end());
  std::int64_t free_slabs = pool_.num_free_slabs();
  std::int64_t num_short = 0;
  for (std::size_t idx = 0; idx < missing.size(); ++idx) {
    const auto size_class = static_cast<int>(idx);
    const std::int64_t per_slab = pool_.pages_per_slab(size_class);
    const std::int64_t num_free =
        pool_.num_available(size_class) - pool_.num_free_slabs() * per_slab;
    missing[idx] = std::max<std::int64_t>(0, missing[idx] - num_free);
    const std::int64_t slabs = std::min(free_slabs, ceil_div(missing[idx], per_slab));
    free_slabs -= slabs;
    missing[idx] = std::max<std::int64_t>(0, missing[idx] - slabs * per_slab);
    if (missing[idx] > 0) ++num_short;
  }
  tick();
  std::vector<EntryList::iterator> victims;
  std::vector<EntryList::iterator> others;
  auto next = entries_.begin();
  for (std::size_t left = entries_.size(); left > 0 && num_short > 0; --left) {
    const auto entry = next++;
    if (pool_.references(entry->held.page) > 1) {
      touch(entry);  // it is in use, and so need not be passed over again soon
      continue;
    }
    std::int64_t& of_class = missing[static_cast<std::size_t>(size_classes_[entry->table])];
    (of_class > 0 ? victims : others).push_back(entry);
    if (of_class > 0 && --of_class == 0) --num_short;
  }
  if (num_short > 0) return make_room_across(num_pages, victims, std::move(others));
  for (const EntryList::iterator entry : victims) evict(entry);
  return true;
}

// Where the pages of a class do not do, slabs must become free for it. `own` and `others` are all
// that can be evicted, of classes that are short and of others.
bool PrefixIndex::make_room_across(std::span<const std::int64_t> num_pages,
                                   std::span<const EntryList::iterator> own,
                                   std::vector<EntryList::iterator> others) {
  struct Slab {
    std::int64_t num_kept = 0;  // pages that cannot be evicted
    std::int64_t last_use = 0;
  };
  std::unordered_map<std::int64_t, Slab> slabs;
  pool_.for_each_live([&](PageId page, int) { ++slabs[pool_.slab(page)].num_kept; });
  std::vector<PageId> evictable;
  const auto count = [&](EntryList::iterator entry) {
    evictable.push_back(entry->held.page);
    Slab& slab = slabs[pool_.slab(entry->held.page)];
    --slab.num_kept;
    slab.last_use = std::max(slab.last_use, entry->last_use);
  };
  std::for_each(own.begin(), own.end(), count);
  std::for_each(others.begin(), others.end(), count);
  if (!pool_.can_take(num_pages, evictable)) return false;
  // Slabs that become empty come first, one after another.
  const auto rank = [&](EntryList::iterator entry) {
    const std::int64_t idx = pool_.slab(entry->held.page);
    const Slab& slab = slabs.at(idx);
    return std::tuple(slab.num_kept > 0, slab.last_use, idx);
  };
  std::stable_sort(others.begin(), others.end(), [&](auto a, auto b) { return rank(a) < rank(b); });
  for (const EntryList::iterator entry : own) evict(entry);
  for (const EntryList::iterator entry : others) {
    if (pool_.can_take(num_pages)) break;
    evict(entry);
  }
  return true;
}

PrefixStatistics PrefixIndex::current_statistics() const {
  PrefixStatistics now = statistics_;
  for_each_page([&](PageId page) {
    const bool cached = pool_.references(page) == 1;
    ++(cached ? now.cached_pages : now.shared_pages);
    (cached ? now.cached_bytes : now.shared_bytes) += pool_.page_bytes(pool_.size_class(page));
  });
  return now;
}

void PrefixIndex::for_each_page(const std::function<void(PageId)>& visit) const {
  for (const Node& node : nodes_) {
    for (const auto& entry : node.pages) {
      if (EntryList::const_iterator(entry) != entries_.end()) visit(entry->held.page);
    }
  }
}

void PrefixIndex::clear() {
  for (const Entry& entry : entries_) pool_.drop(entry.held.page);
  entries_.clear();
  entry_of_page_.clear();
  roots_.clear();
  nodes_.clear();
}

}  // namespace lacuna

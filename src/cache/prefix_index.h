#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lacuna/kv_view.h"
#include "lacuna/page_pool.h"
#include "lacuna/prefix.h"
#include "lacuna/ranges.h"

namespace lacuna {

// A page and the slots of it that hold keys and values of the tokens it stands for.
struct HeldPage {
  PageId page = KvView::kNullPage;
  Range slots;
};

// Which pages hold which tokens: for each identity a trie whose nodes are the tokens of one page
// after those of their parent's. Siblings are ordered by their token ids, which are compared and
// never hashed; no sibling's tokens begin another's. A node has at most one page for each table,
// and only full nodes have children. The index has one reference to each of its pages, and a page
// has one place in it: the first where it was published with the most tokens.
class PrefixIndex {
 public:
  using Tokens = std::span<const std::int32_t>;

  // `size_classes` holds each table's.
  PrefixIndex(PagePool& pool, std::int64_t page_size, std::vector<int> size_classes);

  // `pages` [columns][tables] of the tokens.
  void publish(std::string_view identity, Tokens tokens, std::span<const HeldPage> pages,
               double seconds);

  // Pages are listed from the one used longest ago on; of those used at once, the deepest first.
  struct Node;
  struct Entry {
    HeldPage held;
    Node* node = nullptr;
    std::size_t table = 0;
    std::int64_t last_use = 0;
  };
  using EntryList = std::list<Entry>;

  struct Path {
    std::int64_t matched = 0;                // tokens
    std::vector<EntryList::iterator> pages;  // [columns][tables], none() where there is none
  };
  // The path on which tokens agree longest. Where it ends inside a page, any sibling that agrees as
  // long may give a table's page: one that holds `wanted` [tables] slots, or most of them; all
  // where it is empty.
  Path find(std::string_view identity, Tokens tokens, std::span<const Range> wanted);
  EntryList::iterator none() { return entries_.end(); }
  void touch(EntryList::iterator entry) {
    entry->last_use = clock_;
    entries_.splice(entries_.end(), entries_, entry);
  }
  // What is touched from now on was used later than all before.
  void tick() { ++clock_; }

  // Evicts pages that nobody else refers to until the pool can give so many of each class; nothing
  // where evicting all of them would not do. False then.
  bool make_room(std::span<const std::int64_t> num_pages);
  void clear();

  PrefixStatistics& statistics() { return statistics_; }
  // With what is counted over the pages as they are.
  PrefixStatistics current_statistics() const;
  void for_each_page(const std::function<void(PageId)>& visit) const;

 private:
  struct ByTokens {
    using is_transparent = void;
    bool operator()(const Node* a, const Node* b) const { return less(tokens_of(a), tokens_of(b)); }
    bool operator()(const Node* a, Tokens b) const { return less(tokens_of(a), b); }
    bool operator()(Tokens a, const Node* b) const { return less(a, tokens_of(b)); }
    static Tokens tokens_of(const Node* node);
    static bool less(Tokens a, Tokens b);
  };
  using Siblings = std::set<Node*, ByTokens>;
  struct Choice;

  Node& add_node(Node* parent, Tokens tokens);
  Node& root(std::string_view identity);
  Node& child(Node& parent, Tokens tokens);
  void add_page(Node& node, std::size_t table, const HeldPage& held);
  void remove(EntryList::iterator entry);
  void evict(EntryList::iterator entry);
  void prune(Node* node);
  bool make_room_across(std::span<const std::int64_t> num_pages,
                        std::span<const EntryList::iterator> own,
                        std::vector<EntryList::iterator> others);

  PagePool& pool_;
  std::int64_t page_size_;
  std::vector<int> size_classes_;
  std::list<Node> nodes_;  // of all tries, in no order: chains may be too long for recursion
  std::map<std::string, Node*, std::less<>> roots_;
  EntryList entries_;
  std::unordered_map<PageId, EntryList::iterator> entry_of_page_;
  std::int64_t clock_ = 0;
  PrefixStatistics statistics_;
};

// Here for the lists above, which need it whole.
struct PrefixIndex::Node {
  Node* parent = nullptr;  // null: a root
  std::int64_t column = -1;
  std::vector<std::int32_t> tokens;
  std::vector<EntryList::iterator> pages;  // [tables]
  std::int64_t num_pages = 0;
  Siblings children;
  std::list<Node>::iterator self;
  std::string identity;  // of a root
};

}  // namespace lacuna

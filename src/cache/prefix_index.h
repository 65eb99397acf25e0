#pragma once

#include "lacuna/page_pool.h"

namespace lacuna {

// Which pages hold which tokens, of sequences that were published. It holds one reference to each
// of its pages, and gives up those that nobody else refers to where memory is short.
class PrefixIndex {
 public:
  explicit PrefixIndex(PagePool& pool) : pool_(pool) {}

  // Evicts unreferenced pages, the least recently used first, until the pool can give a page of the
  // class. False where it cannot.
  bool make_room(int size_class);

 private:
  PagePool& pool_;
};

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <vector>

#include "lacuna/ranges.h"
#include "lacuna/retention.h"

namespace lacuna {

// What KvCache knows of a prompt: how many of its first tokens were published, and for each table
// the positions among them whose keys and values are there. A window's table lacks early ones, and
// any table those that were evicted.
struct PrefixMatch {
  std::int64_t matched = 0;
  std::vector<Ranges> present;
  // Of these, for each table, those of pages that end early: they serve prefixes that end no later.
  std::vector<std::vector<Range>> short_pages;
};

// How many tokens of a prompt of num_tokens need no computing: the longest prefix from which every
// table can go on, one number for all of them. The last token is always computed, for its output.
std::int64_t hit_length(const PrefixMatch& match, const Retention& retention,
                        std::int64_t num_tokens);

struct PrefixStatistics {
  std::int64_t lookups = 0;       // KvCache::match
  std::int64_t hits = 0;          // KvCache::adopt of at least a token
  std::int64_t saved_tokens = 0;  // that hits did not compute
  // Since the cache was made: pages that came in, and that went for want of memory.
  std::int64_t published_pages = 0;
  std::int64_t evicted_pages = 0;
  // First builds: tokens that no publication had before, bytes of the pages that came in, and the
  // seconds that callers gave for publications with new tokens.
  std::int64_t built_tokens = 0;
  std::int64_t built_bytes = 0;
  double built_seconds = 0;
  // Now: pages to which only the index refers, and those that sequences use, too, each once.
  std::int64_t cached_pages = 0;
  std::int64_t cached_bytes = 0;
  std::int64_t shared_pages = 0;
  std::int64_t shared_bytes = 0;
};

}  // namespace lacuna

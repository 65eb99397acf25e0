// Random calls beside a list of what was published.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "cache/prefix_rig.h"

namespace lacuna {
namespace {

using rig::Store;
using rig::Tokens;
using rig::tokens;

struct Published {
  std::string identity;
  Tokens tokens;
  std::vector<Ranges> held;
};

std::int64_t common(const Tokens& a, const Tokens& b) {
  std::int64_t count = 0;
  while (count < std::min(std::ssize(a), std::ssize(b)) &&
         a[static_cast<std::size_t>(count)] == b[static_cast<std::size_t>(count)]) {
    ++count;
  }
  return count;
}

struct Walk {
  Store store;
  bool evicts;
  std::vector<Published> published;
  std::map<SequenceId, std::string> identities;  // of every sequence that ever was

  int number(int end) { return *rc::gen::inRange(0, end); }

  // Long runs that begin alike, and part at any token.
  Tokens some_tokens() {
    Tokens of = tokens(number(60));
    for (int change = number(3); change > 0 && !of.empty(); --change) {
      const int place = number(static_cast<int>(of.size()));
      of[static_cast<std::size_t>(place)] += 500 * (number(3) - 1);
    }
    return of;
  }
  std::string identity() { return number(4) == 0 ? "salt=a" : "adapter=a"; }

  SequenceId any() {
    auto at = store.all.begin();
    std::advance(at, number(static_cast<int>(store.all.size())));
    return at->first;
  }

  void create() {
    const SequenceId id = store.cache.create();
    store.all[id] = {};
    identities[id] = identity();
    append(id, some_tokens());
  }

  void append(SequenceId id, const Tokens& more) {
    if (more.empty()) return;
    const StepRows rows = {id, std::ssize(more)};
    const std::int64_t needed = store.cache.step_bytes({{rows}}) / 2048;
    const std::int64_t available = store.cache.pool().num_available(0);
    const std::int64_t cached = store.cache.prefix_statistics().cached_pages;
    const std::int64_t evicted = store.cache.prefix_statistics().evicted_pages;
    const bool done = store.append(id, more, number(static_cast<int>(more.size()) + 1));
    RC_ASSERT(done == (needed <= available + cached));
    RC_ASSERT(store.cache.prefix_statistics().evicted_pages - evicted ==
              (done ? std::max<std::int64_t>(0, needed - available) : 0));
  }

  void publish(SequenceId id) {
    const std::string& as = identities[id];
    store.cache.publish(id, as, store.all[id]);
    published.push_back({as, store.all[id], store.cache.held(id)});
  }

  void match() {
    const Tokens prompt = some_tokens();
    const std::string as = identity();
    const PrefixMatch found = store.cache.match(as, prompt);
    std::int64_t longest = 0;
    std::vector<Ranges> known(store.cache.tables().size());
    for (const Published& of : published) {
      if (of.identity != as) continue;
      const std::int64_t length = common(of.tokens, prompt);
      longest = std::max(longest, length);
      for (std::size_t table = 0; table < known.size(); ++table) {
        known[table] = unite(known[table], clip(of.held[table], {0, length}));
      }
    }
    RC_ASSERT(found.matched <= longest);
    if (!evicts) RC_ASSERT(found.matched == longest);
    for (std::size_t table = 0; table < known.size(); ++table) {
      RC_ASSERT(subtract(found.present[table], known[table]).empty());
    }
    adopt(as, prompt, found);
  }

  // A prefix from some length on, with the last positions of the second table only.
  void adopt(const std::string& as, const Tokens& prompt, const PrefixMatch& found) {
    const std::int64_t length = number(static_cast<int>(found.matched) + 1);
    const std::vector<Ranges> needed = {Ranges{{0, length}},
                                        Ranges{{std::max<std::int64_t>(0, length - 20), length}}};
    bool there = true;
    for (std::size_t table = 0; table < needed.size(); ++table) {
      there = there && subtract(needed[table], found.present[table]).empty();
    }
    const Tokens of(prompt.begin(), prompt.begin() + length);
    if (!there) return;
    const SequenceId id = store.cache.adopt(as, of, needed);
    store.all[id] = of;
    identities[id] = as;
    RC_ASSERT(store.cache.length(id) == length);
    for (std::size_t table = 0; table < needed.size(); ++table) {
      RC_ASSERT(subtract(needed[table], store.cache.held(id)[table]).empty());
    }
  }

  void check_published() {
    if (evicts || published.empty()) return;
    const Published& of =
        published[static_cast<std::size_t>(number(static_cast<int>(published.size())))];
    const PrefixMatch found = store.cache.match(of.identity, of.tokens);
    RC_ASSERT(found.matched == std::ssize(of.tokens));
    for (std::size_t table = 0; table < of.held.size(); ++table) {
      RC_ASSERT(subtract(of.held[table], found.present[table]).empty());
    }
  }

  void change(SequenceId id) {
    const std::int64_t length = store.cache.length(id);
    const std::int64_t cut = number(static_cast<int>(length) + 1);
    switch (number(4)) {
      case 0:
        return store.free(id);
      case 1: {
        const SequenceId other = store.cache.fork(id);
        store.all[other] = Tokens(store.all[id]);
        identities[other] = std::string(identities[id]);
        return;
      }
      case 2:
        return store.cache.retain(
            id, {{Ranges{{0, length}}, Ranges{{std::min(cut, length - 1), length}}}});
      default:
        store.cache.truncate(id, cut, std::vector<Ranges>(2));
        store.all[id].resize(static_cast<std::size_t>(cut));
    }
  }

  void act() {
    const int kind = number(8);
    if (store.all.empty() || kind == 0) return create();
    if (kind == 1) return append(any(), some_tokens());
    if (kind <= 3) return publish(any());
    if (kind <= 5) return match();
    if (kind == 6) return check_published();
    change(any());
  }
};

void walk(bool evicts) {
  Walk walk = {Store({16, 16}, evicts ? 16 : 4096, 4096), evicts, {}, {}};
  for (int step = 0; step < 60; ++step) {
    walk.act();
    walk.store.check();
    RC_ASSERT(!testing::Test::HasFailure());
  }
  walk.store.cache.clear_prefixes();
  while (!walk.store.all.empty()) walk.store.free(walk.store.all.begin()->first);
  RC_ASSERT(walk.store.num_live() == 0);
}

RC_GTEST_PROP(AnyCalls, FindWhatAListOfPublicationsFinds, ()) { walk(false); }
RC_GTEST_PROP(AnyCalls, LeaveNoPageWithoutAnOwnerWhereMemoryIsShort, ()) { walk(true); }

}  // namespace
}  // namespace lacuna

#pragma once

// Random operations on a KvCache, each checked against cache_model.h. The choices come from a seed
// or from a fuzzer's bytes.

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_model.h"
#include "cache/cache_rig.h"
#include "cache/cache_scenarios.h"
#include "cache/packed_reader.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/offload.h"
#include "lacuna/policy.h"
#include "lacuna/prefix.h"
#include "lacuna/sequence_file.h"

namespace lacuna::rig {

class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed), seeded_(true) {}
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  // 0..count-1; zeros once the bytes have run out.
  std::int64_t below(std::int64_t count) {
    if (seeded_) return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte % count;
  }
  bool one_in(std::int64_t count) { return below(count) == count - 1; }
  bool done() const { return !seeded_ && bytes_.empty(); }

 private:
  std::mt19937_64 random_;
  bool seeded_ = false;
  std::span<const std::uint8_t> bytes_;
};

// The cache and the model differ.
class Mismatch : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The words are put together only where they are needed.
template <typename A, typename B, typename... Words>
void same(const A& is, const B& should_be, fmt::format_string<const Words&...> what,
          const Words&... words) {
  if (is == should_be) return;
  throw Mismatch(
      fmt::format("{} is {}; it should be {}", fmt::format(what, words...), is, should_be));
}

// A new kind of operation gets a name here, a case in RandomOperations::perform, and its effect in
// the model.
enum class Operation {
  kCreate,
  kAppend,  // a chunk of one sequence or of several
  kDecode,  // one token
  kFork,
  kFree,
  kAbort,     // some layers appended, and dropped
  kVerify,    // drafts, of which some are committed
  kEvict,     // any ranges are kept, as a selector would say
  kTruncate,  // to a length that may be gone
  kPreempt,   // freed, and computed again
  kTooLarge,  // more than the pool holds
  kRefused,   // calls that break the contract
  kPublish,
  kAdopt,   // as much as there is of a prompt that begins like something published
  kReload,  // saved to a file, which is loaded beside it
  kSleep,
  kWake,
  kCount,
};

// How often what is worth testing happened.
struct Effects {
  std::int64_t steps = 0;
  std::int64_t refused = 0;  // steps, for lack of memory
  std::int64_t hits = 0;
  std::int64_t evicted_pages = 0;
  std::int64_t loads = 0;
  std::int64_t wakes = 0;
};

// One cache with a model of it. Functions throw Mismatch.
class RandomOperations {
 public:
  explicit RandomOperations(Choices& choices)
      : choices_(choices),
        model_(model_of(scenarios()[pick(std::ssize(scenarios()))])),
        retention_(model_.table, model_.shape),
        rollback_(choices.one_in(3) ? 1 + choices.below(20) : 0),
        pool_options_(draw_pool()),
        cache_(draw_shape(), pool_options_),
        mirror_(cache_.shape().page_size, cache_.tables().size()),
        policy_{"paged",
                {{"P", cache_.shape().page_size}, {"in_flight", 0}, {"rollback", rollback_}}} {
    for (int layer = 0; layer < std::ssize(model_.table.layers); ++layer) {
      topologies_.push_back(topologies(model_, layer));
    }
  }

  void run_one() {
    last_ = static_cast<Operation>(choices_.below(static_cast<std::int64_t>(Operation::kCount)));
    if (last_ != Operation::kWake && awake().empty()) last_ = Operation::kCreate;
    perform(last_);
    check();
  }

  const Effects& effects() const { return effects_; }
  Operation last() const { return last_; }

 private:
  std::size_t pick(std::int64_t count) { return static_cast<std::size_t>(choices_.below(count)); }

  CacheShape draw_shape() {
    constexpr DType kDtypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8};
    CacheShape shape = cache_shape(retention_, choices_.one_in(3) ? 64 : 16, kDtypes[pick(4)]);
    shape.summaries = choices_.one_in(2);
    return shape;
  }
  PoolOptions draw_pool() {
    constexpr std::int64_t kSlabs[] = {3, 6, 12, 96};
    constexpr std::int64_t kSlabBytes = 1 << 15;
    return {.budget_bytes = kSlabs[pick(4)] * kSlabBytes, .slab_bytes = kSlabBytes, .poison = true};
  }

  std::vector<SequenceId> awake() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : mirror_.sequences) {
      if (sequence.asleep.empty()) ids.push_back(id);
    }
    return ids;
  }
  SequenceId any_sequence() {
    const std::vector<SequenceId> ids = awake();
    return ids[pick(std::ssize(ids))];
  }
  bool has_place() const { return mirror_.sequences.size() < 8; }
  Tokens new_tokens(std::int64_t count) {
    Tokens tokens;
    for (std::int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<std::int32_t>(choices_.below(50)));
    }
    return tokens;
  }
  ModelRows all_of(SequenceId id, Tokens tokens) {
    const std::int64_t count = std::ssize(tokens);
    return {id, std::move(tokens), count};
  }

  void perform(Operation operation) {
    const std::int64_t page_size = cache_.shape().page_size;
    switch (operation) {
      case Operation::kCreate:
        if (has_place()) mirror_.create(cache_.create());
        return;
      case Operation::kAppend:
        return append_chunks();
      case Operation::kDecode:
        step_one(any_sequence(), new_tokens(1));
        return;
      case Operation::kFork:
        return fork();
      case Operation::kFree:
        return free(any_sequence());
      case Operation::kAbort:
        return abort({any_sequence(), new_tokens(1 + choices_.below(2 * page_size)), 0});
      case Operation::kVerify:
        return verify();
      case Operation::kEvict:
        return evict(any_sequence());
      case Operation::kTruncate:
        return truncate(any_sequence());
      case Operation::kPreempt:
        return preempt(any_sequence());
      case Operation::kTooLarge:
        return too_large(any_sequence());
      case Operation::kRefused:
      case Operation::kCount:
        return refused(any_sequence());
      case Operation::kPublish:
        return publish(any_sequence());
      case Operation::kAdopt:
        return adopt();
      case Operation::kReload:
        return reload(any_sequence());
      case Operation::kSleep:
        return sleep(any_sequence());
      case Operation::kWake:
        return wake();
    }
  }

  void append_chunks() {
    const std::int64_t most = cache_.shape().page_size * (choices_.one_in(3) ? 3 : 1);
    std::vector<ModelRows> rows;
    for (const SequenceId id : awake()) {
      if (!choices_.one_in(2) && !rows.empty()) continue;
      if (mirror_.sequences.at(id).length() > 8 * cache_.shape().page_size) continue;
      rows.push_back(all_of(id, new_tokens(1 + choices_.below(most))));
    }
    if (!rows.empty()) step(rows);
  }

  void fork() {
    if (!has_place()) return;
    const SequenceId parent = any_sequence();
    mirror_.fork(cache_.fork(parent), parent);
  }

  void free(SequenceId id) {
    cache_.free(id);
    mirror_.sequences.erase(id);
  }

  void verify() {
    std::vector<ModelRows> rows;
    const std::int64_t count = 1 + choices_.below(2);
    for (const SequenceId id : awake()) {
      if (std::ssize(rows) == count) break;
      Tokens drafts = new_tokens(1 + choices_.below(cache_.shape().page_size));
      const std::int64_t accepted = choices_.below(std::ssize(drafts) + 1);
      rows.push_back({id, std::move(drafts), accepted});
    }
    step(rows);
  }

  void evict(SequenceId id) {
    if (!choices_.one_in(3)) return;  // most sequences keep what their topology reads
    const std::int64_t length = mirror_.sequences.at(id).length();
    std::vector<Ranges> kept;
    for (std::size_t table = 0; table < cache_.tables().size(); ++table) {
      std::vector<Range> parts;
      for (std::int64_t count = choices_.below(4); count > 0; --count) {
        const std::int64_t begin = choices_.below(length + 1);
        parts.push_back({begin, begin + choices_.below(40)});
      }
      kept.emplace_back(std::move(parts));
    }
    cache_.retain(id, kept);
    mirror_.retain(id, kept);
    mirror_.sequences.at(id).evicted = true;
    mirror_.sequences.at(id).keeps_policy = false;
  }

  void truncate(SequenceId id) {
    const std::int64_t old_length = mirror_.sequences.at(id).length();
    const std::int64_t length = std::max<std::int64_t>(
        0, old_length - choices_.below(choices_.one_in(4) ? old_length + 1 : 20));
    const std::vector<Ranges> needed = retention_.kept(length, length);
    bool possible = true;
    for (std::size_t t = 0; t < needed.size(); ++t) {
      possible = possible && mirror_.holds(id, t, needed[t]);
    }
    try {
      cache_.truncate(id, length, needed);
      same(true, possible, "truncate of {} to {}", old_length, length);
      mirror_.truncate(id, length);
    } catch (const Error&) {
      same(false, possible, "truncate of {} to {}", old_length, length);
    }
  }

  void preempt(SequenceId id) {
    const Tokens tokens = mirror_.sequences.at(id).tokens;
    free(id);
    const SequenceId again = cache_.create();
    mirror_.create(again);
    const std::int64_t chunk = 1 + choices_.below(2 * cache_.shape().page_size);
    for (std::int64_t begin = 0; begin < std::ssize(tokens); begin += chunk) {
      const auto end = tokens.begin() + std::min(begin + chunk, std::ssize(tokens));
      if (!step_one(again, {tokens.begin() + begin, end})) return;
    }
  }

  void too_large(SequenceId id) {
    const PagePool& pool = cache_.pool();
    const std::int64_t rows =
        (pool.num_slabs() * pool.pages_per_slab(0) + 1) * cache_.shape().page_size;
    same(cache_.begin({{{id, rows}}}).has_value(), false, "a step larger than the pool");
  }

  template <typename Call>
  void refuse(const char* what, Call call) {
    try {
      call();
    } catch (const Error&) {
      return;
    }
    throw Mismatch(fmt::format("{} was not refused", what));
  }

  void refused(SequenceId id) {
    const std::vector<Ranges> kept(cache_.tables().size());
    const std::vector<Ranges> too_many(cache_.tables().size() + 1);
    const std::int64_t length = mirror_.sequences.at(id).length();
    refuse("retain of too many tables", [&] { cache_.retain(id, too_many); });
    refuse("truncate to more", [&] { cache_.truncate(id, length + 1, kept); });
    refuse("truncate below 0", [&] { cache_.truncate(id, -1, kept); });
    refuse("free of nothing", [&] { cache_.free(-1); });
    refuse("begin of no rows", [&] { cache_.begin({{{id, 0}}}); });
    refuse("begin of a sequence twice", [&] { cache_.begin({{{id, 1}, {id, 1}}}); });
  }

  // ---- Published prefixes ----

  // A page of the index: what it stands for, and which of its slots hold anything.
  struct Published {
    ContentId content = kNoContent;
    std::size_t table = 0;
    std::int64_t column = 0;
    std::string identity;
    Tokens tokens;  // from position 0 to the last slot
    std::vector<char> present;
  };

  // Forgets pages that have left the index; their bytes.
  std::int64_t forget_evicted(bool may_be_owned = false) {
    std::set<PageId> there;
    cache_.for_each_published([&](PageId page) { there.insert(page); });
    std::int64_t bytes = 0;
    const auto owners = published_.empty() ? decltype(mirror_.owners()){} : mirror_.owners();
    for (auto at = published_.begin(); at != published_.end();) {
      if (there.count(at->first) != 0) {
        ++at;
        continue;
      }
      const bool owned = owners.count(at->second.content) != 0;
      same(owned && !may_be_owned, false, "eviction of page {}, which is in use,", at->first);
      if (!owned && !may_be_owned) ++effects_.evicted_pages;
      if (!owned) bytes += cache_.tables()[at->second.table].page_bytes;
      mirror_.published.erase(at->second.content);
      at = published_.erase(at);
    }
    return bytes;
  }

  void publish(SequenceId id) {
    if (choices_.one_in(16)) {
      cache_.clear_prefixes();
      forget_evicted(true);
      return same(published_.size(), 0u, "pages after clear_prefixes");
    }
    const std::string identity = choices_.one_in(4) ? "b" : "a";
    const ModelSequence& sequence = mirror_.sequences.at(id);
    cache_.publish(id, identity, sequence.tokens);
    forget_evicted(true);
    std::map<PageId, std::pair<std::size_t, std::int64_t>> own;
    for (std::size_t t = 0; t < sequence.tables.size(); ++t) {
      const std::span<const PageId> pages = cache_.block_table(id, t);
      for (std::size_t column = 0; column < pages.size(); ++column) {
        own[pages[column]] = {t, static_cast<std::int64_t>(column)};
      }
    }
    cache_.for_each_published([&](PageId page) {
      if (published_.count(page) != 0) return;
      same(own.count(page), 1u, "sequence {} having page {}, which it published,", id, page);
      const auto [t, column] = own.at(page);
      const std::int64_t page_size = cache_.shape().page_size;
      const std::int64_t end = std::min((column + 1) * page_size, sequence.length());
      const ModelTable& table = sequence.tables[t];
      const ContentId content = table.pages[static_cast<std::size_t>(column)];
      published_[page] = {
          content,
          t,
          column,
          identity,
          {sequence.tokens.begin(), sequence.tokens.begin() + end},
          {table.present.begin() + column * page_size, table.present.begin() + end}};
      mirror_.published.insert(content);
    });
  }

  void adopt() {
    if (published_.empty() || !has_place()) return;
    auto at = published_.begin();
    std::advance(at, choices_.below(std::ssize(published_)));
    Tokens prompt = at->second.tokens;
    prompt.resize(prompt.size() - pick(std::ssize(prompt)));
    for (const std::int32_t token : new_tokens(choices_.below(10))) prompt.push_back(token);
    const std::string identity = at->second.identity;
    const PrefixMatch match = cache_.match(identity, prompt);
    const std::int64_t hit = hit_length(match, retention_, std::ssize(prompt));
    if (hit == 0) return;
    prompt.resize(static_cast<std::size_t>(hit));
    const std::vector<Ranges> needed = retention_.kept(hit, hit);
    const SequenceId id = cache_.adopt(identity, prompt, needed);
    ++effects_.hits;
    mirror_.create(id);
    ModelSequence& made = mirror_.sequences.at(id);
    made.tokens = prompt;
    made.earliest_query = made.latest_frontier = hit;
    made.keeps_policy = false;  // until the rollback depth is its own
    for (std::size_t t = 0; t < needed.size(); ++t) adopt_table(id, t, identity, needed[t]);
  }

  void adopt_table(SequenceId id, std::size_t t, const std::string& identity,
                   const Ranges& needed) {
    ModelSequence& made = mirror_.sequences.at(id);
    ModelTable& table = made.tables[t];
    table.present.resize(made.tokens.size(), 0);
    const std::int64_t page_size = cache_.shape().page_size;
    const std::span<const PageId> pages = cache_.block_table(id, t);
    for (std::int64_t column = 0; column < std::ssize(pages); ++column) {
      const PageId page = pages[static_cast<std::size_t>(column)];
      table.pages.push_back(kNoContent);
      const Range range = {column * page_size, std::min((column + 1) * page_size, made.length())};
      same(page == KvView::kNullPage, clip(needed, range).empty(), "a page of a hit being null");
      if (page == KvView::kNullPage) continue;
      same(published_.count(page), 1u, "page {} of a hit being published", page);
      const Published& of = published_.at(page);
      same(of.table, t, "table of a hit's page");
      same(of.column, column, "column of a hit's page");
      same(of.identity, identity, "identity of a hit's page");
      const bool same_tokens =
          std::ssize(of.tokens) >= range.end &&
          std::equal(made.tokens.begin(), made.tokens.begin() + range.end, of.tokens.begin());
      same(same_tokens, true, "tokens of a hit's page being those of the prompt");
      table.pages.back() = of.content;
      for (std::int64_t p = range.begin; p < range.end; ++p) {
        table.present[static_cast<std::size_t>(p)] =
            of.present[static_cast<std::size_t>(p - range.begin)];
      }
      if (std::ssize(of.tokens) > range.end) mirror_.cut_while_shared.insert(of.content);
    }
  }

  // ---- Files ----

  static std::string scratch_path(const char* name) {
    static int count = 0;
    return (std::filesystem::temp_directory_path() /
            fmt::format("lacuna_{}_{}_{}", name, ::getpid(), count++))
        .string();
  }

  void reload(SequenceId id) {
    if (!has_place() || !choices_.one_in(32)) return;  // a file costs more than all else
    const std::string path = scratch_path("sequence");
    save_sequence(cache_, id, "identity", mirror_.sequences.at(id).tokens, path);
    const bool fits = has_room(classes(mirror_.sequences.at(id).tables));
    const std::optional<LoadedSequence> loaded = load_sequence(cache_, path, "identity");
    std::filesystem::remove(path);
    forget_evicted();
    same(loaded.has_value(), fits, "a sequence's being loaded");
    if (!loaded) return;
    same(loaded->tokens == mirror_.sequences.at(id).tokens, true, "loaded tokens being the same");
    ++effects_.loads;
    mirror_.copy(loaded->sequence, id);
  }

  void sleep(SequenceId id) {
    if (!offload_) offload_.emplace(cache_, scratch_path("offload"), std::int64_t{1} << 30);
    same(offload_->sleep(id), true, "a sequence's going to sleep");
    mirror_.sleep(id);
    refuse("fork of a sleeping sequence", [&] { cache_.fork(id); });
    refuse("begin of a sleeping sequence", [&] { cache_.begin({{{id, 1}}}); });
    refuse("retain of a sleeping sequence",
           [&] { cache_.retain(id, std::vector<Ranges>(cache_.tables().size())); });
  }

  void wake() {
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : mirror_.sequences) {
      if (!sequence.asleep.empty()) ids.push_back(id);
    }
    if (ids.empty()) return;
    const SequenceId id = ids[pick(std::ssize(ids))];
    if (choices_.one_in(8)) return free(id);
    const ModelSequence& sequence = mirror_.sequences.at(id);
    std::vector<std::int64_t> pages_of_class = classes(sequence.asleep);
    const std::vector<std::int64_t> there = classes(sequence.tables);
    for (std::size_t c = 0; c < there.size(); ++c) pages_of_class[c] -= there[c];
    const bool fits = has_room(pages_of_class);
    same(offload_->wake(id), fits, "a sequence's waking up");
    forget_evicted();
    if (!fits) return;
    ++effects_.wakes;
    mirror_.wake(id);
  }

  // ---- Steps ----

  std::vector<StepRows> rows_of(std::span<const ModelRows> parts) {
    std::vector<StepRows> rows;
    for (const ModelRows& part : parts) rows.push_back({part.sequence, std::ssize(part.tokens)});
    return rows;
  }

  // Asks for the step's pages, which must come exactly where there is room for them.
  std::optional<KvCache::Step> begin(std::span<const ModelRows> parts) {
    std::vector<std::int64_t> pages_of_class(cache_.tables().size(), 0);
    std::int64_t bytes = 0;
    for (const ModelRows& part : parts) {
      const auto needs = mirror_.needs(part);
      for (std::size_t t = 0; t < needs.size(); ++t) {
        const CacheTable& table = cache_.tables()[t];
        pages_of_class[static_cast<std::size_t>(table.size_class)] += std::ssize(needs[t]);
        bytes += std::ssize(needs[t]) * table.page_bytes;
      }
    }
    const std::vector<StepRows> rows = rows_of(parts);
    same(cache_.step_bytes(rows), bytes, "step_bytes");
    const bool fits = has_room(pages_of_class);
    const std::int64_t before = cache_.live_bytes();
    std::optional<KvCache::Step> step = cache_.begin(rows);
    same(step.has_value(), fits, "a step's being given");
    const std::int64_t evicted = forget_evicted();
    same(evicted == 0 || fits, true, "nothing being evicted for a step that is refused");
    same(cache_.live_bytes(), before + (fits ? bytes : 0) - evicted, "live bytes in a step");
    ++(fits ? effects_.steps : effects_.refused);
    return step;
  }

  std::vector<std::int64_t> classes(std::span<const ModelTable> tables) const {
    std::vector<std::int64_t> pages_of_class(cache_.tables().size(), 0);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto& pages = tables[t].pages;
      pages_of_class[static_cast<std::size_t>(cache_.tables()[t].size_class)] +=
          std::ssize(pages) - std::count(pages.begin(), pages.end(), kNoContent);
    }
    return pages_of_class;
  }

  // Is there room where everything is evicted that no sequence refers to?
  bool has_room(std::span<const std::int64_t> pages_of_class) {
    std::set<PageId> owned;
    for (const auto& [id, sequence] : mirror_.sequences) {
      for (std::size_t t = 0; t < sequence.tables.size(); ++t) {
        const std::span<const PageId> pages = cache_.block_table(id, t);
        owned.insert(pages.begin(), pages.end());
      }
    }
    const PagePool& pool = cache_.pool();
    std::map<std::int64_t, std::pair<int, std::int64_t>> used;  // slabs: class, pages
    pool.for_each_live([&](PageId page, int size_class) {
      if (owned.count(page) == 0) return;
      auto& slab = used[page * kPageUnitBytes / pool_options_.slab_bytes];
      slab = {size_class, slab.second + 1};
    });
    std::vector<std::int64_t> open(pages_of_class.size(), 0);
    for (const auto& [slab, use] : used) {
      open[static_cast<std::size_t>(use.first)] += pool.pages_per_slab(use.first) - use.second;
    }
    std::int64_t slabs = pool.num_slabs() - std::ssize(used);
    for (std::size_t c = 0; c < pages_of_class.size(); ++c) {
      if (pages_of_class[c] == 0) continue;
      const std::int64_t per_slab = pool.pages_per_slab(static_cast<int>(c));
      slabs -= std::max<std::int64_t>(0, pages_of_class[c] - open[c] + per_slab - 1) / per_slab;
    }
    return slabs >= 0;
  }

  void append_layer(KvCache::Step& step, int layer, std::span<const ModelRows> parts) {
    const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
    if (sizes.kv_from) return;
    Rows k = {{}, {0, sizes.num_kv_heads, sizes.head_dim}};
    Rows v = {{}, {0, sizes.num_kv_heads, sizes.v_head_dim}};
    for (const ModelRows& part : parts) {
      const std::int64_t first = cache_.length(part.sequence);
      append(k, kK, part.tokens, first, layer);
      append(v, kV, part.tokens, first, layer);
    }
    step.append(layer, k.view(), v.view());
  }

  bool step(std::span<const ModelRows> parts) {
    std::optional<KvCache::Step> step = begin(parts);
    if (!step) return false;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      append_layer(*step, layer, parts);
    }
    std::vector<std::int64_t> committed;
    for (const ModelRows& part : parts) {
      check_prediction(part.sequence, std::ssize(part.tokens));
      committed.push_back(part.num_committed);
    }
    refuse("fork inside a step", [&] { cache_.fork(parts.front().sequence); });
    refuse("free inside a step", [&] { cache_.free(parts.front().sequence); });
    step->commit(committed);
    mirror_.commit(parts);
    for (const ModelRows& part : parts) retain(part.sequence);
    return true;
  }

  bool step_one(SequenceId id, Tokens tokens) {
    const ModelRows rows = all_of(id, std::move(tokens));
    return step({&rows, 1});
  }

  void retain(SequenceId id) {
    ModelSequence& sequence = mirror_.sequences.at(id);
    const std::int64_t frontier = std::max<std::int64_t>(0, sequence.length() - rollback_);
    const std::vector<Ranges> kept = retention_.kept(frontier, sequence.length());
    cache_.retain(id, kept);
    mirror_.retain(id, kept);
    sequence.earliest_query = std::max(frontier, sequence.latest_frontier);
    sequence.keeps_policy = !sequence.evicted && frontier >= sequence.latest_frontier;
    sequence.latest_frontier = std::max(frontier, sequence.latest_frontier);
    check_prediction(id, 0);
  }

  void abort(const ModelRows& rows) {
    std::optional<KvCache::Step> step = begin({&rows, 1});
    if (!step) return;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      if (choices_.one_in(2)) append_layer(*step, layer, {&rows, 1});
    }
  }

  // ---- Checks ----

  void check_prediction(SequenceId id, std::int64_t in_flight) {
    if (!mirror_.sequences.at(id).keeps_policy || choices_.below(4) != 0) return;
    policy_.params["in_flight"] = in_flight;
    const std::int64_t length = cache_.length(id) + in_flight;
    const Held predicted =
        held(policy_, model_.table, model_.shape,
             {length, length, kv_dtype(std::string(to_string(cache_.shape().dtype)))});
    std::int64_t bytes = 0;
    for (const std::int64_t of_layer : cache_.held_bytes(id)) bytes += of_layer;
    same(bytes, to_int64(predicted.bytes.value(), "bytes"),
         "bytes of {} tokens, {} of them in flight", length, in_flight);
  }

  void check() {
    check_pages();
    check_pool();
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : mirror_.sequences) {
      ids.push_back(id);
      same(cache_.length(id), sequence.length(), "length");
    }
    if (ids != cache_.sequences()) throw Mismatch("sequences differ");
    if (awake().empty()) return;
    const SequenceId id = any_sequence();
    check_held(id);
    check_readers(id);
    check_numbers(id, choices_.one_in(32));
    if (cache_.shape().summaries) check_summaries(id);
  }

  // Every page of a table is a page of the pool with as many references as owners, shared exactly
  // where its content is.
  void check_pages() {
    const std::map<ContentId, std::int64_t> owners = mirror_.owners();
    std::map<ContentId, PageId> place;
    std::map<PageId, ContentId> content;
    for (const auto& [page, of] : published_) {
      place[of.content] = page;
      content[page] = of.content;
      const auto owned = owners.find(of.content);
      const std::int64_t others = owned == owners.end() ? 0 : owned->second;
      same(cache_.pool().references(page), others + 1, "references to published page {}", page);
    }
    for (const auto& [id, sequence] : mirror_.sequences) {
      for (std::size_t t = 0; t < sequence.tables.size(); ++t) {
        const std::span<const PageId> is = cache_.block_table(id, t);
        const std::vector<ContentId>& should_be = sequence.tables[t].pages;
        same(is.size(), should_be.size(), "columns of {}, table {}", id, t);
        for (std::size_t column = 0; column < is.size(); ++column) {
          same(is[column] == KvView::kNullPage, should_be[column] == kNoContent,
               "sequence {}, table {}, column {} being null", id, t, column);
          if (is[column] == KvView::kNullPage) continue;
          same(place.emplace(should_be[column], is[column]).first->second, is[column],
               "the page of sequence {}, table {}, column {}", id, t, column);
          same(content.emplace(is[column], should_be[column]).first->second, should_be[column],
               "the content of sequence {}, table {}, column {}", id, t, column);
          same(cache_.pool().size_class(is[column]), cache_.tables()[t].size_class,
               "the class of sequence {}, table {}, column {}", id, t, column);
        }
      }
    }
    for (const auto& [page, count] : owners) {
      same(cache_.pool().references(place.at(page)),
           count + static_cast<std::int64_t>(mirror_.published.count(page)), "references");
    }
    same(mirror_.published.size(), published_.size(), "published pages");
    std::size_t live = 0;
    cache_.pool().for_each_live([&](PageId page, int) {
      ++live;
      if (content.count(page) == 0) throw Mismatch(fmt::format("page {} has no owner", page));
    });
    same(live, content.size(), "live pages");
  }

  // Free and used pages of every class and slab add up to the pool.
  void check_pool() {
    const PagePool& pool = cache_.pool();
    std::map<std::int64_t, int> class_of_slab;
    std::map<int, std::int64_t> live;
    std::map<PageId, std::int64_t> ends;
    std::int64_t bytes = 0;
    pool.for_each_live([&](PageId page, int size_class) {
      const std::int64_t begin = page * kPageUnitBytes;
      const std::int64_t end = begin + pool.page_bytes(size_class);
      const std::int64_t slab = begin / pool_options_.slab_bytes;
      same((end - 1) / pool_options_.slab_bytes, slab, "the slab of a page's end");
      same(class_of_slab.emplace(slab, size_class).first->second, size_class, "class of a slab");
      ++live[size_class];
      bytes += pool.page_bytes(size_class);
      if (!ends.empty() && ends.rbegin()->second > begin) throw Mismatch("pages overlap");
      ends[page] = end;
    });
    same(cache_.live_bytes(), bytes, "live bytes");
    same(pool.num_free_slabs() + std::ssize(class_of_slab), pool.num_slabs(), "slabs");
    std::map<int, std::int64_t> slabs;
    for (const auto& [slab, size_class] : class_of_slab) ++slabs[size_class];
    for (const CacheTable& table : cache_.tables()) {
      const auto size_class = static_cast<int>(table.size_class);
      const std::int64_t per_slab = pool.pages_per_slab(size_class);
      same(pool.num_available(size_class) + live[size_class],
           (pool.num_free_slabs() + slabs[size_class]) * per_slab, "pages of a class");
    }
  }

  void check_held(SequenceId id) {
    const std::vector<Ranges> held = cache_.held(id);
    std::vector<std::int64_t> bytes(cache_.shape().layers.size(), 0);
    for (std::size_t t = 0; t < held.size(); ++t) {
      if (held[t] != mirror_.present(id, t)) {
        throw Mismatch(fmt::format("held positions of sequence {}, table {} differ", id, t));
      }
      const CacheTable& table = cache_.tables()[t];
      for (const ContentId page : mirror_.sequences.at(id).tables[t].pages) {
        if (page != kNoContent) bytes[static_cast<std::size_t>(table.layer_idx)] += table.kv_bytes;
      }
    }
    if (cache_.held_bytes(id) != bytes) throw Mismatch("held bytes differ");
  }

  std::size_t table_of(int layer, int kv_head) const {
    const auto& from = cache_.shape().layers[static_cast<std::size_t>(layer)].kv_from;
    for (std::size_t t = 0; t < cache_.tables().size(); ++t) {
      const CacheTable& table = cache_.tables()[t];
      if (table.layer_idx != from.value_or(layer)) continue;
      const auto& heads = table.kv_heads;
      if (std::find(heads.begin(), heads.end(), kv_head) != heads.end()) return t;
    }
    throw Mismatch(fmt::format("KV head {} of layer {} has no table", kv_head, layer));
  }

  // What a later query could read is there.
  void check_readers(SequenceId id) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    if (sequence.evicted) return;
    const std::int64_t length = sequence.length();
    const std::int64_t later = length + choices_.below(100);
    for (int layer = 0; layer < std::ssize(topologies_); ++layer) {
      const auto& of_heads = topologies_[static_cast<std::size_t>(layer)];
      const int group = model_.shape.layers[static_cast<std::size_t>(layer)].num_q_heads /
                        model_.shape.layers[static_cast<std::size_t>(layer)].num_kv_heads;
      for (int head = 0; head < std::ssize(of_heads); ++head) {
        for (const std::int64_t query : {sequence.earliest_query, length, later}) {
          const Ranges row = of_heads[static_cast<std::size_t>(head)].row(query, query + 1);
          if (mirror_.holds(id, table_of(layer, head / group), clip(row, {0, length}))) continue;
          throw Mismatch(
              fmt::format("sequence {} of {} tokens lacks a key that query {} of layer "
                          "{}, head {} reads",
                          id, length, query, layer, head));
        }
      }
    }
  }

  void check_numbers(SequenceId id, bool all) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    if (sequence.length() == 0) return;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
      const CacheView view = cache_.view(layer, {&id, 1});
      for (int head = 0; head < sizes.num_kv_heads; ++head) {
        const std::vector<char>& present = sequence.tables[table_of(layer, head)].present;
        for (std::int64_t p = all ? 0 : choices_.below(sequence.length()); p < sequence.length();
             ++p) {
          if (present[static_cast<std::size_t>(p)] != 0) {
            check_token(view.kv(), layer, head, p, sequence.tokens[static_cast<std::size_t>(p)]);
          }
          if (!all) break;
        }
      }
    }
  }

  void check_token(const KvView& kv, int layer, int head, std::int64_t position,
                   std::int32_t token) {
    const int source =
        cache_.shape().layers[static_cast<std::size_t>(layer)].kv_from.value_or(layer);
    for (const Kind kind : {kK, kV}) {
      const std::vector<float> is = PackedReader(kv, kind == kV, head, position).vector();
      const std::vector<float> should_be =
          stored(vector_of(kind, token, position, source, head, std::ssize(is)), kv.dtype);
      for (std::size_t dim = 0; dim < is.size(); ++dim) {
        same(is[dim], should_be[dim], "layer {}, head {}, position {}, dim {}", layer, head,
             position, dim);
      }
    }
  }

  static std::vector<float> vector_of(Kind kind, std::int32_t token, std::int64_t position,
                                      int layer, int head, std::int64_t dims) {
    std::vector<float> vector;
    for (std::int64_t dim = 0; dim < dims; ++dim) {
      vector.push_back(number(kind, token, position, layer, head, dim));
    }
    return vector;
  }

  void check_summaries(SequenceId id) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
      for (int head = 0; head < sizes.num_kv_heads; ++head) {
        const ModelTable& table = sequence.tables[table_of(layer, head)];
        if (table.pages.empty()) continue;
        const std::int64_t column = choices_.below(std::ssize(table.pages));
        const ContentId page = table.pages[static_cast<std::size_t>(column)];
        if (page == kNoContent || mirror_.cut_while_shared.count(page) != 0) continue;
        check_summary(id, table, layer, head, column);
      }
    }
  }

  void check_summary(SequenceId id, const ModelTable& table, int layer, int head,
                     std::int64_t column) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
    const std::int64_t page_size = cache_.shape().page_size;
    const std::int64_t end = std::min((column + 1) * page_size, sequence.length());
    std::int64_t first = column * page_size;
    while (first < end && table.present[static_cast<std::size_t>(first)] == 0) ++first;
    const PageSummary is = cache_.summary(id, layer, head, column);
    same(is.positions.end, end, "end of the summary of {}, layer {}, head {}", id, layer, head);
    same(is.positions.begin, first, "begin of the summary of {}, layer {}, head {}", id, layer,
         head);
    if (first == end) return;
    const auto dims = static_cast<std::size_t>(sizes.head_dim);
    std::vector<float> low(dims, std::numeric_limits<float>::infinity());
    std::vector<float> high(dims, -std::numeric_limits<float>::infinity());
    std::vector<float> sum(dims, 0);
    for (std::int64_t p = first; p < end; ++p) {
      const std::vector<float> key =
          stored(vector_of(kK, sequence.tokens[static_cast<std::size_t>(p)], p,
                           sizes.kv_from.value_or(layer), head, sizes.head_dim),
                 cache_.shape().dtype);
      for (std::size_t d = 0; d < dims; ++d) {
        low[d] = std::min(low[d], key[d]);
        high[d] = std::max(high[d], key[d]);
        sum[d] += key[d];
      }
    }
    for (std::size_t d = 0; d < dims; ++d) {
      same(is.minimum[d], low[d], "minimum of the summary of {}, layer {}, head {}", id, layer,
           head);
      same(is.maximum[d], high[d], "maximum of the summary of {}, layer {}, head {}", id, layer,
           head);
      same(is.sum[d], sum[d], "sum of the summary of {}, layer {}, head {}", id, layer, head);
    }
  }

  Choices& choices_;
  Model model_;
  Retention retention_;
  std::int64_t rollback_;
  PoolOptions pool_options_;
  KvCache cache_;
  CacheModel mirror_;
  Policy policy_;
  std::vector<std::vector<Topology>> topologies_;  // [layers][query heads]
  std::map<PageId, Published> published_;
  std::optional<KvOffload> offload_;
  Operation last_ = Operation::kCreate;
  Effects effects_;
};

}  // namespace lacuna::rig

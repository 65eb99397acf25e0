#pragma once

// Random operations on a KvCache, each checked against its model.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/checked_steps.h"
#include "lacuna/error.h"
#include "lacuna/offload.h"
#include "lacuna/prefix.h"
#include "lacuna/sequence_file.h"

namespace lacuna::rig {

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

// One cache, to which things are done. Functions throw Mismatch.
class RandomOperations : private CheckedSteps {
 public:
  explicit RandomOperations(Choices& choices) : CheckedSteps(choices) {}

  void run_one() {
    last_ = static_cast<Operation>(choices_.below(static_cast<std::int64_t>(Operation::kCount)));
    if (last_ != Operation::kWake && awake().empty()) last_ = Operation::kCreate;
    perform(last_);
    check();
  }

  const Effects& effects() const { return effects_; }
  Operation last() const { return last_; }

 private:
  bool has_place() const { return mirror_.sequences.size() < 8; }
  Tokens new_tokens(std::int64_t count) {
    Tokens tokens;
    for (std::int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<std::int32_t>(choices_.below(50)));
    }
    return tokens;
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

  void abort(const ModelRows& rows) {
    std::optional<KvCache::Step> step = begin({&rows, 1});
    if (!step) return;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      if (choices_.one_in(2)) append_layer(*step, layer, {&rows, 1});
    }
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

  // Every slot that is there in b is there in a.
  static bool covers(std::span<const char> a, std::span<const char> b) {
    for (std::size_t slot = 0; slot < b.size(); ++slot) {
      if (b[slot] != 0 && (slot >= a.size() || a[slot] == 0)) return false;
    }
    return true;
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
      const auto known = published_.find(page);
      if (own.count(page) == 0) {
        return same(known == published_.end(), false,
                    "sequence {} having page {}, which it published,", id, page);
      }
      const auto [t, column] = own.at(page);
      const std::int64_t page_size = cache_.shape().page_size;
      const std::int64_t end = std::min((column + 1) * page_size, sequence.length());
      const ModelTable& table = sequence.tables[t];
      const ContentId content = table.pages[static_cast<std::size_t>(column)];
      const std::span<const char> present = {table.present.begin() + column * page_size,
                                             table.present.begin() + end};
      // Published before, with as many slots or more of them: that stays.
      if (known != published_.end() && covers(known->second.present, present)) return;
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

  Operation last_ = Operation::kCreate;
  std::optional<KvOffload> offload_;
};

}  // namespace lacuna::rig

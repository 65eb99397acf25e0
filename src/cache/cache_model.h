#pragma once

// What a KV cache must hold, as a map of vectors: the model that random operations are checked
// against. It knows tokens, positions and whole pages, and shares no code with the cache.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/kv_cache.h"
#include "lacuna/ranges.h"

namespace lacuna::rig {

// One filled page, whoever refers to it. Two sequences share a page of the cache exactly where they
// share its content here.
using ContentId = std::int64_t;
inline constexpr ContentId kNoContent = 0;

struct ModelTable {
  std::vector<ContentId> pages;  // [columns]
  std::vector<char> present;     // [tokens] written, and not dropped with its page since
};

struct ModelSequence {
  std::vector<std::int32_t> tokens;
  std::vector<ModelTable> tables;
  std::int64_t earliest_query = 0;  // that must find all its keys
  std::int64_t latest_frontier = 0;
  bool keeps_policy = true;  // holds what its topology says: nothing less, nothing more
  bool evicted = false;      // a selector dropped what later queries could read
  // Asleep: the tables as they were, while those above have only what others refer to, too.
  std::vector<ModelTable> asleep;
  std::int64_t length() const { return std::ssize(tokens); }
};

// New rows of a sequence in a step, and how many of them are committed.
struct ModelRows {
  SequenceId sequence = 0;
  std::vector<std::int32_t> tokens;
  std::int64_t num_committed = 0;
};

class CacheModel {
 public:
  CacheModel(std::int64_t page_size, std::size_t num_tables)
      : page_size_(page_size), num_tables_(num_tables) {}

  std::map<SequenceId, ModelSequence> sequences;

  void create(SequenceId id) { sequences[id].tables.resize(num_tables_); }
  void fork(SequenceId id, SequenceId parent) { sequences[id] = sequences.at(parent); }

  std::map<ContentId, std::int64_t> owners() const {
    std::map<ContentId, std::int64_t> count;
    for (const auto& [id, sequence] : sequences) {
      for (const ModelTable& table : sequence.tables) {
        for (const ContentId page : table.pages) {
          if (page != kNoContent) ++count[page];
        }
      }
    }
    return count;
  }

  // Somebody else refers to it: another sequence, or the index of prefixes.
  bool shared(const std::map<ContentId, std::int64_t>& count, ContentId page) const {
    return count.at(page) + static_cast<std::int64_t>(published.count(page)) > 1;
  }

  // Columns of each table that a step must take a page for.
  std::vector<std::vector<std::int64_t>> needs(const ModelRows& rows) const {
    const ModelSequence& sequence = sequences.at(rows.sequence);
    const std::map<ContentId, std::int64_t> count = owners();
    std::vector<std::vector<std::int64_t>> result;
    for (const ModelTable& table : sequence.tables) {
      std::vector<std::int64_t>& columns = result.emplace_back();
      const std::int64_t last = (sequence.length() + std::ssize(rows.tokens) - 1) / page_size_;
      for (std::int64_t column = sequence.length() / page_size_; column <= last; ++column) {
        const ContentId page = content(table, column);
        if (page == kNoContent || shared(count, page)) columns.push_back(column);
      }
    }
    return result;
  }

  void commit(std::span<const ModelRows> step) {
    std::vector<std::vector<std::vector<std::int64_t>>> fresh;
    for (const ModelRows& rows : step) {
      ModelRows kept = rows;
      kept.tokens.resize(static_cast<std::size_t>(rows.num_committed));
      fresh.push_back(kept.tokens.empty() ? decltype(needs(kept)){} : needs(kept));
    }
    for (std::size_t idx = 0; idx < step.size(); ++idx) commit(step[idx], fresh[idx]);
  }

  void retain(SequenceId id, std::span<const Ranges> kept) {
    ModelSequence& sequence = sequences.at(id);
    for (std::size_t t = 0; t < num_tables_; ++t) {
      ModelTable& table = sequence.tables[t];
      for (std::int64_t column = 0; column < std::ssize(table.pages); ++column) {
        const Range page = {column * page_size_, (column + 1) * page_size_};
        if (!clip(kept[t], page).empty()) continue;
        table.pages[static_cast<std::size_t>(column)] = kNoContent;
        for (std::int64_t p = page.begin; p < std::min(page.end, sequence.length()); ++p) {
          table.present[static_cast<std::size_t>(p)] = 0;
        }
      }
    }
  }

  bool holds(SequenceId id, std::size_t table, const Ranges& keys) const {
    const std::vector<char>& present = sequences.at(id).tables[table].present;
    for (const Range& part : keys) {
      for (std::int64_t p = part.begin; p < part.end; ++p) {
        if (p >= std::ssize(present) || present[static_cast<std::size_t>(p)] == 0) return false;
      }
    }
    return true;
  }

  void truncate(SequenceId id, std::int64_t length) {
    ModelSequence& sequence = sequences.at(id);
    const std::map<ContentId, std::int64_t> count = owners();
    const auto size = static_cast<std::size_t>(length);
    if (length < sequence.length()) sequence.keeps_policy = false;
    sequence.tokens.resize(size);
    sequence.earliest_query = std::min(sequence.earliest_query, length);
    for (ModelTable& table : sequence.tables) {
      table.present.resize(size);
      table.pages.resize(static_cast<std::size_t>((length + page_size_ - 1) / page_size_));
      if (length % page_size_ == 0 || table.pages.back() == kNoContent) continue;
      // A page without any token that is left goes.
      if (present_since(table, length / page_size_ * page_size_) == length) {
        table.pages.back() = kNoContent;
        continue;
      }
      if (shared(count, table.pages.back())) cut_while_shared.insert(table.pages.back());
    }
  }

  // A copy that shares nothing, as from a file.
  void copy(SequenceId id, SequenceId source) {
    ModelSequence& made = sequences[id] = sequences.at(source);
    for (ModelTable& table : made.tables) {
      for (ContentId& page : table.pages) {
        if (page != kNoContent) page = ++last_content_;
      }
    }
  }

  void sleep(SequenceId id) {
    const std::map<ContentId, std::int64_t> count = owners();
    ModelSequence& sequence = sequences.at(id);
    sequence.asleep = sequence.tables;
    for (ModelTable& table : sequence.tables) {
      for (ContentId& page : table.pages) {
        if (page != kNoContent && !shared(count, page)) page = kNoContent;
      }
    }
  }
  void wake(SequenceId id) {
    ModelSequence& sequence = sequences.at(id);
    sequence.tables = std::exchange(sequence.asleep, {});
  }

  Ranges present(SequenceId id, std::size_t table) const {
    const std::vector<char>& flags = sequences.at(id).tables[table].present;
    std::vector<Range> parts;
    for (std::int64_t p = 0; p < std::ssize(flags); ++p) {
      if (flags[static_cast<std::size_t>(p)] != 0) parts.push_back({p, p + 1});
    }
    return Ranges(std::move(parts));
  }

  // Their summaries may take in tokens that a sequence no longer has.
  std::set<ContentId> cut_while_shared;
  std::set<ContentId> published;  // in the index of prefixes

 private:
  static ContentId content(const ModelTable& table, std::int64_t column) {
    return column < std::ssize(table.pages) ? table.pages[static_cast<std::size_t>(column)]
                                            : kNoContent;
  }

  static std::int64_t present_since(const ModelTable& table, std::int64_t position) {
    while (position < std::ssize(table.present) &&
           table.present[static_cast<std::size_t>(position)] == 0) {
      ++position;
    }
    return position;
  }

  void commit(const ModelRows& rows, const std::vector<std::vector<std::int64_t>>& fresh) {
    if (rows.num_committed == 0) return;
    ModelSequence& sequence = sequences.at(rows.sequence);
    const std::int64_t old_length = sequence.length();
    sequence.tokens.insert(sequence.tokens.end(), rows.tokens.begin(),
                           rows.tokens.begin() + rows.num_committed);
    const std::int64_t length = sequence.length();
    for (std::size_t t = 0; t < num_tables_; ++t) {
      ModelTable& table = sequence.tables[t];
      table.present.resize(static_cast<std::size_t>(length), 1);
      table.pages.resize(static_cast<std::size_t>((length + page_size_ - 1) / page_size_));
      for (const std::int64_t column : fresh[t]) {
        table.pages[static_cast<std::size_t>(column)] = ++last_content_;
      }
      cut_while_shared.erase(table.pages[static_cast<std::size_t>(old_length / page_size_)]);
    }
  }

  std::int64_t page_size_;
  std::size_t num_tables_;
  ContentId last_content_ = kNoContent;
};

}  // namespace lacuna::rig

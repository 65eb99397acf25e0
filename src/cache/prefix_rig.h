#pragma once

// What tests of shared pages need beside cache_rig.h: a cache without attention, whose keys follow
// from all tokens up to their own, so that a page under wrong tokens shows, and that knows what
// each sequence should hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "cache/cache_rig.h"
#include "cache/state.h"
#include "lacuna/kv_cache.h"

namespace lacuna::rig {

inline constexpr std::int64_t kPage = 16;

// A number for each token that tells its whole past.
inline Tokens pasts(const Tokens& all) {
  Tokens result;
  std::uint32_t past = 1;
  for (const std::int32_t token : all) {
    past = (past ^ static_cast<std::uint32_t>(token)) * 0x9E3779B1u;
    past ^= past >> 15;
    result.push_back(static_cast<std::int32_t>(past));
  }
  return result;
}

struct Store {
  KvCache cache;
  std::map<SequenceId, Tokens> all;  // of each sequence

  // A layer of one head for each width; pages of widths 16 and 32 have 2048 and 4096 bytes.
  static CacheShape shape(const std::vector<std::int64_t>& widths) {
    CacheShape result = {{}, kPage, DType::kF32, false};
    for (const std::int64_t width : widths) result.layers.push_back({1, width, width, {}, {}});
    return result;
  }
  Store(const std::vector<std::int64_t>& widths, std::int64_t num_slabs, std::int64_t slab_bytes)
      : cache(shape(widths), {num_slabs * slab_bytes, slab_bytes, true}) {}

  // False, and nothing new, where there is no room. Only the first `num_committed` stay.
  bool append(SequenceId id, const Tokens& more, std::int64_t num_committed) {
    if (more.empty()) return true;
    const StepRows rows = {id, std::ssize(more)};
    const std::int64_t reserved = cache.step_bytes({{rows}});
    const std::int64_t live = cache.live_bytes();
    const std::int64_t cached = cache.prefix_statistics().cached_bytes;
    auto step = cache.begin({{rows}});
    if (!step) {
      EXPECT_EQ(cache.live_bytes(), live);
      return false;
    }
    // Nothing but cached pages went.
    EXPECT_EQ(cache.live_bytes() - cache.prefix_statistics().cached_bytes,
              live - cached + reserved);
    Tokens now = all[id];
    const std::int64_t first = std::ssize(now);
    now.insert(now.end(), more.begin(), more.end());
    const Tokens past = pasts(now);
    for (int layer = 0; layer < std::ssize(cache.shape().layers); ++layer) {
      Rows k = {{}, {0, 1, cache.shape().layers[static_cast<std::size_t>(layer)].head_dim}};
      rig::append(k, kK, std::span(past).subspan(static_cast<std::size_t>(first)), first, layer);
      step->append(layer, k.view(), k.view());
    }
    step->commit({{num_committed}});
    now.resize(static_cast<std::size_t>(first + num_committed));
    all[id] = now;
    return true;
  }
  bool append(SequenceId id, const Tokens& more) { return append(id, more, std::ssize(more)); }

  SequenceId make(const Tokens& of) {
    const SequenceId id = cache.create();
    all[id] = {};
    EXPECT_TRUE(append(id, of));
    return id;
  }

  void free(SequenceId id) {
    cache.free(id);
    all.erase(id);
  }

  void publish(const Tokens& of, std::string_view identity = "a") {
    const SequenceId id = make(of);
    cache.publish(id, identity, of);
    free(id);
  }

  std::vector<Ranges> whole(std::int64_t length) const {
    return std::vector<Ranges>(cache.tables().size(), Ranges{{0, length}});
  }

  SequenceId adopt(const Tokens& of, std::string_view identity = "a") {
    const SequenceId id = cache.adopt(identity, of, whole(std::ssize(of)));
    all[id] = of;
    return id;
  }

  // Tokens from the first on that every table has.
  std::int64_t there(const Tokens& of, std::string_view identity = "a") {
    const PrefixMatch match = cache.match(identity, of);
    std::int64_t length = match.matched;
    for (const Ranges& ranges : match.present) {
      const Ranges missing = subtract(Ranges{{0, length}}, ranges);
      if (!missing.empty()) length = missing.front();
    }
    return length;
  }

  std::int64_t num_live() const {
    std::int64_t count = 0;
    cache.pool().for_each_live([&](PageId, int) { ++count; });
    return count;
  }

  // Every reference has an owner, every page in use too, and what is held is right.
  void check() {
    std::map<PageId, std::int64_t> owners;
    cache.for_each_published([&](PageId page) { ++owners[page]; });
    for (const auto& [page, count] : owners) EXPECT_EQ(count, 1);
    for (const auto& [id, of] : all) {
      for (std::size_t table = 0; table < cache.tables().size(); ++table) {
        for (const PageId page : cache.block_table(id, table)) {
          if (page != KvView::kNullPage) ++owners[page];
        }
      }
      check_keys(id, of);
    }
    std::int64_t cached = 0;
    for (const auto& [page, count] : owners) EXPECT_EQ(cache.pool().references(page), count);
    cache.for_each_published([&](PageId page) { cached += owners[page] == 1; });
    EXPECT_EQ(num_live(), std::ssize(owners));
    EXPECT_EQ(cache.prefix_statistics().cached_pages, cached);
  }

  void check_keys(SequenceId id, const Tokens& of) {
    const Tokens past = pasts(of);
    const std::vector<Ranges> held = cache.held(id);
    for (std::size_t table = 0; table < held.size(); ++table) {
      const int layer = cache.tables()[table].layer_idx;
      std::vector<float> key(static_cast<std::size_t>(cache.state().layer(table).head_dim));
      for (const Range& part : held[table]) {
        for (std::int64_t position = part.begin; position < part.end; ++position) {
          const PageId page =
              cache.block_table(id, table)[static_cast<std::size_t>(position / kPage)];
          read_k(key, cache.state().packed_head(table, page, 0), position % kPage);
          ASSERT_EQ(key[0],
                    number(kK, past[static_cast<std::size_t>(position)], position, layer, 0, 0))
              << "sequence " << id << ", table " << table << ", position " << position;
        }
      }
    }
  }
};

inline Store one_table(std::int64_t num_pages) { return {{16}, num_pages / 2, 4096}; }

}  // namespace lacuna::rig

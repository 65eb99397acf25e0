#pragma once

// A cache with its model, run as an engine would, and what two runs must have in common.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_rig.h"
#include "lacuna/kv_cache.h"
#include "lacuna/retention.h"

namespace lacuna::rig {

inline std::span<const std::int32_t> part(const Tokens& all, std::int64_t begin, std::int64_t end) {
  return std::span(all).subspan(static_cast<std::size_t>(begin),
                                static_cast<std::size_t>(end - begin));
}

// Answers of each layer; those of later rows are added behind.
using Answers = std::vector<Answer>;
inline void extend(Answers& all, const Answers& more) {
  all.resize(more.size());
  for (std::size_t layer = 0; layer < more.size(); ++layer) {
    all[layer].out.insert(all[layer].out.end(), more[layer].out.begin(), more[layer].out.end());
    all[layer].lse.insert(all[layer].lse.end(), more[layer].lse.begin(), more[layer].lse.end());
  }
}

struct RunOptions {
  std::int64_t page_size = 16;
  DType dtype = DType::kF32;
  bool summaries = false;
  std::int64_t rollback = 0;
  std::int64_t budget_bytes = 8 << 20;
  std::int64_t slab_bytes = 1 << 16;
};

struct CacheRun {
  CacheRun(const Model& of_model, const RunOptions& run_options)
      : options(run_options),
        model(of_model),
        retention(model.table, model.shape),
        cache(shape_of(retention, options), {.budget_bytes = options.budget_bytes,
                                             .slab_bytes = options.slab_bytes,
                                             .poison = true}) {}

  static CacheShape shape_of(const Retention& retention, const RunOptions& options) {
    CacheShape shape = cache_shape(retention, options.page_size, options.dtype);
    shape.summaries = options.summaries;
    return shape;
  }

  // One step of several sequences; no answers where memory is short.
  std::optional<Answers> step(std::span<const StepTokens> all,
                              std::span<const std::int64_t> num_committed = {}) {
    auto answers = rig::step(cache, model, retention, all, num_committed, options.rollback);
    if (!answers) return std::nullopt;
    for (const Answer& answer : *answers) {
      for (const float x : answer.out) EXPECT_TRUE(std::isfinite(x)) << "unwritten memory was read";
    }
    return answers;
  }

  // All of them, in chunks of a size.
  Answers feed(SequenceId id, std::span<const std::int32_t> all, std::int64_t chunk) {
    Answers answers(model.table.layers.size());
    for (std::int64_t begin = 0; begin < std::ssize(all); begin += chunk) {
      const auto count = static_cast<std::size_t>(std::min(chunk, std::ssize(all) - begin));
      const StepTokens of = {id, all.subspan(static_cast<std::size_t>(begin), count)};
      const std::optional<Answers> more = step({{of}});
      EXPECT_TRUE(more) << "memory is short";
      if (more) extend(answers, *more);
    }
    return answers;
  }
  SequenceId fed(std::span<const std::int32_t> all, std::int64_t chunk) {
    const SequenceId id = cache.create();
    feed(id, all, chunk);
    return id;
  }

  // Which pages are held, by column: "..##" for each table.
  std::vector<std::string> pattern(SequenceId id) const {
    std::vector<std::string> all;
    for (std::size_t table = 0; table < cache.tables().size(); ++table) {
      std::string& text = all.emplace_back();
      for (const PageId page : cache.block_table(id, table)) {
        text += page == KvView::kNullPage ? '.' : '#';
      }
    }
    return all;
  }

  std::vector<std::int64_t> references(SequenceId id) const {
    std::vector<std::int64_t> all;
    for (std::size_t table = 0; table < cache.tables().size(); ++table) {
      for (const PageId page : cache.block_table(id, table)) {
        all.push_back(page == KvView::kNullPage ? 0 : cache.pool().references(page));
      }
    }
    return all;
  }

  RunOptions options;
  Model model;
  Retention retention;
  KvCache cache;
};

inline void expect_same_summaries(const KvCache& a, SequenceId in_a, const KvCache& b,
                                  SequenceId in_b) {
  for (int layer = 0; layer < std::ssize(a.shape().layers); ++layer) {
    const auto& sizes = a.shape().layers[static_cast<std::size_t>(layer)];
    const std::int64_t columns = (a.length(in_a) + a.shape().page_size - 1) / a.shape().page_size;
    for (int head = 0; head < sizes.num_kv_heads; ++head) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto all_of = [&](const KvCache& cache, SequenceId id) {
          std::vector<float> all;
          try {
            const PageSummary s = cache.summary(id, layer, head, column);
            all = {static_cast<float>(s.positions.begin), static_cast<float>(s.positions.end)};
            for (const auto& part : {s.minimum, s.maximum, s.sum}) {
              all.insert(all.end(), part.begin(), part.end());
            }
          } catch (const std::exception&) {  // the page is not held
          }
          return all;
        };
        EXPECT_EQ(all_of(a, in_a), all_of(b, in_b))
            << "summary of column " << column << " in layer " << layer;
      }
    }
  }
}

// Everything that a later step could tell two sequences apart by, but the places of their pages.
inline void expect_same_state(const CacheRun& a, SequenceId in_a, const CacheRun& b,
                              SequenceId in_b) {
  EXPECT_EQ(a.cache.length(in_a), b.cache.length(in_b));
  EXPECT_EQ(a.pattern(in_a), b.pattern(in_b));
  EXPECT_EQ(a.cache.held(in_a), b.cache.held(in_b));
  EXPECT_EQ(a.cache.held_bytes(in_a), b.cache.held_bytes(in_b));
  if (a.options.summaries) expect_same_summaries(a.cache, in_a, b.cache, in_b);
}

}  // namespace lacuna::rig

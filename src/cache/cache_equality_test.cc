// Two ways to the same tokens end in the same tables, bytes and bits. Freed and unwritten memory is
// NaN throughout.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "cache/cache_runs.h"
#include "lacuna/thread_pool.h"

namespace lacuna {
namespace {

using rig::Answers;
using rig::CacheRun;
using rig::Model;
using rig::part;
using rig::RunOptions;
using rig::tokens;
using rig::Tokens;

// A window that is no multiple of a page, one with sinks, a head group of its own, a chunk.
struct Setting {
  std::int64_t page_size;
  std::int64_t window;
  const char* layers;
};
constexpr Setting kSettings[] = {
    {16, 40, "window(40), full, window(24)+sink(4), heads(0-1: full; 2-3: window(9)), chunk(24)"},
    {64, 100, "window(100), full, window(40)+sink(70), heads(0-1: window(100); 2-3: window(1))"},
};

// A group of int4 is 32 dims.
LayerShape sizes_for(DType dtype) {
  return dtype == DType::kInt4 ? rig::sizes(4, 2, 32, 64) : rig::sizes(4, 2, 8, 16);
}

Model model_of(const Setting& setting, DType dtype = DType::kF32) {
  return rig::model(setting.layers, setting.page_size == 16 ? 5 : 4, sizes_for(dtype));
}

std::vector<std::int64_t> length_grid(const Setting& setting) {
  const std::int64_t p = setting.page_size;
  const std::int64_t w = setting.window;
  return {1, p - 1, p, p + 1, 2 * p, w - 1, w, w + 1, w + p, 2 * w};
}

TEST(CacheEquality, ChunksOfAnySizeGiveTheSameBitsAndTables) {
  for (const Setting& setting : kSettings) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kInt8, DType::kInt4}) {
      SCOPED_TRACE(to_string(dtype));
      CacheRun run(model_of(setting, dtype), {.page_size = setting.page_size, .dtype = dtype});
      for (const std::int64_t length : length_grid(setting)) {
        const Tokens all = tokens(length);
        const SequenceId whole = run.cache.create();
        const Answers want = run.feed(whole, all, length);
        const std::int64_t p = setting.page_size;
        for (const std::int64_t chunk : {std::int64_t{7}, p - 1, p, p + 1, setting.window}) {
          const SequenceId id = run.cache.create();
          EXPECT_EQ(run.feed(id, all, chunk), want) << length << " tokens by " << chunk;
          rig::expect_same_state(run, id, run, whole);
          run.cache.free(id);
        }
        run.cache.free(whole);
      }
    }
  }
}

TEST(CacheEquality,
     TokensOneByOneGiveTheBitsOfThePromptWhileTheWindowPassesEveryPageAgainAndAgain) {
  for (const Setting& setting : kSettings) {
    CacheRun run(model_of(setting), {.page_size = setting.page_size});
    const Tokens all = tokens(5 * setting.window / 2);
    const Answers want = run.feed(run.cache.create(), all, std::ssize(all));
    Answers got;
    const SequenceId id = run.cache.create();
    rig::extend(got, run.feed(id, part(all, 0, 23), 5));
    rig::extend(got, run.feed(id, part(all, 23, std::ssize(all)), 1));
    EXPECT_EQ(got, want);
  }
}

// Plain tensors of all keys, NaN in those that no row of the call may read.
struct Contiguous {
  std::vector<float> k;
  std::vector<float> v;
  std::vector<std::int64_t> starts = {0};
  std::vector<std::int64_t> lengths;
  std::array<std::int64_t, 3> k_shape;
  std::array<std::int64_t, 3> v_shape;
  KvView view() const {
    return kv_view(tensor_view(k.data(), DType::kF32, k_shape),
                   tensor_view(v.data(), DType::kF32, v_shape), starts, lengths);
  }
};

Contiguous contiguous(const Model& model, int layer, const Tokens& all, Range rows) {
  const LayerShape& shape = model.shape.layers[static_cast<std::size_t>(layer)];
  rig::Rows k = {{}, {0, shape.num_kv_heads, shape.head_dim}};
  rig::Rows v = {{}, {0, shape.num_kv_heads, shape.v_head_dim}};
  rig::append(k, rig::kK, part(all, 0, rows.end), 0, layer);
  rig::append(v, rig::kV, part(all, 0, rows.end), 0, layer);
  const std::vector<Topology> heads = rig::topologies(model, layer);
  const int group = shape.num_q_heads / shape.num_kv_heads;
  for (int kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
    Ranges read;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      read =
          unite(read, heads[static_cast<std::size_t>(head)].rows(rows.begin, rows.end, rows.end));
    }
    for (std::int64_t key = 0; key < rows.end; ++key) {
      if (read.contains(key)) continue;
      const std::int64_t place = key * shape.num_kv_heads + kv_head;
      std::fill_n(k.data.begin() + place * shape.head_dim, shape.head_dim, std::nanf(""));
      std::fill_n(v.data.begin() + place * shape.v_head_dim, shape.v_head_dim, std::nanf(""));
    }
  }
  return {std::move(k.data), std::move(v.data), {0}, {rows.end}, k.shape, v.shape};
}

TEST(CacheEquality, PagesGiveTheBitsOfContiguousTensors) {
  for (const Setting& setting : kSettings) {
    const Model model = model_of(setting);
    for (const std::int64_t length : length_grid(setting)) {
      for (const std::int64_t count : {std::int64_t{1}, std::min<std::int64_t>(length, 17)}) {
        CacheRun run(model, {.page_size = setting.page_size});
        const Tokens all = tokens(length);
        const SequenceId id = run.fed(part(all, 0, length - count), 19);
        const Answers got = run.feed(id, part(all, length - count, length), count);
        for (int layer = 0; layer < std::ssize(got); ++layer) {
          const Range rows = {length - count, length};
          const LayerShape& shape = model.shape.layers[static_cast<std::size_t>(layer)];
          rig::Rows q = {{}, {0, shape.num_q_heads, shape.head_dim}};
          rig::append(q, rig::kQ, part(all, rows.begin, rows.end), rows.begin, layer);
          const Contiguous kv = contiguous(model, layer, all, rows);
          const SequenceRows planned = {rows, length};
          EXPECT_EQ(got[static_cast<std::size_t>(layer)],
                    rig::attend(model, layer, kv.view(), q, {{planned}}))
              << "layer " << layer << ", " << count << " rows of " << length;
        }
      }
    }
  }
}

TEST(CacheEquality, AForkAndItsParentGoOnAsIfAlone) {
  for (const Setting& setting : kSettings) {
    for (const std::int64_t length : length_grid(setting)) {
      const Model model = model_of(setting);
      const RunOptions options = {.page_size = setting.page_size, .summaries = true};
      CacheRun shared(model, options);
      CacheRun alone(model, options);
      const Tokens prompt = tokens(length);
      const Tokens more[] = {tokens(setting.page_size + 3, 1000), tokens(setting.page_size, 2000)};
      const SequenceId parent = shared.fed(prompt, 30);
      const SequenceId ids[] = {parent, shared.cache.fork(parent)};
      Answers got[2];
      for (std::int64_t at = 0; at < setting.page_size; ++at) {
        for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
          rig::extend(got[which], shared.feed(ids[which], part(more[which], at, at + 1), 1));
        }
      }
      for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
        const SequenceId id = alone.fed(prompt, length);
        EXPECT_EQ(got[which], alone.feed(id, part(more[which], 0, setting.page_size), 1)) << length;
        rig::expect_same_state(shared, ids[which], alone, id);
      }
      shared.cache.free(parent);
      const Answers rest = shared.feed(ids[1], tokens(3, 3000), 1);
      EXPECT_EQ(rest, alone.feed(alone.cache.sequences().back(), tokens(3, 3000), 1));
      shared.cache.free(ids[1]);
      EXPECT_EQ(shared.cache.live_bytes(), 0);
    }
  }
}

TEST(CacheEquality, TwoForksThatWriteTheSharedPageInOneStepEachGetTheirOwn) {
  CacheRun run(model_of(kSettings[0]), {});
  const Tokens prompt = tokens(21);
  const SequenceId a = run.fed(prompt, 21);
  const SequenceId b = run.cache.fork(a);
  const Tokens next[] = {tokens(1, 100), tokens(1, 200)};
  const std::optional<Answers> both = run.step({{{a, next[0]}, {b, next[1]}}});
  ASSERT_TRUE(both);
  Answers want;
  for (const Tokens& one : next) {
    const SequenceId alone = run.fed(prompt, 21);
    rig::extend(want, run.feed(alone, one, 1));
    rig::expect_same_state(run, a, run, alone);
    run.cache.free(alone);
  }
  EXPECT_EQ(*both, want);
  for (std::size_t table = 0; table < run.cache.tables().size(); ++table) {
    if (run.cache.block_table(a, table).back() == KvView::kNullPage) continue;
    EXPECT_NE(run.cache.block_table(a, table).back(), run.cache.block_table(b, table).back());
  }
}

// A step that verifies drafts: rows of the last token and the drafts, of which some are accepted.
class Drafted : public testing::Test {
 protected:
  static constexpr RunOptions kOptions = {.page_size = 16, .summaries = true};
  Model model = rig::model("window(24), full, chunk(32), heads(0-1: window(8)+sink(2); 2-3: full)",
                           4, rig::sizes(4, 2, 8, 16));
  CacheRun drafted{model, kOptions};
  CacheRun plain{model, kOptions};

  // The committed rows, then later ones one by one.
  void expect_equal_after(SequenceId in_drafted, SequenceId in_plain, const std::string& what) {
    SCOPED_TRACE(what);
    rig::expect_same_state(drafted, in_drafted, plain, in_plain);
    EXPECT_EQ(drafted.references(in_drafted), plain.references(in_plain));
    EXPECT_EQ(drafted.cache.live_bytes(), plain.cache.live_bytes());
    const Tokens later = tokens(20, 7000);
    EXPECT_EQ(drafted.feed(in_drafted, later, 1), plain.feed(in_plain, later, 1));
    rig::expect_same_state(drafted, in_drafted, plain, in_plain);
    drafted.cache.free(in_drafted);
    plain.cache.free(in_plain);
    EXPECT_EQ(drafted.cache.live_bytes(), 0);
  }
};

TEST_F(Drafted, StepsLeaveNothingOfRejectedRowsWhateverTheirNumberAndWhateverWasAccepted) {
  for (const std::int64_t length : {1, 7, 15, 16, 17, 23, 24, 31, 32, 40, 48}) {
    const Tokens prompt = tokens(length);
    for (const std::int64_t drafts : {1, 2, 3, 4, 5, 17}) {
      Tokens rows = tokens(drafts + 1, 500);
      for (std::int64_t accepted = 0; accepted <= drafts + 1; ++accepted) {
        const SequenceId a = drafted.fed(prompt, length);
        const SequenceId b = plain.fed(prompt, length);
        const std::vector<std::int64_t> committed = {accepted};
        ASSERT_TRUE(drafted.step({{{a, rows}}}, committed));
        plain.feed(b, part(rows, 0, accepted), 1);
        expect_equal_after(a, b,
                           std::to_string(accepted) + " of " + std::to_string(drafts + 1) +
                               " rows after " + std::to_string(length) + " tokens");
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Drafted, TokensThatWereCommittedAreTakenBackWithinTheRollbackDepth) {
  constexpr std::int64_t kDepth = 6;
  drafted.options.rollback = kDepth;
  for (const std::int64_t length : {7, 16, 17, 24, 31, 40, 49}) {
    for (std::int64_t accepted = 0; accepted <= kDepth; ++accepted) {
      const SequenceId a = drafted.fed(tokens(length), length);
      const SequenceId b = plain.fed(tokens(length), length);
      const Tokens rows = tokens(kDepth, 500);
      drafted.feed(a, rows, kDepth);
      const std::int64_t left = length + accepted;
      const std::vector<Ranges> needed = drafted.retention.kept(left, left);
      drafted.cache.truncate(a, left, needed);
      drafted.cache.retain(a, needed);
      plain.feed(b, part(rows, 0, accepted), 1);
      drafted.options.rollback = 0;
      expect_equal_after(a, b, std::to_string(accepted) + " after " + std::to_string(length));
      drafted.options.rollback = kDepth;
      if (HasFailure()) return;
    }
  }
}

// A chunk that ends inside a page: how much of the page is there depends on where steps ended, but
// not what later queries read, nor which pages are held.
void expect_no_trace_of_drafts(DType dtype, std::int64_t length, std::int64_t accepted) {
  const Model model = rig::model("chunk(24), window(1), chunk(8)", 3, sizes_for(dtype));
  CacheRun drafted(model, {.dtype = dtype, .summaries = true});
  CacheRun plain(model, {.dtype = dtype, .summaries = true});
  const SequenceId a = drafted.fed(tokens(length), length);
  const SequenceId b = plain.fed(tokens(length), length);
  const Tokens rows = tokens(6, 500);
  const std::vector<std::int64_t> committed = {accepted};
  ASSERT_TRUE(drafted.step({{{a, rows}}}, committed));
  plain.feed(b, part(rows, 0, accepted), 1);
  EXPECT_EQ(drafted.pattern(a), plain.pattern(b)) << accepted << " after " << length;
  EXPECT_EQ(drafted.cache.live_bytes(), plain.cache.live_bytes());
  const Tokens later = tokens(30, 7000);
  EXPECT_EQ(drafted.feed(a, later, 1), plain.feed(b, later, 1)) << accepted << ", " << length;
}

TEST(CacheEquality, DraftsAcrossTheEndOfAChunkInsideAPageChangeNoLaterBits) {
  for (const DType dtype : {DType::kF32, DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(dtype));
    for (const std::int64_t length : {7, 8, 15, 16, 22, 23, 24, 25, 40, 47}) {
      for (std::int64_t accepted = 0; accepted <= 6; ++accepted) {
        expect_no_trace_of_drafts(dtype, length, accepted);
      }
    }
  }
}

TEST(CacheEquality, ABatchOfUnequalLengthsGivesTheBitsOfEachAlone) {
  for (const Setting& setting : kSettings) {
    const Model model = model_of(setting);
    CacheRun batch(model, {.page_size = setting.page_size});
    CacheRun alone(model, {.page_size = setting.page_size});
    const std::vector<std::int64_t> lengths = length_grid(setting);
    std::vector<SequenceId> ids;
    for (const std::int64_t length : lengths) ids.push_back(batch.fed(tokens(length), length));
    const Tokens more = tokens(40, 900);
    std::vector<rig::StepTokens> step;
    Answers want;
    for (std::size_t idx = 0; idx < ids.size(); ++idx) {
      const auto rows = part(more, 0, static_cast<std::int64_t>(1 + idx * idx % 20));
      step.push_back({ids[idx], rows});
      const SequenceId id = alone.fed(tokens(lengths[idx]), lengths[idx]);
      rig::extend(want, alone.feed(id, rows, 64));
    }
    EXPECT_EQ(batch.step(step), want);
    for (std::size_t idx = 0; idx < ids.size(); ++idx) {
      rig::expect_same_state(batch, ids[idx], alone, alone.cache.sequences()[idx]);
    }
  }
}

TEST(CacheEquality, AnyNumberOfThreadsWritesTheSamePagesAndReadsTheSameBits) {
  const Model model = rig::model("window(40), full", 2, rig::sizes(16, 8, 8, 16));
  const Tokens all = tokens(16 * 12 + 5);
  std::optional<Answers> want;
  for (std::int64_t threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    CacheRun run(model, {});
    const SequenceId id = run.cache.create();
    auto step = run.cache.begin({{{id, std::ssize(all)}}});
    ASSERT_TRUE(step);
    Answers got;
    for (int layer = 0; layer < 2; ++layer) {
      const Contiguous kv = contiguous(model, layer, all, {0, std::ssize(all)});
      step->append(layer, tensor_view(kv.k.data(), DType::kF32, kv.k_shape),
                   tensor_view(kv.v.data(), DType::kF32, kv.v_shape), &pool);
      rig::Rows q = {{}, {0, 16, 8}};
      rig::append(q, rig::kQ, all, 0, layer);
      AttentionOptions options;
      options.pool = &pool;
      const SequenceRows rows = {{0, std::ssize(all)}, std::ssize(all)};
      const CacheView view = run.cache.view(layer, {&id, 1});
      got.push_back(rig::attend(model, layer, view.kv(), q, {{rows}}, options));
    }
    step->commit();
    if (!want) want = got;
    EXPECT_EQ(got, *want) << threads << " threads";
  }
}

}  // namespace
}  // namespace lacuna

#include "lacuna/kv_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <stop_token>
#include <string>

#include "cache/cache_runs.h"
#include "cache/refusal.h"

namespace lacuna {
namespace {

using rig::Answers;
using rig::CacheRun;
using rig::expect_refused;
using rig::Model;
using rig::part;
using rig::tokens;
using rig::Tokens;

constexpr SequenceId kUnknown = 99;

// Layer 2 reads the tables of layer 0; layer 3 keeps no keys.
Model four_layers() {
  Model model = rig::model("window(24), full, window(40), full", 4, rig::sizes(2, 2, 4, 16));
  model.table.layers[2].kv_from = 0;
  Layer& linear = model.table.layers[3];
  linear.mixer = Mixer::kNone;
  linear.attend = {};
  return model;
}

// Tables, references and bytes of the whole cache.
struct Snapshot {
  std::vector<SequenceId> ids;
  std::vector<std::int64_t> lengths;
  std::vector<PageId> pages;
  std::vector<std::int64_t> references;
  std::int64_t live_bytes = 0;
  std::int64_t available = 0;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

Snapshot snapshot(const CacheRun& run) {
  Snapshot all;
  all.ids = run.cache.sequences();
  for (const SequenceId id : all.ids) {
    all.lengths.push_back(run.cache.length(id));
    for (std::size_t table = 0; table < run.cache.tables().size(); ++table) {
      const std::span<const PageId> pages = run.cache.block_table(id, table);
      all.pages.insert(all.pages.end(), pages.begin(), pages.end());
    }
    const std::vector<std::int64_t> references = run.references(id);
    all.references.insert(all.references.end(), references.begin(), references.end());
  }
  all.live_bytes = run.cache.live_bytes();
  all.available = run.cache.pool().num_available(0);
  return all;
}

class Refused : public testing::Test {
 protected:
  // Nothing is changed by a call that was refused.
  void expect(const std::function<void()>& call, const std::vector<std::string>& words) {
    const Snapshot before = snapshot(run);
    expect_refused(call, words);
    EXPECT_EQ(snapshot(run), before) << words.front();
  }

  CacheRun run{[] {
                 Model model = four_layers();
                 model.table.layers.resize(3);
                 model.shape.layers.resize(3);
                 return model;
               }(),
               {.summaries = true, .budget_bytes = 1 << 20}};
  SequenceId id = run.fed(tokens(80), 80);
  SequenceId other = run.fed(tokens(20), 20);
  std::vector<Ranges> nothing = std::vector<Ranges>(2);
  rig::Rows k = {std::vector<float>(8), {1, 2, 4}};
  rig::Rows v = {std::vector<float>(32), {1, 2, 16}};
};

TEST_F(Refused, SequencesThatAreNotThereAreNamed) {
  const std::vector<std::string> words = {"sequence is 99", "allowed: one of the cache's 2"};
  const Tokens one = tokens(1);
  expect([&] { run.cache.fork(kUnknown); }, words);
  expect([&] { run.cache.free(kUnknown); }, words);
  expect([&] { static_cast<void>(run.cache.length(kUnknown)); }, words);
  expect([&] { run.cache.begin({{{id, 1}, {kUnknown, 1}}}); }, words);
  expect([&] { static_cast<void>(run.cache.step_bytes({{{kUnknown, 1}}})); }, words);
  expect([&] { run.cache.retain(kUnknown, nothing); }, words);
  expect([&] { run.cache.truncate(kUnknown, 0, nothing); }, words);
  expect([&] { run.cache.view(0, {&kUnknown, 1}); }, words);
  expect([&] { run.cache.block_table(kUnknown, 0); }, words);
  expect([&] { run.cache.held(kUnknown); }, words);
  expect([&] { run.cache.held_bytes(kUnknown); }, words);
  expect([&] { run.cache.summary(kUnknown, 0, 0, 0); }, words);
  expect([&] { run.cache.free(-1); }, {"sequence is -1"});
}

TEST_F(Refused, RowsOfAStepOutOfRange) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{-1}, kMost}) {
    const std::vector<std::string> words = {
        "num_rows of sequence " + std::to_string(id) + " is " + std::to_string(rows),
        "allowed: 1.."};
    expect([&] { run.cache.begin({{{other, 1}, {id, rows}}}); }, words);
    expect([&] { static_cast<void>(run.cache.step_bytes({{{other, 1}, {id, rows}}})); }, words);
  }
  expect([&] { run.cache.begin({{{id, 1}, {other, 1}, {id, 1}}}); }, {"stands twice"});
  const Snapshot before = snapshot(run);
  EXPECT_FALSE(run.cache.begin({{{other, 1}, {id, std::int64_t{1} << 31}}}));
  EXPECT_EQ(snapshot(run), before);
}

TEST_F(Refused, SequencesInAStepAreLeftToIt) {
  const std::vector<std::string> words = {"sequence " + std::to_string(id) + " is in a step"};
  auto step = run.cache.begin({{{id, 1}}});
  ASSERT_TRUE(step);
  expect([&] { run.cache.fork(id); }, words);
  expect([&] { run.cache.free(id); }, words);
  expect([&] { run.cache.retain(id, nothing); }, words);
  expect([&] { run.cache.truncate(id, 1, nothing); }, words);
  expect([&] { run.cache.begin({{{other, 1}, {id, 1}}}); }, words);
  expect([&] { static_cast<void>(run.cache.step_bytes({{{id, 1}}})); }, words);
  EXPECT_TRUE(run.cache.begin({{{other, 1}}}));  // a step of others may begin
}

TEST_F(Refused, RowsThatAreNotTheStepsAreNotAppended) {
  auto step = run.cache.begin({{{id, 1}}});
  ASSERT_TRUE(step);
  for (const int layer : {-1, 2, 3, 1000}) {
    expect([&] { step->append(layer, k.view(), v.view()); },
           {"layer_idx is " + std::to_string(layer), "allowed: layers below 3 that store KV"});
  }
  const auto shaped = [](const rig::Rows& rows, std::array<std::int64_t, 3> shape) {
    return tensor_view(rows.data.data(), DType::kF32, shape);
  };
  expect(
      [&] {
        step->append(0, shaped(k, {2, 2, 2}), v.view());
      },
      {"shape of k is 2×2×2", "allowed: 1×2×4"});
  expect(
      [&] {
        step->append(0, k.view(), shaped(v, {1, 1, 16}));
      },
      {"shape of v is 1×1×16", "allowed: 1×2×16"});
  TensorView wrong = k.view();
  wrong.dtype = DType::kInt8;
  expect([&] { step->append(0, wrong, v.view()); }, {"dtype of k is int8", "f32, bf16, f16"});
  wrong = v.view();
  wrong.data = nullptr;
  expect([&] { step->append(0, k.view(), wrong); }, {"data of v is null"});
  step->append(0, k.view(), v.view());
  expect([&] { step->append(0, k.view(), v.view()); }, {"layer 0 was appended before"});
}

TEST_F(Refused, CommitsOfWhatWasNotAppendedOrIsOutOfRange) {
  auto step = run.cache.begin({{{id, 1}, {other, 1}}});
  ASSERT_TRUE(step);
  const rig::Rows two_k = {std::vector<float>(16), {2, 2, 4}};
  const rig::Rows two_v = {std::vector<float>(64), {2, 2, 16}};
  step->append(0, two_k.view(), two_v.view());
  expect([&] { step->commit(); }, {"layer 1 was not appended"});
  step->append(1, two_k.view(), two_v.view());
  expect([&] { step->commit(std::vector<std::int64_t>{1}); },
         {"num_committed has 1 entries", "each of 2 sequences"});
  for (const std::int64_t count : {-1, 2}) {
    expect(
        [&] {
          step->commit(std::vector<std::int64_t>{1, count});
        },
        {"num_committed of sequence " + std::to_string(other) + " is " + std::to_string(count),
         "allowed: 0..1"});
  }
  step->commit();
  EXPECT_EQ(run.cache.length(id), 81);
  expect([&] { step->commit(); }, {"the step was committed"});
  expect([&] { step->append(0, two_k.view(), two_v.view()); }, {"the step was committed"});
}

TEST_F(Refused, RangesForOtherTablesAndLengthsOutOfRange) {
  expect([&] { run.cache.retain(id, std::vector<Ranges>(3)); },
         {"kept has ranges for 3 tables", "each of 2"});
  expect([&] { run.cache.truncate(id, 3, std::vector<Ranges>(1)); },
         {"needed has ranges for 1 tables", "each of 2"});
  for (const std::int64_t length : {-1, 81}) {
    expect([&] { run.cache.truncate(id, length, nothing); },
           {"length is " + std::to_string(length), "allowed: 0..80"});
  }
  const std::vector<Ranges> needed = {Ranges{{0, 40}}, Ranges{{0, 40}}};
  expect([&] { run.cache.truncate(id, 40, needed); },
         {"cannot be cut to 40 tokens", "layer 0 no longer holds position 0"});
}

TEST_F(Refused, ViewsAndTablesThatAreNotThere) {
  for (const int layer : {-1, 3}) {
    expect(
        [&] {
          run.cache.view(layer, {&id, 1});
        },
        {"layer_idx is " + std::to_string(layer), "allowed: layers below 3 that have KV"});
    expect([&] { run.cache.summary(id, layer, 0, 0); }, {"layer " + std::to_string(layer)});
  }
  expect([&] { run.cache.block_table(id, 2); }, {"table is 2", "allowed: below 2"});
  for (const int head : {-1, 2}) {
    expect([&] { run.cache.summary(id, 0, head, 0); }, {"KV head " + std::to_string(head)});
  }
  for (const std::int64_t column : {-1, 0, 5}) {  // column 0 has left the window
    expect([&] { run.cache.summary(id, 0, 0, column); },
           {"column is " + std::to_string(column), "allowed: pages that sequence"});
  }
  CacheRun without(run.model, {});
  const SequenceId fed = without.fed(tokens(3), 3);
  expect_refused([&] { without.cache.summary(fed, 0, 0, 0); }, {"summaries is false"});
}

TEST(LayerWithoutKeys, HasNoTablesAndIsNeitherAppendedNorViewed) {
  Model model = four_layers();
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 16, DType::kF32), {.budget_bytes = 4 << 20});
  EXPECT_EQ(cache.tables().size(), 2u);
  const SequenceId id = cache.create();
  expect_refused([&] { cache.view(3, {&id, 1}); }, {"layer_idx is 3"});
}

TEST(EmptyStep, OfNoSequencesCommits) {
  CacheRun run(rig::model("full", 1, rig::sizes(1, 1, 4, 16)), {});
  auto step = run.cache.begin({});
  ASSERT_TRUE(step);
  const rig::Rows k = {{}, {0, 1, 4}};
  const rig::Rows v = {{}, {0, 1, 16}};
  step->append(0, k.view(), v.view());
  step->commit();
  EXPECT_EQ(run.cache.live_bytes(), 0);
}

TEST(ShortMemory, TakesNothingAndTheOtherStepsStillFit) {
  const Model model = rig::model("full, window(30)", 2, rig::sizes(1, 1, 4, 16));
  CacheRun run(model, {.budget_bytes = 16384, .slab_bytes = 4096});  // 12 pages of 1280
  const SequenceId id = run.fed(tokens(40), 40);
  const Snapshot before = snapshot(run);
  EXPECT_EQ(run.cache.step_bytes({{{id, 200}}}), 2 * 12 * 1280);
  EXPECT_FALSE(run.cache.begin({{{id, 200}}}));
  EXPECT_EQ(snapshot(run), before);
  CacheRun untouched(model, {});
  EXPECT_EQ(run.feed(id, tokens(30, 700), 10),
            untouched.feed(untouched.fed(tokens(40), 40), tokens(30, 700), 10));
}

TEST(ConstMembers, OfOneCacheMayBeCalledByManyThreadsAtOnce) {
  CacheRun run(rig::model("window(24), full", 2, rig::sizes(2, 1, 4, 16)), {.summaries = true});
  const SequenceId id = run.fed(tokens(50), 50);
  const KvCache& cache = run.cache;
  const std::int64_t bytes = cache.live_bytes();
  ThreadPool pool(4);
  pool.run([&](std::int64_t) {
    for (int turn = 0; turn < 50; ++turn) {
      EXPECT_EQ(cache.view(1, {&id, 1}).kv().lengths[0], 50);
      EXPECT_EQ(cache.summary(id, 1, 0, 3).positions, (Range{48, 50}));
      EXPECT_EQ(cache.live_bytes(), bytes);
      EXPECT_EQ(cache.held(id)[1], (Ranges{{0, 50}}));
      EXPECT_GT(cache.step_bytes({{{id, 20}}}), 0);
      EXPECT_EQ(cache.pool().references(cache.block_table(id, 1)[0]), 1);
    }
  });
}

// A caller stops between layers or inside one, and drops the step.
class Cancelled : public testing::Test {
 protected:
  // Appends and attends until the stop token says so; nothing is committed.
  void cancel(SequenceId id, const Tokens& rows, int stopped_layer, ThreadPool* pool) {
    const std::int64_t length = run.cache.length(id);
    const std::int64_t end = length + std::ssize(rows);
    auto step = run.cache.begin({{{id, std::ssize(rows)}}});
    ASSERT_TRUE(step);
    std::stop_source source;
    for (int layer = 0; layer < 3; ++layer) {
      rig::Rows q = {{}, {0, 4, 8}};
      rig::Rows k = {{}, {0, 2, 8}};
      rig::Rows v = {{}, {0, 2, 16}};
      rig::append(q, rig::kQ, rows, length, layer);
      rig::append(k, rig::kK, rows, length, layer);
      rig::append(v, rig::kV, rows, length, layer);
      step->append(layer, k.view(), v.view(), pool);
      if (layer == stopped_layer) source.request_stop();
      AttentionOptions options;
      options.pool = pool;
      options.stop = source.get_token();
      if (!attended(id, layer, q, {{length, end}, end}, options)) {
        EXPECT_EQ(layer, stopped_layer);
        return;
      }
    }
    ADD_FAILURE() << "the stop was not seen";
  }

  bool attended(SequenceId id, int layer, const rig::Rows& q, const SequenceRows& rows,
                const AttentionOptions& options) {
    const Plan plan = make_plan(rig::topologies(run.model, layer), {{rows}}, {4, 2});
    const CacheView view = run.cache.view(layer, {&id, 1});
    const TensorView queries = q.view();
    std::vector<float> out(static_cast<std::size_t>(q.shape[0] * 4 * 16));
    Memory workspace(workspace_bytes(plan, queries, view.kv(), options));
    return lacuna::run(mutable_tensor_view(out.data(), DType::kF32, {q.shape[0], 4, 16}), {}, plan,
                       queries, view.kv(),
                       {workspace.data(), static_cast<std::size_t>(workspace.size())}, options)
        .has_value();
  }

  Model model = rig::model("window(24), full, chunk(24)", 3, rig::sizes(4, 2, 8, 16));
  CacheRun run{model, {.summaries = true}};
};

TEST_F(Cancelled, StepsLeaveTablesBytesReferencesAndLaterBitsAsTheyWere) {
  ThreadPool pool(2);
  for (const std::int64_t length : {1, 16, 24, 40}) {
    CacheRun untouched(model, {.summaries = true});
    const SequenceId id = run.fed(tokens(length), 16);
    const SequenceId same = untouched.fed(tokens(length), 16);
    for (const bool forked : {false, true}) {
      const SequenceId fork = forked ? run.cache.fork(id) : id;
      for (int layer = 0; layer < 3; ++layer) {
        const Snapshot before = snapshot(run);
        cancel(fork, tokens(35, 400), layer, layer == 1 ? &pool : nullptr);
        EXPECT_EQ(snapshot(run), before);
        rig::expect_same_state(run, fork, untouched, same);
      }
    }
    EXPECT_EQ(run.feed(id, tokens(20, 500), 1), untouched.feed(same, tokens(20, 500), 1));
  }
}

TEST_F(Cancelled, StepsOfOnlyRowsThatAreNotFiniteLeaveNothingBehind) {
  const SequenceId id = run.fed(tokens(21), 21);
  CacheRun untouched(model, {.summaries = true});
  const SequenceId same = untouched.fed(tokens(21), 21);
  {
    auto step = run.cache.begin({{{id, 9}}});
    ASSERT_TRUE(step);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const rig::Rows k = {std::vector<float>(9 * 16, nan), {9, 2, 8}};
    const rig::Rows v = {std::vector<float>(9 * 32, nan), {9, 2, 16}};
    for (int layer = 0; layer < 3; ++layer) step->append(layer, k.view(), v.view());
    const std::vector<std::int64_t> none = {0};
    step->commit(none);
  }
  rig::expect_same_state(run, id, untouched, same);
  EXPECT_EQ(run.feed(id, tokens(20, 500), 1), untouched.feed(same, tokens(20, 500), 1));
}

TEST(Truncate, DropsAPageThatHoldsOnlyWhatIsTakenBack) {
  CacheRun run(rig::model("window(1)", 1, rig::sizes(1, 1, 16, 16)), {.page_size = 64});
  const SequenceId id = run.fed(tokens(20), 20);
  run.options.rollback = 1;
  run.feed(id, tokens(1), 1);
  EXPECT_EQ(run.cache.held(id), std::vector<Ranges>{(Ranges{{20, 21}})});
  run.cache.truncate(id, 10, run.retention.kept(10, 10));
  EXPECT_EQ(run.cache.live_bytes(), 0);
}

}  // namespace
}  // namespace lacuna

// What caches of other engines got wrong, at lengths that fit pages of 16 tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
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

// Queries are zero, so that every key that is read has the same weight, and values are positions:
// lse says how many keys a row read, and the output their mean.
class Counted {
 public:
  explicit Counted(const char* layers, std::int64_t rollback = 0)
      : run(rig::model(layers, 1, rig::sizes(1, 1, 2, 1)), {.rollback = rollback}),
        id(run.cache.create()) {}

  struct Read {
    double count;
    double mean;
  };

  std::vector<Read> step(std::int64_t num_rows) {
    const std::int64_t length = run.cache.length(id);
    const std::int64_t end = length + num_rows;
    auto step = run.cache.begin({{{id, num_rows}}});
    EXPECT_TRUE(step);
    const rig::Rows zeros = {std::vector<float>(static_cast<std::size_t>(2 * num_rows), 0),
                             {num_rows, 1, 2}};
    rig::Rows v = {{}, {num_rows, 1, 1}};
    for (std::int64_t p = length; p < end; ++p) v.data.push_back(static_cast<float>(p));
    step->append(0, zeros.view(), v.view());
    const SequenceRows rows = {{length, end}, end};
    const CacheView view = run.cache.view(0, {&id, 1});
    const rig::Answer answer = rig::attend(run.model, 0, view.kv(), zeros, {{rows}});
    step->commit();
    run.cache.retain(id, run.retention.kept(end - run.options.rollback, end));
    std::vector<Read> reads;
    for (std::size_t row = 0; row < answer.lse.size(); ++row) {
      reads.push_back({std::exp(static_cast<double>(answer.lse[row])), answer.out[row]});
    }
    return reads;
  }

  CacheRun run;
  SequenceId id;
};

// Rows from first_row on, each of which reads the `window` keys that end with its own.
void expect_windows(const std::vector<Counted::Read>& reads, std::int64_t first_row,
                    std::int64_t window) {
  for (std::size_t row = 0; row < reads.size(); ++row) {
    const std::int64_t query = first_row + static_cast<std::int64_t>(row);
    const std::int64_t first = std::max<std::int64_t>(0, query - window + 1);
    EXPECT_NEAR(reads[row].count, static_cast<double>(query - first + 1), 1e-3) << query;
    EXPECT_NEAR(reads[row].mean, static_cast<double>(query + first) / 2, 1e-3) << query;
  }
}

TEST(WindowCache, KeepsWhatTheFirstRowsOfAChunkOfTwoWindowsRead) {
  Counted counted("window(32)");
  expect_windows(counted.step(64), 0, 32);
  expect_windows(counted.step(64), 64, 32);
}

TEST(WindowCache, SeesAWholeWindowFromEveryRowOfAChunkAtALargeOffset) {
  Counted counted("window(512)");
  expect_windows(counted.step(2048), 0, 512);
  expect_windows(counted.step(153), 2048, 512);
}

TEST(WindowCache, LeavesNoRowOfAChunkLongerThanTheWindowWithoutKeys) {
  Counted counted("window(512)");
  expect_windows(counted.step(768), 0, 512);
  expect_windows(counted.step(768), 768, 512);
}

TEST(WindowCache, LosesNothingWhereAChunkFollowsSingleTokensPastTheWindow) {
  Counted counted("window(64)");
  for (std::int64_t p = 0; p < 96; ++p) expect_windows(counted.step(1), p, 64);
  expect_windows(counted.step(32), 96, 64);
}

TEST(WindowCache, DecodesAsAfterOnePromptAlthoughThePromptCameInUnevenChunks) {
  const Model model = rig::model("window(32)", 1, rig::sizes(2, 1, 8, 16));
  CacheRun run(model, {});
  const Tokens all = tokens(44 + 4 * 48);
  Answers got;
  const SequenceId id = run.cache.create();
  rig::extend(got, run.feed(id, part(all, 0, 44), 20));
  rig::extend(got, run.feed(id, part(all, 44, std::ssize(all)), 1));
  EXPECT_EQ(got, run.feed(run.cache.create(), all, std::ssize(all)));
}

TEST(WindowCache, HasAbsoluteTablesWithNullEntriesBeforeTheWindow) {
  Counted counted("window(32)");
  counted.step(48);
  EXPECT_EQ(counted.run.pattern(counted.id), std::vector<std::string>{".##"});
  const std::vector<PageId> before = {counted.run.cache.block_table(counted.id, 0).begin(),
                                      counted.run.cache.block_table(counted.id, 0).end()};
  expect_windows(counted.step(1), 48, 32);
  EXPECT_EQ(counted.run.pattern(counted.id), std::vector<std::string>{".###"});
  const std::span<const PageId> after = counted.run.cache.block_table(counted.id, 0);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(WindowCache, FreesPagesStepByStepAsTheWindowLeavesThem) {
  Counted counted("window(32)");
  const auto expect_pattern = [&](std::int64_t length, const std::string& pattern) {
    while (counted.run.cache.length(counted.id) < length) counted.step(1);
    EXPECT_EQ(counted.run.pattern(counted.id), std::vector<std::string>{pattern}) << length;
  };
  expect_pattern(46, "###");
  expect_pattern(47, ".##");
  expect_pattern(62, ".###");
  expect_pattern(63, "..##");
  expect_pattern(95, "....##");
}

TEST(SinkCache, ReadsSinksAndWindowAndHoldsNothingBetween) {
  Counted counted("window(128)+sink(4)");
  counted.step(319);
  const Counted::Read last = counted.step(1).front();
  EXPECT_NEAR(last.count, 132, 1e-3);
  EXPECT_NEAR(last.mean, (0 + 1 + 2 + 3 + 128 * (192 + 319) / 2.0) / 132, 1e-3);
  EXPECT_EQ(counted.run.pattern(counted.id), std::vector<std::string>{"#...........########"});
}

TEST(CacheLength, IsThatOfTheTokensWhateverAWindowLayerHolds) {
  CacheRun run(rig::model("window(64), full", 2, rig::sizes(1, 1, 2, 16)), {});
  const SequenceId id = run.fed(tokens(96), 96);
  EXPECT_EQ(run.cache.length(id), 96);
  for (const int layer : {0, 1}) EXPECT_EQ(run.cache.view(layer, {&id, 1}).kv().lengths[0], 96);
}

TEST(Truncate, RefusesAsAWholeWhereAWindowLayerNoLongerHoldsWhatItNeeds) {
  CacheRun run(rig::model("full, window(128), full", 3, rig::sizes(1, 1, 2, 16)), {});
  const SequenceId id = run.fed(tokens(320), 320);
  CacheRun untouched(run.model, {});
  const SequenceId same = untouched.fed(tokens(320), 320);
  expect_refused([&] { run.cache.truncate(id, 272, run.retention.kept(272, 272)); },
                 {"cannot be cut to 272 tokens: layer 1 no longer holds position 145"});
  rig::expect_same_state(run, id, untouched, same);
  EXPECT_EQ(run.feed(id, tokens(3, 900), 1), untouched.feed(same, tokens(3, 900), 1));
}

TEST(Truncate, TakesBackWhatTheRollbackDepthKept) {
  CacheRun run(rig::model("full, window(128)", 2, rig::sizes(1, 1, 2, 16)), {.rollback = 48});
  const SequenceId id = run.fed(tokens(320), 16);
  run.cache.truncate(id, 272, run.retention.kept(272, 272));
  run.options.rollback = 0;
  run.cache.retain(id, run.retention.kept(272, 272));
  const SequenceId cold = run.fed(tokens(272), 272);
  rig::expect_same_state(run, id, run, cold);
  EXPECT_EQ(run.feed(id, tokens(40, 900), 1), run.feed(cold, tokens(40, 900), 1));
}

TEST(Truncate, OfAForkRefusesAPrefixThatTheWindowHasLeft) {
  CacheRun run(rig::model("window(64)", 1, rig::sizes(1, 1, 2, 16)), {});
  const SequenceId fork = run.cache.fork(run.fed(tokens(96), 96));
  expect_refused([&] { run.cache.truncate(fork, 80, run.retention.kept(80, 80)); },
                 {"position 17"});
}

TEST(Truncate, DoesNotTakeAPageThatWasBegunLaterForTheOneThatWasDropped) {
  Counted counted("chunk(8)");
  counted.step(8);  // no later query reads them: the page goes, half full
  counted.step(1);  // its place is taken by one that begins with slot 8
  EXPECT_EQ(counted.run.cache.held(counted.id), std::vector<Ranges>({Ranges{{8, 9}}}));
  expect_refused(
      [&] { counted.run.cache.truncate(counted.id, 6, counted.run.retention.kept(6, 6)); },
      {"position 0"});
}

TEST(DroppedStep, GivesBackAPageThatNoneStoodInPlaceOf) {
  Counted counted("chunk(8)");
  counted.step(8);
  EXPECT_EQ(counted.run.cache.live_bytes(), 0);
  counted.run.cache.begin({{{counted.id, 1}}});  // dropped at once
  EXPECT_EQ(counted.run.cache.live_bytes(), 0);
  EXPECT_EQ(counted.run.pattern(counted.id), std::vector<std::string>{"."});
}

TEST(Summary, TakesInWhatIsWrittenToAPageThatWasCutWhileItWasShared) {
  const Model model = rig::model("full", 1, rig::sizes(1, 1, 2, 16));
  CacheRun run(model, {.summaries = true});
  CacheRun plain(model, {.summaries = true});
  const SequenceId parent = run.fed(tokens(12), 12);
  const SequenceId fork = run.cache.fork(parent);
  run.cache.truncate(fork, 5, run.retention.kept(5, 5));
  run.cache.free(parent);
  run.feed(fork, tokens(4, 800), 1);
  const SequenceId same = plain.fed(tokens(5), 5);
  plain.feed(same, tokens(4, 800), 1);
  rig::expect_same_state(run, fork, plain, same);
}

TEST(UnwrittenMemory, ChangesNoBitWhetherItHoldsZerosOrNaN) {
  const Model model = rig::model("full, window(24)", 2, rig::sizes(2, 1, 5, 7));  // padded dims
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8}) {
    for (const std::int64_t length : {13, 20, 52}) {
      CacheRun poisoned(model, {.dtype = dtype});
      const SequenceId id = poisoned.cache.create();
      const Answers got = poisoned.feed(id, tokens(length), length);
      KvCache zeros(CacheRun::shape_of(poisoned.retention, poisoned.options),
                    {.budget_bytes = 1 << 20, .slab_bytes = 1 << 16});
      const Tokens all = tokens(length);
      EXPECT_EQ(*rig::step(zeros, model, poisoned.retention, {{{zeros.create(), all}}}), got);
    }
  }
}

TEST(EmptySequence, InABatchTouchesNoPageAndChangesNoOther) {
  const Model model = rig::model("full", 1, rig::sizes(1, 1, 4, 16));
  CacheRun run(model, {});
  const SequenceId empty = run.cache.create();
  const SequenceId other = run.fed(tokens(17), 17);
  const std::int64_t bytes = run.cache.live_bytes();
  const SequenceId both[] = {empty, other};
  const CacheView view = run.cache.view(0, both);
  EXPECT_EQ(run.cache.live_bytes(), bytes);
  rig::Rows q = {{}, {0, 1, 4}};
  rig::append(q, rig::kQ, tokens(1, 5), 16, 0);
  const SequenceRows rows[] = {{{0, 0}, 0}, {{16, 17}, 17}};
  const CacheView alone = run.cache.view(0, {&other, 1});
  EXPECT_EQ(rig::attend(model, 0, view.kv(), q, rows),
            rig::attend(model, 0, alone.kv(), q, {rows + 1, 1}));
  EXPECT_EQ(run.cache.length(empty), 0);
}

// Byte offsets of pages, and element offsets that kernels make of them, pass 2^32.
TEST(PageOffsets, AreRightPastFourGibibytes) {
  const Model model = rig::model("full", 1, rig::sizes(2, 2, 64, 64));
  RecordProperty("bytes", "5 GiB of addresses, of which a few pages are touched");
  const Tokens all = tokens(33);
  Answers near;
  for (const bool far : {false, true}) {
    Retention retention(model.table, model.shape);
    KvCache cache(rig::cache_shape(retention, 16, DType::kF32),
                  {.budget_bytes = std::int64_t{5} << 30, .slab_bytes = std::int64_t{32} << 20});
    if (far) {
      while (cache.pool().num_free_slabs() > 1) cache.pool().take(0);
    }
    const SequenceId id = cache.create();
    const Answers answers = *rig::step(cache, model, retention, {{{id, all}}});
    if (!far) {
      near = answers;
      continue;
    }
    EXPECT_GT(cache.block_table(id, 0).back() * kPageUnitBytes, std::int64_t{1} << 32);
    EXPECT_EQ(answers, near);
  }
}

TEST(BlockTable, ThatIsShorterThanASequenceIsRefusedBeforeAnythingIsRead) {
  CacheRun run(rig::model("full", 1, rig::sizes(1, 1, 2, 16)), {});
  const SequenceId id = run.fed(tokens(33), 33);
  const CacheView view = run.cache.view(0, {&id, 1});
  KvView cut = view.kv();
  cut.table_columns = 2;
  cut.block_table = cut.block_table.first(2);
  expect_refused([&] { check(cut); }, {"2"});
}

TEST(FreedPage, ThatSomeoneElseTookIsNotFreedByItsFormerOwner) {
  CacheRun run(rig::model("window(16)", 1, rig::sizes(1, 1, 2, 16)), {});
  const SequenceId a = run.fed(tokens(16), 16);
  const PageId first = run.cache.block_table(a, 0)[0];
  run.feed(a, tokens(20, 100), 20);
  ASSERT_EQ(run.cache.block_table(a, 0)[0], KvView::kNullPage);
  const SequenceId b = run.cache.create();
  const Answers before = run.feed(b, tokens(14), 14);
  ASSERT_EQ(run.cache.block_table(b, 0)[0], first);
  run.cache.free(a);
  EXPECT_EQ(run.cache.pool().references(first), 1);
  const SequenceId fresh = run.cache.create();
  EXPECT_EQ(run.feed(fresh, tokens(14), 14), before);
  EXPECT_EQ(run.feed(b, tokens(2, 70), 1), run.feed(fresh, tokens(2, 70), 1));
}

TEST(Forks, ThatEndInAnyOrderFreeEachPageOnceAndLeaveNone) {
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    CacheRun run(rig::model("window(20), full", 2, rig::sizes(1, 1, 2, 16)), {});
    const SequenceId a = run.fed(tokens(40), 40);
    const SequenceId b = run.cache.fork(a);
    run.feed(b, tokens(9, 300), 9);
    const SequenceId ids[] = {a, b, run.cache.fork(b)};
    for (const std::size_t which : order) {
      EXPECT_GT(run.cache.live_bytes(), 0);
      run.cache.free(ids[which]);
    }
    EXPECT_EQ(run.cache.live_bytes(), 0);
    EXPECT_EQ(run.cache.pool().num_free_slabs(), run.cache.pool().num_slabs());
  } while (std::next_permutation(order.begin(), order.end()));
}

// A selector's budget: four pages of twenty are kept.
TEST(Eviction, ActsOnLaterStepsOnlyAndLeavesPositionsAsTheyAre) {
  Counted counted("full");
  for (std::int64_t p = 0; p < 320; p += 16) expect_windows(counted.step(16), p, 320);
  KvCache& cache = counted.run.cache;
  cache.retain(counted.id, std::vector<Ranges>{{{0, 16}, {272, 320}}});
  EXPECT_EQ(cache.length(counted.id), 320);
  EXPECT_EQ(cache.held(counted.id), std::vector<Ranges>({{{0, 16}, {272, 320}}}));
  EXPECT_EQ(cache.live_bytes(), 4 * cache.tables()[0].page_bytes);
  // By true position: 272 is held, what lies before is not.
  expect_refused(
      [&] {
        cache.truncate(counted.id, 290, std::vector<Ranges>{{{256, 290}}});
      },
      {"position 256"});
  cache.truncate(counted.id, 290, std::vector<Ranges>{{{272, 290}}});
  EXPECT_EQ(cache.held(counted.id), std::vector<Ranges>({{{0, 16}, {272, 290}}}));
}

// ---- Preemption ----

// A request whose next token follows from the bits of its last answer.
struct Request {
  Tokens tokens;
  std::int64_t total = 0;
  std::optional<SequenceId> id;
  std::int64_t num_preempted = 0;
  bool done() const { return std::ssize(tokens) == total; }
};

std::int32_t token_after(const Answers& answers, std::size_t dims) {
  std::uint32_t hash = 7;
  for (const rig::Answer& answer : answers) {
    for (const float x : std::span(answer.out).last(dims)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof(bits));
      hash = (hash ^ bits) * 16777619u;
    }
  }
  return static_cast<std::int32_t>(hash % 50000);
}

// What the cache lacks of the request's tokens, and the token that follows. False: no memory.
bool advance(CacheRun& run, Request& request) {
  if (!request.id) request.id = run.cache.create();
  const std::int64_t length = run.cache.length(*request.id);
  const auto rows = part(request.tokens, length, std::ssize(request.tokens));
  const std::optional<Answers> answers = run.step({{{*request.id, rows}}});
  if (!answers) return false;
  request.tokens.push_back(token_after(*answers, 2 * 16));
  return true;
}

void preempt(CacheRun& run, Request& request) {
  run.cache.free(*request.id);
  request.id.reset();
  ++request.num_preempted;
}

class Preempted : public testing::Test {
 protected:
  static constexpr std::int64_t kTotal = 80;  // 5 pages of full layer
  Model model = rig::model("full", 1, rig::sizes(2, 1, 4, 16));
  std::int64_t page_bytes = 16 * (4 + 16) * 4;

  Request request(std::int32_t first) const { return {tokens(48, first), kTotal, {}, 0}; }
  Tokens alone(std::int32_t first) const {
    CacheRun run(model, {});
    Request only = request(first);
    while (!only.done()) EXPECT_TRUE(advance(run, only));
    return only.tokens;
  }
};

TEST_F(Preempted, RequestsInAPoolThatTwoCannotShareEndWithTheTokensOfAnUnlimitedOne) {
  // A slab of 4096 bytes holds 3 pages of 1280: 6 pages in all.
  CacheRun run(model, {.budget_bytes = 8192, .slab_bytes = 4096});
  ASSERT_EQ(run.cache.pool().num_available(0), 6);
  std::vector<Request> requests = {request(0), request(1000)};
  for (int steps = 0; !requests[0].done() || !requests[1].done(); ++steps) {
    ASSERT_LT(steps, 1000) << "no progress";
    for (std::size_t which : {std::size_t{0}, std::size_t{1}}) {
      Request& one = requests[which];
      Request& other = requests[1 - which];
      if (one.done() || advance(run, one)) continue;
      // The younger one gives way; a finished one's pages are free.
      if (other.id && other.done()) {
        preempt(run, other);
      } else {
        preempt(run, requests[1].id ? requests[1] : one);
      }
    }
  }
  EXPECT_GT(requests[1].num_preempted, 0);
  EXPECT_EQ(requests[0].tokens, alone(0));
  EXPECT_EQ(requests[1].tokens, alone(1000));
}

TEST_F(Preempted, BeforeDecodeAfterOneTokenAndTwiceItGoesOnWithTheSameTokens) {
  const Tokens want = alone(0);
  for (const std::vector<std::int64_t>& lengths :
       std::vector<std::vector<std::int64_t>>{{48}, {49}, {50}, {49, 50}, {49, 49}, {60, 79}}) {
    CacheRun run(model, {});
    Request one = request(0);
    std::deque<std::int64_t> at(lengths.begin(), lengths.end());
    while (!one.done()) {
      if (!at.empty() && std::ssize(one.tokens) >= at.front()) {
        if (!one.id) one.id = run.cache.create();
        preempt(run, one);
        at.pop_front();
      }
      ASSERT_TRUE(advance(run, one));
    }
    EXPECT_EQ(one.tokens, want);
    EXPECT_EQ(one.num_preempted, std::ssize(lengths));
    run.cache.free(*one.id);
    EXPECT_EQ(run.cache.live_bytes(), 0);
  }
}

}  // namespace
}  // namespace lacuna

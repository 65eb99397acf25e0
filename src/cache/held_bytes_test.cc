// Bytes of real pages beside what cost predicts of them, and that a fault sets the two apart.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache_rig.h"
#include "lacuna/integer.h"
#include "lacuna/policy.h"

namespace lacuna {
namespace {

using rig::Model;

std::int64_t predicted(const Model& model, const CacheShape& shape, std::int64_t length,
                       std::int64_t in_flight, std::int64_t rollback = 0) {
  const Policy policy = {
      "paged", {{"P", shape.page_size}, {"in_flight", in_flight}, {"rollback", rollback}}};
  const KvDtype dtype = kv_dtype(std::string(to_string(shape.dtype)));
  return to_int64(held(policy, model.table, model.shape, {length, length, dtype}).bytes.value(),
                  "bytes");
}

// A cache whose tokens are all zeros: their number is what counts.
class Zeros {
 public:
  Zeros(const Model& of_model, std::int64_t page_size, DType dtype, std::int64_t budget_bytes)
      : model(of_model),
        retention(model.table, model.shape),
        cache(rig::cache_shape(retention, page_size, dtype), {.budget_bytes = budget_bytes}),
        id(cache.create()) {}

  // One step; `at_peak` is asked while its rows are in flight. By default what is kept is what the
  // topology says.
  void step(std::int64_t num_rows, const std::function<void()>& at_peak = {}) {
    auto step = cache.begin({{{id, num_rows}}});
    ASSERT_TRUE(step);
    if (at_peak) at_peak();
    const CacheShape& shape = cache.shape();
    for (std::size_t layer = 0; layer < shape.layers.size(); ++layer) {
      const CacheLayer& sizes = shape.layers[layer];
      if (sizes.kv_from || sizes.num_kv_heads == 0) continue;
      const std::int64_t most = std::max(sizes.head_dim, sizes.v_head_dim);
      zeros_.resize(static_cast<std::size_t>(num_rows * sizes.num_kv_heads * most));
      const auto view = [&](std::int64_t dims) {
        return tensor_view(zeros_.data(), DType::kF32, {num_rows, sizes.num_kv_heads, dims});
      };
      step->append(static_cast<int>(layer), view(sizes.head_dim), view(sizes.v_head_dim));
    }
    step->commit();
    const std::int64_t length = cache.length(id);
    if (keeps_all) return;
    cache.retain(id, keeps.value_or(retention).kept(length - rollback, length));
  }

  Model model;
  Retention retention;
  KvCache cache;
  SequenceId id;
  std::int64_t rollback = 0;
  bool keeps_all = false;
  std::optional<Retention> keeps;  // a wrong one

 private:
  std::vector<float> zeros_;
};

std::int64_t pages_held(const KvCache& cache, SequenceId id, std::size_t table = 0) {
  const std::span<const PageId> pages = cache.block_table(id, table);
  return std::ssize(pages) - std::count(pages.begin(), pages.end(), KvView::kNullPage);
}

TEST(WindowLayer, HoldsAtMostTheBoundOfPagesForEveryWindowAndChunk) {
  std::int64_t reached = 0;
  for (std::int64_t window = 1; window <= 70; window += rig::kSanitized ? 23 : 1) {
    const Model model =
        rig::model("window(" + std::to_string(window) + ")", 1, rig::sizes(1, 1, 2, 16));
    for (const std::int64_t chunk : {1, 2, 5, 15, 16, 17, 31, 48, 100}) {
      Zeros run(model, 16, DType::kBf16, 4 << 20);
      const std::int64_t bound = ceil_div(window + chunk - 2, std::int64_t{16}) + 1;
      std::int64_t most = 0;
      while (run.cache.length(run.id) < 2 * window + 16 * std::min<std::int64_t>(chunk, 6)) {
        run.step(chunk, [&] { most = std::max(most, pages_held(run.cache, run.id)); });
      }
      ASSERT_LE(most, bound) << "window " << window << ", chunk " << chunk;
      if (most == bound) ++reached;
      // Single tokens end at every place of a page, so that the bound is met.
      if (chunk == 1) {
        ASSERT_EQ(most, bound) << window;
      }
    }
  }
  EXPECT_GT(reached, 5);
}

// Everything that a step takes and holds is what cost says, for chunks of any size.
void expect_predicted(Zeros& run, std::int64_t length, std::int64_t chunk) {
  while (run.cache.length(run.id) < length) {
    run.step(chunk, [&] {
      const std::int64_t rows_end = run.cache.length(run.id) + chunk;
      ASSERT_EQ(run.cache.live_bytes(),
                predicted(run.model, run.cache.shape(), rows_end, chunk, run.rollback))
          << rows_end << " tokens by " << chunk;
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(HeldBytes, ArePredictedToTheByteInEveryStepForAnyTopologyChunkAndRollback) {
  for (const char* layers :
       {"window(40), full", "window(1), chunk(24), chunk(32)", "window(24)+sink(4), sink(20)",
        "heads(0-1: window(7); 2-3: full), heads(0-1: window(33); 2-3: window(90))",
        "dilated(4,8), strided(16)", "global(first=3)+window(9), global(every=20)+window(2)",
        "vertical_blocks(8,2,3), random(3,7), topk(4)", "window_blocks(2,0,8), fixed(16,2)"}) {
    const Model model = rig::model(layers, 3, rig::sizes(4, 2, 4, 16));
    for (const std::int64_t chunk : {1, 7, 16, 50}) {
      for (const std::int64_t rollback : {0, 5}) {
        SCOPED_TRACE(std::string(layers) + ", rollback " + std::to_string(rollback));
        Zeros run(model, 16, DType::kBf16, 16 << 20);
        run.rollback = rollback;
        expect_predicted(run, chunk == 1 ? 110 : 220, chunk);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(HeldBytes, OfLayersThatShareTheKvOfOthersAreThoseOfTheirUnion) {
  Model model =
      rig::model("window(16), full, window(40), window(70), window(9)", 5, rig::sizes(2, 1, 4, 16));
  model.table.layers[2].kv_from = 0;
  model.table.layers[3].kv_from = 0;
  for (const std::int64_t chunk : {1, 23}) {
    Zeros run(model, 16, DType::kF16, 16 << 20);
    expect_predicted(run, 170, chunk);
  }
}

TEST(HeldBytes, OfEveryDtypeAreThoseOfItsScalesToo) {
  const Model model = rig::model("window(70), full", 2, rig::sizes(2, 2, 64, 32));
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4}) {
    SCOPED_TRACE(to_string(dtype));
    Zeros run(model, 32, dtype, 16 << 20);
    expect_predicted(run, 200, 25);
    EXPECT_EQ(token_bytes(run.cache.shape()) * 32,
              run.cache.tables()[0].kv_bytes + run.cache.tables()[1].kv_bytes);
  }
}

TEST(HeldBytes, OfWidthsThatPagesPadAreThoseOfThePadding) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8}) {
    SCOPED_TRACE(to_string(dtype));
    Zeros run(rig::model("window(70), full", 2, rig::sizes(2, 2, 35, 100)), 32, dtype, 16 << 20);
    expect_predicted(run, 200, 25);
  }
}

// ---- Planted faults ----

// The first length of a step whose bytes are not those that were predicted.
std::optional<std::int64_t> first_difference(Zeros& run, std::int64_t up_to,
                                             const std::function<void()>& between = {}) {
  std::optional<std::int64_t> found;
  while (!found && run.cache.length(run.id) < up_to) {
    run.step(1, [&] {
      const std::int64_t length = run.cache.length(run.id) + 1;
      if (run.cache.live_bytes() != predicted(run.model, run.cache.shape(), length, 1)) {
        found = length;
      }
    });
    if (between) between();
  }
  return found;
}

class PlantedFault : public testing::Test {
 protected:
  Model model = rig::model("window(40), full", 2, rig::sizes(1, 1, 2, 16));
  Zeros run{model, 16, DType::kBf16, 4 << 20};
};

TEST_F(PlantedFault, NoneLeavesNoDifference) {
  EXPECT_EQ(first_difference(run, 150), std::nullopt);
}

TEST_F(PlantedFault, OfAPageThatNobodyOwnsShowsInTheNextStep) {
  const auto leak = [&] {
    if (run.cache.length(run.id) == 60) run.cache.pool().take(0);
  };
  EXPECT_EQ(first_difference(run, 150, leak), 61);
}

TEST_F(PlantedFault, OfAWindowThatIsKeptOneTokenShortShowsWhereThatTokenEndsAPage) {
  const Model shorter = rig::model("window(39), full", 2, rig::sizes(1, 1, 2, 16));
  run.keeps.emplace(shorter.table, shorter.shape);
  // The query of a step of 55 tokens, 54, reads from 15 on, the last token of page 0.
  EXPECT_EQ(first_difference(run, 150), 55);
}

TEST_F(PlantedFault, OfAWindowThatIsKeptWholeShowsWhenItLeavesItsFirstPage) {
  run.keeps_all = true;
  // The query of a step of 56 tokens, 55, reads from 16 on.
  EXPECT_EQ(first_difference(run, 150), 56);
}

// ---- Worked examples ----

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

TEST(WorkedExample, Of4097TokensIn17PagesOf256) {
  Zeros run(rig::model("full", 1, rig::sizes(1, 1, 16, 16)), 256, DType::kBf16, 4 << 20);
  const auto step = run.cache.begin({{{run.id, 4097}}});
  ASSERT_TRUE(step);
  EXPECT_EQ(pages_held(run.cache, run.id), 17);
  const std::int64_t slots = run.cache.live_bytes() / token_bytes(run.cache.shape());
  EXPECT_EQ(slots, 4352);
  EXPECT_DOUBLE_EQ(static_cast<double>(slots - 4097) / 4097, 0.06224066390041494);
}

// 32 layers of 8 heads of 128 in bf16.
Model of_32_layers(const std::string& layers) {
  return rig::model(layers, 32, rig::sizes(32, 8, 128, 128));
}

TEST(WorkedExample, Of16GibibytesForAllTokensAnd512MebibytesForAWindow) {
  Zeros full(of_32_layers("full"), 64, DType::kBf16, 512 * kMiB);
  EXPECT_EQ(token_bytes(full.cache.shape()), 131072);
  const StepRows all = {full.id, 131072};
  EXPECT_EQ(full.cache.step_bytes({{all}}), 16 * kGiB);
  EXPECT_FALSE(full.cache.begin({{all}}));
  EXPECT_EQ(predicted(full.model, full.cache.shape(), 131072, 1), 16 * kGiB);
  // Pages are taken here, and not written.
  const auto step = full.cache.begin({{{full.id, 4096}}});
  ASSERT_TRUE(step);
  EXPECT_EQ(full.cache.live_bytes(), 512 * kMiB);
  EXPECT_EQ(full.cache.pool().num_free_slabs(), 0);
  const Model window = of_32_layers("window(4096)");
  EXPECT_EQ(predicted(window, full.cache.shape(), 131072, 1), 512 * kMiB);
  // The four sinks take a page of their own in each layer.
  const Model sinks = of_32_layers("window(4096)+sink(4)");
  EXPECT_EQ(predicted(sinks, full.cache.shape(), 131072, 1), 512 * kMiB + 64 * 131072);
}

// Bytes held in the last step up to a length, for models whose widths are made small: the tokens of
// each layer are as in the large one.
struct Slots {
  std::int64_t held;
  std::int64_t all;  // were nothing freed
};

Slots slots_at(const Model& model, std::int64_t length) {
  Zeros run(model, 64, DType::kBf16, 512 * kMiB);
  while (run.cache.length(run.id) + 4096 < length) run.step(4096);
  run.step(length - 1 - run.cache.length(run.id));
  Slots slots = {0, length * token_bytes(run.cache.shape())};
  run.step(1, [&] {
    slots.held = run.cache.live_bytes();
    EXPECT_EQ(slots.held, predicted(model, run.cache.shape(), length, 1));
  });
  return slots;
}

TEST(WorkedExample, OfAHybridThatHolds27Point34PercentAfter131072Tokens) {
  // One layer in four is full, 24 of 32 have a window.
  const Slots slots =
      slots_at(rig::model("window(4096)*3, full", 4, rig::sizes(1, 1, 2, 16)), 131072);
  EXPECT_DOUBLE_EQ(static_cast<double>(slots.held) / static_cast<double>(slots.all), 0.2734375);
}

TEST(WorkedExample, OfGptOssHeldIn6Point09GibibytesOf12) {
  // 24 layers of 8 heads of 64 in bf16, every second with a window of 128; 32 requests of 8192.
  const Slots slots = slots_at(rig::model("window(128), full", 24, rig::sizes(1, 1, 2, 16)), 8192);
  const auto of_model = [](std::int64_t bytes) { return bytes / 36 * 2 * 8 * 64 * 2 * 32; };
  EXPECT_EQ(of_model(slots.all), 12 * kGiB);
  EXPECT_EQ(of_model(slots.held), 12 * std::int64_t{8192 + 128} * 2048 * 32);  // 6.09 GiB
}

TEST(WorkedExample, OfGemma3With1BHeldIn139MebibytesOf832) {
  // 26 layers of one head of 256 in f16: every sixth is full, the others have a window of 512.
  const Slots slots =
      slots_at(rig::model("window(512)*5, full", 26, rig::sizes(1, 1, 2, 16)), 32768);
  const auto of_model = [](std::int64_t bytes) { return bytes / 36 * 2 * 256 * 2; };
  EXPECT_EQ(of_model(slots.all), 832 * kMiB);
  EXPECT_EQ(of_model(slots.held), 139 * kMiB);
}

TEST(WorkedExample, OfMistralWhoseRequestsStopGrowingAtTheirWindow) {
  const Slots slots = slots_at(rig::model("window(4096)", 1, rig::sizes(1, 1, 2, 16)), 32768);
  EXPECT_EQ(slots.all, 8 * slots.held);
}

TEST(WorkedExample, OfGemma3With270MHasEveryByteOfItsRealPagesPredicted) {
  const Model model = rig::model("window(512)*5, full", 18, rig::sizes(4, 1, 256, 256));
  Zeros run(model, 64, DType::kBf16, 64 * kMiB);
  run.step(2048);
  expect_predicted(run, 2048 + 70, 1);
  // 3 full layers of 34 pages, 15 of 9 pages; 64 KiB each.
  EXPECT_EQ(run.cache.live_bytes(), (3 * 34 + 15 * 9) * 65536);
}

}  // namespace
}  // namespace lacuna

#include "lacuna/offload.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include "cache/cache_rig.h"
#include "cache/refusal.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/sequence_file.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using rig::message_of;
using rig::tokens;
using rig::Tokens;

constexpr std::int64_t kBudget = 4 << 20;

struct Case {
  std::int64_t page_size;
  DType dtype;
};

// A window, all keys in pages of another size, and a window with sinks; beside it a cache whose
// sequences never sleep.
class Offload : public testing::TestWithParam<Case> {
 protected:
  Offload() {
    std::string name = testing::TempDir() + "lacuna_offload_XXXXXX";
    folder = ::mkdtemp(name.data());
    tier.emplace(cache, path(), kBudget);
  }
  ~Offload() override { fs::remove_all(folder); }

  CacheShape make_shape() const {
    CacheShape shape = rig::cache_shape(retention, GetParam().page_size, GetParam().dtype);
    shape.summaries = true;
    return shape;
  }
  std::string path() const { return (folder / "pages").string(); }
  SequenceId decoded(KvCache& in, std::int64_t length, std::int32_t first = 0) {
    const SequenceId id = in.create();
    rig::run(in, model, retention, id, tokens(length, first), 7);
    return id;
  }
  auto go_on(KvCache& in, SequenceId id, std::int64_t count) {
    return rig::run(in, model, retention, id, tokens(count, 5000), 1);
  }
  std::int64_t table_bytes(SequenceId id) const {
    std::int64_t sum = 0;
    for (std::size_t table = 0; table < cache.tables().size(); ++table) {
      for (const PageId page : cache.block_table(id, table)) {
        sum += page == KvView::kNullPage ? 0 : cache.tables()[table].page_bytes;
      }
    }
    return sum;
  }

  rig::Model model = rig::three_kinds(GetParam().dtype);
  Retention retention{model.table, model.shape};
  KvCache cache{make_shape(), {.budget_bytes = 8 << 20, .slab_bytes = 1 << 16, .poison = true}};
  fs::path folder;
  std::optional<KvOffload> tier;
};

INSTANTIATE_TEST_SUITE_P(Pages, Offload,
                         testing::Values(Case{16, DType::kF32}, Case{16, DType::kBf16},
                                         Case{64, DType::kF16}, Case{64, DType::kF32},
                                         Case{16, DType::kInt8}, Case{16, DType::kInt4}),
                         [](const auto& chosen) {
                           return std::string(to_string(chosen.param.dtype)) +
                                  std::to_string(chosen.param.page_size);
                         });

TEST_P(Offload, GivesBackTheSameBits) {
  const std::int64_t page = GetParam().page_size;
  KvCache awake(cache.shape(), {.budget_bytes = 8 << 20, .slab_bytes = 1 << 16, .poison = true});
  for (const std::int64_t length :
       {std::int64_t{0}, std::int64_t{1}, page - 1, page, page + 1, 2 * page, std::int64_t{39},
        std::int64_t{40}, std::int64_t{41}, 40 + page, std::int64_t{80}, std::int64_t{150}}) {
    SCOPED_TRACE(length);
    const SequenceId id = decoded(cache, length);
    const SequenceId twin = decoded(awake, length);
    const std::vector<Ranges> held = cache.held(id);
    const std::int64_t bytes = cache.live_bytes();
    ASSERT_TRUE(tier->sleep(id));
    EXPECT_TRUE(tier->is_asleep(id));
    EXPECT_EQ(cache.live_bytes(), 0);
    EXPECT_EQ(tier->used_bytes(), bytes);
    EXPECT_EQ(cache.length(id), length);
    tier->drop_from_page_cache();
    tier->prefetch(id);
    const SequenceId other = decoded(cache, 90, 300);  // in what was freed
    ASSERT_TRUE(tier->wake(id));
    EXPECT_FALSE(tier->is_asleep(id));
    cache.free(other);
    EXPECT_EQ(cache.live_bytes(), bytes);
    EXPECT_EQ(tier->used_bytes(), 0);
    EXPECT_EQ(cache.held(id), held);
    for (std::int64_t round = 0; round < 3; ++round) {  // and so every few tokens
      EXPECT_EQ(go_on(cache, id, page / 2 + 3), go_on(awake, twin, page / 2 + 3));
      ASSERT_TRUE(tier->sleep(id));
      ASSERT_TRUE(tier->wake(id));
    }
    save_sequence(cache, id, "", tokens(cache.length(id)), (folder / "a").string());
    save_sequence(awake, twin, "", tokens(cache.length(id)), (folder / "b").string());
    EXPECT_EQ(read_file((folder / "a").string(), 1 << 24),
              read_file((folder / "b").string(), 1 << 24));
    cache.free(id);
    awake.free(twin);
  }
}

TEST_P(Offload, LeavesSharedPagesWhereTheyAre) {
  const SequenceId parent = decoded(cache, 100);
  const SequenceId fork = cache.fork(parent);
  const std::int64_t shared = cache.live_bytes();
  go_on(cache, fork, 3);
  const std::int64_t both = cache.live_bytes();
  const auto before = cache.held(parent);
  ASSERT_TRUE(tier->sleep(parent));
  EXPECT_EQ(tier->used_bytes(), both - cache.live_bytes());
  EXPECT_EQ(cache.live_bytes() - table_bytes(fork), 0);  // every page left has the fork as owner
  EXPECT_LT(tier->used_bytes(), shared);
  ASSERT_TRUE(tier->sleep(fork));
  EXPECT_EQ(cache.live_bytes(), table_bytes(parent));
  ASSERT_TRUE(tier->wake(parent));
  EXPECT_EQ(cache.held(parent), before);
  ASSERT_TRUE(tier->wake(fork));
  EXPECT_EQ(cache.live_bytes(), both);
  const SequenceId twin = decoded(cache, 100);
  EXPECT_EQ(go_on(cache, parent, 50), go_on(cache, twin, 50));
  for (const SequenceId id : {parent, fork, twin}) cache.free(id);
  EXPECT_EQ(cache.live_bytes(), 0);
}

TEST_P(Offload, KeepsWhatASleeperSharedWhenTheOtherEnds) {
  const SequenceId parent = decoded(cache, 100);
  const SequenceId fork = cache.fork(parent);
  ASSERT_TRUE(tier->sleep(parent));
  EXPECT_EQ(tier->used_bytes(), 0);
  cache.free(fork);
  EXPECT_EQ(cache.live_bytes(), table_bytes(parent));
  ASSERT_TRUE(tier->wake(parent));
  const SequenceId twin = decoded(cache, 100);
  EXPECT_EQ(go_on(cache, parent, 20), go_on(cache, twin, 20));
}

TEST_P(Offload, RefusesEveryUseOfASleeper) {
  const SequenceId id = decoded(cache, 50);
  ASSERT_TRUE(tier->sleep(id));
  const std::string asleep = "sequence 0 is asleep; allowed: awake ones";
  const StepRows rows = {id, 1};
  const std::vector<Ranges> ranges(cache.tables().size());
  EXPECT_EQ(message_of([&] { cache.begin({{rows}}); }), asleep);
  EXPECT_EQ(message_of([&] { cache.step_bytes({{rows}}); }), asleep);
  EXPECT_EQ(message_of([&] { cache.fork(id); }), asleep);
  EXPECT_EQ(message_of([&] { cache.retain(id, ranges); }), asleep);
  EXPECT_EQ(message_of([&] { cache.truncate(id, 10, ranges); }), asleep);
  EXPECT_EQ(message_of([&] { cache.view(0, {{id}}); }), asleep);
  EXPECT_EQ(message_of([&] { cache.summary(id, 1, 0, 0); }), asleep);
  EXPECT_EQ(message_of([&] { save_sequence(cache, id, "", tokens(50), path()); }), asleep);
  EXPECT_EQ(message_of([&] { tier->sleep(id); }), asleep);
  EXPECT_EQ(message_of([&] { tier->wake(7); }), "sequence is 7; allowed: one of the cache's 1");
  const SequenceId awake = decoded(cache, 5);
  EXPECT_EQ(message_of([&] { tier->wake(awake); }),
            "sequence 1 is awake; allowed: those asleep in '" + path() + "'");
  EXPECT_EQ(message_of([&] { tier->prefetch(awake); }),
            "sequence 1 is awake; allowed: those asleep in '" + path() + "'");
  KvOffload elsewhere(cache, path(), kBudget);
  EXPECT_FALSE(elsewhere.is_asleep(id));
  EXPECT_EQ(message_of([&] { elsewhere.wake(id); }),
            "sequence 0 is asleep elsewhere; allowed: those asleep in '" + path() + "'");
  const StepRows other = {awake, 1};
  const auto step = cache.begin({{other}});
  EXPECT_EQ(message_of([&] { tier->sleep(awake); }),
            "sequence 1 is in a step of 1 rows; allowed: outside steps");
}

TEST_P(Offload, GivesRoomBackWhenASleeperIsFreedAndUsesItAgain) {
  const SequenceId first = decoded(cache, 150);
  const SequenceId second = decoded(cache, 60);
  ASSERT_TRUE(tier->sleep(first));
  const std::int64_t one = tier->used_bytes();
  ASSERT_TRUE(tier->sleep(second));
  const std::int64_t both = tier->used_bytes();
  cache.free(first);
  EXPECT_EQ(tier->used_bytes(), both - one);
  for (int round = 0; round < 50; ++round) {  // far more than the budget in sum
    const SequenceId id = decoded(cache, 150);
    ASSERT_TRUE(tier->sleep(id)) << round;
    EXPECT_EQ(tier->used_bytes(), both);
    cache.free(id);
  }
  ASSERT_TRUE(tier->wake(second));
  const SequenceId twin = decoded(cache, 60);
  EXPECT_EQ(go_on(cache, second, 30), go_on(cache, twin, 30));
}

// Pages of one size would fit into any gap that another left.
TEST_P(Offload, JoinsTheRoomsOfNeighboursInWhicheverOrderTheyAreFreed) {
  const auto holding = [&](std::size_t table, std::int32_t first) {
    const SequenceId id = decoded(cache, 10, first);
    std::vector<Ranges> kept(cache.tables().size());
    kept[table] = Ranges{{0, 10}};
    cache.retain(id, kept);
    return id;
  };
  const std::int64_t small = std::min(cache.tables()[0].page_bytes, cache.tables()[1].page_bytes);
  const std::int64_t large = cache.tables()[0].page_bytes + cache.tables()[1].page_bytes - small;
  const std::size_t table_of_small = cache.tables()[0].page_bytes == small ? 0 : 1;
  ASSERT_LT(small, large);
  ASSERT_LE(large, 3 * small);
  KvOffload tight(cache, path(), 3 * small);
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    std::vector<SequenceId> sleepers;
    for (std::int32_t idx = 0; idx < 3; ++idx) {
      sleepers.push_back(holding(table_of_small, idx));
      ASSERT_TRUE(tight.sleep(sleepers.back()));
    }
    for (const std::size_t idx : order) cache.free(sleepers[idx]);
    const SequenceId whole = holding(1 - table_of_small, 9);
    ASSERT_TRUE(tight.sleep(whole)) << order[0] << order[1] << order[2];
    cache.free(whole);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(Offload, ChangesNothingWhereTheFileHasNoRoom) {
  const SequenceId id = decoded(cache, 100);
  const std::int64_t bytes = cache.live_bytes();
  KvOffload small(cache, path(), bytes - 1);
  EXPECT_FALSE(small.sleep(id));
  EXPECT_FALSE(small.is_asleep(id));
  EXPECT_EQ(small.used_bytes(), 0);
  EXPECT_EQ(cache.live_bytes(), bytes);
  EXPECT_EQ(small.statistics().num_sleeps, 0);
  KvOffload fits(cache, path(), bytes);
  EXPECT_TRUE(fits.sleep(id));
  EXPECT_TRUE(fits.wake(id));
  const SequenceId twin = decoded(cache, 100);
  EXPECT_EQ(go_on(cache, id, 20), go_on(cache, twin, 20));
  EXPECT_EQ(message_of([&] { KvOffload(cache, path(), -1); }),
            "budget_bytes is -1; allowed: 0 and more");
  EXPECT_EQ(message_of([&] { KvOffload(cache, folder.string(), 1); }),
            "cannot open '" + folder.string() + "': File exists");
}

TEST_P(Offload, StaysAsleepWhereMemoryIsShort) {
  const SequenceId id = decoded(cache, 100);
  ASSERT_TRUE(tier->sleep(id));
  std::vector<SequenceId> others;
  for (;;) {  // until the pool is full
    const StepRows rows = {others.emplace_back(cache.create()), 64};
    auto step = cache.begin({{rows}});
    if (!step) break;
    for (int layer = 0; layer < 3; ++layer) {
      const LayerShape& sizes = model.shape.layers[static_cast<std::size_t>(layer)];
      const std::vector<float> zeros(64 * 96, 0.0F);
      step->append(
          layer, tensor_view(zeros.data(), DType::kF32, {64, sizes.num_kv_heads, sizes.head_dim}),
          tensor_view(zeros.data(), DType::kF32, {64, sizes.num_kv_heads, sizes.v_head_dim}));
    }
    step->commit();
  }
  const std::int64_t live = cache.live_bytes();
  const std::int64_t used = tier->used_bytes();
  EXPECT_FALSE(tier->wake(id));
  EXPECT_TRUE(tier->is_asleep(id));
  EXPECT_EQ(cache.live_bytes(), live);
  EXPECT_EQ(tier->used_bytes(), used);
  for (const SequenceId other : others) cache.free(other);
  ASSERT_TRUE(tier->wake(id));
  const SequenceId twin = decoded(cache, 100);
  EXPECT_EQ(go_on(cache, id, 20), go_on(cache, twin, 20));
}

TEST(OffloadedChunks, KnowWhichSlotsHoldNothing) {
  const rig::Model model = rig::model("chunk(16)", 1, rig::sizes(1, 1, 16, 16));
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 64, DType::kF32), {.budget_bytes = 4 << 20});
  KvOffload tier(cache, testing::TempDir() + "lacuna_offload_chunks", kBudget);
  const SequenceId id = cache.create();
  for (const std::int64_t count : {16, 4}) {
    ASSERT_TRUE(rig::step(cache, model, retention, {{{id, tokens(count)}}}));
  }
  ASSERT_TRUE(tier.sleep(id));
  const SequenceId other = cache.create();  // its page lies where the sleeper's was
  ASSERT_TRUE(rig::step(cache, model, retention, {{{other, tokens(10)}}}));
  EXPECT_EQ(cache.held(other), std::vector<Ranges>{(Ranges{{0, 10}})});
  ASSERT_TRUE(tier.wake(id));
  EXPECT_EQ(cache.held(id), std::vector<Ranges>{(Ranges{{16, 20}})});
}

TEST_P(Offload, LeavesPublishedPagesToTheIndex) {
  const SequenceId id = decoded(cache, 100);
  const std::int64_t bytes = cache.live_bytes();
  cache.publish(id, "", tokens(100));
  ASSERT_TRUE(tier->sleep(id));
  EXPECT_EQ(tier->used_bytes(), 0);
  cache.clear_prefixes();
  EXPECT_EQ(cache.live_bytes(), bytes);  // asleep, it still has them
  ASSERT_TRUE(tier->wake(id));
  cache.free(id);
  EXPECT_EQ(cache.live_bytes(), 0);
}

// The nameless file, opened again through the process's list of what is open.
int open_again(const std::string& path) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) == path + " (deleted)") {
      return ::open(entry.path().c_str(), O_RDWR);
    }
  }
  return -1;
}

TEST_P(Offload, RefusesADamagedFileAndLeavesTheSequenceAsleep) {
  const SequenceId id = decoded(cache, 100);
  ASSERT_TRUE(tier->sleep(id));
  const std::int64_t used = tier->used_bytes();
  const int file = open_again(path());
  ASSERT_GE(file, 0);
  for (const std::int64_t offset : {std::int64_t{0}, used / 2, used - 1}) {
    unsigned char byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, offset), 1);
    const unsigned char changed = byte ^ 0x10;
    ASSERT_EQ(::pwrite(file, &changed, 1, offset), 1);
    EXPECT_TRUE(message_of([&] {
                  tier->wake(id);
                }).starts_with("'" + path() + "' is damaged: the checksum of offsets "));
    EXPECT_TRUE(tier->is_asleep(id));
    EXPECT_EQ(cache.live_bytes(), 0);
    EXPECT_EQ(tier->used_bytes(), used);
    ASSERT_EQ(::pwrite(file, &byte, 1, offset), 1);
  }
  ASSERT_EQ(::ftruncate(file, used / 2), 0);
  EXPECT_TRUE(message_of([&] { tier->wake(id); }).starts_with("'" + path() + "' ends at offset "));
  EXPECT_EQ(cache.live_bytes(), 0);
  ::close(file);
  EXPECT_EQ(tier->statistics().num_wakes, 0);
  cache.free(id);
  EXPECT_EQ(tier->used_bytes(), 0);
}

TEST_P(Offload, CountsWhatItMoves) {
  const SequenceId id = decoded(cache, 100);
  const std::int64_t bytes = cache.live_bytes();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(tier->sleep(id));
    ASSERT_TRUE(tier->wake(id));
  }
  const OffloadStatistics& counted = tier->statistics();
  EXPECT_EQ(counted.num_sleeps, 3);
  EXPECT_EQ(counted.num_wakes, 3);
  EXPECT_EQ(counted.written_bytes, 3 * bytes);
  EXPECT_EQ(counted.read_bytes, 3 * bytes);
  EXPECT_GT(counted.sleep_seconds, 0);
  EXPECT_GT(counted.wake_seconds, 0);
}

TEST_P(Offload, LetsASleeperBeFreedAfterItsOwnEnd) {
  const SequenceId id = decoded(cache, 100);
  ASSERT_TRUE(tier->sleep(id));
  tier.reset();
  EXPECT_EQ(message_of([&] { cache.fork(id); }), "sequence 0 is asleep; allowed: awake ones");
  cache.free(id);
  EXPECT_TRUE(cache.sequences().empty());
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_P(Offload, KeepsManySleepersApartInAnyOrder) {
  std::mt19937 random(5);
  std::map<SequenceId, std::int32_t> first_token;  // of those that live
  for (int round = 0; round < 150; ++round) {
    if (first_token.size() < 12) {
      const auto first = static_cast<std::int32_t>(random() % 5000);
      const auto length = static_cast<std::int64_t>(random() % 120);
      first_token[decoded(cache, length, first)] = first;
    }
    auto chosen = first_token.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(random() % first_token.size()));
    const SequenceId id = chosen->first;
    if (!tier->is_asleep(id)) {
      ASSERT_TRUE(tier->sleep(id));
    } else if (random() % 3 == 0) {
      cache.free(id);
      first_token.erase(chosen);
    } else {
      ASSERT_TRUE(tier->wake(id));
      const SequenceId twin = decoded(cache, cache.length(id), chosen->second);
      EXPECT_EQ(go_on(cache, id, 2), go_on(cache, twin, 2));
      cache.free(twin);
      cache.free(id);
      first_token.erase(chosen);
    }
  }
  for (const auto& [id, first] : first_token) cache.free(id);
  EXPECT_EQ(cache.live_bytes(), 0);
  EXPECT_EQ(tier->used_bytes(), 0);
}

}  // namespace
}  // namespace lacuna

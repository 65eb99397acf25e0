#include "lacuna/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lacuna/cpu.h"
#include "lacuna/error.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LACUNA_HAS_SHADOW_MEMORY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LACUNA_HAS_SHADOW_MEMORY
#endif
#endif

namespace lacuna {
namespace {

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(ThreadPool, CallsEachIndexOnce) {
  for (const std::int64_t num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    ASSERT_EQ(pool.num_threads(), num_threads);
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(num_threads));
    pool.run([&](std::int64_t thread_idx) { ++calls.at(static_cast<std::size_t>(thread_idx)); });
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPool, ManyRunsCallEachIndexOnceARun) {
  constexpr int kRuns = 2000;
  ThreadPool pool(4);
  std::vector<int> calls(4);  // plain: a run must order its writes before the next one's
  for (int run = 1; run <= kRuns; ++run) {
    pool.run([&](std::int64_t thread_idx) { ++calls[static_cast<std::size_t>(thread_idx)]; });
    for (const int count : calls) ASSERT_EQ(count, run);
  }
}

TEST(ThreadPool, AllCallsRunAtTheSameTime) {
  ThreadPool pool(4);
  std::barrier together(4);  // would wait for ever where two calls shared a thread
  std::atomic<int> met = 0;
  pool.run([&](std::int64_t) {
    together.arrive_and_wait();
    ++met;
  });
  EXPECT_EQ(met, 4);
}

TEST(ThreadPool, TheFirstCallIsOnTheCallersThreadAndTheOthersOnTheirOwn) {
  ThreadPool pool(3);
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  for (std::vector<std::thread::id>* ids : {&first, &second}) {
    pool.run([&](std::int64_t thread_idx) {
      (*ids)[static_cast<std::size_t>(thread_idx)] = std::this_thread::get_id();
    });
  }
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_NE(first[1], first[0]);
  EXPECT_NE(first[2], first[0]);
  EXPECT_NE(first[2], first[1]);
  EXPECT_EQ(first, second);
}

TEST(ThreadPool, OneThreadIsTheCallersOwn) {
  ThreadPool pool(1);
  std::thread::id worker;
  pool.run([&](std::int64_t) { worker = std::this_thread::get_id(); });
  EXPECT_EQ(worker, std::this_thread::get_id());
}

TEST(ThreadPool, ZeroMeansTheCpusOfThisProcess) {
  EXPECT_EQ(ThreadPool().num_threads(), num_allowed_cpus());
}

TEST(ThreadPool, AnExceptionOfAnyThreadReachesTheCallerAfterAllHaveReturned) {
  for (const std::int64_t num_threads : {1, 4}) {
    ThreadPool pool(num_threads);
    for (std::int64_t thrower = 0; thrower < num_threads; ++thrower) {
      std::atomic<std::int64_t> returned = 0;
      const auto work = [&](std::int64_t thread_idx) {
        if (thread_idx == thrower) throw std::runtime_error("from " + std::to_string(thrower));
        std::this_thread::yield();
        ++returned;
      };
      EXPECT_EQ(message_of([&] { pool.run(work); }), "from " + std::to_string(thrower));
      EXPECT_EQ(returned, num_threads - 1);
    }
  }
}

TEST(ThreadPool, OneOfManyExceptionsIsThrownAndTheNextRunHasNone) {
  ThreadPool pool(4);
  const auto fail = [](std::int64_t) { throw std::runtime_error("all fail"); };
  for (int run = 0; run < 50; ++run) {
    ASSERT_EQ(message_of([&] { pool.run(fail); }), "all fail");
    std::atomic<int> calls = 0;
    ASSERT_EQ(message_of([&] { pool.run([&](std::int64_t) { ++calls; }); }), "no error");
    ASSERT_EQ(calls, 4);
  }
}

TEST(ThreadPool, ARunInsideARunIsRefusedAndNeverWaitsForItself) {
  ThreadPool pool(2);
  const auto nested = [&](std::int64_t thread_idx) {
    if (thread_idx == 0) pool.run([](std::int64_t) {});
  };
  EXPECT_EQ(message_of([&] { pool.run(nested); }),
            "run() of a thread pool is called while it runs");
}

TEST(ThreadPool, EndsWithoutARunAndRightAfterOne) {
  for (int idx = 0; idx < 100; ++idx) {
    const ThreadPool never_used(3);
    ThreadPool used(3);
    std::atomic<int> calls = 0;
    used.run([&](std::int64_t) { ++calls; });
    ASSERT_EQ(calls, 3);
  }
}

TEST(ThreadPool, AThreadCountOutOfRangeIsNamed) {
  EXPECT_EQ(message_of([] { ThreadPool pool(-1); }), "num_threads is -1; allowed: 0..4096");
  EXPECT_EQ(message_of([] { ThreadPool pool(4097); }), "num_threads is 4097; allowed: 0..4096");
}

#if !defined(LACUNA_HAS_SHADOW_MEMORY)
// Ends the process with 0 where a pool that the system gives no thread for throws Error, having let
// go of those it had.
[[noreturn]] void make_a_pool_without_memory_for_it() {
  const rlimit small = {rlim_t{512} << 20, rlim_t{512} << 20};
  if (::setrlimit(RLIMIT_AS, &small) != 0) std::_Exit(2);
  try {
    ThreadPool pool(4096);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(0);
  }
  std::_Exit(1);
}

TEST(ThreadPoolDeathTest, ThreadsThatTheSystemDoesNotGiveAreAnError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(make_a_pool_without_memory_for_it(), testing::ExitedWithCode(0),
              "cannot start 4096 threads: ");
}
#endif

}  // namespace
}  // namespace lacuna

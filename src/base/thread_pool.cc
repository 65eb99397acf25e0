#include "lacuna/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lacuna/cpu.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMostThreads = 4096;

// Asks for a while whether something has happened, before a thread goes to sleep for it: being
// woken costs several microseconds, and the parts of a step follow each other within fewer.
// Whoever else wants the CPU gets it in between.
template <typename Happened>
void wait_briefly(const Happened& happened) {
  constexpr std::chrono::microseconds kBrief(50);
  const auto end = std::chrono::steady_clock::now() + kBrief;
  while (!happened() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

}  // namespace

// Written under `mutex`, all but `threads`. A run is one generation: each helper works once for
// every generation it sees, and run() ends a generation only when all helpers have.
struct ThreadPool::Shared {
  using Work = std::function<void(std::int64_t)>;

  std::mutex mutex;
  std::condition_variable changed;   // helpers wait for a generation or the end
  std::condition_variable finished;  // run() waits for num_working == 0
  const Work* work = nullptr;
  std::atomic<std::uint64_t> generation = 0;
  std::atomic<std::int64_t> num_working = 0;
  std::atomic<bool> is_ending = false;
  bool has_cpus = true;  // one for each thread: waiting awake takes none from the others
  std::exception_ptr failure;
  std::vector<std::thread> threads;

  ~Shared() {
    {
      const std::lock_guard lock(mutex);
      is_ending = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void start(std::int64_t num_helpers) {
    has_cpus = num_helpers < num_allowed_cpus();
    threads.reserve(static_cast<std::size_t>(num_helpers));
    for (std::int64_t idx = 1; idx <= num_helpers; ++idx) {
      threads.emplace_back([this, idx] { help(idx); });
    }
  }

  void help(std::int64_t thread_idx) {
    std::uint64_t seen = 0;
    const auto has_news = [&] { return is_ending || generation != seen; };
    while (true) {
      if (has_cpus && seen > 0) wait_briefly(has_news);
      std::unique_lock lock(mutex);
      changed.wait(lock, has_news);
      if (is_ending) return;
      seen = generation;
      const Work& call = *work;
      lock.unlock();
      std::exception_ptr thrown = caught(call, thread_idx);
      lock.lock();
      if (thrown && !failure) failure = std::move(thrown);
      if (--num_working == 0) finished.notify_one();
    }
  }

  static std::exception_ptr caught(const Work& call, std::int64_t thread_idx) {
    try {
      call(thread_idx);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void begin(const Work& call) {
    const std::lock_guard lock(mutex);
    if (work != nullptr) throw Error("run() of a thread pool is called while it runs");
    work = &call;
    num_working = static_cast<std::int64_t>(threads.size());
    ++generation;
    changed.notify_all();
  }

  std::exception_ptr end() {
    const auto have_all_ended = [this] { return num_working == 0; };
    if (has_cpus) wait_briefly(have_all_ended);
    std::unique_lock lock(mutex);
    finished.wait(lock, have_all_ended);
    work = nullptr;
    return std::exchange(failure, nullptr);
  }
};

ThreadPool::ThreadPool(std::int64_t num_threads) {
  if (num_threads < 0 || num_threads > kMostThreads) {
    throw Error("num_threads is " + std::to_string(num_threads) + "; allowed: 0.." +
                std::to_string(kMostThreads));
  }
  num_threads_ = num_threads > 0 ? num_threads : std::min(num_allowed_cpus(), kMostThreads);
  if (num_threads_ == 1) return;
  shared_ = std::make_unique<Shared>();
  try {
    shared_->start(num_threads_ - 1);
  } catch (const std::system_error& error) {
    throw Error("cannot start " + std::to_string(num_threads_) + " threads: " + error.what());
  }
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(const std::function<void(std::int64_t thread_idx)>& work) {
  if (shared_ == nullptr) {
    work(0);
    return;
  }
  shared_->begin(work);
  std::exception_ptr thrown = Shared::caught(work, 0);
  const std::exception_ptr of_helpers = shared_->end();
  if (!thrown) thrown = of_helpers;
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace lacuna

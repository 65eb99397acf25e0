#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lacuna {

// Threads that wait for work. Made by the caller and passed in; the library starts no others for
// computing. One caller at a time: two threads must not call run() of one pool at once.
class ThreadPool {
 public:
  // 0: the CPUs this process may use. Throws Error outside 0..4096 or where the system gives no
  // thread.
  explicit ThreadPool(std::int64_t num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::int64_t num_threads() const { return num_threads_; }

  // Calls work(0) .. work(num_threads()-1), each once and all at the same time, the first on the
  // caller's thread, and returns when all have returned. Where calls throw, one of the exceptions
  // is thrown again.
  void run(const std::function<void(std::int64_t thread_idx)>& work);

 private:
  struct Shared;
  std::int64_t num_threads_ = 1;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lacuna

#include "cli/interrupt.h"

#include <atomic>
#include <chrono>
#include <csignal>

namespace lacuna::cli {
namespace {

std::atomic<bool> g_is_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_interrupt(int) {
  g_is_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

// A handler may do no more than set a flag; the watcher passes it on.
Interrupt::Interrupt() {
  g_is_interrupted = false;
  std::signal(SIGINT, on_interrupt);
  watcher_ = std::jthread([source = source_](const std::stop_token& ending) mutable {
    constexpr std::chrono::milliseconds kPeriod{50};
    while (!ending.stop_requested() && !g_is_interrupted) std::this_thread::sleep_for(kPeriod);
    if (g_is_interrupted) source.request_stop();
  });
}

Interrupt::~Interrupt() { std::signal(SIGINT, SIG_DFL); }

}  // namespace lacuna::cli

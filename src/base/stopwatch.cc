#include "lacuna/stopwatch.h"

#include <time.h>

namespace lacuna {
namespace {

double seconds_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

CpuTimes cpu_times() {
  return {seconds_of(CLOCK_PROCESS_CPUTIME_ID), seconds_of(CLOCK_THREAD_CPUTIME_ID)};
}

}  // namespace

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

CpuTimes& CpuTimes::operator+=(const CpuTimes& other) {
  all += other.all;
  caller += other.caller;
  return *this;
}

CpuStopwatch::CpuStopwatch() : begin_(cpu_times()) {}

CpuTimes CpuStopwatch::times() const {
  const CpuTimes now = cpu_times();
  return {now.all - begin_.all, now.caller - begin_.caller};
}

}  // namespace lacuna

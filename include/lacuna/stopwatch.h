#pragma once

#include <chrono>

namespace lacuna {

// Seconds since it was made, by a clock that only goes forward.
class Stopwatch {
 public:
  double seconds() const;

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// CPU seconds of all threads of the process, and of the thread that asks alone.
struct CpuTimes {
  double all = 0;
  double caller = 0;

  CpuTimes& operator+=(const CpuTimes& other);
};

// CPU time since it was made, on the thread that made it.
class CpuStopwatch {
 public:
  CpuStopwatch();
  CpuTimes times() const;
  double seconds() const { return times().all; }

 private:
  CpuTimes begin_;
};

// Adds the seconds of its life to a sum.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum) {}
  ~Timed() { sum_ += watch_.seconds(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  Stopwatch watch_;
};

}  // namespace lacuna

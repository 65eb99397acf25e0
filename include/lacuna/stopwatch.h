#pragma once

#include <chrono>
#include <ctime>

namespace lacuna {

// Seconds since it was made, by a clock that only goes forward.
class Stopwatch {
 public:
  double seconds() const;

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// CPU seconds of all threads of the process since it was made.
class CpuStopwatch {
 public:
  double seconds() const;

 private:
  std::clock_t begin_ = std::clock();
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

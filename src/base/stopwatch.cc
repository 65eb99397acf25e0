#include "lacuna/stopwatch.h"

namespace lacuna {

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

double CpuStopwatch::seconds() const {
  return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
}

}  // namespace lacuna

#include "lacuna/stopwatch.h"

namespace lacuna {

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace lacuna

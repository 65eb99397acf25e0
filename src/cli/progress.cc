#include "cli/progress.h"

#include <cstdio>

namespace lacuna::cli {

void Progress::operator()(std::int64_t done, std::int64_t total, std::string_view next) {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < std::chrono::seconds(2)) return;
  shown_ = now;
  std::fprintf(stderr, "%s %lld/%lld: %.*s\n", work_.c_str(), static_cast<long long>(done),
               static_cast<long long>(total), static_cast<int>(next.size()), next.data());
}

}  // namespace lacuna::cli

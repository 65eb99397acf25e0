#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lacuna::cli {

// Progress of long work on the standard error stream: a line at most every two seconds, so that a
// long run shows that it lives and a short one stays silent.
class Progress {
 public:
  explicit Progress(std::string work) : work_(std::move(work)) {}
  void operator()(std::int64_t done, std::int64_t total, std::string_view next);

 private:
  std::string work_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace lacuna::cli

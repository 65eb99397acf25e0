#pragma once

#include <stop_token>
#include <thread>

namespace lacuna::cli {

// While one lives, the first Ctrl-C requests its stop instead of ending the program; the second
// ends it. One at a time in a program.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread watcher_;
};

}  // namespace lacuna::cli

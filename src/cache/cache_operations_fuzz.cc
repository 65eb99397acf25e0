#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cache/random_operations.h"

// Each byte is a choice: first of a cache, then of operations and what they are done with.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lacuna::rig::Choices choices(std::span(data, size));
  lacuna::rig::RandomOperations operations(choices);
  try {
    while (!choices.done()) operations.run_one();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  }
  return 0;
}

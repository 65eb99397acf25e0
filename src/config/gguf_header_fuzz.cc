// libFuzzer: any bytes as a GGUF file end in a header and a model, or in one Error.
#include <cstddef>
#include <cstdint>

#include "lacuna/config.h"
#include "lacuna/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    lacuna::read_gguf_config({data, size}, "fuzz");
  } catch (const lacuna::Error&) {
  }
  return 0;
}

// libFuzzer: any bytes as a config.json end in a model or in one Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lacuna/config.h"
#include "lacuna/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    lacuna::read_config_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const lacuna::Error&) {
  }
  return 0;
}

// libFuzzer: any bytes as a sequence file end in a sequence, in no room or in one Error, and leave
// nothing behind.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cache/checksum.h"
#include "cache/sequence_sample.h"
#include "lacuna/error.h"
#include "lacuna/sequence_file.h"

namespace {

// Makes the header's checksum right where there is a place for one, so that what stands behind it
// is reached.
void seal(std::span<std::byte> file) {
  std::int64_t header_bytes = 0;
  if (file.size() < 24) return;
  std::memcpy(&header_bytes, file.data() + 16, sizeof(header_bytes));
  if (header_bytes < 8 || header_bytes > std::ssize(file)) return;
  const std::int64_t sum = lacuna::checksum(file.first(static_cast<std::size_t>(header_bytes - 8)));
  std::memcpy(file.data() + header_bytes - 8, &sum, sizeof(sum));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static lacuna::KvCache cache(lacuna::sample::shape(),
                               {.budget_bytes = 1 << 16, .slab_bytes = 1 << 13});
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  seal(file);
  try {
    const auto loaded = lacuna::load_sequence_bytes(cache, file, "fuzz", lacuna::sample::kIdentity);
    if (loaded) cache.free(loaded->sequence);
  } catch (const lacuna::Error&) {
  }
  if (cache.live_bytes() != 0 || !cache.sequences().empty()) std::abort();
  return 0;
}

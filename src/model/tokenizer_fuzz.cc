// libFuzzer: any bytes as a GGUF file end in a tokenizer or in one Error; what follows the header
// is a text, which the tokenizer takes apart and puts together again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lacuna/error.h"
#include "lacuna/tokenizer.h"

namespace {

void encode_and_decode(const lacuna::Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {special, special});
    (void)tokenizer.decode(ids, special);
    lacuna::TextStream stream(tokenizer, special);
    for (const lacuna::TokenId id : ids) {
      (void)stream.push(id);
      (void)tokenizer.ends(id);
    }
    (void)stream.finish();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lacuna::GgufHeader header = lacuna::read_gguf_header({data, size}, "fuzz");
    const lacuna::Tokenizer tokenizer({data, size}, header, "fuzz");
    const auto begin = static_cast<std::size_t>(header.data_offset);
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    encode_and_decode(tokenizer, bytes.substr(std::min(begin, size)));
  } catch (const lacuna::Error&) {
  }
  return 0;
}

// libFuzzer: any bytes as the header of a GGUF file end in a model that reads tokens, or in one
// Error. The seeds are the headers of tests/data/models; their weights are the zeros behind them,
// so that inputs are small and what is mutated is what says how weights are read.

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/transformer.h"
#include "model/memory_file.h"

namespace {

constexpr std::size_t kZeros = 320 << 10;  // more than any seed's weights

void read_tokens(const lacuna::Model& model, lacuna::ThreadPool& pool) {
  lacuna::TransformerOptions options;
  options.page_size = 16;
  options.cache_bytes = 16 << 20;
  lacuna::Transformer transformer(model, options, pool);
  std::vector<lacuna::TokenId> tokens(17);
  std::iota(tokens.begin(), tokens.end(), 0);
  const lacuna::NewTokens batch[] = {{transformer.cache().create(), tokens}};
  if (auto pass = transformer.forward(batch)) pass->commit();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static lacuna::ThreadPool pool(1);
  const lacuna::model_test::MemoryFile file(data, size, kZeros);
  for (const auto products : {lacuna::DenseType::kF32, lacuna::DenseType::kInt8}) {
    try {
      const lacuna::Model model(file.path(), {.products = products}, &pool);
      read_tokens(model, pool);
      (void)model.chat_template();
    } catch (const lacuna::Error&) {
    }
  }
  return 0;
}

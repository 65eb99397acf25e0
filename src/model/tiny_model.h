#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/generate.h"

// The tiny models of tests/data/models, for tests of what generates with them.
namespace lacuna::model_test {

inline const std::vector<std::string> kNames = {"tiny-gemma2", "tiny-gemma3", "tiny-llama-5-on-1",
                                                "tiny-llama-6-on-3", "tiny-mistral"};
inline constexpr std::int64_t kContext = 128;  // of all of them
inline constexpr TokenId kEndToken = 2;

// 40 tokens, which no text stands for.
inline std::vector<TokenId> some_prompt(std::size_t size = 40) {
  std::vector<TokenId> tokens = {1};
  while (tokens.size() < size) tokens.push_back(static_cast<TokenId>(3 + 37 * tokens.size() % 285));
  return tokens;
}

// A tiny model with exact products and keys.
struct Tiny {
  explicit Tiny(const std::string& name, const std::string& attend = "",
                std::int64_t cache_bytes = 64 << 20)
      : pool(2),
        model(std::string(LACUNA_TEST_DATA) + "/models/" + name + ".gguf",
              {.products = DenseType::kF32}, &pool),
        options(options_of(model, attend, cache_bytes)),
        transformer(model, options, pool) {}

  static TransformerOptions options_of(const Model& model, const std::string& attend,
                                       std::int64_t cache_bytes) {
    TransformerOptions options;
    options.kv_dtype = DType::kF32;
    options.page_size = 16;
    options.cache_bytes = cache_bytes;
    const auto layers = static_cast<int>(model.config().table.layers.size());
    if (!attend.empty()) options.table = parse_layers(attend, layers, true);
    return options;
  }
  Generated generate(const GenerateOptions& with, std::size_t prompt_size = 40) {
    Generated result = lacuna::generate(transformer, model, some_prompt(prompt_size), with);
    EXPECT_EQ(transformer.cache().live_bytes(), 0);
    return result;
  }

  ThreadPool pool;
  Model model;
  TransformerOptions options;
  Transformer transformer;
};

inline GenerateOptions tokens(std::int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.ignore_end = true;
  return options;
}

// Text of many kinds: bytes that are no characters, parts of characters, letters.
inline GenerateOptions drawn(std::uint64_t seed, std::int64_t max_tokens = 60) {
  GenerateOptions options = tokens(max_tokens);
  options.sampler = {.temperature = 6, .seed = seed};
  return options;
}

}  // namespace lacuna::model_test

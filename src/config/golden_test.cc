// The 57 real configs against what their files' readers derived by hand.
#include <gtest/gtest.h>

#include "config/test_models.h"

namespace lacuna::config_test {
namespace {

// Refused on purpose, with the key that must be named.
const std::map<std::string, std::string>& refused() {
  static const std::map<std::string, std::string> kRefused = {
      {"EmbeddingGemma-300m", "use_bidirectional_attention"},
      {"DeepSeek-V4-Flash", "compress_ratios"},
  };
  return kRefused;
}

class RealConfig : public testing::TestWithParam<std::string> {};

TEST_P(RealConfig, EqualsWhatIsDerivedByHand) {
  const auto& entry = models().at(GetParam());
  if (const auto named = refused().find(GetParam()); named != refused().end()) {
    EXPECT_TRUE(contains(error_of(entry.at("config")), named->second))
        << error_of(entry.at("config"));
    return;
  }
  const ModelConfig model = read(entry.at("config"));
  ASSERT_EQ(model.table.layers.size(), model.shape.layers.size());
  EXPECT_FALSE(model.window_convention.empty());
  EXPECT_EQ(model.table.trained, Trained::kTrue);
  if (!entry.contains("derived")) return;
  const auto& derived = entry.at("derived");
  if (derived.contains("layers_by_kind_with_kv")) {
    const auto expected = derived.at("layers_by_kind_with_kv").get<std::map<std::string, int>>();
    EXPECT_EQ(kinds(model), expected);
  }
  if (derived.contains("kv_bytes_per_token_bf16_all_layers")) {
    EXPECT_EQ(all_token_bytes(model),
              derived.at("kv_bytes_per_token_bf16_all_layers").get<std::int64_t>());
  }
  if (derived.contains("kv_bytes_per_token_bf16_growing_layers")) {
    std::int64_t growing = 0;
    for (std::size_t i = 0; i < model.table.layers.size(); ++i) {
      const std::string kind = kind_of(model, i);
      if (kind != "window" && kind != "chunk") growing += token_bytes(model, i);
    }
    EXPECT_EQ(growing, derived.at("kv_bytes_per_token_bf16_growing_layers").get<std::int64_t>());
  }
  if (derived.contains("ideal_kv_bytes_bf16")) {
    for (const auto& [length, bytes] : derived.at("ideal_kv_bytes_bf16").items()) {
      EXPECT_EQ(held_bytes(model, std::stoll(length)), bytes.get<std::int64_t>())
          << "length " << length;
    }
  }
  if (derived.contains("window_keys")) {
    const auto keys = derived.at("window_keys").get<std::int64_t>();
    for (std::size_t i = 0; i < model.table.layers.size(); ++i) {
      const auto* window = only_term<Window>(model, i);
      const auto* chunk = only_term<Chunk>(model, i);
      EXPECT_TRUE(window == nullptr || window->left + 1 == keys) << "layer " << i;
      EXPECT_TRUE(chunk == nullptr || chunk->c == keys) << "layer " << i;
    }
  }
  if (derived.contains("indexer_cache_bytes_per_token_fp8")) {
    std::int64_t bytes = 0;
    for (const LayerShape& shape : model.shape.layers) {
      if (shape.index) bytes += shape.index->bytes_per_token * shape.index->num_keys;
    }
    EXPECT_EQ(bytes, derived.at("indexer_cache_bytes_per_token_fp8").get<std::int64_t>());
  }
  if (derived.contains("attention_layers")) {
    EXPECT_EQ(kinds(model).at("full"), derived.at("attention_layers").get<int>());
    EXPECT_EQ(kinds(model).at("ffn"), derived.at("no_op_attention_layers").get<int>());
    EXPECT_EQ(all_token_bytes(model), derived.at("kv_bytes_per_token_bf16").get<std::int64_t>());
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, entry] : models().items()) out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Golden, RealConfig, testing::ValuesIn(names()), [](const auto& model) {
  std::string name = model.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

TEST(RealConfigs, AreFiftySeven) { EXPECT_EQ(models().size(), 57U); }

TEST(RealConfigs, KeysThatNobodyKnowsAreRefusedInEveryModel) {
  for (const auto& [name, entry] : models().items()) {
    if (refused().count(name) != 0) continue;
    auto config = entry.at("config");
    config["frobnicated_window_size"] = 7;
    EXPECT_TRUE(contains(error_of(config), "frobnicated_window_size")) << name;
    config.erase("frobnicated_window_size");
    config["frobnicated"] = 7;
    EXPECT_TRUE(ignores(read(config), "frobnicated")) << name;
  }
}

TEST(RealConfigs, AreReadByRuleWhereTheSpellingDecides) {
  // Models whose pattern stands in the file keep it under a name that nobody has heard of.
  for (const char* name :
       {"Gemma-3-270m", "Gemma-3-1b", "MiMo-V2-Flash", "Kimi-Linear-48B-A3B", "MiniMax-M3",
        "Nemotron-3-Nano-30B-A3B", "DeepSeek-V3.2", "GLM-5", "Phi-3-small-8k-instruct", "OLMo-3-7B",
        "Command-A", "Qwen2.5-7B-Instruct"}) {
    auto config = config_of(name);
    const ModelConfig before = read(config);
    config["model_type"] = "never_seen";
    config.erase("architectures");
    const ModelConfig after = read(config);
    EXPECT_EQ(kinds(after), kinds(before)) << name;
    EXPECT_EQ(all_token_bytes(after), all_token_bytes(before)) << name;
    EXPECT_EQ(held_bytes(after, 32768), held_bytes(before, 32768)) << name;
  }
}

}  // namespace
}  // namespace lacuna::config_test

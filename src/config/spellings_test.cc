// Trap 7 of the specification (model-configs.md 2.2): how layers' patterns are spelled.
#include <gtest/gtest.h>

#include "config/test_models.h"

namespace lacuna::config_test {
namespace {

using nlohmann::json;

TEST(Trap07Spellings, EachSpellingGivesItsLayers) {
  auto base = tiny("never_seen");
  base["sliding_window"] = 16;
  const auto with = [&](const std::string& key, const json& value) {
    auto config = base;
    config[key] = value;
    return letters(read(config));
  };
  const json types = {"full_attention",    "sliding_attention", "sliding_attention",
                      "full_attention",    "sliding_attention", "sliding_attention",
                      "sliding_attention", "full_attention"};
  EXPECT_EQ(with("layer_types", types), "FWWFWWWF");
  EXPECT_EQ(with("sliding_window_pattern", 3), "WWFWWFWW");
  EXPECT_EQ(with("_sliding_window_pattern", 4), "WWWFWWWF");
  EXPECT_EQ(with("sliding_window_pattern", "LLG"), "WWFWWFWF");  // the last layer is global
  EXPECT_EQ(with("sliding_window_pattern", {true, false, true, false, true, false, true, true}),
            "WFWFWFWW");
  EXPECT_EQ(with("hybrid_layer_pattern", {0, 1, 1, 0, 1, 1, 1, 0}), "FWWFWWWF");
  EXPECT_EQ(with("sliding_window_layout", {0, 1, 1, 1, 0, 1, 1, 1}), "FWWWFWWW");
}

TEST(Trap07Spellings, StatesAndBlocks) {
  auto config = tiny("never_seen");
  config["attn_type_list"] = {0, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_EQ(letters(read(config)), "SSSFSSSF");

  config = tiny("nemotron_h");
  for (const auto& [key, value] : config_of("Nemotron-3-Nano-30B-A3B").items()) {
    if (key.substr(0, 5) == "mamba" || key == "ssm_state_size" || key == "n_groups" ||
        key == "conv_kernel") {
      config[key] = value;
    }
  }
  config["hybrid_override_pattern"] = "MEM*-EM*";
  EXPECT_EQ(letters(read(config)), "S-SF--SF");
  config["hybrid_override_pattern"] = {"M", "E", "M", "*", "-", "E", "M", "*"};
  EXPECT_EQ(letters(read(config)), "S-SF--SF");

  config = tiny("recurrent_gemma");
  config["_block_types"] = {"recurrent", "recurrent", "attention"};
  config["attention_window_size"] = 32;
  config["lru_width"] = 64;
  const ModelConfig griffin = read(config);
  EXPECT_EQ(letters(griffin), "SSWSSWSS");
  EXPECT_EQ(griffin.shape.layers[0].state->value_dim, 64);
  EXPECT_EQ(only_term<Window>(griffin, 2)->left, 31);

  config = {{"model_type", "gpt_neo"},
            {"num_layers", 6},
            {"num_heads", 4},
            {"hidden_size", 64},
            {"attention_types", {{{"global", "local"}, 3}}},
            {"window_size", 16},
            {"vocab_size", 100}};
  EXPECT_EQ(letters(read(config)), "FWFWFW");
  EXPECT_EQ(read(config).shape.layers[0].mlp->intermediate_size, 256);
  config["attention_types"] = {{{"global", "local"}, 2}};
  EXPECT_TRUE(contains(error_of(config), "it names 4 layers of 6"));
}

TEST(Trap07Spellings, Phi3SmallReadsBlocksByHead) {
  const ModelConfig model = read_named("Phi-3-small-8k-instruct");
  const auto* blocks = only_term<VerticalBlocks>(model, 0);
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->block, 64);
  EXPECT_EQ(blocks->local, 16);
  EXPECT_EQ(blocks->stride, 8);
  EXPECT_TRUE(blocks->offset_is_head);
  EXPECT_NE(only_term<Full>(model, 1), nullptr);
  EXPECT_EQ(model.shape.layers[0].mlp->intermediate_size, 14336);
}

TEST(Trap07Spellings, LayerTypesWinOverStraySpellings) {
  auto config = config_of("OLMo-3-7B");
  config["sliding_window_pattern"] = 2;
  const ModelConfig model = read(config);
  EXPECT_EQ(letters(model).substr(0, 8), "WWWFWWWF");
  EXPECT_TRUE(contains(note_of(model, "sliding_window_pattern"), "layer_types wins"));
  EXPECT_TRUE(
      contains(error_of(config, {{"sliding_window_pattern", "3"}}), "would decide nothing"));
}

TEST(Trap07Spellings, DoubtIsRefused) {
  auto config = config_of("OLMo-3-7B");
  config["layer_types"].erase(config["layer_types"].size() - 1);
  EXPECT_TRUE(contains(error_of(config), "it has 31 items for 32 layers"));
  config["layer_types"].push_back("sliding_atention");
  EXPECT_TRUE(contains(error_of(config), "did you mean 'sliding_attention'"));
  auto two = tiny("never_seen");
  two["sliding_window"] = 16;
  two["sliding_window_pattern"] = 4;
  two["hybrid_layer_pattern"] = {0, 1, 1, 0, 1, 1, 1, 0};
  EXPECT_TRUE(contains(error_of(two), "hybrid_layer_pattern"));
  EXPECT_TRUE(contains(error_of(two), "disagrees with sliding_window_pattern"));
  auto none = tiny("never_seen");
  none["sliding_window"] = 16;
  EXPECT_TRUE(contains(error_of(none), "which layers slide is said by no key"));
  EXPECT_EQ(letters(read(none, {{"layer_types", "sliding_attention"}})), "WWWWWWWW");
  EXPECT_EQ(letters(read(none, {{"sliding_window_pattern", "4"}})), "WWWFWWWF");
  EXPECT_EQ(letters(read(none, {{"sliding_window", "null"}})), "FFFFFFFF");
}

TEST(Trap07Spellings, ExaoneKeepsItsLettersWhereNoWindowIsInForce) {
  auto config = config_of("EXAONE-4.0-32B");
  config["sliding_window"] = nullptr;
  EXPECT_EQ(kinds(read(config)), (std::map<std::string, int>{{"full", 64}}));
}

TEST(Trap07Spellings, IndexerTypesShareTheLastOwnChoice) {
  auto config = config_of("GLM-5");
  json types = json::array();
  for (int i = 0; i < 78; ++i) types.push_back(i % 4 == 0 ? "full" : "shared");
  config["indexer_types"] = types;
  const ModelConfig model = read(config);
  EXPECT_FALSE(model.table.layers[4].index_from.has_value());
  EXPECT_EQ(model.table.layers[7].index_from, 4);
  EXPECT_TRUE(model.shape.layers[4].index.has_value());
  EXPECT_FALSE(model.shape.layers[7].index.has_value());
  EXPECT_EQ(only_term<TopK>(model, 7)->k, 2048);
  config["indexer_types"][0] = "shared";
  EXPECT_TRUE(contains(error_of(config), "no earlier choice to share"));
}

TEST(Trap07Spellings, MiniMaxM3ChoosesBlocksAfterThreeFullLayers) {
  const ModelConfig model = read_named("MiniMax-M3");
  int chosen = 0;
  for (std::size_t i = 0; i < 60; ++i) {
    const auto* term = only_term<TopKBlocks>(model, i);
    if (term == nullptr) continue;
    ++chosen;
    EXPECT_GE(i, 3U);
    EXPECT_EQ(term->k, 16);
    EXPECT_EQ(term->block, 128);
    EXPECT_EQ(term->init, 0);
    EXPECT_EQ(term->local, 1);
    EXPECT_EQ(model.shape.layers[i].index->num_heads, 4);
  }
  EXPECT_EQ(chosen, 57);
  EXPECT_EQ(model.shape.layers[0].mlp->intermediate_size, 12288);
  EXPECT_EQ(model.shape.layers[3].mlp->kind, MlpKind::kMixture);
  EXPECT_EQ(model.shape.layers[3].mlp->shared_intermediate_size, 3072);
}

TEST(Trap07Spellings, CompressRatiosAreRefusedByName) {
  EXPECT_TRUE(
      contains(error_of(config_of("DeepSeek-V4-Flash")), "compress_ratios is [0, 0, 4, 128"));
}

}  // namespace
}  // namespace lacuna::config_test

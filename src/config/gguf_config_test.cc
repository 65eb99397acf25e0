// GGUF metadata as a model's table and sizes (model-configs.md 2.3), and the two real files.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/gguf_bytes.h"
#include "config/test_models.h"
#include "lacuna/file.h"

namespace lacuna::config_test {
namespace {

ModelConfig read_gguf(const GgufFile& model, const Assumptions& assume = {}) {
  return read_gguf_config(model.bytes(), "a.gguf", assume);
}
std::string gguf_error(const GgufFile& model, const Assumptions& assume = {}) {
  try {
    read_gguf(model, assume);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
TEST(GgufConfig, PeriodsOfArchitecturesAreNoted) {
  const std::pair<const char*, const char*> cases[] = {
      {"gemma2", "WFWFWFWF"},  {"gemma3", "WWWWWFWW"},  {"cohere2", "WWWFWWWF"},
      {"gpt-oss", "WFWFWFWF"}, {"exaone4", "WWWFWWWF"}, {"smallthinker", "FWWWFWWW"}};
  for (const auto& [arch, expected] : cases) {
    const ModelConfig model = read_gguf(GgufFile(arch).set("attention.sliding_window", 16));
    EXPECT_EQ(letters(model), expected) << arch;
    EXPECT_EQ(only_term<Window>(model, 2)->left, 15) << arch;
    EXPECT_TRUE(contains(note_of(model, std::string(arch) + ".attention.sliding_window_pattern"),
                         "llama.cpp"));
    EXPECT_TRUE(contains(model.window_convention, "counts the query itself"));
  }
}

TEST(GgufConfig, PatternIsAScalarPeriodOrAList) {
  const auto with = [](std::uint32_t period) {
    return letters(read_gguf(GgufFile("llama")
                                 .set("attention.sliding_window", 16)
                                 .set("attention.sliding_window_pattern", period)));
  };
  EXPECT_EQ(with(3), "WWFWWFWW");
  EXPECT_EQ(with(1), "FFFFFFFF");
  EXPECT_EQ(with(0), "WWWWWWWW");
  const std::vector<bool> flags = {false, true, true, false, true, true, true, false};
  EXPECT_EQ(letters(read_gguf(GgufFile("mimo2")
                                  .set("attention.sliding_window", 16)
                                  .set_flags("attention.sliding_window_pattern", flags))),
            "FWWFWWWF");
  EXPECT_TRUE(contains(gguf_error(GgufFile("mimo2")
                                      .set("attention.sliding_window", 16)
                                      .set_flags("attention.sliding_window_pattern", {true})),
                       "it has 1 items for 8 layers"));
}

TEST(GgufConfig, UnknownArchitecturesMustSayWhichLayersSlide) {
  const GgufFile model = GgufFile("never_seen").set("attention.sliding_window", 16);
  EXPECT_TRUE(
      contains(gguf_error(model), "never_seen.attention.sliding_window is 16: which layers slide"));
  EXPECT_EQ(letters(read_gguf(model, {{"never_seen.attention.sliding_window_pattern", "4"}})),
            "WWWFWWWF");
  EXPECT_EQ(letters(read_gguf(GgufFile("never_seen"))), "FFFFFFFF");
}

TEST(GgufConfig, Phi3sWindowIsIgnoredAsLlamaCppDoes) {
  const GgufFile model = GgufFile("phi3").set("attention.sliding_window", 2047);
  const ModelConfig config = read_gguf(model);
  EXPECT_EQ(letters(config), "FFFFFFFF");
  EXPECT_TRUE(
      contains(note_of(config, "phi3.attention.sliding_window"), "ignores the window of phi3"));
  EXPECT_EQ(letters(read_gguf(model, {{"phi3.attention.sliding_window_pattern", "0"}})),
            "WWWWWWWW");
}

TEST(GgufConfig, Llama4IsChunked) {
  const ModelConfig model = read_gguf(GgufFile("llama4"));
  EXPECT_EQ(letters(model), "CCCFCCCF");
  EXPECT_EQ(only_term<Chunk>(model, 0)->c, 8192);
}

TEST(GgufConfig, ModernBertIsSymmetricAndKeepsNoCache) {
  const ModelConfig model = read_gguf(GgufFile("modern-bert").set("attention.sliding_window", 128));
  EXPECT_EQ(letters(model), "FWWFWWFW");
  EXPECT_EQ(only_term<Window>(model, 1)->left, 64);
  EXPECT_EQ(only_term<Window>(model, 1)->right, 64);
  EXPECT_FALSE(model.table.causal);
  EXPECT_FALSE(model.shape.has_cache);
}

TEST(GgufConfig, Gemma3nStoresKvInTwentyLayers) {
  const ModelConfig model = read_gguf(GgufFile("gemma3n", 30).set("attention.sliding_window", 512));
  EXPECT_EQ(kinds(model), (std::map<std::string, int>{{"full", 4}, {"window", 16}}));
  EXPECT_EQ(model.table.layers[29].kv_from, 19);
}

TEST(GgufConfig, HeadsMayBeListsAndLayersMayHaveNone) {
  // GgufFile's scalars would stand beside the lists: this file is written out.
  GgufBytes body;
  body.head(0, 6).entry("general.architecture", std::string_view("deci"));
  body.entry("deci.block_count", 3).entry("deci.embedding_length", 64);
  body.array("deci.attention.head_count", GgufType::kUint32, 3).u32(4).u32(0).u32(4);
  body.array("deci.attention.head_count_kv", GgufType::kUint32, 3).u32(2).u32(0).u32(1);
  body.array("deci.feed_forward_length", GgufType::kUint32, 3).u32(128).u32(64).u32(0);
  const ModelConfig model = read_gguf_config(body.bytes(), "a.gguf");
  EXPECT_EQ(letters(model), "F-F");
  EXPECT_EQ(model.shape.layers[2].num_kv_heads, 1);
  EXPECT_EQ(model.shape.layers[1].mlp->intermediate_size, 64);
  EXPECT_EQ(model.shape.layers[2].mlp->kind, MlpKind::kNone);
}

TEST(GgufConfig, HybridsKeepAState) {
  const ModelConfig model = read_gguf(GgufFile("qwen3next")
                                          .set("full_attention_interval", 4)
                                          .set("attention.head_count_kv", 2)
                                          .set("ssm.conv_kernel", 4)
                                          .set("ssm.state_size", 128)
                                          .set("ssm.group_count", 16)
                                          .set("ssm.time_step_rank", 32)
                                          .set("ssm.inner_size", 4096));
  EXPECT_EQ(letters(model), "SSSFSSSF");
  EXPECT_EQ(model.table.layers[0].mixer, Mixer::kLinear);
  EXPECT_EQ(model.shape.layers[0].state->value_dim, 128);
  EXPECT_EQ(model.shape.layers[0].state->conv_channels, 8192);
}

TEST(GgufConfig, O64LatentsAreTheCache) {
  GgufFile glm("deepseek2", 79);
  glm.set("attention.head_count_kv", 1)
      .set("attention.kv_lora_rank", 512)
      .set("attention.q_lora_rank", 2048);
  glm.set("attention.key_length", 576).set("attention.value_length", 512);
  glm.set("attention.key_length_mla", 256).set("attention.value_length_mla", 256);
  glm.set("rope.dimension_count", 64).set("nextn_predict_layers", 1);
  const ModelConfig model = read_gguf(glm);
  // Trap 15: block_count holds the prediction layer, which has KV: 79 latents of 576 (GLM-5).
  EXPECT_EQ(all_token_bytes(model), 79 * 576 * 2);
  EXPECT_EQ(model.shape.layers[0].latent->qk_nope_head_dim, 192);
  EXPECT_TRUE(contains(note_of(model, "deepseek2.nextn_predict_layers"), "they hold KV"));
}

TEST(GgufConfig, RelevantUnknownKeysAreRefused) {
  EXPECT_TRUE(contains(gguf_error(GgufFile("llama").set("attention.new_window", 3)),
                       "llama.attention.new_window is 3"));
  const ModelConfig model =
      read_gguf(GgufFile("llama").set("attention.scale", 3).tokens({"a", "b", "c"}));
  EXPECT_TRUE(ignores(model, "llama.attention.scale"));
  EXPECT_EQ(model.shape.vocab_size, 3);
  EXPECT_TRUE(contains(gguf_error(GgufFile("llama"), {{"llama.attention.head_cont_kv", "2"}}),
                       "did you mean 'llama.attention.head_count_kv'"));
}

// --- what cost models get wrong about sizes (B10), from config.json
// --------------------------------

TEST(SizesOfConfigs, O61HeadDimIsRead) {
  EXPECT_EQ(read_named("gpt-oss-20b").shape.layers[0].head_dim, 64);
  EXPECT_EQ(read_named("Gemma-3-1b").shape.layers[0].head_dim, 256);
  const nlohmann::json mistral_small = {{"model_type", "mistral"},  {"num_hidden_layers", 40},
                                        {"hidden_size", 5120},      {"num_attention_heads", 32},
                                        {"num_key_value_heads", 8}, {"head_dim", 128},
                                        {"sliding_window", nullptr}};
  EXPECT_EQ(read(mistral_small).shape.layers[0].head_dim, 128);
}

TEST(SizesOfConfigs, O62KvHeadsNotQueryHeads) {
  EXPECT_EQ(all_token_bytes(read_named("Llama-3.1-8B")), 2 * 32 * 8 * 128 * 2);
}

TEST(SizesOfConfigs, O63WindowedLayersStopGrowing) {
  const ModelConfig oss = read_named("gpt-oss-20b");
  // 8192 tokens, batch 32: 12.00 GiB where all layers keep all, 6.09 GiB with real eviction.
  EXPECT_EQ(all_token_bytes(oss) * 8192 * 32, std::int64_t{12} << 30);
  EXPECT_NEAR(static_cast<double>(held_bytes(oss, 8192) * 32) / (1 << 30), 6.09, 0.005);
  const ModelConfig gemma = read_named("Gemma-3-1b");
  EXPECT_EQ(all_token_bytes(gemma) * 32768, std::int64_t{832} << 20);
  EXPECT_EQ(held_bytes(gemma, 32768), std::int64_t{139} << 20);
}

TEST(SizesOfConfigs, O64TheLatentHoldsRopeAndNoSecondCopy) {
  const ModelConfig model = read_named("DeepSeek-V3.2");
  EXPECT_EQ(token_bytes(model, 0), 1152);
  EXPECT_EQ(model.shape.layers[0].index->bytes_per_token, 132);
}

// --- real files, where `./dev model` has brought them
// ------------------------------------------------

std::string cached(const std::string& file) { return default_cache_dir() + "/models/" + file; }

TEST(RealGguf, Gemma3With270MParameters) {
  const std::string path = cached("gemma-3-270m-q4_k_m.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: ./dev model brings it";
  const ModelConfig model = read_model(path);
  EXPECT_EQ(letters(model), "WWWWWFWWWWWFWWWWWF");
  EXPECT_EQ(only_term<Window>(model, 0)->left + 1, 512);
  EXPECT_EQ(model.shape.hidden_size, 640);
  EXPECT_EQ(model.shape.vocab_size, 262144);
  EXPECT_EQ(model.shape.context_length, 32768);
  for (const LayerShape& layer : model.shape.layers) {
    EXPECT_EQ(layer.num_q_heads, 4);
    EXPECT_EQ(layer.num_kv_heads, 1);
    EXPECT_EQ(layer.head_dim, 256);
    EXPECT_EQ(layer.v_head_dim, 256);
    EXPECT_EQ(layer.mlp->intermediate_size, 2048);
    EXPECT_EQ(layer.mlp->kind, MlpKind::kGated);
  }
  EXPECT_EQ(all_token_bytes(model), 18432);
  // The config.json of the same model says the same.
  EXPECT_EQ(held_bytes(model, 32768), held_bytes(read_named("Gemma-3-270m"), 32768));
}

TEST(RealGguf, SmolLm2With135MParameters) {
  const std::string path = cached("smollm2-135m-q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: ./dev model brings it";
  const ModelConfig model = read_model(path);
  EXPECT_EQ(model.table.layers.size(), 30U);
  EXPECT_EQ(model.shape.vocab_size, 49152);
  EXPECT_EQ(all_token_bytes(model), 23040);
}

}  // namespace
}  // namespace lacuna::config_test

// Hostile and odd config.json files, paths, assumptions, and the encoders.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/gguf_bytes.h"
#include "config/test_models.h"

namespace lacuna::config_test {
namespace {

using nlohmann::json;

std::string text_error(const std::string& text, const Assumptions& assume = {}) {
  try {
    read_config_json(text, "config.json", assume);
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "";
}

json llama() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 4},   {"hidden_size", 64},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 128},
          {"vocab_size", 100}};
}

TEST(HostileJson, EndsInOneLine) {
  EXPECT_TRUE(contains(text_error(""), "config.json: not JSON at byte"));
  EXPECT_TRUE(contains(text_error("{\n\"a\": 1,\n}"), "config.json: not JSON at byte"));
  EXPECT_TRUE(contains(text_error("[1, 2]"), "not a JSON object"));
  EXPECT_TRUE(contains(text_error("{} trailing"), "not JSON at byte"));
  EXPECT_TRUE(contains(text_error(std::string(100000, '[')), "nested deeper than 64"));
  EXPECT_TRUE(contains(text_error("{\"sliding_window\": 1, \"sliding_window\": 2}"),
                       "the key 'sliding_window' stands twice"));
  EXPECT_TRUE(
      contains(text_error("{\"text_config\": {\"a\": {\"b\": 1, \"b\": 2}}}"), "stands twice"));
  EXPECT_NE(text_error("\xff\xfe{}"), "");
}

TEST(HostileJson, WrongTypesAndRangesNameTheKey) {
  const std::pair<const char*, json> cases[] = {{"num_hidden_layers", 0},
                                                {"num_hidden_layers", 1e300},
                                                {"num_hidden_layers", "32"},
                                                {"num_hidden_layers", 1000000000},
                                                {"num_hidden_layers", -1},
                                                {"hidden_size", 1ULL << 63},
                                                {"num_attention_heads", {1, 2}},
                                                {"num_key_value_heads", 3},
                                                {"num_key_value_heads", 0},
                                                {"head_dim", 2.5},
                                                {"layer_types", {1, 2, 3, 4}},
                                                {"layer_types", {{"a", 1}}},
                                                {"vocab_size", -5},
                                                {"max_position_embeddings", true},
                                                {"model_type", 7},
                                                {"sliding_window_pattern", 0},
                                                {"sliding_window_pattern", ""},
                                                {"is_encoder_decoder", true},
                                                {"block_configs", {1, 2, 3, 4}}};
  for (const auto& [key, value] : cases) {
    auto config = llama();
    config["model_type"] = "mistral";
    config["sliding_window"] = 16;
    config[key] = value;
    EXPECT_TRUE(contains(error_of(config), key)) << key << ": " << error_of(config);
  }
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads"}) {
    auto config = llama();
    config.erase(key);
    EXPECT_TRUE(contains(error_of(config), std::string(key) + " is absent")) << error_of(config);
  }
}

TEST(HostileJson, PythonsInfinityIsRead) {
  std::string text = llama().dump();
  text.insert(
      text.size() - 1,
      ",\"time_step_limit\":[0.0,Infinity],\"odd\":-Infinity,\"text\":\"NaN \\\" Infinity\"");
  EXPECT_EQ(text_error(text), "");
}

TEST(Assumptions, MustBeAskedFor) {
  EXPECT_TRUE(contains(
      error_of(llama(), {{"sliding_windw", "16"}}),
      "the assumed sliding_windw = 16 is not a key that this model's reader asks for; did you "
      "mean 'sliding_window'"));
  EXPECT_TRUE(
      contains(error_of(llama(), {{"frobnicate", "ignore"}}), "a key that is not in the file"));
  const ModelConfig model = read(llama(), {{"head_dim", "32"}});
  EXPECT_EQ(model.shape.layers[0].head_dim, 32);
  EXPECT_TRUE(contains(note_of(model, "head_dim"), "32 | assumed by the user"));
  EXPECT_TRUE(contains(error_of(llama(), {{"head_dim", "x"}}),
                       "head_dim is \"x\": allowed is a whole number"));
}

TEST(Encoders, LongformersWindowIsTwoSidedInAll) {
  const ModelConfig model = read_named("Longformer-base-4096");
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(only_term<Window>(model, i)->left, 256);
    EXPECT_EQ(only_term<Window>(model, i)->right, 256);
  }
  EXPECT_FALSE(model.table.causal);
  EXPECT_FALSE(model.shape.has_cache);
  EXPECT_TRUE(contains(model.window_convention, "two-sided total"));
  EXPECT_TRUE(contains(note_of(model, "global_attention_mask"), "the task chooses"));
  auto odd = config_of("Longformer-base-4096");
  odd["attention_window"][3] = 511;
  EXPECT_TRUE(contains(error_of(odd), "attention_window"));
}

TEST(Encoders, BigBirdIsWindowGlobalsAndRandomBlocks) {
  const ModelConfig model = read_named("BigBird-roberta-base");
  EXPECT_FALSE(model.table.causal);
  EXPECT_FALSE(model.shape.has_cache);
  const Union& attend = model.table.layers[0].attend.groups[0].attend;
  ASSERT_EQ(attend.size(), 4U);
  EXPECT_EQ(std::get<WindowBlocks>(attend[0]).block, 64);
  EXPECT_EQ(std::get<WindowBlocks>(attend[0]).before, 1);
  EXPECT_EQ(std::get<WindowBlocks>(attend[0]).after, 1);
  EXPECT_EQ(std::get<GlobalFirst>(attend[1]).g, 64);
  EXPECT_EQ(std::get<GlobalLast>(attend[2]).g, 64);
  EXPECT_EQ(std::get<RandomBlocks>(attend[3]).r, 3);
  EXPECT_TRUE(std::get<RandomBlocks>(attend[3]).outside_window);
  EXPECT_TRUE(contains(note_of(model, "attention_type"), "up to 704 tokens fall back to full"));
  auto full = config_of("BigBird-roberta-base");
  full["attention_type"] = "original_full";
  EXPECT_NE(only_term<Full>(read(full), 0), nullptr);
  full["attention_type"] = "block_spars";
  EXPECT_TRUE(contains(error_of(full), "did you mean 'block_sparse'"));
}

TEST(Encoders, BertIsFullBothWaysAndModernBertEveryThird) {
  auto config = llama();
  config["model_type"] = "bert";
  EXPECT_FALSE(read(config).table.causal);
  config["model_type"] = "modernbert";
  const ModelConfig model = read(config);
  EXPECT_NE(only_term<Full>(model, 0), nullptr);
  EXPECT_EQ(only_term<Window>(model, 1)->left, 64);
  EXPECT_NE(only_term<Full>(model, 3), nullptr);
}

// Keys that whole files of these families carry beside those that decide.
TEST(WholeFiles, AreReadWithAllTheirKeys) {
  auto config = config_of("Qwen3-8B");
  config.update(
      json::parse(R"({"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "transformers_version": "4.51.0",
    "use_cache": true,
    "_attn_implementation": "eager", "_name_or_path": "x", "cross_attention_hidden_size": null,
    "chunk_size_feed_forward": 0, "pruned_heads": {}, "output_attentions": false,
    "add_cross_attention": false,
    "is_decoder": false, "id2label": {"0": "LABEL_0"}, "task_specific_params": null,
    "kv_cache_dtype": "fp8"})"));
  EXPECT_EQ(error_of(config), "");
  config = config_of("DeepSeek-V3.2");
  config.update(
      json::parse(R"({"attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
    "ep_size": 1, "hidden_act": "silu", "n_group": 8, "norm_topk_prob": true, "pretraining_tp": 1,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "weight_block_size": [128, 128]}, "rope_scaling": {"beta_fast": 32, "mscale_all_dim": 1.0,
      "type": "yarn"}, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
    "topk_group": 4, "topk_method": "noaux_tc", "indexer_rope_interleave": true})"));
  EXPECT_EQ(error_of(config), "");
  config = config_of("gpt-oss-20b");
  config.update(
      json::parse(R"({"attention_bias": true, "attention_dropout": 0.0, "experts_per_token": 4,
    "hidden_act": "silu", "output_router_logits": false, "pad_token_id": 199999,
    "swiglu_limit": 7.0,
    "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
    "rope_scaling": {"factor": 32.0, "truncate": false}, "router_aux_loss_coef": 0.9})"));
  EXPECT_EQ(error_of(config), "");
  config = config_of("Gemma-3n-E4B");
  config["audio_config"] = {{"conf_attention_chunk_size", 12}, {"conf_attention_context_left", 13}};
  config["vision_config"] = {{"num_attention_heads", 16}};
  config["text_config"].update(json::parse(R"({"activation_sparsity_pattern": [0.95, 0.0],
    "altup_active_idx": 0, "attention_bias": false, "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10000.0,
    "use_cache": true})"));
  EXPECT_EQ(error_of(config), "");
  config = config_of("MiMo-V2-Flash");
  config.update(json::parse(R"({"hybrid_block_size": null, "attention_value_scale": 0.707,
    "swa_rope_theta": 10000, "attention_bias": false,
    "attention_projection_layout": "fused_qkv"})"));
  EXPECT_EQ(error_of(config), "");
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("lacuna_config_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string error() {
    try {
      read_model(folder_.string());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(Files, AFolderHasAConfigOrOneGguf) {
  EXPECT_TRUE(contains(error(), "needs a config.json or one .gguf file; it has 0"));
  const auto bytes = GgufFile("llama").bytes();
  write("a.gguf", std::string(bytes.begin(), bytes.end()));
  EXPECT_EQ(read_model(folder_.string()).source, "gguf");
  EXPECT_EQ(read_model((folder_ / "a.gguf").string()).source, "gguf");
  write("b.gguf", "GGUF");
  EXPECT_TRUE(contains(error(), "it has 2 .gguf files"));
  write("config.json", llama().dump());
  EXPECT_EQ(read_model(folder_.string()).source, "config.json");
}

TEST_F(Files, AreNamedInErrors) {
  write("config.json", "{}");
  EXPECT_TRUE(
      contains(error(), (folder_ / "config.json").string() + ": num_hidden_layers is absent"));
  EXPECT_THROW(read_model((folder_ / "none.json").string()), Error);
  EXPECT_THROW(read_model((folder_ / "none.gguf").string()), Error);
  write("empty.gguf", "");
  EXPECT_THROW(read_model((folder_ / "empty.gguf").string()), Error);
}

TEST(JsonConfig, AHybridWithoutItsListIsRefusedNotReadAsFull) {
  const std::pair<const char*, const char*> hybrids[] = {
      {"MiniMax-Text-01", "attn_type_list"},
      {"Kimi-Linear-48B-A3B", "linear_attn_config"},
      {"Llama-3_3-Nemotron-Super-49B-v1", "block_configs"}};
  for (const auto& [name, key] : hybrids) {
    json config = config_of(name);
    config.erase(key);
    EXPECT_TRUE(contains(error_of(config), key)) << name;
  }
}

TEST(JsonConfig, KvHeadsOfAKindThatDoesNotSayThemAreNoted) {
  json mimo = config_of("MiMo-V2-Flash");
  mimo.erase("swa_num_key_value_heads");
  EXPECT_TRUE(contains(note_of(read(mimo), "swa_num_key_value_heads"), "absent"));
  json gemma = config_of("Gemma-4-31B");
  gemma["text_config"].erase("num_global_key_value_heads");
  EXPECT_TRUE(contains(note_of(read(gemma), "num_global_key_value_heads"), "absent"));
}

TEST(JsonConfig, ANestedConfigThatIsNoObjectIsNamed) {
  EXPECT_TRUE(contains(text_error("{\"text_config\": 5}"), "text_config"));
}

}  // namespace
}  // namespace lacuna::config_test

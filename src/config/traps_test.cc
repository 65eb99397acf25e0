// The dialect traps of the specification (model-configs.md 2.2), one test or more for each
// number; number 7 stands in spellings_test.cc.
#include <gtest/gtest.h>

#include "config/test_models.h"

namespace lacuna::config_test {
namespace {

using nlohmann::json;

TEST(Trap01HeadDim, ExplicitWinsAndAbsentIsDerivedAndMisleadingIsIgnored) {
  EXPECT_EQ(read_named("Gemma-3-1b").shape.layers[0].head_dim, 256);
  EXPECT_EQ(read_named("Qwen3-0.6B").shape.layers[0].head_dim, 128);
  EXPECT_EQ(read_named("gpt-oss-20b").shape.layers[0].head_dim, 64);
  const ModelConfig llama = read_named("Llama-3.1-8B");
  EXPECT_EQ(llama.shape.layers[0].head_dim, 128);
  EXPECT_TRUE(contains(note_of(llama, "head_dim"), "derived"));
  const ModelConfig kimi = read_named("Kimi-Linear-48B-A3B");
  EXPECT_EQ(kimi.shape.layers[3].head_dim, 128 + 64);
  EXPECT_TRUE(contains(note_of(kimi, "head_dim"), "72 | not the cache"));
  EXPECT_EQ(read_named("GLM-5").shape.layers[0].head_dim, 256);
  auto odd = tiny("llama");
  odd["hidden_size"] = 66;
  EXPECT_TRUE(
      contains(error_of(odd), "head_dim is absent: hidden_size 66 is no multiple of 4 heads"));
}

TEST(Trap02SparseNestedConfig, ClassDefaultsFillInAndAreNoted) {
  const ModelConfig model = read_named("Gemma-3-4b-multimodal");
  EXPECT_EQ(model.shape.layers[0].head_dim, 256);
  EXPECT_EQ(model.shape.layers[0].num_q_heads, 8);
  EXPECT_EQ(model.shape.layers[0].num_kv_heads, 4);
  EXPECT_EQ(model.shape.vocab_size, 262208);
  EXPECT_EQ(letters(model).substr(0, 12), "WWWWWFWWWWWF");
  for (const char* key : {"head_dim", "num_attention_heads", "num_key_value_heads", "vocab_size",
                          "sliding_window_pattern"}) {
    EXPECT_TRUE(contains(note_of(model, key), "class default of gemma3_text (HF gemma3)")) << key;
  }
}

TEST(Trap03Nesting, InnerValuesWinAndOuterOnesAreNoted) {
  auto config = tiny("gemma3");
  json inner = tiny("gemma3_text");
  inner["sliding_window"] = 16;
  inner.erase("intermediate_size");
  config["text_config"] = inner;
  config["num_attention_heads"] = 2;
  config["vision_config"] = {{"hidden_size", 1152}, {"window_of_its_own", 3}};
  config["image_token_index"] = 262144;
  const ModelConfig model = read(config);
  EXPECT_EQ(model.shape.layers[0].num_q_heads, 4);
  EXPECT_EQ(model.shape.layers[0].mlp->intermediate_size, 128);
  EXPECT_TRUE(contains(note_of(model, "intermediate_size"), "from outside text_config"));
  EXPECT_TRUE(ignores(model, "vision_config"));
  EXPECT_TRUE(ignores(model, "image_token_index"));
  config["odd_attention"] = 1;
  EXPECT_TRUE(contains(error_of(config), "odd_attention is 1"));
}

TEST(Trap04WindowSwitch, NullAndFalseTurnTheWindowOff) {
  EXPECT_EQ(kinds(read_named("Mistral-7B-v0.3")), (std::map<std::string, int>{{"full", 32}}));
  EXPECT_EQ(kinds(read_named("Qwen2.5-7B-Instruct")), (std::map<std::string, int>{{"full", 28}}));
  auto absent = config_of("Mistral-7B-v0.3");
  absent.erase("sliding_window");
  const ModelConfig filled = read(absent);
  EXPECT_EQ(kinds(filled), (std::map<std::string, int>{{"window", 32}}));
  EXPECT_TRUE(contains(note_of(filled, "sliding_window"), "4096 | class default of mistral"));
  auto zero = tiny("mistral");
  zero["sliding_window"] = 0;
  EXPECT_TRUE(contains(error_of(zero), "sliding_window is 0: allowed is a whole number in 1.."));
}

TEST(Trap04WindowSwitch, Qwen2SlidesFromMaxWindowLayersOn) {
  auto config = tiny("qwen2");
  config["use_sliding_window"] = true;
  config["sliding_window"] = 32;
  config["max_window_layers"] = 5;
  EXPECT_EQ(letters(read(config)), "FFFFFWWW");
  config["max_window_layers"] = 70;  // a real 3B file has 70 for 36 layers
  EXPECT_EQ(letters(read(config)), "FFFFFFFF");
  config["use_sliding_window"] = false;
  config["max_window_layers"] = 5;
  EXPECT_EQ(letters(read(config)), "FFFFFFFF");
}

TEST(Trap05WindowBeyondContext, IsKeptAndNoted) {
  const ModelConfig model = read_named("Phi-3-mini-128k-instruct");
  EXPECT_EQ(only_term<Window>(model, 0)->left + 1, 262144);
  EXPECT_TRUE(contains(note_of(model, "sliding_window"), "never binds"));
}

TEST(Trap06OffByOne, Phi3KeepsItsOddWindow) {
  const ModelConfig model = read_named("Phi-3-mini-4k-instruct");
  EXPECT_EQ(only_term<Window>(model, 31)->left, 2046);
  EXPECT_TRUE(contains(model.window_convention, "counts the query itself"));
  EXPECT_TRUE(contains(model.window_convention, "W = 2047 keys"));
}

TEST(Trap08WhichIsGlobal, DiffersByFamily) {
  EXPECT_EQ(letters(read_named("Gemma-2-2b")).substr(0, 4), "WFWF");
  const std::string gemma = letters(read_named("Gemma-3-1b"));
  EXPECT_EQ(gemma, "WWWWWFWWWWWFWWWWWFWWWWWFWW");  // the tail is local
  EXPECT_EQ(letters(read_named("Command-R7B")).substr(0, 4), "WWWF");
  auto olmo = config_of("OLMo-3-7B");
  olmo.erase("layer_types");
  olmo["num_hidden_layers"] = 10;
  const ModelConfig forced = read(olmo);
  EXPECT_EQ(letters(forced), "WWWFWWWFWF");
  EXPECT_TRUE(contains(note_of(forced, "layer_types"), "makes the last layer full"));
  auto step = tiny("step3p7");  // the first of each group is global: only a list can say so
  step["sliding_window"] = 512;
  step["layer_types"] = {"full_attention",    "sliding_attention", "sliding_attention",
                         "sliding_attention", "full_attention",    "sliding_attention",
                         "sliding_attention", "sliding_attention"};
  EXPECT_EQ(letters(read(step)), "FWWWFWWW");
}

TEST(Trap09NoRopeLayers, SelectChunksInLlama4AndPositionsElsewhere) {
  auto llama = config_of("Llama-4-Scout-17B-16E");
  const ModelConfig by_interval = read(llama);
  EXPECT_EQ(letters(by_interval).substr(0, 8), "CCCFCCCF");
  EXPECT_EQ(by_interval.table.layers[3].rope, "none");
  json flags = json::array();
  for (int i = 0; i < 48; ++i) flags.push_back(i % 2);
  llama["text_config"]["no_rope_layers"] = flags;
  EXPECT_EQ(letters(read(llama)).substr(0, 4), "FCFC");
  llama["text_config"]["no_rope_layers"] = json::array();
  EXPECT_EQ(letters(read(llama)).substr(0, 4), "CCCF");

  auto smol = tiny("smollm3");
  smol["no_rope_layers"] = {1, 1, 1, 0, 1, 1, 1, 0};
  smol["use_sliding_window"] = false;
  smol["sliding_window"] = nullptr;
  const ModelConfig model = read(smol);
  EXPECT_EQ(letters(model), "FFFFFFFF");
  EXPECT_EQ(model.table.layers[3].rope, "none");
  EXPECT_EQ(model.table.layers[2].rope, "");
}

TEST(Trap10AttentionChunk, IsAChunkInLlama4AndARedHerringInMiMo) {
  const ModelConfig llama = read_named("Llama-4-Scout-17B-16E");
  EXPECT_EQ(only_term<Chunk>(llama, 0)->c, 8192);
  EXPECT_TRUE(contains(llama.window_convention, "floor(q/c)*c"));
  const ModelConfig mimo = read_named("MiMo-V2-Flash");
  EXPECT_EQ(only_term<Window>(mimo, 1)->left, 127);
  EXPECT_TRUE(contains(note_of(mimo, "attention_chunk_size"), "repeats the window"));
  auto doubt = config_of("MiMo-V2-Flash");
  doubt["attention_chunk_size"] = 256;
  EXPECT_TRUE(contains(error_of(doubt), "attention_chunk_size is 256: which layers are chunked"));
  auto stray = tiny("llama");
  stray["attention_chunk_size"] = 256;
  EXPECT_TRUE(contains(error_of(stray), "attention_chunk_size"));
  EXPECT_EQ(letters(read(stray, {{"attention_chunk_size", "null"}})), "FFFFFFFF");
}

TEST(Trap11HeadsByKind, GlobalAndWindowedLayersHaveTheirOwn) {
  const ModelConfig gemma = read_named("Gemma-4-31B");
  EXPECT_EQ(gemma.shape.layers[0].num_kv_heads, 16);
  EXPECT_EQ(gemma.shape.layers[0].head_dim, 256);
  EXPECT_EQ(gemma.shape.layers[5].num_kv_heads, 4);
  EXPECT_EQ(gemma.shape.layers[5].head_dim, 512);
  const ModelConfig mimo = read_named("MiMo-V2-Flash");
  EXPECT_EQ(mimo.shape.layers[0].num_kv_heads, 4);
  EXPECT_EQ(mimo.shape.layers[1].num_kv_heads, 8);
  EXPECT_EQ(mimo.shape.layers[1].head_dim, 192);
  EXPECT_EQ(mimo.shape.layers[1].v_head_dim, 128);
}

TEST(Trap12KEqualsV, BothAreStoredAllTheSame) {
  const ModelConfig model = read_named("Gemma-4-31B");
  EXPECT_TRUE(contains(note_of(model, "attention_k_eq_v"), "runtimes store both"));
  EXPECT_EQ(token_bytes(model, 5), 2 * 4 * (512 + 512));
  auto apart = config_of("Gemma-4-31B");
  apart["text_config"]["attention_k_eq_v"] = false;
  const ModelConfig gated = read(apart);
  EXPECT_EQ(gated.shape.layers[5].num_kv_heads, 16);
  EXPECT_TRUE(contains(note_of(gated, "num_global_key_value_heads"), "not used"));
}

TEST(Trap13SharedKv, TheLastLayersReadTheLastOwnerOfTheirKind) {
  const ModelConfig model = read_named("Gemma-3n-E4B");
  EXPECT_FALSE(model.table.layers[19].kv_from.has_value());
  EXPECT_EQ(model.table.layers[20].kv_from, 18);  // sliding
  EXPECT_EQ(model.table.layers[24].kv_from, 19);  // full
  EXPECT_EQ(model.table.layers[34].kv_from, 19);
  EXPECT_NE(only_term<Window>(model, 20), nullptr);  // it still attends
  auto config = config_of("Gemma-3n-E4B");
  config["text_config"]["num_kv_shared_layers"] = 34;
  EXPECT_TRUE(contains(error_of(config), "has no earlier layer of its kind"));
}

TEST(Trap14RelevantUnknownKeys, AreRefusedByNameAndOthersAreListed) {
  for (const char* key :
       {"swa_window", "sliding_foo", "chunked", "sparse_mode", "my_pattern", "layer_type_map",
        "attn_kind", "Attention_Mode_X", "kv_groups", "head_groups", "index_size", "lora_width",
        "linear_kind", "mamba_kind", "ssm_kind", "block_len", "global_interval"}) {
    auto config = tiny("llama");
    config[key] = 3;
    const std::string error = error_of(config);
    EXPECT_TRUE(contains(error, std::string("config.json: ") + key + " is 3")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    const ModelConfig model = read(config, {{key, "ignore"}});
    EXPECT_TRUE(contains(note_of(model, key), "left out as the user asked")) << key;
  }
  auto nested = tiny("llama");
  nested["extras"] = {{"harmless", 1}, {"window_kind", 2}};
  EXPECT_TRUE(contains(error_of(nested), "extras.window_kind is 2"));
  auto config = tiny("llama");
  config["tie_word_embeddings"] = false;
  config["rope_scaling"] = {{"attn_factor", 2.0}, {"factor", 8.0}};
  config["quantization_config"] = {{"weight_block_size", {128, 128}}};
  config["attention_dropout"] = 0.0;
  const ModelConfig model = read(config);
  for (const char* key :
       {"tie_word_embeddings", "rope_scaling", "quantization_config", "attention_dropout"}) {
    EXPECT_TRUE(ignores(model, key)) << key;
  }
}

TEST(Trap14RelevantUnknownKeys, TheLatentIsTheCacheNotTheHeads) {
  const ModelConfig model = read_named("DeepSeek-V3");
  EXPECT_EQ(model.table.layers[0].mixer, Mixer::kMla);
  EXPECT_EQ(token_bytes(model, 0), 1152);
  EXPECT_EQ(model.shape.layers[0].num_q_heads, 128);
  EXPECT_EQ(model.shape.layers[0].num_kv_heads, 1);
  EXPECT_TRUE(contains(note_of(model, "num_key_value_heads"), "not the cache"));
}

TEST(Trap15PredictionLayers, AreNotCountedFromConfigJson) {
  const ModelConfig model = read_named("DeepSeek-V3");
  EXPECT_EQ(model.table.layers.size(), 61U);
  EXPECT_TRUE(contains(note_of(model, "num_nextn_predict_layers"), "not counted"));
  auto step = tiny("step3p5");
  step["sliding_window"] = 512;
  step["num_nextn_predict_layers"] = 1;
  step["layer_types"] = json::array();
  for (int i = 0; i < 9; ++i)
    step["layer_types"].push_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
  const ModelConfig longer = read(step);
  EXPECT_EQ(letters(longer), "FWWWFWWW");
  EXPECT_TRUE(contains(note_of(longer, "layer_types"), "belong to prediction layers"));
}

TEST(Trap16Vocabulary, IsTheFilesOwnNumber) {
  EXPECT_EQ(read_named("Qwen3-8B").shape.vocab_size, 151936);
  EXPECT_EQ(read_named("Gemma-3-1b").shape.vocab_size, 262144);
  EXPECT_EQ(read_named("Gemma-3-4b-multimodal").shape.vocab_size, 262208);
}

TEST(Trap17Bidirectional, VisionIsCausalAndTrueIsDoubt) {
  const ModelConfig gemma = read_named("Gemma-4-31B");
  EXPECT_TRUE(gemma.table.causal);
  EXPECT_TRUE(contains(note_of(gemma, "use_bidirectional_attention"), "text is causal"));
  auto embedding = config_of("Gemma-3-1b");
  embedding["use_bidirectional_attention"] = true;
  EXPECT_TRUE(contains(error_of(embedding), "use_bidirectional_attention is true"));
  const ModelConfig both = read(embedding, {{"window_each_side", "256"}});
  EXPECT_FALSE(both.table.causal);
  EXPECT_FALSE(both.shape.has_cache);
  EXPECT_EQ(only_term<Window>(both, 0)->left, 256);
  EXPECT_EQ(only_term<Window>(both, 0)->right, 256);
  const ModelConfig causal = read(embedding, {{"use_bidirectional_attention", "false"}});
  EXPECT_TRUE(causal.table.causal);
  EXPECT_EQ(only_term<Window>(causal, 0)->left, 511);
}

TEST(Trap18Sinks, LearnedOnesHoldNoKvAndTokensDo) {
  const ModelConfig oss = read_named("gpt-oss-20b");
  EXPECT_TRUE(oss.shape.layers[0].learned_sink);
  EXPECT_TRUE(oss.shape.layers[1].learned_sink);
  const ModelConfig mimo = read_named("MiMo-V2-Flash");
  EXPECT_FALSE(mimo.shape.layers[0].learned_sink);
  EXPECT_TRUE(mimo.shape.layers[1].learned_sink);
  auto nas = config_of("Llama-3_3-Nemotron-Super-49B-v1");
  nas["block_configs"][0]["attention"]["window_length"] = 1024;
  nas["block_configs"][0]["attention"]["num_sink_tokens"] = 4;
  const ModelConfig model = read(nas);
  const Union& attend = model.table.layers[0].attend.groups[0].attend;
  ASSERT_EQ(attend.size(), 2U);
  EXPECT_EQ(std::get<Window>(attend[0]).left, 1023);
  EXPECT_EQ(std::get<Sink>(attend[1]).s, 4);
  nas["block_configs"][0]["attention"]["window_length"] = nullptr;
  EXPECT_TRUE(
      contains(error_of(nas), "block_configs.0.attention.num_sink_tokens is 4: sinks need"));
}

TEST(Trap19PartsOfLayers, NemotronIsMixerOrMlpAndNasHasNullHeads) {
  const ModelConfig hybrid = read_named("Nemotron-3-Nano-30B-A3B");
  EXPECT_EQ(letters(hybrid).substr(0, 7), "S-S-SF-");
  EXPECT_EQ(hybrid.shape.layers[0].mlp->kind, MlpKind::kNone);
  EXPECT_EQ(hybrid.shape.layers[0].state->num_value_heads, 64);
  EXPECT_EQ(hybrid.shape.layers[0].state->value_dim, 64);
  EXPECT_EQ(hybrid.shape.layers[0].state->key_dim, 128);
  EXPECT_EQ(hybrid.shape.layers[0].state->conv_channels, 64 * 64 + 2 * 8 * 128);
  // The file's excerpt does not say how wide the shared expert is, and it differs from the others.
  EXPECT_FALSE(hybrid.shape.layers[1].mlp.has_value());
  EXPECT_TRUE(contains(note_of(hybrid, "moe_shared_expert_intermediate_size"), "unknown"));
  const ModelConfig told =
      read_named("Nemotron-3-Nano-30B-A3B", {{"moe_shared_expert_intermediate_size", "3712"}});
  EXPECT_EQ(told.shape.layers[1].mlp->shared_intermediate_size, 3712);
  EXPECT_FALSE(told.shape.layers[1].mlp->gated_experts);

  const ModelConfig nas = read_named("Llama-3_3-Nemotron-Super-49B-v1");
  EXPECT_EQ(nas.shape.layers[0].num_kv_heads, 8);
  EXPECT_EQ(nas.shape.layers[0].mlp->intermediate_size, 14336);
  EXPECT_EQ(nas.shape.layers[1].mlp->intermediate_size, 28672);
  EXPECT_EQ(nas.table.layers[6].mixer, Mixer::kNone);
  EXPECT_TRUE(contains(note_of(nas, "ffn_mult"), "class rule of DeciLM"));
  auto odd = config_of("Llama-3_3-Nemotron-Super-49B-v1");
  odd["block_configs"][2]["attention"]["replace_with_linear"] = true;
  EXPECT_TRUE(contains(error_of(odd), "block_configs.2.attention.replace_with_linear is true"));
  odd["block_configs"][2]["attention"]["replace_with_linear"] = false;
  odd["block_configs"][2]["attention"]["new_window"] = 5;
  EXPECT_TRUE(contains(error_of(odd), "block_configs.2.attention.new_window is 5"));
}

TEST(Trap20Softcap, IsNeutral) {
  const ModelConfig model = read_named("Gemma-2-2b");
  EXPECT_TRUE(ignores(model, "attn_logit_softcapping"));
  EXPECT_TRUE(ignores(model, "final_logit_softcapping"));
}

TEST(Trap21Gates, DecideTwoOrThreeMatrices) {
  EXPECT_EQ(read_named("StarCoder2-15b").shape.layers[0].mlp->kind, MlpKind::kPlain);
  EXPECT_EQ(read_named("Gemma-2-2b").shape.layers[0].mlp->kind, MlpKind::kGated);
  EXPECT_EQ(read_named("Llama-3.1-8B").shape.layers[0].mlp->kind, MlpKind::kGated);
  auto unknown = tiny("never_seen");
  const ModelConfig model = read(unknown);
  EXPECT_FALSE(model.shape.layers[0].mlp.has_value());
  EXPECT_TRUE(contains(note_of(model, "mlp"), "unknown"));
  EXPECT_EQ(read(unknown, {{"mlp", "plain"}}).shape.layers[0].mlp->kind, MlpKind::kPlain);
  unknown["hidden_act"] = "silu";
  EXPECT_EQ(read(unknown).shape.layers[0].mlp->kind, MlpKind::kGated);
}

}  // namespace
}  // namespace lacuna::config_test

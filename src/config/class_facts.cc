#include "config/class_facts.h"

#include <utility>

namespace lacuna::config {
namespace {

// Sources: "HF x" is transformers' configuration_x.py, its keyword defaults and __post_init__, read
// at commit 008e5743 (2026); "files" are public config.json files of the class, as the
// specification quotes them. Only what a figure depends on stands here: sizes that every file gives
// (layers, hidden and MLP width) have no default, so that a file without them is refused.
constexpr ClassDefault kMistral[] = {{"sliding_window", 4096}, {"num_key_value_heads", 8}};
constexpr ClassDefault kMixtral[] = {{"num_key_value_heads", 8}};
constexpr ClassDefault kLlama4[] = {
    {"attention_chunk_size", 8192},   {"no_rope_layer_interval", 4}, {"head_dim", 128},
    {"num_key_value_heads", 8},       {"num_attention_heads", 40},   {"vocab_size", 202048},
    {"interleave_moe_layer_step", 1}, {"num_local_experts", 16},     {"num_experts_per_tok", 1},
    {"intermediate_size_mlp", 16384}};
constexpr ClassDefault kGemma[] = {{"head_dim", 256}, {"vocab_size", 256000}};
constexpr ClassDefault kGemma2[] = {{"sliding_window", 4096},   {"head_dim", 256},
                                    {"num_attention_heads", 8}, {"num_key_value_heads", 4},
                                    {"vocab_size", 256000},     {"max_position_embeddings", 8192}};
constexpr ClassDefault kGemma3[] = {
    {"sliding_window", 4096},   {"head_dim", 256},      {"num_attention_heads", 8},
    {"num_key_value_heads", 4}, {"vocab_size", 262208}, {"max_position_embeddings", 131072}};
constexpr ClassDefault kGemma3n[] = {
    {"sliding_window", 512},     {"head_dim", 256},      {"num_attention_heads", 8},
    {"num_key_value_heads", 2},  {"vocab_size", 262400}, {"max_position_embeddings", 32768},
    {"num_kv_shared_layers", 15}};
constexpr ClassDefault kGemma4[] = {
    {"sliding_window", 512},    {"head_dim", 256},          {"global_head_dim", 512},
    {"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"num_kv_shared_layers", 0},
    {"attention_k_eq_v", 0},    {"vocab_size", 262144},     {"max_position_embeddings", 131072}};
constexpr ClassDefault kGptOss[] = {
    {"sliding_window", 128}, {"head_dim", 64}, {"num_key_value_heads", 8}};
constexpr ClassDefault kQwen2[] = {
    {"use_sliding_window", 0}, {"sliding_window", 4096}, {"max_window_layers", 28}};
constexpr ClassDefault kQwen3[] = {{"use_sliding_window", 0},
                                   {"sliding_window", 4096},
                                   {"max_window_layers", 28},
                                   {"head_dim", 128}};
constexpr ClassDefault kSmolLm3[] = {
    {"use_sliding_window", 0}, {"no_rope_layer_interval", 4}, {"num_key_value_heads", 4}};
constexpr ClassDefault kQwen3Next[] = {{"head_dim", 256},
                                       {"linear_conv_kernel_dim", 4},
                                       {"linear_key_head_dim", 128},
                                       {"linear_value_head_dim", 128},
                                       {"linear_num_key_heads", 16},
                                       {"linear_num_value_heads", 32},
                                       {"num_key_value_heads", 2}};
constexpr ClassDefault kQwen35[] = {{"head_dim", 256},
                                    {"linear_conv_kernel_dim", 4},
                                    {"linear_key_head_dim", 128},
                                    {"linear_value_head_dim", 128},
                                    {"linear_num_key_heads", 16},
                                    {"linear_num_value_heads", 32},
                                    {"num_key_value_heads", 4}};
constexpr ClassDefault kWindow4096[] = {{"sliding_window", 4096}};
constexpr ClassDefault kRecurrentGemma[] = {{"attention_window_size", 2048}, {"conv1d_width", 4}};
constexpr ClassDefault kGptNeo[] = {{"window_size", 256}};
constexpr ClassDefault kLongformer[] = {{"attention_window", 512}};
constexpr ClassDefault kBigBird[] = {{"block_size", 64}, {"num_random_blocks", 3}};
constexpr ClassDefault kModernBert[] = {{"global_attn_every_n_layers", 3},
                                        {"local_attention", 128}};

constexpr ClassFacts kClasses[] = {
    {.name = "llama", .source = "HF llama", .mlp = Mlp::kGated},
    {.name = "mistral",
     .source = "HF mistral",
     .mlp = Mlp::kGated,
     .slides = Slides::kAll,
     .defaults = kMistral},
    {.name = "ministral", .source = "HF ministral", .mlp = Mlp::kGated, .slides = Slides::kAll},
    {.name = "mixtral",
     .source = "HF mixtral",
     .mlp = Mlp::kGated,
     .slides = Slides::kAll,
     .defaults = kMixtral},
    {.name = "starcoder2", .source = "HF starcoder2", .mlp = Mlp::kPlain, .slides = Slides::kAll},
    {.name = "phi3", .source = "HF phi3", .mlp = Mlp::kGated, .slides = Slides::kAll},
    {.name = "phimoe", .source = "HF phimoe", .mlp = Mlp::kGated, .slides = Slides::kAll},
    {.name = "phi3small", .source = "files of phi3small", .mlp = Mlp::kGated},
    {.name = "phi", .source = "HF phi", .mlp = Mlp::kPlain},
    {.name = "llama4",
     .source = "HF llama4",
     .mlp = Mlp::kGated,
     .slides = Slides::kChunks,
     .period = 4,
     .defaults = kLlama4},
    {.name = "gemma", .source = "HF gemma", .mlp = Mlp::kGated, .defaults = kGemma},
    {.name = "gemma2",
     .source = "HF gemma2",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 2,
     .defaults = kGemma2},
    {.name = "gemma3_text",
     .source = "HF gemma3",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 6,
     .defaults = kGemma3},
    {.name = "gemma3n_text",
     .source = "HF gemma3n",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 5,
     .defaults = kGemma3n},
    {.name = "gemma4_text",
     .source = "HF gemma4",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 6,
     .last_layer_full = true,
     .defaults = kGemma4},
    {.name = "gpt_oss",
     .source = "HF gpt_oss; gpt_oss/torch/model.py",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 2,
     .learned_sinks = true,
     .defaults = kGptOss},
    {.name = "qwen2",
     .source = "HF qwen2",
     .mlp = Mlp::kGated,
     .slides = Slides::kFromLayer,
     .defaults = kQwen2},
    {.name = "qwen3",
     .source = "HF qwen3",
     .mlp = Mlp::kGated,
     .slides = Slides::kFromLayer,
     .defaults = kQwen3},
    {.name = "smollm3", .source = "HF smollm3", .mlp = Mlp::kGated, .defaults = kSmolLm3},
    {.name = "qwen3_next",
     .source = "HF qwen3_next",
     .mlp = Mlp::kGated,
     .slides = Slides::kInterval,
     .period = 4,
     .defaults = kQwen3Next},
    {.name = "qwen3_5_text",
     .source = "HF qwen3_5",
     .mlp = Mlp::kGated,
     .slides = Slides::kInterval,
     .period = 4,
     .defaults = kQwen35},
    {.name = "cohere", .source = "HF cohere", .mlp = Mlp::kGated},
    {.name = "cohere2",
     .source = "HF cohere2",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 4,
     .defaults = kWindow4096},
    {.name = "olmo", .source = "HF olmo", .mlp = Mlp::kGated},
    {.name = "olmo2", .source = "HF olmo2", .mlp = Mlp::kGated},
    {.name = "olmo3",
     .source = "HF olmo3; OLMo-core forces the last layer full",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 4,
     .last_layer_full = true,
     .defaults = kWindow4096},
    {.name = "exaone4",
     .source = "HF exaone4",
     .mlp = Mlp::kGated,
     .slides = Slides::kNotLast,
     .period = 4,
     .last_layer_full = true,
     .defaults = kWindow4096},
    {.name = "deepseek_v2", .source = "HF deepseek_v2", .mlp = Mlp::kGated},
    {.name = "deepseek_v3", .source = "HF deepseek_v3", .mlp = Mlp::kGated},
    {.name = "deepseek_v32", .source = "files of deepseek_v32", .mlp = Mlp::kGated},
    {.name = "kimi_k2", .source = "files of kimi_k2", .mlp = Mlp::kGated},
    {.name = "kimi_linear",
     .source = "files of kimi_linear",
     .mlp = Mlp::kGated,
     .needs = "linear_attn_config"},
    {.name = "glm4", .source = "HF glm4", .mlp = Mlp::kGated},
    {.name = "glm4_moe", .source = "HF glm4_moe", .mlp = Mlp::kGated},
    {.name = "glm_moe_dsa", .source = "HF glm_moe_dsa", .mlp = Mlp::kGated},
    {.name = "minimax", .source = "HF minimax", .mlp = Mlp::kGated},
    {.name = "minimax_text_01",
     .source = "files of minimax_text_01",
     .mlp = Mlp::kGated,
     .needs = "attn_type_list"},
    {.name = "minimax_m1",
     .source = "files of minimax_m1",
     .mlp = Mlp::kGated,
     .needs = "attn_type_list"},
    {.name = "minimax_m2", .source = "files of minimax_m2", .mlp = Mlp::kGated},
    {.name = "minimax_m3", .source = "files of minimax_m3", .mlp = Mlp::kGated},
    {.name = "mimo_v2_flash", .source = "files of mimo_v2_flash", .mlp = Mlp::kGated},
    {.name = "nemotron-nas",
     .source = "files of DeciLM",
     .mlp = Mlp::kGated,
     .needs = "block_configs"},
    {.name = "granite", .source = "HF granite", .mlp = Mlp::kGated},
    {.name = "granitemoehybrid", .source = "HF granitemoehybrid", .mlp = Mlp::kGated},
    {.name = "jamba", .source = "HF jamba", .mlp = Mlp::kGated},
    {.name = "bamba", .source = "HF bamba", .mlp = Mlp::kGated},
    {.name = "stablelm", .source = "HF stablelm", .mlp = Mlp::kGated},
    {.name = "nemotron", .source = "HF nemotron", .mlp = Mlp::kPlain},
    {.name = "nemotron_h", .source = "HF nemotron_h: relu2, no gate", .mlp = Mlp::kPlain},
    {.name = "recurrent_gemma",
     .source = "HF recurrent_gemma",
     .mlp = Mlp::kGated,
     .slides = Slides::kBlockTypes,
     .period = 3,
     .defaults = kRecurrentGemma},
    {.name = "gpt_neo",
     .source = "HF gpt_neo",
     .mlp = Mlp::kPlain,
     .slides = Slides::kGlobalLocal,
     .period = 2,
     .defaults = kGptNeo},
    {.name = "gpt2", .source = "HF gpt2", .mlp = Mlp::kPlain},
    {.name = "gpt_neox", .source = "HF gpt_neox", .mlp = Mlp::kPlain},
    {.name = "gptj", .source = "HF gptj", .mlp = Mlp::kPlain},
    {.name = "gpt_bigcode", .source = "HF gpt_bigcode", .mlp = Mlp::kPlain},
    {.name = "opt", .source = "HF opt", .mlp = Mlp::kPlain},
    {.name = "bloom", .source = "HF bloom", .mlp = Mlp::kPlain},
    {.name = "falcon", .source = "HF falcon", .mlp = Mlp::kPlain},
    {.name = "bert", .source = "HF bert", .mlp = Mlp::kPlain, .encoder = true},
    {.name = "roberta", .source = "HF roberta", .mlp = Mlp::kPlain, .encoder = true},
    {.name = "xlm-roberta", .source = "HF xlm_roberta", .mlp = Mlp::kPlain, .encoder = true},
    {.name = "electra", .source = "HF electra", .mlp = Mlp::kPlain, .encoder = true},
    {.name = "longformer",
     .source = "HF longformer",
     .mlp = Mlp::kPlain,
     .encoder = true,
     .defaults = kLongformer},
    {.name = "big_bird",
     .source = "HF big_bird",
     .mlp = Mlp::kPlain,
     .encoder = true,
     .defaults = kBigBird},
    {.name = "modernbert",
     .source = "HF modernbert",
     .mlp = Mlp::kGated,
     .encoder = true,
     .defaults = kModernBert},
};

// Classes that share another's rules under their own name.
constexpr std::pair<std::string_view, std::string_view> kAlike[] = {
    {"llama4_text", "llama4"},
    {"gemma3", "gemma3_text"},
    {"gemma3n", "gemma3n_text"},
    {"gemma4", "gemma4_text"},
    {"qwen2_moe", "qwen2"},
    {"qwen2_vl", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen2_5_vl_text", "qwen2"},
    {"qwen2_vl_text", "qwen2"},
    {"qwen3_moe", "qwen3"},
    {"qwen3_vl_text", "qwen3"},
    {"qwen3_vl_moe_text", "qwen3"},
    {"qwen3_5", "qwen3_5_text"},
    {"qwen3_5_moe", "qwen3_5_text"},
    {"qwen3_5_moe_text", "qwen3_5_text"}};

// What stands before ForCausalLM and the like in a class's name.
constexpr std::pair<std::string_view, std::string_view> kArchitectures[] = {
    {"Llama", "llama"},
    {"Mistral", "mistral"},
    {"Mixtral", "mixtral"},
    {"Starcoder2", "starcoder2"},
    {"Phi3", "phi3"},
    {"PhiMoE", "phimoe"},
    {"Phi3Small", "phi3small"},
    {"Phi", "phi"},
    {"Llama4", "llama4"},
    {"Gemma", "gemma"},
    {"Gemma2", "gemma2"},
    {"Gemma3", "gemma3_text"},
    {"Gemma3n", "gemma3n_text"},
    {"Gemma4", "gemma4_text"},
    {"GptOss", "gpt_oss"},
    {"Qwen2", "qwen2"},
    {"Qwen2Moe", "qwen2_moe"},
    {"Qwen3", "qwen3"},
    {"Qwen3Moe", "qwen3_moe"},
    {"Qwen3Next", "qwen3_next"},
    {"Qwen3_5", "qwen3_5_text"},
    {"SmolLM3", "smollm3"},
    {"Cohere", "cohere"},
    {"Cohere2", "cohere2"},
    {"Olmo2", "olmo2"},
    {"Olmo3", "olmo3"},
    {"Exaone4", "exaone4"},
    {"DeepseekV2", "deepseek_v2"},
    {"DeepseekV3", "deepseek_v3"},
    {"DeepseekV32", "deepseek_v32"},
    {"GlmMoeDsa", "glm_moe_dsa"},
    {"Glm4Moe", "glm4_moe"},
    {"MiniMaxM2", "minimax_m2"},
    {"MiniMaxM3", "minimax_m3"},
    {"MiMoV2Flash", "mimo_v2_flash"},
    {"NemotronH", "nemotron_h"},
    {"DeciLM", "nemotron-nas"},
    {"GPT2", "gpt2"},
    {"GPTNeo", "gpt_neo"},
    {"GPTNeoX", "gpt_neox"},
    {"RecurrentGemma", "recurrent_gemma"},
    {"Longformer", "longformer"},
    {"BigBird", "big_bird"},
    {"Bert", "bert"},
    {"Roberta", "roberta"},
    {"ModernBert", "modernbert"}};

}  // namespace

const ClassFacts* find_class(std::string_view model_type) {
  for (const auto& [name, like] : kAlike) {
    if (name == model_type) model_type = like;
  }
  for (const ClassFacts& facts : kClasses) {
    if (facts.name == model_type) return &facts;
  }
  return nullptr;
}

const ClassFacts* find_class_of_architecture(std::string_view architecture) {
  for (const std::string_view tail :
       {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "Model"}) {
    if (architecture.size() <= tail.size()) continue;
    const std::string_view head = architecture.substr(0, architecture.size() - tail.size());
    if (architecture.substr(head.size()) != tail) continue;
    for (const auto& [name, model_type] : kArchitectures) {
      if (name == head) return find_class(model_type);
    }
  }
  return nullptr;
}

}  // namespace lacuna::config

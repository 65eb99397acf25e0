#include "config/neutral_keys.h"

#include <algorithm>
#include <utility>

namespace lacuna::config {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kDropout = "dropout: no figure depends on it";
constexpr std::string_view kBias = "a bias: no counted FLOPs and no cache";
constexpr std::string_view kScale = "a scale or cap of scores: FLOPs-neutral here";
constexpr std::string_view kPath = "which code runs, not what is attended to";
constexpr std::string_view kRope = "positions only: every key is still read";
constexpr std::string_view kOther = "another modality's own";
constexpr std::string_view kWeights = "how weights are stored";
constexpr std::string_view kNorm = "a norm: not counted";
constexpr std::string_view kNames = "names of tokens or tasks";
constexpr std::string_view kKvType = "the KV dtype is chosen with --kv-dtype";

// Keys whose name is relevant by trap 14's rule and that decide no figure, with the reason.
constexpr Row kNeutral[] = {
    {"attention_dropout", kDropout},
    {"attention_dropout_prob", kDropout},
    {"attention_probs_dropout_prob", kDropout},
    {"attn_dropout", kDropout},
    {"attn_pdrop", kDropout},
    {"lora_dropout", kDropout},
    {"attention_bias", kBias},
    {"attention_out_bias", kBias},
    {"attention_qkv_bias", kBias},
    {"attn_bias", kBias},
    {"qkv_bias", kBias},
    {"add_qkv_bias", kBias},
    {"use_qkv_bias", kBias},
    {"use_attention_bias", kBias},
    {"lm_head_bias", kBias},
    {"mamba_conv_bias", kBias},
    {"mamba_proj_bias", kBias},
    {"attn_logit_softcapping", kScale},
    {"attention_logit_cap", kScale},
    {"attn_logit_softcap", kScale},
    {"attention_multiplier", kScale},
    {"attention_scale", kScale},
    {"attention_scaling", kScale},
    {"attention_value_scale", kScale},
    {"attention_softmax_scale", kScale},
    {"attn_scale", kScale},
    {"attn_temperature_tuning", kScale},
    {"attn_factor", kScale},
    {"mup_attn_multiplier", kScale},
    {"query_pre_attn_scalar", kScale},
    {"scale_attn_weights", kScale},
    {"scale_attn_by_inverse_layer_idx", kScale},
    {"scale_attention_softmax_in_fp32", kScale},
    {"attention_softmax_in_fp32", kScale},
    {"clip_qkv", kScale},
    {"full_attn_alpha_factor", kScale},
    {"full_attn_beta_factor", kScale},
    {"linear_attn_alpha_factor", kScale},
    {"linear_attn_beta_factor", kScale},
    {"layernorm_full_attention_alpha", kScale},
    {"layernorm_full_attention_beta", kScale},
    {"layernorm_linear_attention_alpha", kScale},
    {"layernorm_linear_attention_beta", kScale},
    {"_attn_implementation", kPath},
    {"_attn_implementation_autoset", kPath},
    {"_attn_implementation_internal", kPath},
    {"attn_implementation", kPath},
    {"attention_implementation", kPath},
    {"_flash_attn_2_enabled", kPath},
    {"use_flash_attn", kPath},
    {"use_flash_attention", kPath},
    {"use_flash_attn_v2", kPath},
    {"flash_attention", kPath},
    {"flash_attn_bias", kPath},
    {"attention_projection_layout", kPath},
    {"fused_qkv", kPath},
    {"blocksparse_triton_kernel_block_size", kPath},
    {"chunk_size_feed_forward", kPath},
    {"mamba_chunk_size", kPath},
    {"use_mamba_kernels", kPath},
    {"mamba_hidden_act", "an activation of the state layers: not counted"},
    {"mamba_dt_rank", "the width of a small projection: not counted"},
    {"mamba_dt_min", "an initial value"},
    {"mamba_dt_max", "an initial value"},
    {"mamba_dt_limit", "an initial value"},
    {"mamba_dt_init_floor", "an initial value"},
    {"mamba_rms_norm", kNorm},
    {"mamba_norm_before_gate", kNorm},
    {"attn_rms_norm", kNorm},
    {"attention_norm", kNorm},
    {"norm_head", kNorm},
    {"use_parallel_block", "the order of attention and MLP: the same FLOPs"},
    {"parallel_attn", "the order of attention and MLP: the same FLOPs"},
    {"num_ln_in_parallel_attn", kNorm},
    {"reorder_and_upcast_attn", kScale},
    {"output_attentions", kPath},
    {"rope_scaling", kRope},
    {"rope_parameters", kRope},
    {"rotary_emb_interleaved", kRope},
    {"indexer_rope_interleave", kRope},
    {"dual_chunk_attention_config", kRope},
    {"attn_rotary_emb", kRope},
    {"swa_rope_theta", kRope},
    {"quantization_config", kWeights},
    {"compression_config", kWeights},
    {"quantization", kWeights},
    {"kv_cache_dtype", kKvType},
    {"kv_cache_scheme", kKvType},
    {"kv_cache_quant_algo", kKvType},
    {"kv_cache_bits", kKvType},
    {"cache_implementation", "how one library stores it: choose a policy"},
    {"activation_sparsity_pattern", "activations of the MLP, counted as dense"},
    {"num_sparse_encoder_layers", kOther},
    {"generation_config", "sampling"},
    {"task_specific_params", kNames},
    {"id2label", kNames},
    {"label2id", kNames},
    {"auto_map", kPath},
    {"mtp_hybrid_override_pattern", "prediction (MTP) layers: not counted from config.json"},
    {"mtp_layers_block_type", "prediction (MTP) layers: not counted from config.json"},
    {"block_auto_adjust_ff_dim", "the MLP width stands in the file"},
};

// GGUF, without the architecture's prefix.
constexpr Row kNeutralGguf[] = {
    {"attention.layer_norm_epsilon", kNorm},
    {"attention.layer_norm_rms_epsilon", kNorm},
    {"attention.group_norm_epsilon", kNorm},
    {"attention.group_norm_groups", kNorm},
    {"attention.clamp_kqv", kScale},
    {"attention.max_alibi_bias", kRope},
    {"attention.scale", kScale},
    {"attention.output_scale", kScale},
    {"attention.value_scale", kScale},
    {"attention.temperature_length", kScale},
    {"attention.temperature_scale", kScale},
    {"attention.relative_buckets_count", kRope},
    {"ssm.dt_b_c_rms", kNorm},
    {"rope.scaling.attn_factor", kRope},
    {"rope.scaling.yarn_attn_factor", kRope},
};

bool begins_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}
bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string_view neutral_reason(std::string_view key) {
  for (const Row& row : kNeutral) {
    if (row.first == key) return row.second;
  }
  for (const Row& row : kNeutralGguf) {
    if (row.first == key) return row.second;
  }
  for (std::string_view modality :
       {"vision_", "audio_", "image_", "video_", "speech_", "mm_", "sound_"}) {
    if (begins_with(key, modality)) return kOther;
  }
  if (ends_with(key, "_token_index") || ends_with(key, "_token_id") ||
      ends_with(key, "_token_ids")) {
    return kNames;
  }
  return "";
}

}  // namespace lacuna::config

// Sizes of finite states: what a linear-attention, state-space or recurrent layer keeps.
#include <fmt/format.h>

#include "config/reader.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna::config {
namespace {

constexpr std::int64_t kMaxDim = 1 << 24;

// Every key that some state has, so that a file without such layers may still carry them.
constexpr std::string_view kStateKeys[] = {
    "linear_num_key_heads",  "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "mamba_num_heads",
    "mamba_head_dim",        "ssm_state_size",         "mamba_n_heads",
    "mamba_d_head",          "mamba_d_state",          "mamba_n_groups",
    "mamba_d_conv",          "mamba_expand",           "mamba_ssm_dtype",
    "mamba_ssm_cache_dtype"};

// Gated DeltaNet: one convolution over q, k and v.
StateShape read_delta_net(Keys& keys) {
  StateShape state;
  state.num_key_heads = keys.need("linear_num_key_heads", 1, kMaxHeads);
  state.num_value_heads = keys.need("linear_num_value_heads", 1, kMaxHeads);
  state.key_dim = keys.need("linear_key_head_dim", 1, kMaxDim);
  state.value_dim = keys.need("linear_value_head_dim", 1, kMaxDim);
  state.conv_kernel = keys.need("linear_conv_kernel_dim", 1, 1 << 16);
  state.conv_channels = checked_add64(checked_mul64(2 * state.num_key_heads, state.key_dim),
                                      checked_mul64(state.num_value_heads, state.value_dim));
  return state;
}

// Kimi delta attention: three convolutions, one each for q, k and v.
StateShape read_kimi_delta(Keys& keys) {
  StateShape state;
  state.num_key_heads = keys.need("linear_attn_config.num_heads", 1, kMaxHeads);
  state.num_value_heads = state.num_key_heads;
  state.key_dim = keys.need("linear_attn_config.head_dim", 1, kMaxDim);
  state.value_dim = state.key_dim;
  state.conv_kernel = keys.need("linear_attn_config.short_conv_kernel_size", 1, 1 << 16);
  state.conv_channels = checked_mul64(3 * state.num_key_heads, state.key_dim);
  return state;
}

// Mamba-2: heads of their own, groups share B and C; the convolution runs over x, B and C.
StateShape mamba2(std::int64_t heads, std::int64_t head_dim, std::int64_t size, std::int64_t groups,
                  std::int64_t kernel) {
  StateShape state;
  state.num_key_heads = groups;
  state.num_value_heads = heads;
  state.key_dim = size;
  state.value_dim = head_dim;
  state.conv_kernel = kernel;
  state.conv_channels =
      checked_add64(checked_mul64(heads, head_dim), checked_mul64(2 * groups, size));
  return state;
}

StateShape read_nemotron(Keys& keys) {
  const StateShape state =
      mamba2(keys.need("mamba_num_heads", 1, kMaxHeads), keys.need("mamba_head_dim", 1, kMaxDim),
             keys.need("ssm_state_size", 1, kMaxDim), keys.need("n_groups", 1, kMaxHeads),
             keys.need("conv_kernel", 1, 1 << 16));
  keys.understood("chunk_size", "length of the scan's chunks: how it runs");
  keys.understood("mamba_expand", "mamba_num_heads and mamba_head_dim say the inner width");
  return state;
}

StateShape read_bamba(Keys& keys) {
  const std::int64_t heads = keys.need("mamba_n_heads", 1, kMaxHeads);
  std::int64_t head_dim = 0;
  const Value* value = keys.find("mamba_d_head");
  if (value != nullptr && value->text() != nullptr && *value->text() == "auto") {
    const std::int64_t inner =
        checked_mul64(keys.need("mamba_expand", 1, 64), keys.need("hidden_size", 1, kMaxWidth));
    if (inner % heads != 0)
      keys.fail("mamba_d_head", "mamba_expand * hidden_size is no multiple of heads");
    head_dim = inner / heads;
  } else {
    head_dim = keys.need("mamba_d_head", 1, kMaxDim);
    keys.understood("mamba_expand", "mamba_n_heads and mamba_d_head say the inner width");
  }
  return mamba2(heads, head_dim, keys.need("mamba_d_state", 1, kMaxDim),
                keys.need("mamba_n_groups", 1, kMaxHeads), keys.need("mamba_d_conv", 1, 1 << 16));
}

// Mamba-1: no heads; every inner channel has its own state.
StateShape read_mamba1(Keys& keys) {
  StateShape state;
  state.num_key_heads = 1;
  state.num_value_heads = 1;
  state.key_dim = keys.need("mamba_d_state", 1, kMaxDim);
  state.value_dim =
      checked_mul64(keys.need("mamba_expand", 1, 64), keys.need("hidden_size", 1, kMaxDim));
  state.conv_kernel = keys.need("mamba_d_conv", 1, 1 << 16);
  state.conv_channels = state.value_dim;
  return state;
}

// RG-LRU: one number a channel.
StateShape read_recurrence(Keys& keys) {
  StateShape state;
  state.num_key_heads = 1;
  state.num_value_heads = 1;
  state.key_dim = 1;
  const auto width = keys.integer("lru_width", 1, kMaxDim);
  state.value_dim = width ? *width : keys.need("hidden_size", 1, kMaxDim);
  if (!width) keys.note("lru_width", fmt::format("{}", state.value_dim), "derived: hidden_size");
  state.conv_kernel = keys.need("conv1d_width", 1, 1 << 16);
  state.conv_channels = state.value_dim;
  return state;
}

// Lightning attention: every query head has a state of head_dim × head_dim, no convolution.
StateShape read_lightning(Keys& keys) {
  StateShape state;
  state.num_key_heads = keys.need("num_attention_heads", 1, kMaxHeads);
  state.num_value_heads = state.num_key_heads;
  const auto dim = keys.integer("head_dim", 1, kMaxDim);
  if (!dim && keys.need("hidden_size", 1, kMaxWidth) % state.num_key_heads != 0) {
    keys.fail("head_dim", "hidden_size is no multiple of num_attention_heads");
  }
  state.key_dim = dim ? *dim : keys.need("hidden_size", 1, kMaxWidth) / state.num_key_heads;
  state.value_dim = state.key_dim;
  keys.note("head_dim", fmt::format("{}", state.key_dim),
            "lightning attention keeps head_dim * head_dim for each query head");
  keys.understood("block_size", "length of the scan's blocks: how it runs");
  return state;
}

void check_state_dtype(Keys& keys) {
  for (std::string_view key : {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"}) {
    const auto dtype = keys.text(key);
    if (dtype && *dtype != "float32" && *dtype != "fp32") {
      keys.note(std::string(key), *dtype,
                "states are counted with 4 bytes an element all the same");
    }
  }
}

}  // namespace

StateShape read_state(Source& source, const Pattern& pattern, Mixer* mixer) {
  Keys& keys = source.keys;
  bool any = false;
  for (const Plan& plan : pattern.layers) any = any || plan.kind == Kind::kState;
  if (!any) {
    for (std::string_view key : kStateKeys) keys.understood(key, "no layer keeps a state");
    return {};
  }
  check_state_dtype(keys);
  const std::string_view name = source.facts == nullptr ? "" : source.facts->name;
  const Slides slides = source.facts == nullptr ? Slides::kUnknown : source.facts->slides;
  *mixer = Mixer::kLinear;
  if (keys.present("linear_attn_config.head_dim")) return read_kimi_delta(keys);
  if (keys.present("linear_num_value_heads") || slides == Slides::kInterval)
    return read_delta_net(keys);
  *mixer = Mixer::kSsm;
  if (keys.present("mamba_num_heads")) return read_nemotron(keys);
  if (keys.present("mamba_n_heads")) return read_bamba(keys);
  if (keys.present("mamba_d_state")) return read_mamba1(keys);
  if (keys.present("lru_width") || slides == Slides::kBlockTypes) return read_recurrence(keys);
  *mixer = Mixer::kLinear;
  if (pattern.decided_by == "attn_type_list" || name.substr(0, 7) == "minimax")
    return read_lightning(keys);
  keys.fail(pattern.decided_by,
            "it has finite-state layers, and no key gives the size of their state "
            "(linear_num_value_heads, mamba_num_heads, lru_width, …)");
}

}  // namespace lacuna::config

// Patterns that say more of a layer than its kind: block sparsity, NAS blocks, encoders' windows.
#include <fmt/format.h>

#include <cmath>

#include "config/reader.h"
#include "lacuna/error.h"

namespace lacuna::config {
namespace {

using Plans = std::vector<Plan>;

// --- NAS: block_configs --------------------------------------------------------------------------

// One switch of a block that must be off, because no figure here would know what it does.
void must_be_off(Keys& keys, const std::string& key) {
  const Value* value = keys.find(key);
  if (value == nullptr) return;
  const bool* flag = value->boolean();
  if (flag == nullptr || *flag) keys.fail(key, "allowed are false and null");
}

Plan read_nas_attention(Source& source, const std::string& path) {
  Keys& keys = source.keys;
  const auto no_op = keys.boolean(path + ".no_op");
  for (const char* name :
       {".replace_with_linear", ".sparsify", ".use_prefill_window_in_sink_attention"}) {
    must_be_off(keys, path + name);
  }
  keys.boolean(path + ".unshifted_sink");  // positions of the sinks only
  const auto group = keys.integer(path + ".n_heads_in_group", 1, kMaxHeads);
  const auto kv_heads = keys.integer(path + ".num_key_value_heads", 1, kMaxHeads);
  const auto window = keys.integer(path + ".window_length");
  const auto sinks = keys.integer(path + ".num_sink_tokens", 0, kMaxSize);
  if (no_op.value_or(false)) return plan_of(Kind::kNone);
  Plan plan = full_plan();
  if (window) {
    plan = plan_of(Kind::kWindow, {Term{Window{*window - 1, 0}}});
    if (sinks.value_or(0) > 0) plan.attend.push_back(Term{Sink{*sinks}});
  } else if (sinks.value_or(0) > 0) {
    keys.fail(path + ".num_sink_tokens", "sinks need a window_length");
  }
  const std::int64_t heads = keys.need("num_attention_heads", 1, kMaxHeads);
  if (kv_heads) {
    plan.num_kv_heads = static_cast<int>(*kv_heads);
  } else if (!group) {
    keys.fail(path + ".n_heads_in_group", "query heads a KV head are needed");
  } else if (heads % *group != 0) {
    keys.fail(path + ".n_heads_in_group", fmt::format("it must divide {} query heads", heads));
  } else {
    plan.num_kv_heads = static_cast<int>(heads / *group);
  }
  return plan;
}

MlpShape read_nas_mlp(Source& source, const std::string& path) {
  Keys& keys = source.keys;
  MlpShape mlp;
  const auto no_op = keys.boolean(path + ".no_op");
  must_be_off(keys, path + ".replace_with_linear");
  must_be_off(keys, path + ".sparsify");
  const auto width = keys.integer(path + ".intermediate_size");
  const auto mult = keys.real(path + ".ffn_mult");
  if (no_op.value_or(false)) {
    mlp.kind = MlpKind::kNone;
    return mlp;
  }
  if (width) {
    mlp.intermediate_size = *width;
    return mlp;
  }
  if (!mult || !(*mult > 0.0) || *mult > 1024.0) {
    keys.fail(path + ".ffn_mult", "a factor in 0..1024 is needed");
  }
  const std::int64_t hidden = keys.need("hidden_size", 1, kMaxWidth);
  const double exact = 2.0 * *mult * static_cast<double>(hidden) / 3.0;
  const auto whole = static_cast<std::int64_t>(exact);
  mlp.intermediate_size = (whole + 255) / 256 * 256;
  return mlp;
}

// --- encoders
// --------------------------------------------------------------------------------------

Pattern encoder_of(Source& source, std::string decided_by, std::string convention) {
  Pattern pattern;
  pattern.causal = false;
  pattern.decided_by = std::move(decided_by);
  pattern.convention = std::move(convention);
  pattern.layers = Plans(static_cast<std::size_t>(source.num_layers), full_plan());
  return pattern;
}

Pattern read_longformer(Source& source) {
  constexpr std::string_view kKey = "attention_window";
  Keys& keys = source.keys;
  const auto layers = static_cast<std::size_t>(source.num_layers);
  std::vector<std::int64_t> windows;
  if (keys.length(kKey)) {
    windows = *keys.integers(kKey, 2, kMaxSize);
    check_length(source, kKey, windows.size());
  } else {
    windows.assign(layers, keys.need(kKey, 2, kMaxSize));
  }
  Pattern pattern =
      encoder_of(source, std::string(kKey),
                 "attention_window W is the two-sided total: query q reads keys q-W/2 .. "
                 "q+W/2, W+1 keys with its own");
  for (std::size_t i = 0; i < layers; ++i) {
    if (windows[i] % 2 != 0)
      keys.fail(kKey, "it is split over both sides: allowed are even numbers");
    pattern.layers[i] = plan_of(Kind::kWindow, {Term{Window{windows[i] / 2, windows[i] / 2}}});
  }
  keys.note(
      "global_attention_mask", "none",
      "the task chooses the global tokens: the table has none; they add whole rows and columns "
      "and have projections of their own");
  const auto mode = keys.text("attention_mode");
  if (mode && *mode != "longformer") keys.fail("attention_mode", "allowed is longformer");
  keys.understood("ignore_attention_mask", "padding only");
  return pattern;
}

Pattern read_bigbird(Source& source) {
  Keys& keys = source.keys;
  const std::string type = keys.text("attention_type").value_or("block_sparse");
  if (!keys.present("attention_type")) {
    keys.note("attention_type", type, "class default of big_bird (HF big_bird)");
  }
  const std::int64_t block = keys.need("block_size", 1, kMaxSize / 4);
  const std::int64_t random = keys.need("num_random_blocks", 1, kMaxSize / 4);
  if (type == "original_full") {
    return encoder_of(source, "attention_type", "no window: every query reads every key");
  }
  if (type != "block_sparse")
    unknown_word(keys, "attention_type", type, {"block_sparse", "original_full"});
  Pattern pattern =
      encoder_of(source, "attention_type",
                 fmt::format("three-block window: the block of {} of the query and one on each "
                             "side; the first and last block are global",
                             block));
  for (Plan& plan : pattern.layers) {
    plan = plan_of(Kind::kSelected,
                   {Term{WindowBlocks{1, 1, block}}, Term{GlobalFirst{block}},
                    Term{GlobalLast{block}}, Term{RandomBlocks{random, block, 0, true}}});
  }
  keys.note("attention_type", type,
            fmt::format("inputs of up to {} tokens fall back to full attention in the reference",
                        (5 + 2 * random) * block));
  keys.note("seed", "0",
            "the reference draws its random blocks at load; the table draws with seed 0");
  return pattern;
}

Pattern read_modernbert(Source& source) {
  Keys& keys = source.keys;
  const std::int64_t every = keys.need("global_attn_every_n_layers", 1, kMaxLayers);
  const std::int64_t local = keys.need("local_attention", 1, kMaxSize);
  Pattern pattern = encoder_of(source, "global_attn_every_n_layers",
                               "local_attention W is split over both sides: query q reads keys "
                               "q-floor(W/2) .. q+floor(W/2)");
  for (int layer = 0; layer < source.num_layers; ++layer) {
    if (layer % every == 0) continue;
    pattern.layers[static_cast<std::size_t>(layer)] =
        plan_of(Kind::kWindow, {Term{Window{local / 2, local / 2}}});
  }
  return pattern;
}

}  // namespace

Plans read_vertical_blocks(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const std::int64_t dense = keys.need(key, 1, kMaxLayers);
  VerticalBlocks term;
  term.block = keys.need("blocksparse_block_size");
  term.local = keys.need("blocksparse_num_local_blocks");
  term.stride = keys.need("blocksparse_vert_stride");
  const bool same_heads = keys.boolean("blocksparse_homo_head_pattern").value_or(false);
  const std::int64_t heads = keys.need("num_attention_heads", 1, kMaxHeads);
  if (same_heads) {
    term.offset = term.stride - 1;  // head 0's blocks for all: (b + 1) mod stride = 0
  } else {
    term.offset_is_head = true;
    // The reference shifts by max(1, stride / heads) blocks a head.
    if (term.stride >= 2 * heads) {
      keys.fail(
          "blocksparse_vert_stride",
          fmt::format("with {} heads a head's shift is more than a block: not expressible", heads));
    }
  }
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    plans.push_back((layer + 1) % dense == 0 ? full_plan()
                                             : plan_of(Kind::kSelected, {Term{term}}));
  }
  return plans;
}

Plans read_selected_blocks(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const std::string path(key);
  const bool use = keys.boolean(path + ".use_sparse_attention").value_or(true);
  const auto freq = keys.integers(path + ".sparse_attention_freq", 0, 1);
  TopKBlocks term;
  term.k = keys.need(path + ".sparse_topk_blocks");
  term.block = keys.need(path + ".sparse_block_size");
  term.init = keys.integer(path + ".sparse_init_block", 0).value_or(0);
  term.local = keys.integer(path + ".sparse_local_block", 0).value_or(1);
  if (term.init + term.local > term.k) {
    keys.fail(path + ".sparse_topk_blocks",
              fmt::format("{} init and {} local blocks are more than that", term.init, term.local));
  }
  // How a block is scored, and whether the index branch adds a value of its own, choose no other
  // count.
  keys.find(path + ".sparse_score_type");
  keys.find(path + ".sparse_disable_index_value");
  if (!freq)
    keys.fail(path + ".sparse_attention_freq", "a list of 0 and 1 for each layer is needed");
  check_length(source, path + ".sparse_attention_freq", freq->size());
  Plans plans;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    const bool sparse = use && (*freq)[static_cast<std::size_t>(layer)] == 1;
    plans.push_back(sparse ? plan_of(Kind::kSelected, {Term{term}}) : full_plan());
  }
  return plans;
}

Plans read_block_configs(Source& source, std::string_view key) {
  Keys& keys = source.keys;
  const auto length = keys.length(key);
  if (!length) keys.fail(key, "allowed is a list with an object for each layer");
  check_length(source, key, static_cast<std::size_t>(*length));
  Plans plans;
  bool by_factor = false;
  for (int layer = 0; layer < source.num_layers; ++layer) {
    const std::string path = fmt::format("{}.{}", key, layer);
    plans.push_back(read_nas_attention(source, path + ".attention"));
    plans.back().mlp = read_nas_mlp(source, path + ".ffn");
    by_factor = by_factor || !keys.present(path + ".ffn.intermediate_size");
  }
  if (by_factor) {
    keys.note("ffn_mult", "int(2 * ffn_mult * hidden_size / 3), up to a multiple of 256",
              "class rule of DeciLM: the MLP's width");
  }
  keys.understood("intermediate_size", "the blocks have their own");
  keys.understood("num_key_value_heads", "the blocks have their own");
  return plans;
}

std::optional<Pattern> read_encoder(Source& source) {
  const bool decoder = source.keys.boolean("is_decoder").value_or(false);
  const std::string_view name = source.facts == nullptr ? "" : source.facts->name;
  if (decoder) return std::nullopt;
  if (source.keys.present("attention_window") || name == "longformer")
    return read_longformer(source);
  if (source.keys.present("num_random_blocks") || name == "big_bird") return read_bigbird(source);
  if (source.keys.present("global_attn_every_n_layers") || name == "modernbert") {
    return read_modernbert(source);
  }
  if (source.facts == nullptr || !source.facts->encoder) return std::nullopt;
  return encoder_of(source, "class", "no window: every query reads every key");
}

}  // namespace lacuna::config

#include "attention/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "attention/key_blocks.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"

namespace lacuna {
namespace {

// `allowed` is a pattern of fmt: messages are not made where nothing is wrong.
template <typename... Args>
void require(bool holds, const char* name, std::int64_t value, fmt::format_string<Args...> allowed,
             Args&&... args) {
  if (holds) return;
  throw Error(fmt::format("{} is {}; allowed: {}", name, value,
                          fmt::format(allowed, std::forward<Args>(args)...)));
}

void check_plan(const Plan& plan) {
  const Tile tile = kernel_tile();
  if (!(plan.tile == tile)) {
    throw Error(fmt::format("the plan's tile is {},{}; allowed: the kernels' {},{}", plan.tile.q,
                            plan.tile.k, tile.q, tile.k));
  }
  require(plan.split_tokens == kSplitTokens || plan.cuts.empty(), "split_tokens of the plan",
          plan.split_tokens, "the kernels' {}", kSplitTokens);
}

void check_q(const Plan& plan, const TensorView& q, const KvView& kv) {
  require(q.shape[0] == plan.indptr.back(), "rows of q", q.shape[0], "the plan's {}",
          plan.indptr.back());
  require(q.shape[1] == plan.heads.num_q_heads, "heads of q", q.shape[1], "the plan's {}",
          plan.heads.num_q_heads);
  require(q.shape[2] == kv.head_dim, "head_dim of q", q.shape[2], "kv's {}", kv.head_dim);
  if (is_quantized(q.dtype)) {
    throw Error(fmt::format("dtype of q is {}; allowed: f32, bf16, f16", to_string(q.dtype)));
  }
  require(q.data != nullptr || q.shape[0] == 0, "data of q", 0, "an address");
}

void check_kv(const Plan& plan, const KvView& kv) {
  check(kv);
  require(kv.num_kv_heads == plan.heads.num_kv_heads, "num_kv_heads of kv", kv.num_kv_heads,
          "the plan's {}", plan.heads.num_kv_heads);
  require(kv.head_dim <= 576, "head_dim", kv.head_dim, "1..576");
  require(kv.v_head_dim <= 576, "v_head_dim", kv.v_head_dim, "1..576");
  const auto num_sequences = static_cast<std::int64_t>(plan.sequences.size());
  require(kv.num_sequences() == num_sequences, "sequences of kv", kv.num_sequences(),
          "the plan's {}", num_sequences);
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    if (kv.lengths[s] != plan.sequences[s].length) {
      throw Error(fmt::format("sequence {} of kv has {} keys; allowed: the {} it was planned for",
                              s, kv.lengths[s], plan.sequences[s].length));
    }
  }
}

void check_per_head(const char* name, std::span<const float> values, int num_q_heads) {
  require(values.empty() || static_cast<int>(values.size()) == num_q_heads, name,
          static_cast<std::int64_t>(values.size()), "none, or one for each of {} query heads",
          num_q_heads);
}

void check_options(const AttentionOptions& options, int num_q_heads) {
  const auto require_finite = [](const char* name, float value, bool allowed, const char* range) {
    if (!allowed) throw Error(fmt::format("{} is {}; allowed: {}", name, value, range));
  };
  if (options.sm_scale) {
    require_finite("sm_scale", *options.sm_scale, std::isfinite(*options.sm_scale),
                   "finite numbers");
  }
  require_finite("softcap", options.softcap, std::isfinite(options.softcap) && options.softcap >= 0,
                 "0 (off) and finite positive numbers");
  check_per_head("the number of alibi_slopes", options.alibi_slopes, num_q_heads);
  check_per_head("the number of sink_logits", options.sink_logits, num_q_heads);
  for (float slope : options.alibi_slopes) {
    require_finite("an ALiBi slope", slope, std::isfinite(slope), "finite numbers");
  }
  check_sink_logits(options.sink_logits);
}

}  // namespace

void check_sink_logits(std::span<const float> sink_logits) {
  for (float logit : sink_logits) {
    if (logit < std::numeric_limits<float>::infinity()) continue;  // not NaN either
    throw Error(fmt::format("a sink logit is {}; allowed: finite numbers and -inf", logit));
  }
}

Call make_call(const Plan& plan, const TensorView& q, const KvView& kv,
               const AttentionOptions& options) {
  check_plan(plan);
  check_kv(plan, kv);
  check_q(plan, q, kv);
  check_options(options, plan.heads.num_q_heads);
  const bool widened = options.exact_kv && is_quantized(kv.dtype);
  const TileKernel& kernel =
      tile_kernel(options.isa.c_str(), static_cast<ElementType>(q.dtype),
                  widened ? ElementType::kF32 : static_cast<ElementType>(kv.dtype));
  Call call = {plan, q, kv, options, kernel};
  call.shape = {kernel.k_steps(kv.head_dim), ceil_div(kv.v_head_dim, kDimBlock),
                kernel.q_lanes(kv.head_dim)};
  call.k_panel_lanes = kernel.k_panel_lanes(kv.head_dim) + kernel.scale_lanes(kv.head_dim);
  call.v_panel_lanes = kernel.v_panel_lanes(kv.v_head_dim) + kernel.scale_lanes(kv.v_head_dim);
  call.sm_scale = options.sm_scale.value_or(1.0F / std::sqrt(static_cast<float>(kv.head_dim)));
  call.group = plan.heads.num_q_heads / plan.heads.num_kv_heads;
  call.num_threads = options.pool == nullptr ? 1 : options.pool->num_threads();
  for (const WorkItem& item : plan.items) {
    std::int64_t rows = 0;
    std::int64_t parts = 0;
    for_each_part(plan, item, [&](const TilePart& part) {
      rows += num_tokens(part) * num_heads(plan, part);
      ++parts;
    });
    call.max_rows = std::max(call.max_rows, rows);
    call.max_parts = std::max(call.max_parts, parts);
  }
  return call;
}

void check_output(const Call& call, const MutableTensorView& out, std::span<float> lse) {
  require(out.shape[0] == call.q.shape[0], "rows of out", out.shape[0], "q's {}", call.q.shape[0]);
  require(out.shape[1] == call.q.shape[1], "heads of out", out.shape[1], "q's {}", call.q.shape[1]);
  require(out.shape[2] == call.kv.v_head_dim, "v_head_dim of out", out.shape[2], "kv's {}",
          call.kv.v_head_dim);
  require(out.data != nullptr || out.shape[0] == 0, "data of out", 0, "an address");
  if (out.dtype != DType::kF32 && out.dtype != call.q.dtype) {
    throw Error(fmt::format("dtype of out is {}; allowed: f32 and q's {}", to_string(out.dtype),
                            to_string(call.q.dtype)));
  }
  const std::int64_t num_lse = call.q.shape[0] * call.q.shape[1];
  require(lse.empty() || static_cast<std::int64_t>(lse.size()) == num_lse, "the size of lse",
          static_cast<std::int64_t>(lse.size()), "0 and rows × heads = {}", num_lse);
}

namespace {

void require_page(const KvView& kv, std::int64_t sequence, std::int64_t kv_head, std::int64_t key) {
  if (page_of(kv, sequence, kv_head, key) == KvView::kNullPage) {
    throw Error(fmt::format(
        "page {} of sequence {} is null, and key {} on it is read; allowed: pages that are held",
        key / kv.page_size, sequence, key));
  }
}

// Each page once where panels do not pass its end.
void require_pages_of(const Call& call, const WorkItem& item, const TileRun& run,
                      std::int64_t num_tokens) {
  const auto require_key = [&](std::int64_t key) {
    require_page(call.kv, item.sequence, item.kv_head, key);
  };
  const std::int64_t begin = run.first * kPanelKeys;
  if (run.mask == TileRun::kWhole) {
    const std::int64_t end = begin + run.count * kPanelKeys;
    for (std::int64_t key = begin; key < end; key += call.kv.page_size - key % call.kv.page_size) {
      require_key(key);
    }
    return;
  }
  unsigned read = 0;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    read |= call.plan.masks[static_cast<std::size_t>(run.mask + token)];
  }
  if (call.kv.page_size % kPanelKeys == 0) read &= 0U - read;  // its first key speaks for all
  for (; read != 0; read &= read - 1) require_key(begin + std::countr_zero(read));
}

// KV heads in one table that read the same are neighbours among the items.
bool reads_same_pages(const KvView& kv, const WorkItem& a, const WorkItem& b) {
  return a.sequence == b.sequence && a.tiles_begin == b.tiles_begin && a.tiles_end == b.tiles_end &&
         kv.head_place(a.kv_head).table == kv.head_place(b.kv_head).table;
}

bool has_null_page(const KvView& kv) {
  return std::find(kv.block_table.begin(), kv.block_table.end(), KvView::kNullPage) !=
         kv.block_table.end();
}

}  // namespace

void check_pages(const Call& call) {
  if (call.kv.page_size == 0 || !has_null_page(call.kv)) return;
  const Plan& plan = call.plan;
  const WorkItem* before = nullptr;
  for (const WorkItem& item : plan.items) {
    if (before != nullptr && reads_same_pages(call.kv, *before, item)) continue;
    before = &item;
    for_each_part(plan, item, [&](const TilePart& part) {
      for (std::int64_t r = part.gathered_end; r < part.runs_end; ++r) {
        require_pages_of(call, item, plan.runs[static_cast<std::size_t>(r)], num_tokens(part));
      }
    });
  }
  for (std::size_t head = 0; head < plan.gathered_of_head.size(); ++head) {
    const auto [sequence, kv_head] =
        std::lldiv(static_cast<std::int64_t>(head), plan.heads.num_kv_heads);
    for (std::int64_t set : plan.gathered_of_head[head]) {
      for (std::int64_t key : plan.gathered_sets[static_cast<std::size_t>(set)]) {
        require_page(call.kv, sequence, kv_head, key);
      }
    }
  }
}

std::int64_t num_key_tiles(const Call& call, std::int64_t sequence) {
  return ceil_div(call.plan.sequences[static_cast<std::size_t>(sequence)].length, kPanelKeys);
}

std::int64_t num_panels(const Plan& plan, std::int64_t gathered_set) {
  const auto& keys = plan.gathered_sets[static_cast<std::size_t>(gathered_set)];
  return ceil_div(static_cast<std::int64_t>(keys.size()), kPanelKeys);
}

void on_threads(const Call& call, const std::function<void(std::int64_t)>& work) {
  if (call.options.pool == nullptr) {
    work(0);
  } else {
    call.options.pool->run(work);
  }
}

}  // namespace lacuna

#include <algorithm>

#include <fmt/format.h>

#include "cost/held_model.h"
#include "lacuna/error.h"

// vLLM's hybrid KV cache manager: one pool of pages of one size, cut into groups of equally many
// layers. Every group holds layers of one kind, and one logical page is a page in each of its
// layers. The grouping is described in vLLM's docs/design/hybrid_kv_cache_manager.md.

namespace lacuna {
namespace {

// Layers that may share a group.
struct Kind {
  const StoredKv* like = nullptr;
  std::vector<std::size_t> entries;
  std::int64_t page_tokens = 0;
};

bool same_kind(const StoredKv& a, const StoredKv& b) {
  const bool both_latent = a.shape.latent.has_value() == b.shape.latent.has_value();
  return a.kind == b.kind && a.width == b.width && a.token_bytes == b.token_bytes &&
         a.shape.num_kv_heads == b.shape.num_kv_heads && a.shape.head_dim == b.shape.head_dim &&
         a.shape.v_head_dim == b.shape.v_head_dim && both_latent;
}

std::vector<Kind> kinds_of(const std::vector<StoredKv>& stored) {
  std::vector<Kind> kinds;
  for (std::size_t idx = 0; idx < stored.size(); ++idx) {
    const auto known = std::ranges::find_if(
        kinds, [&](const Kind& kind) { return same_kind(*kind.like, stored[idx]); });
    if (known != kinds.end()) {
      known->entries.push_back(idx);
    } else {
      kinds.push_back({&stored[idx], {idx}, 0});
    }
  }
  return kinds;
}

std::int64_t size_of_groups(const std::vector<Kind>& kinds) {
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  std::int64_t largest = 0;
  for (const Kind& kind : kinds) {
    const auto count = static_cast<std::int64_t>(kind.entries.size());
    smallest = std::min(smallest, count);
    largest = std::max(largest, count);
  }
  // Below this ratio a little padding costs less than more, smaller groups.
  return 2 * largest < 3 * smallest ? largest : smallest;
}

std::string name_of(const Kind& kind) {
  switch (kind.like->kind) {
    case EngineKind::kFull:
      return "full";
    case EngineKind::kWindow:
      return fmt::format("window({})", kind.like->width);
    case EngineKind::kChunk:
      return fmt::format("chunk({})", kind.like->width);
  }
  return "";
}

// A request's pages in one layer, at worst: while `batched` new tokens are in flight, a window that
// does not start at a page's begin touches one page more.
Equation pages_of(const Kind& kind, std::int64_t batched, std::int64_t max_length) {
  const Equation page("P", kind.page_tokens);
  const Equation most("M", max_length);
  const Equation width("W", kind.like->width);
  const Equation in_flight("batched", batched);
  switch (kind.like->kind) {
    case EngineKind::kFull:
      return ceil_div(most, page);
    case EngineKind::kWindow:
      return ceil_div(min(width - 1 + in_flight, most), page) + 1;
    case EngineKind::kChunk:
      return ceil_div(min(width + in_flight, most), page);
  }
  return 0;
}

// Makes the pages of all kinds equally large; says how.
std::int64_t unify_pages(std::int64_t page, std::vector<Kind>& kinds,
                         const std::vector<StoredKv>& stored, std::vector<std::string>& notes) {
  std::int64_t largest = 0;
  for (const Kind& kind : kinds) {
    largest = std::max(largest, checked_mul64(page, kind.like->token_bytes));
  }
  for (Kind& kind : kinds) {
    const std::int64_t bytes = page * kind.like->token_bytes;
    kind.page_tokens = page;
    if (bytes == largest) continue;
    std::vector<int> layers;
    for (const std::size_t entry : kind.entries) layers.push_back(stored[entry].layer_idx);
    if (largest % bytes == 0) {
      kind.page_tokens = checked_mul64(page, largest / bytes);
      notes.push_back(fmt::format("pages of layers {} take {} tokens, for equal pages of {} bytes",
                                  layer_list(layers), kind.page_tokens, largest));
    } else {
      notes.push_back(fmt::format("pages of layers {} are padded from {} to {} bytes",
                                  layer_list(layers), bytes, largest));
    }
  }
  return largest;
}

}  // namespace

HeldParts pool_parts(const Policy& policy, const std::vector<StoredKv>& stored,
                     std::int64_t max_length) {
  HeldParts result;
  std::vector<Kind> kinds = kinds_of(stored);
  const std::int64_t group_size = size_of_groups(kinds);
  const std::int64_t page_bytes = unify_pages(param(policy, "P"), kinds, stored, result.notes);
  std::int64_t num_groups = 0;
  std::int64_t padding_layers = 0;
  for (const Kind& kind : kinds) {
    const auto real = static_cast<std::int64_t>(kind.entries.size());
    const std::int64_t groups = ceil_div(real, group_size);
    const std::int64_t empty = groups * group_size - real;
    const Equation pages = pages_of(kind, param(policy, "batched"), max_length);
    const std::int64_t tokens = to_int64((pages * Equation(kind.page_tokens)).value(), "slots");
    const bool padded = kind.page_tokens * kind.like->token_bytes != page_bytes;
    const Equation page = padded ? Equation("page_bytes", page_bytes)
                                 : Equation("P", kind.page_tokens) *
                                       Equation(kind.like->bytes_symbol, kind.like->token_bytes);
    for (const std::size_t entry : kind.entries) {
      result.parts.push_back({entry, pages * page, tokens, 1});
    }
    if (empty > 0) result.padding.push_back({pages * page, empty});
    num_groups += groups;
    padding_layers += empty;
    result.notes.push_back(
        fmt::format("{}: {} layers of {} bytes a token in {} group(s) of {}{}", name_of(kind), real,
                    kind.like->token_bytes, groups, group_size,
                    empty > 0 ? fmt::format(", {} of them padding that is charged", empty) : ""));
  }
  result.chosen = {{"group_size", group_size},
                   {"num_groups", num_groups},
                   {"padding_layers", padding_layers},
                   {"page_bytes", page_bytes}};
  return result;
}

}  // namespace lacuna

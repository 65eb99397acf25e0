#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/integer.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/policy.h"
#include "lacuna/shape.h"

// What a memory budget holds, under an allocator policy, and what would make it hold more. Solved
// on the real held bytes of the policy, layer by layer: windowed layers stop growing. A request
// counts with the most it holds on its way to its length, so that nothing found to fit runs out of
// memory half way.
namespace lacuna {

struct CapacityQuery {
  std::int64_t budget_bytes = 0;      // for KV
  std::int64_t requests = 1;          // R, at the same time
  std::vector<std::int64_t> lengths;  // of observed requests, one each; empty: not known
  KvDtype kv_dtype;
  Policy policy;
  // Left free of the budget for fluctuation and fragmentation; page tables are counted beside it.
  double margin_share = 0.05;
  std::int64_t page_entry_bytes = 4;
};

// Each of R requests may hold this many tokens at the same time.
struct TokensKept {
  std::int64_t tokens = 0;  // 0: not even one
  bool unbounded = false;   // nothing grows any more: `tokens` is only the largest length tried
  Int128 bytes = 0;         // of all R requests at it
};

// The observed requests, R of them at a time. `worst` are the R longest; where R exceeds the list,
// the longest comes again. `mean` is R times the mean of their bytes (never the bytes of the mean
// length).
struct Combination {
  Int128 mean = 0;
  Int128 worst = 0;
};

struct Capacity {
  Policy policy;
  std::int64_t usable_bytes = 0;  // budget less the margin
  TokensKept limit;  // of the whole budget: neither margin nor page tables; the formula's answer
  TokensKept kept;   // within usable_bytes, page tables counted: the answer to plan with
  // What a "tokens that fit" figure can mean. Requests × length: R · kept.tokens.
  Int128 requests_times_length_tokens = 0;
  // Pages × page size of one group, for the whole budget: what block-pool engines print. Only for
  // uniform and pool.
  std::optional<std::int64_t> group_tokens;
  // With lengths only. Requests that fit into usable_bytes; unbounded where they hold nothing.
  struct Fit {
    std::int64_t mean = 0;
    std::int64_t worst = 0;
    bool unbounded = false;
  };
  std::optional<Fit> requests_fit;
  std::optional<Combination> held_bytes;    // of R requests, page tables counted
  std::optional<Combination> budget_bytes;  // the inverse: what these R requests need, with margin
  Int128 page_table_bytes = 0;              // counted in `kept`
  std::vector<std::string> notes;
};

// Throws Error naming a number out of range.
Capacity capacity(const LayerTable& table, const ModelShape& shape, const CapacityQuery& query);

// --- the largest window ---

struct WindowQuery {
  CapacityQuery capacity;  // lengths required
  std::optional<double> ttft_seconds;
  std::optional<double> tpot_seconds;
  std::optional<double> flops_per_s;            // the prefill's peak in its dtype
  std::optional<double> bandwidth_bytes_per_s;  // e.g. of lacuna::Device
  std::optional<std::int64_t> weight_bytes;     // read once a step
  std::optional<std::int64_t> prompt_tokens;    // of the prefill; absent: the longest length
};

enum class Bound { kMemory, kBandwidth, kPrefill };
std::string_view to_string(Bound bound);

struct WindowBound {
  Bound bound = Bound::kMemory;
  // The largest window that meets the bound; nullopt: none does, not even one key.
  std::optional<std::int64_t> window;
  bool limits = true;  // false: even a window as long as the longest request meets it
  double used = 0;     // at that window (nullopt: at one key): bytes, bytes a step, or FLOPs
  double allowed = 0;  // usable bytes, tpot × bandwidth, ttft × peak
};

struct LargestWindow {
  std::vector<WindowBound> bounds;     // those whose inputs are known, in the order of Bound
  std::optional<std::int64_t> window;  // meets all of them; nullopt: none does
  std::vector<Bound> binds;            // the bounds that give it; empty: nothing limits it
  std::vector<std::string> notes;      // bounds left out and why; what was replaced
};

// Gives every window layer the same window, the largest at which
//   memory     the R longest requests fit into the usable bytes,
//   bandwidth  weights + KV and index read in one step of those requests <= tpot · bandwidth,
//   prefill    pair + projection + MLP FLOPs of one prompt <= ttft · peak.
// A table without windows is treated as if each of its full layers had one. Both times are lower
// bounds: real steps are slower, so the window is an upper bound.
LargestWindow largest_window(const LayerTable& table, const ModelShape& shape,
                             const WindowQuery& query);

// The table with every window of every layer replaced.
LayerTable with_window(const LayerTable& table, std::int64_t window);

// --- levers ---

struct Lever {
  std::string name;     // "as it is", "window / 2", "int8 KV", "int4 KV", "KV heads / 2", …
  std::string changes;  // the property that is paid with: history, numerical error, architecture
  std::optional<Capacity> capacity;
  std::string why;  // where it cannot be pulled on this model
};

// What each lever alone buys, "as it is" first.
std::vector<Lever> levers(const LayerTable& table, const ModelShape& shape,
                          const CapacityQuery& query);

}  // namespace lacuna

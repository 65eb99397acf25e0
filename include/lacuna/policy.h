#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/equation.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/shape.h"

namespace lacuna {

// How an engine really holds KV: an allocator policy by name, with its numbers. In text:
// "pool(P=16, batched=8192)". A plain value.
//
//   exact       what this or a later query can still read, during a one-token step
//   paged       Lacuna's own cache: whole pages of P tokens that hold any of it, with `in_flight`
//               rows of a step, which are written whoever reads them, and `rollback` older rows
//               still to be served; one table for each layer and KV head
//   full        every token, no eviction
//   uniform     block-pool engines without a hybrid manager: every layer keeps every token, and
//               pages are padded to the largest page of any layer
//   pool        vLLM's hybrid manager: groups of layers of one kind, sized for M tokens with
//               `batched` of them in one step
//   iswa        llama.cpp: one cell cache for full layers and one for window layers, sized for a
//               context of n_ctx = M cells that `seqs` sequences share
//   hf_dynamic  Hugging Face dynamic layers, between steps
//   hf_static   Hugging Face static layers, reserved for M tokens
//   rolling     Mistral's ring: W slots in a window layer, always
//
// The modelled engines know full layers, one window a layer and (pool, hf, iswa) chunks. They hold
// a layer of any other topology, windows with sinks among them, in full; a note names it.
struct Policy {
  std::string name;
  std::map<std::string, std::int64_t> params;  // every parameter of the policy, defaults filled in
  friend bool operator==(const Policy&, const Policy&) = default;
};

std::vector<std::string> policy_names();
// Reads `name` or `name(param=value, …)`; true and false are 1 and 0. Throws Error naming the
// policy or parameter, the value, what was allowed, and a near miss.
Policy parse_policy(std::string_view text);
// Text that parse_policy reads back; a policy without parameters is its name.
std::string to_text(const Policy& policy);

// One request: `length` tokens held now, room for `max_length` reserved where a policy reserves.
struct HeldQuery {
  std::int64_t length = 0;      // 0..2^50
  std::int64_t max_length = 0;  // M and n_ctx: prompt + generate, >= length; 0: equal to length
  KvDtype kv_dtype;
};

struct LayerHeld {
  std::int64_t tokens = 0;  // slots of this layer (of its widest KV head)
  std::int64_t bytes = 0;
};

struct Held {
  Policy policy;
  // What the policy chose for this table. pool: group_size, num_groups, padding_layers, and
  // page_bytes; iswa: streams, cells, window_cells (where there are window layers).
  std::map<std::string, std::int64_t> chosen;
  Equation bytes;  // of one request; iswa: of the whole context, for all `seqs` sequences
  std::vector<LayerHeld> layers;
  std::int64_t padding_bytes = 0;  // pool: of empty layers; bytes = Σ layers + padding
  std::vector<std::string> notes;  // groups, padded or widened pages, what is held in full, and why
};

// Bytes that one request holds under a policy; 0 for a bidirectional table and an encoder. Throws
// Error where the policy cannot serve the table (iswa with two window sizes), naming the layers.
Held held(const Policy& policy, const LayerTable& table, const ModelShape& shape,
          const HeldQuery& query);

}  // namespace lacuna

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/attend.h"

namespace lacuna {

// How a layer mixes tokens, and so what it keeps for later tokens.
enum class Mixer {
  kSoftmax,  // K and V for each KV head and token
  kMla,      // one latent a token for all heads
  kLinear,   // a finite state, nothing for each token
  kSsm,      // likewise
  kNone,     // no attention in this layer
};
std::string_view to_string(Mixer mixer);
// The mixers whose queries read keys: softmax and mla.
bool attends(Mixer mixer);

enum class Trained { kTrue, kFalse, kUnknown };  // was the model trained with this table?
std::string_view to_string(Trained trained);

struct Layer {
  Attend attend;  // empty for kLinear, kSsm, kNone
  Mixer mixer = Mixer::kSoftmax;
  std::optional<int> kv_from;     // reads that earlier layer's KV and stores none of its own
  std::optional<int> index_from;  // uses that earlier layer's choice of keys again
  std::string rope;               // free text for people: "local", "global", "none"; "" unknown
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Tile {
  std::int64_t q = 64;
  std::int64_t k = 64;
  friend bool operator==(const Tile&, const Tile&) = default;
};

// One topology for every layer of a model: what is saved beside its weights. A plain value.
struct LayerTable {
  bool causal = true;
  Trained trained = Trained::kUnknown;
  std::optional<Tile> tile;
  std::vector<Layer> layers;
  friend bool operator==(const LayerTable&, const LayerTable&) = default;
};

// The text form: `window(512)*5, full; last: full`. The pattern is repeated over `num_layers` and
// cut at the end. Throws Error with the column and what was allowed.
LayerTable parse_layers(std::string_view text, int num_layers, bool causal,
                        const std::string& base_dir = ".");

// The shortest repeated pattern that parse_layers reads back to the same layers. Throws Error where
// the table holds what only JSON can say (kv_from, index_from, rope, another mixer than softmax).
std::string to_text(const LayerTable& table);

// The JSON form: {"format": "lacuna-layer-table", "format_version": 1, "causal", "trained", "tile",
// "layers": [{"count", "attend", "heads", "kv_from", "index_from", "rope", "mixer"}, …]}. `attend`
// is the text of a union; with split heads `heads` is a list of {"heads": "0-3,5", "attend": …}
// instead. kv_from and index_from are absolute layer numbers. Runs of equal layers are joined. An
// unknown key, a wrong type and a number out of range are Errors that name the key and the place.
LayerTable layers_from_json(std::string_view json, const std::string& base_dir = ".");
std::string to_json(const LayerTable& table);

// Throws Error naming the layer where heads(...) does not name each of its `num_q_heads` query
// heads exactly once, where kv_from or index_from is not an earlier layer that owns what is shared,
// or where a term does not exist in the table's direction. An empty `num_q_heads` leaves the number
// of heads unchecked; from_json and the writers check so, and parse_layers gives only such tables.
void check(const LayerTable& table, const std::vector<int>& num_q_heads);

// The table with every global(token=…) replaced by the positions at which `tokens` holds such an
// id. Without such a position the term is left out, or stays empty where it is a union's only one.
LayerTable resolve_tokens(const LayerTable& table, const std::vector<std::int64_t>& tokens);

}  // namespace lacuna

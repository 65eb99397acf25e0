#include "cost/held_model.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "lacuna/kv_view.h"
#include "lacuna/ranges.h"

namespace lacuna {
namespace {

// Sums over layers and requests stay below 2^63 for lengths up to here.
constexpr std::int64_t kMostLength = std::int64_t{1} << 50;

bool keeps_what_is_readable(const Policy& policy) {
  return policy.name == "exact" || policy.name == "paged";
}

struct Keeping {
  std::int64_t page = 1;
  std::int64_t back = 1;     // rows before the end that are still to be served
  std::int64_t written = 0;  // of them, rows that the step itself writes, whoever reads them
};

Keeping keeping(const Policy& policy) {
  if (policy.name == "exact") return {};
  const std::int64_t in_flight = param(policy, "in_flight");
  return {param(policy, "P"), checked_add64(in_flight, param(policy, "rollback")), in_flight};
}

// Tokens or slots of whole pages that one KV head holds: all that query length - back or any later
// one can still read, and the rows being written.
std::int64_t retained_slots(const Topology& topology, std::int64_t length, const Keeping& keeping) {
  const auto from_end = [length](std::int64_t count) {
    return std::max<std::int64_t>(0, length - count);
  };
  const Ranges kept = unite(topology.retained(from_end(keeping.back), length),
                            {{from_end(keeping.written), length}});
  if (keeping.page == 1) return kept.size();
  return checked_mul64(tiles_touched(kept, keeping.page).size(), keeping.page);
}

// The most that retained_slots is at any length up to this one: within the last `page` lengths
// (windows, dilations), or where a period of the topology ends (chunks, blocks).
std::int64_t peak_slots(const Topology& topology, std::int64_t length, const Keeping& keeping) {
  std::int64_t most = retained_slots(topology, length, keeping);
  if (most >= length) return most;  // nothing is dropped yet
  const auto consider = [&](std::int64_t candidate) {
    if (candidate < 1 || candidate >= length) return;
    most = std::max(most, retained_slots(topology, candidate, keeping));
  };
  // A page's phase repeats after at most this many lengths or periods.
  const std::int64_t phases = std::min<std::int64_t>(keeping.page, 4096);
  for (std::int64_t step = 1; step <= phases; ++step) consider(length - step);
  const auto rhythm = topology.rhythm();
  if (!rhythm || rhythm->period == 1 || rhythm->period > length) return most;
  const std::int64_t last = length / rhythm->period * rhythm->period;
  const std::int64_t periods = keeping.page / std::gcd(keeping.page, rhythm->period);
  for (std::int64_t step = 0; step < std::min(periods, phases); ++step) {
    consider(last - step * rhythm->period);
  }
  return most;
}

// What a KV head holds of its topology, in the printed equation: S(window(512)).
std::string retained_symbol(const StoredKv& entry, bool paged) {
  constexpr std::size_t kReadable = 48;
  const std::string name = paged ? "pages" : "S";
  return entry.attend.size() > kReadable ? name : fmt::format("{}({})", name, entry.attend);
}

std::vector<HeldPart> retained_of(const StoredKv& entry, const Keeping& kept, bool paged,
                                  std::int64_t length) {
  const bool whole_layer = entry.kv_heads.size() == 1;
  std::vector<HeldPart> parts;
  for (const LayerTopology::Class& heads : entry.kv_heads) {
    const std::int64_t slots = retained_slots(heads.topology, length, kept);
    const Equation held =
        paged ? Equation("P", kept.page) * Equation(retained_symbol(entry, true), slots / kept.page)
              : Equation(retained_symbol(entry, false), slots);
    const Equation token = whole_layer ? Equation(entry.bytes_symbol, entry.token_bytes)
                                       : Equation("c_head", entry.head_bytes);
    parts.push_back({0, held * token, slots, whole_layer ? 1 : heads.count});
  }
  return parts;
}

// The parts of every layer from those of the first of its equals.
HeldParts for_each_layer(const std::vector<StoredKv>& stored,
                         const std::function<std::vector<HeldPart>(const StoredKv&)>& parts_of) {
  std::vector<std::vector<HeldPart>> of_entry(stored.size());
  HeldParts result;
  for (std::size_t idx = 0; idx < stored.size(); ++idx) {
    const std::size_t same = stored[idx].same_as;
    if (same == idx) of_entry[idx] = parts_of(stored[idx]);
    for (HeldPart part : of_entry[same]) {
      part.entry = idx;
      result.parts.push_back(std::move(part));
    }
  }
  return result;
}

// Slots of the policies that look at one layer at a time.
Equation engine_slots(const Policy& policy, const StoredKv& entry, std::int64_t length,
                      std::int64_t max_length) {
  const Equation tokens("L", length);
  const Equation most("M", max_length);
  const Equation width("W", entry.width);
  const bool cut = entry.kind != EngineKind::kFull;
  if (policy.name == "hf_dynamic") return cut ? min(tokens, width - 1) : tokens;
  if (policy.name == "hf_static") return cut ? min(width, most) : most;
  // A ring of W slots serves one window; there is no ring for chunks.
  if (policy.name == "rolling" && entry.kind == EngineKind::kWindow) return width;
  return tokens;
}

std::vector<HeldPart> engine_held(const Policy& policy, const StoredKv& entry, std::int64_t length,
                                  std::int64_t max_length) {
  const Equation slots = engine_slots(policy, entry, length, max_length);
  const Equation token(entry.bytes_symbol, entry.token_bytes);
  return {{0, slots * token, to_int64(slots.value(), "slots of a layer"), 1}};
}

HeldParts uniform_parts(const Policy& policy, const std::vector<StoredKv>& stored,
                        std::int64_t length) {
  const Equation page("P", param(policy, "P"));
  const Equation pages = ceil_div(Equation("L", length), page);
  std::int64_t widest = 0;
  for (const StoredKv& entry : stored) widest = std::max(widest, entry.token_bytes);
  HeldParts result;
  std::vector<int> padded;
  for (std::size_t idx = 0; idx < stored.size(); ++idx) {
    const bool smaller = stored[idx].token_bytes < widest;
    if (smaller) padded.push_back(stored[idx].layer_idx);
    const Equation token(stored[idx].bytes_symbol == "c" ? "c" : "c_max", widest);
    result.parts.push_back(
        {idx, page * pages * token, to_int64((page * pages).value(), "slots of a layer"), 1});
  }
  if (!padded.empty()) {
    result.notes.push_back(
        fmt::format("pages of layers {} are padded to the largest page, {} bytes",
                    layer_list(padded), to_string((page * Equation(widest)).value())));
  }
  return result;
}

// Σ count · bytes over parts that have the same equation.
class Sum {
 public:
  void add(const Equation& bytes, std::int64_t count) {
    for (auto& [known, times] : terms_) {
      if (known.symbols() == bytes.symbols() && known.numbers() == bytes.numbers()) {
        times += count;
        return;
      }
    }
    terms_.emplace_back(bytes, count);
  }
  Equation total() const {
    Equation sum;
    for (std::size_t idx = 0; idx < terms_.size(); ++idx) {
      const std::string symbol = terms_.size() == 1 ? "N" : fmt::format("N_{}", idx + 1);
      sum = sum + Equation(symbol, terms_[idx].second) * terms_[idx].first;
    }
    return sum;
  }

 private:
  std::vector<std::pair<Equation, std::int64_t>> terms_;
};

std::vector<std::string> notes_of(const LayerTable& table, const ModelShape& shape) {
  if (!table.causal) return {"a bidirectional table keeps no KV"};
  if (!shape.has_cache) return {"an encoder keeps no KV"};
  std::vector<int> readers;
  std::set<int> owners;
  std::vector<int> finite;
  for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
    const Layer& layer = table.layers[idx];
    if (layer.kv_from) {
      readers.push_back(static_cast<int>(idx));
      owners.insert(*layer.kv_from);
    }
    if (layer.mixer == Mixer::kLinear || layer.mixer == Mixer::kSsm) {
      finite.push_back(static_cast<int>(idx));
    }
  }
  std::vector<std::string> notes;
  if (!readers.empty()) {
    notes.push_back(fmt::format("layers {} store no KV: they read that of layers {}",
                                layer_list(readers),
                                layer_list(std::vector<int>(owners.begin(), owners.end()))));
  }
  if (!finite.empty()) {
    notes.push_back(fmt::format("layers {} keep a finite state, counted as state_held_bytes",
                                layer_list(finite)));
  }
  return notes;
}

// Lacuna's own pages pad widths to what kernels read at once. Of int4 no width needs it, and other
// dtypes are not its own.
ModelShape as_packed(ModelShape shape, const LayerTable& table, const KvDtype& dtype) {
  for (const DType packed : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8}) {
    if (dtype.name != to_string(packed)) continue;
    for (std::size_t idx = 0; idx < std::min(shape.layers.size(), table.layers.size()); ++idx) {
      if (table.layers[idx].mixer != Mixer::kSoftmax) continue;
      LayerShape& layer = shape.layers[idx];
      layer.head_dim = packed_k_dims(packed, layer.head_dim);
      layer.v_head_dim = packed_v_dims(layer.v_head_dim);
    }
  }
  return shape;
}

// Where the pages of the layers that store KV are wider than `shape` says.
std::vector<std::string> padding_notes(const std::vector<StoredKv>& stored,
                                       const ModelShape& shape) {
  std::vector<int> padded;
  for (const StoredKv& entry : stored) {
    const LayerShape& layer = shape.layers[static_cast<std::size_t>(entry.layer_idx)];
    const bool same =
        entry.shape.head_dim == layer.head_dim && entry.shape.v_head_dim == layer.v_head_dim;
    if (!same) padded.push_back(entry.layer_idx);
  }
  if (padded.empty()) return {};
  return {fmt::format("pages of layers {} pad keys to whole lanes and values to 16 dims",
                      layer_list(padded))};
}

}  // namespace

HeldModel::HeldModel(Policy policy, const LayerTable& table, const ModelShape& shape,
                     const KvDtype& dtype)
    : policy_(std::move(policy)),
      num_layers_(table.layers.size()),
      stored_(stored_kv(table, policy_.name == "paged" ? as_packed(shape, table, dtype) : shape,
                        dtype)),
      table_notes_(notes_of(table, shape)) {
  check_policy(policy_);
  for (std::string& note : padding_notes(stored_, shape)) table_notes_.push_back(std::move(note));
}

HeldModel::HeldModel(const HeldModel& model, Policy policy) : HeldModel(model) {
  policy_ = std::move(policy);
  check_policy(policy_);
}

HeldParts HeldModel::parts(std::int64_t length, std::int64_t max_length) const {
  if (keeps_what_is_readable(policy_)) {
    const Keeping kept = keeping(policy_);
    return for_each_layer(stored_, [&](const StoredKv& entry) {
      return retained_of(entry, kept, policy_.name == "paged", length);
    });
  }
  if (policy_.name == "uniform") return uniform_parts(policy_, stored_, length);
  if (policy_.name == "pool") return pool_parts(policy_, stored_, max_length);
  if (policy_.name == "iswa") return iswa_parts(policy_, stored_, max_length);
  return for_each_layer(stored_, [&](const StoredKv& entry) {
    return engine_held(policy_, entry, length, max_length);
  });
}

std::vector<std::string> HeldModel::engine_notes() const {
  if (keeps_what_is_readable(policy_) || policy_.name == "full" || policy_.name == "uniform") {
    return {};
  }
  std::map<std::string, std::vector<int>> by_text;
  for (const StoredKv& entry : stored_) {
    const bool no_ring = policy_.name == "rolling" && entry.kind == EngineKind::kChunk;
    if (entry.foreign || no_ring) by_text[entry.attend].push_back(entry.layer_idx);
  }
  std::vector<std::string> notes;
  for (const auto& [text, layers] : by_text) {
    notes.push_back(fmt::format("the modelled engine has no {}: layers {} are held in full", text,
                                layer_list(layers)));
  }
  const bool one_key = std::ranges::any_of(stored_, [](const StoredKv& entry) {
    return entry.kind == EngineKind::kWindow && entry.width == 1;
  });
  if (one_key && policy_.name == "hf_dynamic") {
    notes.push_back(
        "window(1): the formula keeps W - 1 = 0 tokens; the library's slice [-0:] keeps all");
  }
  return notes;
}

Held HeldModel::held(std::int64_t length, std::int64_t max_length) const {
  if (length < 0 || length > kMostLength) {
    throw Error(fmt::format("length is {}; allowed: 0..2^50", length));
  }
  if (max_length < length || max_length > kMostLength) {
    throw Error(fmt::format("max_length is {} at length {}; allowed: {}..2^50", max_length, length,
                            length));
  }
  Held result{policy_, {}, {}, std::vector<LayerHeld>(num_layers_), 0, table_notes_};
  if (stored_.empty()) return result;
  const HeldParts made = parts(length, max_length);
  Sum sum;
  for (const HeldPart& part : made.parts) {
    LayerHeld& layer = result.layers[static_cast<std::size_t>(stored_[part.entry].layer_idx)];
    layer.tokens = std::max(layer.tokens, part.tokens);
    const Int128 bytes = checked_mul(part.bytes.value(), part.count);
    layer.bytes = checked_add64(layer.bytes, to_int64(bytes, "held bytes of a layer"));
    sum.add(part.bytes, part.count);
  }
  for (const HeldParts::Padding& padding : made.padding) {
    const Int128 bytes = checked_mul(padding.bytes.value(), padding.count);
    result.padding_bytes = checked_add64(result.padding_bytes, to_int64(bytes, "padding bytes"));
    sum.add(padding.bytes, padding.count);
  }
  result.bytes = sum.total();
  result.chosen = made.chosen;
  for (const std::string& note : engine_notes()) result.notes.push_back(note);
  for (const std::string& note : made.notes) result.notes.push_back(note);
  return result;
}

Int128 HeldModel::peak_bytes(std::int64_t length) const {
  if (!keeps_what_is_readable(policy_)) return held(length, length).bytes.value();
  const Keeping kept = keeping(policy_);
  std::vector<Int128> of_entry(stored_.size(), 0);
  Int128 total = 0;
  for (std::size_t idx = 0; idx < stored_.size(); ++idx) {
    const StoredKv& entry = stored_[idx];
    if (entry.same_as == idx) {
      for (const LayerTopology::Class& heads : entry.kv_heads) {
        const Int128 slots = peak_slots(heads.topology, length, kept);
        of_entry[idx] = checked_add(of_entry[idx],
                                    checked_mul(slots, checked_mul(entry.head_bytes, heads.count)));
      }
    }
    total = checked_add(total, of_entry[entry.same_as]);
  }
  return total;
}

Int128 HeldModel::page_table_bytes(std::int64_t length, std::int64_t entry_bytes) const {
  if (!policy_.params.contains("P") || stored_.empty()) return 0;
  Int128 tables = 1;  // uniform: one block table serves all layers
  if (policy_.name == "paged") {
    tables = 0;
    for (const StoredKv& entry : stored_) {
      for (const LayerTopology::Class& heads : entry.kv_heads) tables += heads.count;
    }
  } else if (policy_.name == "pool") {
    tables = held(length, length).chosen.at("num_groups");
  }
  return checked_mul(tables, checked_mul(ceil_div(length, param(policy_, "P")), entry_bytes));
}

}  // namespace lacuna

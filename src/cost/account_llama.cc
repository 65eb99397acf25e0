#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "cost/account_case.h"
#include "cost/held_model.h"
#include "lacuna/error.h"

// llama.cpp creates one cache, or with windows two: cells of all full layers, and of all window
// layers. Cells come from policy iswa; `full` is what it did before, and does with --swa-full.

namespace lacuna {
namespace {

struct Inputs {
  std::int64_t n_ctx = 0;
  std::int64_t seqs = 1;
  std::vector<bool> unified;
  std::vector<std::int64_t> ubatches;
  std::vector<KvDtype> k_types;  // one for each cache
  std::vector<KvDtype> v_types;
};

KvDtype type_of(const std::string& printed, const AccountCase& about) {
  if (!printed.empty()) return kv_dtype(printed);
  return kv_dtype(about.flags.kv_dtype.empty() ? "f16" : about.flags.kv_dtype);
}

// Cells of a full layer times streams, where no n_ctx is stated.
std::optional<std::int64_t> context_of_cells(const EngineStart& start, std::int64_t streams) {
  for (const LogFigure& figure : start.figures) {
    if (figure.kind != LogFigureKind::kCells) continue;
    const LogCache& cache = start.caches[static_cast<std::size_t>(figure.cache)];
    if (cache.role != LogCache::Role::kWindow) return checked_mul64(figure.low, streams);
  }
  return std::nullopt;
}

std::int64_t sequences(const AccountCase& about, ParameterList& list) {
  const LogCache& cache = about.start->caches.front();
  if (!about.start->settings.contains("n_seq_max") && cache.num_seqs > 0) {
    list.add("n_seq_max", std::to_string(cache.num_seqs), "the line of the cache's size");
    return cache.num_seqs;
  }
  return list.get("n_seq_max", "--parallel", about.flags.n_seq_max, 1);
}

std::vector<bool> unified_or_not(const AccountCase& about, std::int64_t seqs, ParameterList& list) {
  const LogCache& cache = about.start->caches.front();
  if (seqs == 1) return {true};
  if (cache.streams > 0) {
    list.add("streams", std::to_string(cache.streams), "the line of the cache's size");
    return {cache.streams == 1};
  }
  const std::optional<std::int64_t> stated = list.find("kv_unified", "", std::nullopt);
  if (stated) return {*stated != 0};
  list.add("kv_unified", "0 or 1", "not stated: both are tried");
  return {true, false};
}

Inputs inputs_of(const AccountCase& about, ParameterList& list) {
  const EngineStart& start = *about.start;
  Inputs inputs;
  inputs.seqs = sequences(about, list);
  inputs.unified = unified_or_not(about, inputs.seqs, list);
  const auto stated = list.find("n_ctx", "--n-ctx", about.flags.n_ctx);
  const auto cells = context_of_cells(start, inputs.unified.front() ? 1 : inputs.seqs);
  if (!stated && !cells) {
    throw Error("the log states neither n_ctx nor cells; allowed: --n-ctx N beside it");
  }
  if (!stated) list.add("n_ctx", std::to_string(*cells), "the cells of the first cache");
  inputs.n_ctx = stated ? *stated : *cells;
  const auto batch = list.find("n_batch", "", std::nullopt);
  inputs.ubatches = {list.get("n_ubatch", "--ubatch-size", about.flags.n_ubatch, 512)};
  // The first version of the window cache had room for a whole batch.
  if (batch && *batch != inputs.ubatches.front()) inputs.ubatches.push_back(*batch);
  for (const LogCache& cache : start.caches) {
    inputs.k_types.push_back(type_of(cache.k_type, about));
    inputs.v_types.push_back(type_of(cache.v_type, about));
    if (cache.k_type.empty() && &cache == &start.caches.front()) {
      list.add("kv_dtype", inputs.k_types.back().name,
               about.flags.kv_dtype.empty() ? "default of llama.cpp" : "--kv-dtype");
    }
  }
  return inputs;
}

// What one attempt says of a cache: its cells and layers, and the bytes of K and of V.
struct CachePrediction {
  Equation cells;
  Equation layers;
  Equation k_bytes;
  Equation v_bytes;
};

class Attempt {
 public:
  Attempt(const AccountCase& about, const Inputs& inputs, const HeldModel& model,
          const Policy& cells_by, bool full)
      : about_(about), inputs_(inputs), stored_(model.stored()), full_(full) {
    std::int64_t width = 0;
    for (const StoredKv& entry : stored_) width = std::max(width, entry.width);
    cells_ = iswa_cells(cells_by, width, inputs.n_ctx);
    const auto length = full ? cells_.streams * cells_.full : Equation(inputs.n_ctx);
    policy_.policy = full ? parse_policy("full") : cells_by;
    const std::int64_t tokens = to_int64(length.value(), "cells of all streams");
    held_ = HeldModel(model, policy_.policy).held(tokens, tokens);
  }

  AccountPolicy result() {
    std::vector<CachePrediction> caches;
    for (std::size_t idx = 0; idx < about_.start->caches.size(); ++idx) {
      caches.push_back(predict(idx));
      const Equation bytes = caches.back().k_bytes + caches.back().v_bytes;
      const char* name = role_of(idx) == Role::kWindow ? "window_layers" : "full_layers";
      policy_.bytes = policy_.bytes + bytes.named(about_.start->caches.size() == 1 ? "all" : name);
    }
    for (const LogFigure& figure : about_.start->figures) {
      const Equation value = of_figure(caches[static_cast<std::size_t>(figure.cache)], figure.kind);
      policy_.lines.push_back(judged(figure, value.value(), value.value(), value));
      AccountLine& line = policy_.lines.back();
      if (line.difference != 0 && unit_of(figure.kind) == "bytes") line.hint = hint(line);
    }
    return std::move(policy_);
  }

 private:
  using Role = LogCache::Role;

  // Caches without a name: one of all layers, or the two in llama.cpp's order.
  Role role_of(std::size_t cache) const {
    const std::vector<LogCache>& caches = about_.start->caches;
    if (caches[cache].role != Role::kUnnamed || caches.size() == 1) return caches[cache].role;
    return cache == 0 ? Role::kFull : Role::kWindow;
  }

  bool holds(std::size_t cache, const StoredKv& entry) const {
    if (cache > 1) return false;  // the model has no third
    switch (role_of(cache)) {
      case Role::kUnnamed:
        return true;
      case Role::kFull:
        return entry.kind == EngineKind::kFull;
      case Role::kWindow:
        return entry.kind != EngineKind::kFull;
    }
    return false;
  }

  CachePrediction predict(std::size_t cache) const {
    CachePrediction found;
    const bool window = role_of(cache) == Role::kWindow && !full_;
    found.cells = window ? cells_.window : cells_.full;
    std::int64_t layers = 0;
    // Layers alike: slots, KV heads, widths, latent.
    std::map<std::tuple<std::int64_t, int, std::int64_t, std::int64_t, bool>,
             std::pair<std::int64_t, const StoredKv*>>
        alike;
    for (const StoredKv& entry : stored_) {
      if (!holds(cache, entry)) continue;
      ++layers;
      const auto slots = held_.layers[static_cast<std::size_t>(entry.layer_idx)].tokens;
      const LayerShape& shape = entry.shape;
      auto& [count, like] =
          alike[{slots, shape.num_kv_heads, shape.head_dim, shape.v_head_dim, is_latent(entry)}];
      ++count;
      like = &entry;
    }
    found.layers = Equation("layers", layers);
    for (const auto& [key, value] : alike) {
      const Equation tokens = Equation("layers", value.first) * Equation("slots", std::get<0>(key));
      found.k_bytes = found.k_bytes + tokens * key_bytes(*value.second, inputs_.k_types[cache]);
      found.v_bytes = found.v_bytes + tokens * value_bytes(*value.second, inputs_.v_types[cache]);
    }
    return found;
  }

  bool is_latent(const StoredKv& entry) const {
    return about_.table.layers[static_cast<std::size_t>(entry.layer_idx)].mixer == Mixer::kMla;
  }
  // A latent is stored as a key; its values are a part of it.
  Equation key_bytes(const StoredKv& entry, const KvDtype& dtype) const {
    if (is_latent(entry)) return kv_bytes_per_token(entry.shape, Mixer::kMla, dtype);
    return Equation("H_kv", entry.shape.num_kv_heads) *
           vector_bytes(dtype, "d_h", entry.shape.head_dim);
  }
  Equation value_bytes(const StoredKv& entry, const KvDtype& dtype) const {
    if (is_latent(entry)) return 0;
    return Equation("H_kv", entry.shape.num_kv_heads) *
           vector_bytes(dtype, "d_v", entry.shape.v_head_dim);
  }

  // What else would give the printed bytes: whole layers, or whole cells of the layers there are.
  std::string hint(const AccountLine& line) const {
    std::int64_t layers = 0;
    std::set<std::int64_t> slots;
    std::set<std::int64_t> sizes;
    for (const StoredKv& entry : stored_) {
      if (!holds(static_cast<std::size_t>(line.figure.cache), entry)) continue;
      ++layers;
      sizes.insert(entry.token_bytes);
      slots.insert(held_.layers[static_cast<std::size_t>(entry.layer_idx)].tokens);
    }
    if (slots.size() != 1 || *slots.begin() == 0 || line.low == 0) return "";
    const auto whole = [&](std::int64_t count, std::int64_t unit) -> Int128 {
      const Int128 each = line.low * unit / count;
      const Int128 found = line.figure.high / each;
      return found > 0 && found * each >= line.figure.low ? found * unit : 0;
    };
    std::string text;
    if (const Int128 found = whole(layers, 1); found > 0 && sizes.size() == 1) {
      text = fmt::format("the bytes of {} layers instead of {}", to_string(found), layers);
    }
    // Caches have multiples of 32 cells at least.
    if (const Int128 found = whole(*slots.begin(), 32); found > 0) {
      text += fmt::format("{}the bytes of {} cells a layer instead of {}",
                          text.empty() ? "" : ", or ", to_string(found), *slots.begin());
    }
    return text;
  }

  static Equation of_figure(const CachePrediction& cache, LogFigureKind kind) {
    switch (kind) {
      case LogFigureKind::kCells:
        return cache.cells;
      case LogFigureKind::kLayers:
        return cache.layers;
      case LogFigureKind::kKeyBytes:
        return cache.k_bytes;
      case LogFigureKind::kValueBytes:
        return cache.v_bytes;
      default:
        return cache.k_bytes + cache.v_bytes;
    }
  }

  const AccountCase& about_;
  const Inputs& inputs_;
  const std::vector<StoredKv>& stored_;
  bool full_ = false;
  IswaCells cells_;
  Held held_;
  AccountPolicy policy_;
};

void attempt(const AccountCase& about, const Inputs& inputs, const HeldModel& model,
             const Policy& cells_by, bool full, AccountAttempts& tried) {
  try {
    tried.policies.push_back(Attempt(about, inputs, model, cells_by, full).result());
  } catch (const Error& error) {
    if (std::ranges::find(tried.notes, error.what()) == tried.notes.end()) {
      tried.notes.emplace_back(error.what());
    }
  }
}

std::string missing_note(const AccountCase& about, const HeldModel& model) {
  const std::vector<LogCache>& caches = about.start->caches;
  const bool only_full = std::ranges::all_of(
      caches, [](const LogCache& cache) { return cache.role == LogCache::Role::kFull; });
  const bool windows = std::ranges::any_of(
      model.stored(), [](const StoredKv& entry) { return entry.kind != EngineKind::kFull; });
  return only_full && windows ? "the log ends before the cache of the window layers" : "";
}

}  // namespace

AccountAttempts llama_attempts(const AccountCase& about) {
  ParameterList list(*about.start);
  const Inputs inputs = inputs_of(about, list);
  // Which type K and V have changes no cell.
  const HeldModel model(parse_policy("full"), about.table, about.shape, kv_dtype("f16"));
  AccountAttempts tried;
  tried.parameters = list.take();
  const bool one = about.start->caches.size() == 1 &&
                   about.start->caches.front().role == LogCache::Role::kUnnamed;
  const bool whole = one || about.start->settings.contains("swa_full");
  // 256 cells since windows have a cache of their own, less without flash attention and in between.
  for (const std::int64_t pad : {256, 32, 1}) {
    for (const bool unified : inputs.unified) {
      for (const std::int64_t ubatch : inputs.ubatches) {
        Policy policy = parse_policy("iswa");
        policy.params["pad"] = pad;
        policy.params["unified"] = unified ? 1 : 0;
        policy.params["seqs"] = inputs.seqs;
        policy.params["ubatch"] = ubatch;
        if (!whole) attempt(about, inputs, model, policy, false, tried);
        if (ubatch == inputs.ubatches.front()) attempt(about, inputs, model, policy, true, tried);
      }
    }
  }
  const std::string missing = missing_note(about, model);
  if (!missing.empty()) tried.notes.push_back(missing);
  return tried;
}

}  // namespace lacuna

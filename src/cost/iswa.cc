#include <fmt/format.h>

#include "cost/held_model.h"
#include "lacuna/error.h"

// llama.cpp's iSWA cache: cells for the whole context, in one cache for full layers and one for
// window layers (src/llama-kv-cache-iswa.cpp). Its chunked layers are windows of the chunk's size.

namespace lacuna {
namespace {

Equation padded(const Equation& cells, const Equation& pad) { return pad * ceil_div(cells, pad); }

// The one window of the table; nullptr: no layer has any.
const StoredKv* window_layer(const std::vector<StoredKv>& stored) {
  const StoredKv* found = nullptr;
  for (const StoredKv& entry : stored) {
    if (entry.kind == EngineKind::kFull) continue;
    if (found != nullptr && (found->kind != entry.kind || found->width != entry.width)) {
      throw Error(fmt::format(
          "layers {} and {} are {} and {} under policy iswa; allowed: one window size for all",
          found->layer_idx, entry.layer_idx, found->attend, entry.attend));
    }
    if (found == nullptr) found = &entry;
  }
  return found;
}

}  // namespace

IswaCells iswa_cells(const Policy& policy, std::int64_t width, std::int64_t max_length) {
  const bool unified = param(policy, "unified") != 0;
  const Equation pad("pad", param(policy, "pad"));
  const Equation seqs("seqs", param(policy, "seqs"));
  const Equation context = padded(Equation("n_ctx", max_length), pad);
  IswaCells result;
  // One stream for all sequences, or one for each.
  result.streams = unified ? Equation(1) : seqs;
  result.full = unified ? context : padded(floor_div(context, seqs), pad);
  if (result.full.value() == 0 && max_length > 0) {
    throw Error(
        fmt::format("{} cells are too few for {} streams under policy iswa; allowed: at least "
                    "one cell a sequence",
                    to_string(context.value()), to_string(seqs.value())));
  }
  const Equation window("W", width);
  const Equation ubatch("ubatch", param(policy, "ubatch"));
  const Equation live = unified ? window * seqs : window;
  result.window = padded(min(result.full.named("cells"), live + ubatch), pad);
  return result;
}

HeldParts iswa_parts(const Policy& policy, const std::vector<StoredKv>& stored,
                     std::int64_t max_length) {
  const StoredKv* window = window_layer(stored);
  const IswaCells cells = iswa_cells(policy, window == nullptr ? 0 : window->width, max_length);
  HeldParts result;
  result.chosen["streams"] = to_int64(cells.streams.value(), "streams");
  result.chosen["cells"] = to_int64(cells.full.value(), "cells of a stream");
  if (window != nullptr) {
    result.chosen["window_cells"] = to_int64(cells.window.value(), "window cells of a stream");
  }
  for (std::size_t idx = 0; idx < stored.size(); ++idx) {
    const StoredKv& entry = stored[idx];
    const Equation slots =
        cells.streams * (entry.kind == EngineKind::kFull ? cells.full : cells.window);
    const Equation token(entry.bytes_symbol, entry.token_bytes);
    result.parts.push_back({idx, slots * token, to_int64(slots.value(), "cells of a layer"), 1});
  }
  result.notes.push_back(fmt::format("bytes are of the whole context, {} cells for {} sequence(s)",
                                     max_length, param(policy, "seqs")));
  return result;
}

}  // namespace lacuna

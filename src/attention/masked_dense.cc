// The dense reference of the usual kind: all scores of a few rows, the mask, softmax, product.
#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <vector>

#include "attention/item.h"
#include "attention/ledger.h"
#include "attention/workspace.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
AlignedBytes allocate(std::int64_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(
      ::operator new[](static_cast<std::size_t>(bytes), std::align_val_t{64})));
}

// K and V of one KV head, packed whole, and the mask of one part's rows, all key tiles of it.
class DenseHead {
 public:
  DenseHead(const Call& call, std::span<const WorkItem* const> items, const ThreadSpace& thread)
      : call_(call),
        num_tiles_(num_key_tiles(call, items.front()->sequence)),
        k_(allocate(num_tiles_ * call.k_panel_lanes * 4)),
        v_(allocate(num_tiles_ * call.v_panel_lanes * 4)),
        positions_(static_cast<std::size_t>(num_tiles_ * kPanelKeys)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    const std::vector<std::uint16_t> read = keys_read_by(items);
    const KeyAddress address(call, items.front()->sequence, items.front()->kv_head);
    for (std::int64_t tile = 0; tile < num_tiles_; ++tile) {
      // Gathered even where they lie side by side: what no row reads becomes zeros.
      panels_.push_back(
          gather_panel(call, address, Positions(positions_.data() + tile * kPanelKeys, kPanelKeys),
                       read[static_cast<std::size_t>(tile)], {thread.k_panels, thread.v_panels},
                       {k_panel(tile), v_panel(tile)}));
    }
  }

  // Blocks that visit every tile; masks [num_tiles, num_tokens].
  void fill_blocks(std::vector<PanelBlock>& blocks, std::vector<const void*>& values,
                   std::vector<const std::uint16_t*>& masks_of_tiles,
                   const std::vector<std::uint16_t>& masks, std::int64_t num_tokens) const {
    blocks.assign(static_cast<std::size_t>(ceil_div(num_tiles_, kBlockPanels)), PanelBlock{});
    values.clear();
    masks_of_tiles.clear();
    for (std::int64_t tile = 0; tile < num_tiles_; ++tile) {
      PanelBlock& block = blocks[static_cast<std::size_t>(tile / kBlockPanels)];
      const int slot = block.num_panels++;
      block.k[slot] = panels_[static_cast<std::size_t>(tile)].k;
      block.v[slot] = panels_[static_cast<std::size_t>(tile)].v;
      block.masks[slot] = masks.data() + tile * num_tokens;
      block.non_finite[slot] = 0;
      block.positions[slot] = positions_.data() + tile * kPanelKeys;
      values.push_back(block.v[slot]);
      masks_of_tiles.push_back(block.masks[slot]);
    }
  }
  std::int64_t num_tiles() const { return num_tiles_; }

 private:
  // Bits of the keys that any row reads: others are zeros, and not touched.
  std::vector<std::uint16_t> keys_read_by(std::span<const WorkItem* const> items) const {
    std::vector<std::uint16_t> read(static_cast<std::size_t>(num_tiles_));
    for (const WorkItem* item : items) {
      for_each_part(call_.plan, *item, [&](const TilePart& part) { add_keys(read, part); });
    }
    const auto head = static_cast<std::size_t>(call_.kv_head_index(*items.front()));
    for (std::int64_t set : call_.plan.gathered_of_head[head]) {
      for (std::int64_t key : call_.plan.gathered_sets[static_cast<std::size_t>(set)]) {
        read[static_cast<std::size_t>(key / kPanelKeys)] |=
            static_cast<std::uint16_t>(1U << (key % kPanelKeys));
      }
    }
    return read;
  }

  void add_keys(std::vector<std::uint16_t>& read, const TilePart& part) const {
    RunCursor cursor(call_.plan, part.gathered_end, part.runs_end);
    for (std::int64_t block = cursor.block(); block != RunCursor::kNone; block = cursor.block()) {
      const VisitedPanels panels = cursor.take();
      for (std::uint32_t left = panels.visited; left != 0; left &= left - 1) {
        const int panel = std::countr_zero(left);
        read[static_cast<std::size_t>(block * kBlockPanels + panel)] |=
            keys_read(panels, panel, num_tokens(part));
      }
    }
  }

  std::uint32_t* k_panel(std::int64_t tile) const {
    return reinterpret_cast<std::uint32_t*>(k_.get()) + tile * call_.k_panel_lanes;
  }
  std::uint32_t* v_panel(std::int64_t tile) const {
    return reinterpret_cast<std::uint32_t*>(v_.get()) + tile * call_.v_panel_lanes;
  }

  const Call& call_;
  std::int64_t num_tiles_;
  AlignedBytes k_;
  AlignedBytes v_;
  std::vector<std::int64_t> positions_;
  std::vector<PanelPlace> panels_;
};

void add_run(std::vector<std::uint16_t>& masks, const Plan& plan, const TileRun& run,
             std::int64_t num_tokens) {
  for (std::int64_t tile = run.first; tile < run.first + run.count; ++tile) {
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      masks[static_cast<std::size_t>(tile * num_tokens + token)] |=
          run.mask == TileRun::kWhole ? std::uint16_t{0xffff}
                                      : plan.masks[static_cast<std::size_t>(run.mask + token)];
    }
  }
}

// The bits of a part's gathered run, at the tiles where those keys lie.
void add_gathered_run(std::vector<std::uint16_t>& masks, const Plan& plan, const TilePart& part,
                      const TileRun& run) {
  const auto& keys = plan.gathered_sets[static_cast<std::size_t>(part.gathered)];
  const std::int64_t tokens = num_tokens(part);
  for (std::int64_t ordinal = run.first * kPanelKeys;
       ordinal < std::min<std::int64_t>((run.first + run.count) * kPanelKeys,
                                        static_cast<std::int64_t>(keys.size()));
       ++ordinal) {
    const std::int64_t key = keys[static_cast<std::size_t>(ordinal)];
    for (std::int64_t token = 0; token < tokens; ++token) {
      const unsigned bits = run.mask == TileRun::kWhole
                                ? 0xffffU
                                : plan.masks[static_cast<std::size_t>(run.mask + token)];
      if ((bits >> (ordinal % kPanelKeys) & 1U) == 0) continue;
      masks[static_cast<std::size_t>(key / kPanelKeys * tokens + token)] |=
          static_cast<std::uint16_t>(1U << (key % kPanelKeys));
    }
  }
}

std::vector<std::uint16_t> mask_of(const Plan& plan, const TilePart& part, std::int64_t num_tiles) {
  std::vector<std::uint16_t> masks(static_cast<std::size_t>(num_tiles * num_tokens(part)));
  for (std::int64_t r = part.runs_begin; r < part.gathered_end; ++r) {
    add_gathered_run(masks, plan, part, plan.runs[static_cast<std::size_t>(r)]);
  }
  for (std::int64_t r = part.gathered_end; r < part.runs_end; ++r) {
    add_run(masks, plan, plan.runs[static_cast<std::size_t>(r)], num_tokens(part));
  }
  return masks;
}

class DenseRunner {
 public:
  DenseRunner(const Call& call, ThreadSpace& space, Ledger& ledger)
      : call_(call), space_(space), ledger_(ledger) {}

  // Items of one KV head, one after another.
  void run(std::span<const WorkItem* const> items, const Outputs& outputs) {
    if (items.empty()) return;
    const DenseHead head(call_, items, space_);
    for (const WorkItem* item : items) {
      if (call_.options.stop.stop_requested()) return;
      run_item(*item, head, outputs);
    }
  }

 private:
  void run_item(const WorkItem& item, const DenseHead& head, const Outputs& outputs) {
    for_each_part(call_.plan, item,
                  [&](const TilePart& part) { run_part(item, part, head, outputs); });
  }

  void run_part(const WorkItem& item, const TilePart& part, const DenseHead& head,
                const Outputs& outputs) {
    const PartWork work = start_part(call_, item, part, 0, 0, space_);
    const std::int64_t num_rows = work.rows.num_tokens * work.rows.num_heads;
    const std::vector<std::uint16_t> masks = mask_of(call_.plan, part, head.num_tiles());
    head.fill_blocks(blocks_, values_, masks_, masks, work.rows.num_tokens);
    scores_.resize(static_cast<std::size_t>(num_rows) * blocks_.size() * kBlockKeys);
    StateBlock state = space_.states[0];
    state.empty = true;
    const DensePanels dense = {blocks_.data(), static_cast<std::int64_t>(blocks_.size()),
                               values_.data(), masks_.data(), scores_.data()};
    call_.kernel.attend_dense(state, work.rows, dense, call_.shape, call_.rule(work.slopes));
    state.empty = blocks_.empty();
    write_rows(call_, item, work, state, outputs);
    const std::int64_t num_keys = call_.kv.lengths[static_cast<std::size_t>(item.sequence)];
    const std::int64_t pairs = num_rows * num_keys;
    ledger_.tiles += head.num_tiles();
    ledger_.executed_pairs += pairs;
    ledger_.exponentials += pairs + (call_.options.sink_logits.empty() ? 0 : num_rows);
    ledger_.loaded_keys += num_keys;
    for (std::uint16_t mask : masks) {
      ledger_.needed_pairs += std::popcount(mask) * work.rows.num_heads;
    }
  }

  const Call& call_;
  ThreadSpace& space_;
  Ledger& ledger_;
  std::vector<PanelBlock> blocks_;
  std::vector<const void*> values_;
  std::vector<const std::uint16_t*> masks_;
  std::vector<float> scores_;
};

// Each KV head's items in as many pieces as there are threads; a piece packs the head once.
std::vector<std::span<const WorkItem* const>> pieces_of(
    const std::vector<std::vector<const WorkItem*>>& items, std::int64_t num_threads) {
  std::vector<std::span<const WorkItem* const>> pieces;
  for (const auto& of_head : items) {
    const std::size_t size = (of_head.size() + static_cast<std::size_t>(num_threads) - 1) /
                             static_cast<std::size_t>(num_threads);
    for (std::size_t begin = 0; begin < of_head.size(); begin += size) {
      pieces.push_back(std::span(of_head).subspan(begin, std::min(size, of_head.size() - begin)));
    }
  }
  return pieces;
}

}  // namespace

std::optional<Ledger> masked_dense(const MutableTensorView& out, std::span<float> lse,
                                   const Plan& plan, const TensorView& q, const KvView& kv,
                                   const AttentionOptions& options) {
  AttentionOptions exactly = options;
  exactly.exact_kv = true;
  const Call call = make_call(plan, q, kv, exactly);
  check_output(call, out, lse);
  check_pages(call);
  const AlignedBytes bytes = allocate(Workspace(call, nullptr).size_bytes);
  Workspace space(call, bytes.get());
  const auto items = items_by_head(call);
  const auto pieces = pieces_of(items, call.num_threads);
  std::vector<Ledger> ledgers(static_cast<std::size_t>(call.num_threads));
  const auto make_worker = [&](std::size_t thread) {
    return [&, runner = DenseRunner(call, space.threads[thread], ledgers[thread])](
               std::size_t piece) mutable {
      runner.run(pieces[piece], {out, lse});
    };
  };
  const bool all = work_through(call, pieces.size(), make_worker);
  if (!all || options.stop.stop_requested()) return std::nullopt;
  Ledger total = sum_of(call, ledgers);
  for (std::int64_t length : kv.lengths) {
    total.distinct_bytes += length * plan.heads.num_kv_heads * key_bytes(kv);
  }
  return total;
}

}  // namespace lacuna

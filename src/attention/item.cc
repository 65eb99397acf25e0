#include "attention/item.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "attention/ledger.h"
#include "lacuna/kernels.h"

namespace lacuna {
namespace {

constexpr std::int64_t kBlocksOfSplit = kSplitTokens / kBlockKeys;
constexpr std::int64_t kGatheredSplit = -1;

const std::byte* q_vector(const Call& call, const RowPlace& place) {
  return static_cast<const std::byte*>(call.q.data) +
         call.q.offset(place.q_row, place.q_head) * size_bytes(call.q.dtype);
}

}  // namespace

PartWork start_part(const Call& call, const WorkItem& item, const TilePart& part,
                    std::int64_t first_row, std::int64_t part_idx, ThreadSpace& space) {
  const auto& heads = call.plan.head_sets[static_cast<std::size_t>(part.head_set)];
  const auto count = static_cast<std::int64_t>(heads.size());
  float* const slopes = space.slopes + part_idx * call.group;
  if (!call.options.alibi_slopes.empty()) {
    for (std::int64_t h = 0; h < count; ++h) {
      const std::int64_t q_head = item.kv_head * call.group + heads[static_cast<std::size_t>(h)];
      slopes[h] = call.options.alibi_slopes[static_cast<std::size_t>(q_head)];
    }
  }
  std::uint32_t* const q = space.q + first_row * call.shape.q_lanes;
  const std::int64_t bytes = call.q.shape[2] * size_bytes(call.q.dtype);
  // A few rows ahead, about 100 ns: rows of one KV head's queries lie apart.
  const std::int64_t ahead = call.q.strides[0] * std::max<std::int64_t>(1, 8 / count);
  for_each_row(call, item, part, [&](std::int64_t row, const RowPlace& place) {
    const std::byte* const vector = q_vector(call, place);
    // Past the end of q it asks for what is nobody's, which is allowed and without effect.
    if (call.q.strides[2] == 1) prefetch_vector(vector + ahead * size_bytes(call.q.dtype), bytes);
    call.kernel.pack_q(q + row * call.shape.q_lanes, vector, static_cast<ElementType>(call.q.dtype),
                       call.q.strides[2], call.q.shape[2]);
  });
  const RowBlock rows = {q, num_tokens(part), count, call.plan.rows.data() + part.rows_begin};
  return {&part, first_row, rows, slopes, {}, kGatheredSplit, 0, true, true, {}};
}

void fill_positions(std::int64_t* positions, std::int64_t block) {
  for (int idx = 0; idx < kBlockKeys; ++idx) positions[idx] = block * kBlockKeys + idx;
}

void fill_positions(std::int64_t* positions, std::span<const std::int64_t> gathered,
                    std::int64_t block) {
  for (int idx = 0; idx < kBlockKeys; ++idx) {
    const auto ordinal = static_cast<std::size_t>(block * kBlockKeys + idx);
    positions[idx] = ordinal < gathered.size() ? gathered[ordinal] : gathered.back();
  }
}

PanelBlock panel_block(const VisitedPanels& visited, const PanelPlace* places,
                       const std::int64_t* positions) {
  PanelBlock block;
  for (std::uint32_t left = visited.visited; left != 0; left &= left - 1) {
    const int panel = std::countr_zero(left);
    const int slot = block.num_panels++;
    block.k[slot] = places[panel].k;
    block.v[slot] = places[panel].v;
    block.masks[slot] = visited.masks[static_cast<std::size_t>(panel)];
    block.non_finite[slot] = places[panel].non_finite;
    block.positions[slot] = positions + panel * kPanelKeys;
    block.k_scales[slot] = places[panel].k_scales;
    block.v_scales[slot] = places[panel].v_scales;
  }
  return block;
}

namespace {

StateBlock rows_from(const StateBlock& all, std::int64_t row, std::int64_t o_stride, bool empty) {
  return {all.m + row, all.l + row * kPanelKeys, all.o + row * o_stride, empty};
}

}  // namespace

StateBlock ItemRunner::state(const PartWork& work, int which) const {
  return rows_from(space_.states[which], work.first_row, call_.o_stride(),
                   which == work.split_state ? work.split_empty : work.total_empty);
}

StateBlock ItemRunner::cut_state(const PartWork& work, std::int64_t idx) const {
  return rows_from(cut_->states, idx * cut_->num_rows + work.first_row, call_.o_stride(), false);
}

std::uint8_t& ItemRunner::is_filled(const PartWork& work, std::int64_t idx) const {
  return cut_->filled[idx * cut_->num_parts + (&work - space_.parts)];
}

// What the split at hand is gathered in; of a cut item it stays there until all pieces have ended.
StateBlock ItemRunner::split_state(const PartWork& work) const {
  if (cut_ == nullptr) return state(work, work.split_state);
  StateBlock of_split = cut_state(work, cut_->idx(work.split));
  of_split.empty = work.split_empty;
  return of_split;
}

void ItemRunner::start_parts(const WorkItem& item) {
  num_parts_ = 0;
  std::int64_t first_row = 0;
  for_each_part(call_.plan, item, [&](const TilePart& part) {
    PartWork& work = space_.parts[num_parts_];
    work = start_part(call_, item, part, first_row, num_parts_, space_);
    first_row += work.rows.num_tokens * work.rows.num_heads;
    ++num_parts_;
  });
}

// The state of the split that ends joins those before it, always in ascending order of splits.
void ItemRunner::fold_split(PartWork& work) {
  if (work.split_empty) return;
  if (cut_ != nullptr) {
    is_filled(work, cut_->idx(work.split)) = 1;
    work.split_empty = true;
    return;
  }
  const std::int64_t num_rows = work.rows.num_tokens * work.rows.num_heads;
  if (work.total_empty) {
    work.split_state = 1 - work.split_state;  // what was the split becomes the total
  } else {
    call_.kernel.merge(state(work, 1 - work.split_state), state(work, work.split_state), num_rows,
                       call_.o_stride(), call_.rule(work.slopes).unit());
  }
  work.total_empty = false;
  work.split_empty = true;
}

void ItemRunner::attend_part(PartWork& work, const PanelBlock& panels, std::int64_t split) {
  if (split != work.split) fold_split(work);
  work.split = split;
  call_.kernel.attend(split_state(work), work.rows, panels, call_.shape, call_.rule(work.slopes),
                      space_.scratch, &counts_);
  work.split_empty = false;
}

void ItemRunner::take_block(std::span<PartWork> parts, std::int64_t block) {
  for (PartWork& work : parts) {
    work.panels = work.cursor.block() == block ? work.cursor.take() : VisitedPanels{};
  }
}

std::int64_t ItemRunner::next_block(std::span<const PartWork> parts) {
  std::int64_t block = RunCursor::kNone;
  for (const PartWork& work : parts) block = std::min(block, work.cursor.block());
  return block;
}

void ItemRunner::attend_gathered(const WorkItem& item) {
  std::span<PartWork> left(space_.parts, static_cast<std::size_t>(num_parts_));
  for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
    const PlanTile& tile = call_.plan.tiles[static_cast<std::size_t>(t)];
    const auto count = static_cast<std::size_t>(tile.parts_end - tile.parts_begin);
    const std::span<PartWork> parts = left.first(count);
    left = left.subspan(count);
    std::int64_t done = -1;  // sets of a tile are few and taken in ascending order
    while (true) {
      std::int64_t set = INT64_MAX;
      for (const PartWork& work : parts) {
        if (work.part->gathered > done) set = std::min(set, work.part->gathered);
      }
      if (set == INT64_MAX) break;
      attend_gathered_set(parts, workspace_.gathered(item.sequence, item.kv_head, set));
      done = set;
    }
  }
}

void ItemRunner::attend_gathered_set(std::span<PartWork> parts, const GatheredPanels& gathered) {
  for (PartWork& work : parts) {
    const TilePart& part = *work.part;
    work.cursor = part.gathered == gathered.set
                      ? RunCursor(call_.plan, part.runs_begin, part.gathered_end)
                      : RunCursor();
  }
  const auto& keys = call_.plan.gathered_sets[static_cast<std::size_t>(gathered.set)];
  for (std::int64_t block = next_block(parts); block != RunCursor::kNone;
       block = next_block(parts)) {
    take_block(parts, block);
    const std::int64_t first = block * kBlockPanels;
    if (!call_.options.alibi_slopes.empty()) fill_positions(space_.positions, keys, block);
    std::uint32_t visited = 0;
    for (PartWork& work : parts) {
      if (work.panels.visited == 0) continue;
      visited |= work.panels.visited;
      attend_part(work, panel_block(work.panels, gathered.panels + first, space_.positions),
                  kGatheredSplit);
    }
    ledger_.loaded_keys += std::popcount(visited) * std::int64_t{kPanelKeys};
    gathered.executed.mark(block, visited);
  }
}

// Packs the panels of a block that the parts visit.
const PanelPlace* ItemRunner::pack_block(const WorkItem& item, std::int64_t block) {
  std::uint16_t read[kBlockPanels] = {};
  std::uint32_t visited = 0;
  std::uint32_t masked = 0;
  for (std::int64_t p = 0; p < num_parts_; ++p) {
    const PartWork& work = space_.parts[p];
    visited |= work.panels.visited;
    masked |= work.panels.masked;
    for (std::uint32_t left = work.panels.visited; left != 0; left &= left - 1) {
      const int panel = std::countr_zero(left);
      read[panel] |= keys_read(work.panels, panel, work.rows.num_tokens);
    }
  }
  const KeyAddress address(call_, item.sequence, item.kv_head);
  const bool strided = call_.kv.layout == KvLayout::kStrided;
  fill_positions(space_.positions, block);
  for (std::uint32_t left = visited; left != 0; left &= left - 1) {
    const int panel = std::countr_zero(left);
    if (strided && (left & (left - 1)) != 0) {
      const int next = std::countr_zero(left & (left - 1));
      prefetch_panel(call_, address, positions_of(space_, next), read[next]);
    }
    space_.panels[panel] =
        take_panel(call_, address, positions_of(space_, panel), read[panel],
                   (masked >> panel & 1U) != 0, panel_space(call_, space_, panel));
  }
  return space_.panels;
}

// The same of panels that the kernel reads where they lie.
const PanelPlace* ItemRunner::block_in_place(std::int64_t block) {
  std::uint32_t masked = 0;
  for (std::int64_t p = 0; p < num_parts_; ++p) masked |= space_.parts[p].panels.masked;
  for (std::uint32_t left = masked; left != 0; left &= left - 1) {
    find_non_finite(call_, at_hand().at[std::countr_zero(left)]);
  }
  if (!call_.options.alibi_slopes.empty()) fill_positions(space_.positions, block);
  return at_hand().at;
}

// What was found last becomes the block at hand; finds where the panels of the following one lie,
// to which the cursors come.
void ItemRunner::walk_to(std::int64_t block, PanelWalk& walk) {
  at_hand_ = 1 - at_hand_;
  following().visited = 0;
  if (block == RunCursor::kNone) return;
  for (const PartWork& work : std::span(space_.parts, static_cast<std::size_t>(num_parts_))) {
    if (work.cursor.block() == block) following().visited |= work.cursor.visited();
  }
  for (std::uint32_t left = following().visited; left != 0; left &= left - 1) {
    const int panel = std::countr_zero(left);
    walk.find(following().at[panel], block * kBlockKeys + panel * kPanelKeys);
  }
}

// What the kernel asks for while it computes the block at hand: its values, where they are read in
// place, and the keys of the next one; else both of the next. Scales of the next are few lines, and
// asked for here.
void ItemRunner::look_ahead() {
  const KvView& kv = call_.kv;
  const auto lines = [&](const KvStrides& strides) {
    return kPanelTokens * strides.token * size_bits(kv.dtype) / 8 / kLineBytes;
  };
  const auto scale_bytes = [&](std::int64_t dim) {
    return kPanelTokens * num_scales(kv.dtype, dim) * 2;
  };
  values_.num_panels = 0;
  values_.lines = lines(kv.v_strides);
  keys_.num_panels = 0;
  keys_.lines = lines(kv.k_strides);
  const BlockPanels& of_values = reads_packed(call_) ? at_hand() : following();
  for (std::uint32_t left = of_values.visited; left != 0; left &= left - 1) {
    values_.at[values_.num_panels++] = of_values.at[std::countr_zero(left)].v;
  }
  for (std::uint32_t left = following().visited; left != 0; left &= left - 1) {
    const PanelPlace& panel = following().at[std::countr_zero(left)];
    keys_.at[keys_.num_panels++] = panel.k;
    prefetch_vector(panel.k_scales, scale_bytes(kv.head_dim));
    prefetch_vector(panel.v_scales, scale_bytes(kv.v_head_dim));
  }
}

// Panels that the parts of one tile visited, each once for all of them.
void ItemRunner::count_loads(const WorkItem& item, std::int64_t block) {
  const PartWork* work = space_.parts;  // parts of a tile are neighbours
  std::uint32_t executed = 0;
  for (std::int64_t t = item.tiles_begin; t < item.tiles_end; ++t) {
    const PlanTile& tile = call_.plan.tiles[static_cast<std::size_t>(t)];
    std::uint32_t visited = 0;
    for (std::int64_t p = tile.parts_begin; p < tile.parts_end; ++p, ++work) {
      visited |= work->panels.visited;
    }
    ledger_.loaded_keys += std::popcount(visited) * std::int64_t{kPanelKeys};
    executed |= visited;
  }
  workspace_.executed_tiles[static_cast<std::size_t>(call_.kv_head_index(item))].mark(block,
                                                                                      executed);
}

void ItemRunner::attend_ordinary(const WorkPiece& piece, const WorkItem& item) {
  const std::span<PartWork> parts(space_.parts, static_cast<std::size_t>(num_parts_));
  const std::int64_t end = cut_ == nullptr ? RunCursor::kNone : piece.splits.end * kBlocksOfSplit;
  for (PartWork& work : parts) {
    work.cursor = RunCursor(call_.plan, work.part->gathered_end, work.part->runs_end);
    if (cut_ != nullptr) work.cursor.skip_to(piece.splits.begin * kBlocksOfSplit);
  }
  const auto block_before_end = [&] {
    const std::int64_t block = next_block(parts);
    return block < end ? block : RunCursor::kNone;
  };
  const bool packed = call_.kv.layout == KvLayout::kPacked;
  const bool in_place = reads_packed(call_);
  PanelWalk walk(call_, item.sequence, item.kv_head);
  std::int64_t next = block_before_end();
  if (packed) walk_to(next, walk);
  while (next != RunCursor::kNone) {
    const std::int64_t block = next;
    take_block(parts, block);
    next = block_before_end();
    if (packed) {
      walk_to(next, walk);
      look_ahead();
    }
    const PanelPlace* const places = in_place ? block_in_place(block) : pack_block(item, block);
    bool asks = packed;
    for (PartWork& work : parts) {
      if (work.panels.visited == 0) continue;
      PanelBlock panels = panel_block(work.panels, places, space_.positions);
      if (std::exchange(asks, false)) {
        panels.soon_in_scores = &values_;
        panels.soon_in_values = &keys_;
      }
      attend_part(work, panels, block / kBlocksOfSplit);
    }
    count_loads(item, block);
  }
}

void ItemRunner::start_piece(const WorkPiece& piece, const WorkItem& item) {
  counts_ = {};
  cut_ = piece.cut < 0 ? nullptr : &workspace_.cuts[static_cast<std::size_t>(piece.cut)];
  start_parts(item);
  if (cut_ == nullptr) {
    attend_gathered(item);
    return;
  }
  const bool is_first = piece.splits.begin == cut_->first_split;
  const std::int64_t begin = is_first ? 0 : cut_->idx(piece.splits.begin);
  const std::int64_t end = cut_->idx(piece.splits.end);
  std::fill_n(cut_->filled + begin * cut_->num_parts, (end - begin) * cut_->num_parts,
              std::uint8_t{0});
  if (is_first) attend_gathered(item);
}

// The states of a cut item in ascending order, as if it were whole.
StateBlock ItemRunner::merged_state(PartWork& work) const {
  StateBlock total = cut_state(work, 0);
  total.empty = true;
  const std::int64_t num_rows = work.rows.num_tokens * work.rows.num_heads;
  for (std::int64_t idx = 0; idx < cut_->num_states; ++idx) {
    if (is_filled(work, idx) == 0) continue;
    if (total.empty) {
      total = cut_state(work, idx);
    } else {
      call_.kernel.merge(total, cut_state(work, idx), num_rows, call_.o_stride(),
                         call_.rule(work.slopes).unit());
    }
  }
  return total;
}

void ItemRunner::write(const WorkItem& item, const PartWork& work, const StateBlock& state,
                       const Outputs& outputs) {
  write_rows(call_, item, work, state, outputs);
  if (call_.options.sink_logits.empty()) return;
  ledger_.exponentials += work.rows.num_tokens * work.rows.num_heads;
}

void ItemRunner::run(const WorkPiece& piece, const Outputs& outputs) {
  const WorkItem& item = call_.plan.items[static_cast<std::size_t>(piece.item)];
  start_piece(piece, item);
  attend_ordinary(piece, item);
  const std::span<PartWork> parts(space_.parts, static_cast<std::size_t>(num_parts_));
  for (PartWork& work : parts) fold_split(work);
  add(ledger_, counts_);
  if (cut_ == nullptr) {
    for (PartWork& work : parts) write(item, work, state(work, 1 - work.split_state), outputs);
    return;
  }
  const std::atomic_ref<std::int64_t> left(*cut_->pieces_left);
  if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  for (PartWork& work : parts) write(item, work, merged_state(work), outputs);
}

std::vector<std::vector<const WorkItem*>> items_by_head(const Call& call) {
  std::vector<std::vector<const WorkItem*>> items(call.plan.gathered_of_head.size());
  for (const WorkItem& item : call.plan.items) {
    items[static_cast<std::size_t>(call.kv_head_index(item))].push_back(&item);
  }
  for (auto& of_head : items) {
    std::sort(of_head.begin(), of_head.end(),
              [](const WorkItem* a, const WorkItem* b) { return a->tiles_begin < b->tiles_begin; });
  }
  return items;
}

}  // namespace lacuna

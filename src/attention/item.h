#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/call.h"
#include "attention/workspace.h"
#include "lacuna/attention.h"

namespace lacuna {

// What a call writes; lse may be empty.
struct Outputs {
  const MutableTensorView& out;
  std::span<float> lse;
};

// Computes pieces of work on one thread: packs each block of keys once for all parts of the item,
// lets each part attend to it, merges states at multiples of kSplitTokens, and writes the rows; of
// a cut item, where it ends the last piece.
class ItemRunner {
 public:
  ItemRunner(const Call& call, const Workspace& workspace, ThreadSpace& space, Ledger& ledger)
      : call_(call), workspace_(workspace), space_(space), ledger_(ledger) {}

  void run(const WorkPiece& piece, const Outputs& outputs);

 private:
  void start_piece(const WorkPiece& piece, const WorkItem& item);
  void start_parts(const WorkItem& item);
  void attend_gathered(const WorkItem& item);
  void attend_gathered_set(std::span<PartWork> parts, const GatheredPanels& gathered);
  void attend_ordinary(const WorkPiece& piece, const WorkItem& item);
  static std::int64_t next_block(std::span<const PartWork> parts);
  static void take_block(std::span<PartWork> parts, std::int64_t block);
  const PanelPlace* pack_block(const WorkItem& item, std::int64_t block);
  const PanelPlace* block_in_place(std::int64_t block);
  void walk_to(std::int64_t block, PanelWalk& walk);
  void look_ahead();
  void attend_part(PartWork& work, const PanelBlock& panels, std::int64_t split);
  void fold_split(PartWork& work);
  StateBlock state(const PartWork& work, int which) const;
  StateBlock split_state(const PartWork& work) const;
  StateBlock cut_state(const PartWork& work, std::int64_t idx) const;
  std::uint8_t& is_filled(const PartWork& work, std::int64_t idx) const;
  StateBlock merged_state(PartWork& work) const;
  void write(const WorkItem& item, const PartWork& work, const StateBlock& state,
             const Outputs& outputs);
  void count_loads(const WorkItem& item, std::int64_t block);

  const Call& call_;
  const Workspace& workspace_;
  ThreadSpace& space_;
  Ledger& ledger_;
  KernelCounts counts_;
  std::int64_t num_parts_ = 0;
  const CutStates* cut_ = nullptr;  // of the item at hand, where it is cut
  // Packed views: panels of the block at hand and of the next one, as they lie in memory, and
  // which of them are to be asked for.
  BlockPanels blocks_[2];
  int at_hand_ = 0;
  BlockPanels& at_hand() { return blocks_[at_hand_]; }
  BlockPanels& following() { return blocks_[1 - at_hand_]; }
  SoonPanels values_;
  SoonPanels keys_;
};

// Packs the rows of a part: q, positions, slopes. `rows` begins at lane first_row of the space.
PartWork start_part(const Call& call, const WorkItem& item, const TilePart& part,
                    std::int64_t first_row, std::int64_t part_idx, ThreadSpace& space);
// Where a row of a part lies in q, out and lse.
struct RowPlace {
  std::int64_t q_row;  // over the packed sequences
  std::int64_t q_head;
};
// Calls visit(row, place) for the part's rows in their order: token-major.
template <typename Visit>
void for_each_row(const Call& call, const WorkItem& item, const TilePart& part,
                  const Visit& visit) {
  const auto s = static_cast<std::size_t>(item.sequence);
  const std::int64_t first = call.plan.indptr[s] - call.plan.sequences[s].rows.begin;
  const auto& heads = call.plan.head_sets[static_cast<std::size_t>(part.head_set)];
  std::int64_t row = 0;
  for (std::int64_t token = part.rows_begin; token < part.rows_end; ++token) {
    const std::int64_t q_row = first + call.plan.rows[static_cast<std::size_t>(token)];
    for (int head : heads) visit(row++, RowPlace{q_row, item.kv_head * call.group + head});
  }
}

// Items of each KV head of each sequence, in ascending order of their tiles.
std::vector<std::vector<const WorkItem*>> items_by_head(const Call& call);

// Writes out and lse of a part's rows from its state; a learned sink enters here.
void write_rows(const Call& call, const WorkItem& item, const PartWork& work,
                const StateBlock& state, const Outputs& outputs);

// The visited panels of a block as the kernel takes them; places and positions are the block's.
PanelBlock panel_block(const VisitedPanels& visited, const PanelPlace* places,
                       const std::int64_t* positions);

inline Positions positions_of(const ThreadSpace& space, int panel) {
  return Positions(space.positions + panel * kPanelKeys, kPanelKeys);
}

// Positions of a block's keys; of gathered ones, past the end of the set, the last key's.
void fill_positions(std::int64_t* positions, std::int64_t block);
void fill_positions(std::int64_t* positions, std::span<const std::int64_t> gathered,
                    std::int64_t block);

}  // namespace lacuna

// Column mass: a second pass over the tiles of run(), keys outer and query tiles inner, so that
// each key's sum belongs to one thread and is taken in ascending order of tiles.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "attention/item.h"
#include "attention/ledger.h"
#include "attention/workspace.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"

namespace lacuna {
namespace {

// The keys of one KV head that one thread sums: a split of ordinary ones, or a gathered set.
struct MassUnit {
  std::int64_t head_idx;  // sequence · num_kv_heads + kv_head
  std::int64_t begin;     // blocks
  std::int64_t end;
  std::int64_t gathered;  // set, or -1
};

// mass [num_q_heads, Σ lengths], and where each sequence's keys begin in it: [num_sequences + 1].
struct MassOutput {
  std::span<float> mass;
  std::span<const std::int64_t> first_keys;
};

class MassRunner {
 public:
  MassRunner(const Call& call, const Workspace& workspace, ThreadSpace& space,
             std::span<const float> lse, const MassOutput& output, Ledger& ledger)
      : call_(call),
        workspace_(workspace),
        space_(space),
        lse_(lse),
        output_(output),
        ledger_(ledger) {}

  void run(const MassUnit& unit, std::span<const WorkItem* const> items) {
    for (std::int64_t block = unit.begin; block < unit.end; ++block) run_block(unit, block, items);
  }

 private:
  RunCursor cursor_at(const MassUnit& unit, const TilePart& part, std::int64_t block) const {
    const bool gathered = unit.gathered >= 0;
    if (gathered && part.gathered != unit.gathered) return {};
    RunCursor cursor(call_.plan, gathered ? part.runs_begin : part.gathered_end,
                     gathered ? part.gathered_end : part.runs_end);
    cursor.skip_to(block);
    return cursor.block() == block ? cursor : RunCursor();
  }

  template <typename Visit>
  void for_each_reader(const MassUnit& unit, std::int64_t block,
                       std::span<const WorkItem* const> items, const Visit& visit) {
    for (const WorkItem* item : items) {
      for_each_part(call_.plan, *item, [&](const TilePart& part) {
        RunCursor cursor = cursor_at(unit, part, block);
        if (cursor.block() == block) visit(*item, part, cursor.take());
      });
    }
  }

  void run_block(const MassUnit& unit, std::int64_t block, std::span<const WorkItem* const> items) {
    VisitedPanels all;
    std::uint16_t read[kBlockPanels] = {};
    for_each_reader(unit, block, items,
                    [&](const WorkItem&, const TilePart& part, const VisitedPanels& visited) {
                      all.visited |= visited.visited;
                      for (std::uint32_t left = visited.visited; left != 0; left &= left - 1) {
                        const int panel = std::countr_zero(left);
                        read[panel] |= keys_read(visited, panel, num_tokens(part));
                      }
                    });
    if (all.visited == 0) return;
    take_panels(unit, block, all.visited, read);
    for_each_reader(unit, block, items,
                    [&](const WorkItem& item, const TilePart& part, const VisitedPanels& visited) {
                      add_part(item, part, visited);
                    });
  }

  void take_panels(const MassUnit& unit, std::int64_t block, std::uint32_t visited,
                   const std::uint16_t* read) {
    const std::int64_t sequence = unit.head_idx / call_.plan.heads.num_kv_heads;
    const std::int64_t kv_head = unit.head_idx % call_.plan.heads.num_kv_heads;
    ledger_.loaded_keys += std::popcount(visited) * std::int64_t{kPanelKeys};
    ExecutedTiles executed = workspace_.executed_tiles[static_cast<std::size_t>(unit.head_idx)];
    if (unit.gathered >= 0) {
      const GatheredPanels& gathered = workspace_.gathered(sequence, kv_head, unit.gathered);
      fill_positions(space_.positions,
                     call_.plan.gathered_sets[static_cast<std::size_t>(unit.gathered)], block);
      const std::int64_t count = num_panels(call_.plan, unit.gathered) - block * kBlockPanels;
      std::copy_n(gathered.panels + block * kBlockPanels,
                  std::min<std::int64_t>(count, kBlockPanels), space_.panels);
      executed = gathered.executed;
    } else {
      fill_positions(space_.positions, block);
    }
    executed.mark(block, visited);
    if (unit.gathered >= 0) return;
    const KeyAddress address(call_, sequence, kv_head);
    for (; visited != 0; visited &= visited - 1) {
      const int panel = std::countr_zero(visited);
      space_.panels[panel] = take_panel(call_, address, positions_of(space_, panel), read[panel],
                                        false, panel_space(call_, space_, panel));
    }
  }

  void add_part(const WorkItem& item, const TilePart& part, const VisitedPanels& visited) {
    const PartWork work = start_part(call_, item, part, 0, 0, space_);
    for_each_row(call_, item, part, [&](std::int64_t row, const RowPlace& place) {
      const std::int64_t at = place.q_row * call_.q.shape[1] + place.q_head;
      space_.lse2[row] = lse_[static_cast<std::size_t>(at)] * 1.44269504F;
    });
    const PanelBlock panels = panel_block(visited, space_.panels, space_.positions);
    const std::int64_t sums_stride = std::int64_t{panels.num_panels} * kPanelKeys;
    std::fill_n(space_.sums, work.rows.num_heads * sums_stride, 0.0F);
    KernelCounts counts;
    call_.kernel.mass(space_.sums, space_.lse2, work.rows, panels, call_.shape,
                      call_.rule(work.slopes), space_.scratch, &counts);
    add(ledger_, counts);
    const float* sums = space_.sums;
    for (int head : call_.plan.head_sets[static_cast<std::size_t>(part.head_set)]) {
      scatter(item.sequence, item.kv_head * call_.group + head, visited.visited, sums);
      sums += sums_stride;
    }
  }

  void scatter(std::int64_t sequence, std::int64_t q_head, std::uint32_t visited,
               const float* sums) {
    const std::int64_t length = call_.kv.lengths[static_cast<std::size_t>(sequence)];
    const std::int64_t first = output_.first_keys[static_cast<std::size_t>(sequence)];
    float* const to = output_.mass.data() + q_head * output_.first_keys.back() + first;
    for (; visited != 0; visited &= visited - 1, sums += kPanelKeys) {
      const std::int64_t* const positions =
          space_.positions + std::countr_zero(visited) * kPanelKeys;
      for (int idx = 0; idx < kPanelKeys; ++idx) {
        if (positions[idx] < length) to[positions[idx]] += sums[idx];
      }
    }
  }

  const Call& call_;
  const Workspace& workspace_;
  ThreadSpace& space_;
  std::span<const float> lse_;
  MassOutput output_;
  Ledger& ledger_;
};

std::vector<MassUnit> ordinary_units(const Call& call) {
  constexpr std::int64_t kBlocks = kSplitTokens / kBlockKeys;
  std::vector<MassUnit> units;
  for (std::size_t head = 0; head < call.plan.gathered_of_head.size(); ++head) {
    const auto head_idx = static_cast<std::int64_t>(head);
    const std::int64_t num_blocks =
        ceil_div(num_key_tiles(call, head_idx / call.plan.heads.num_kv_heads), kBlockPanels);
    for (std::int64_t begin = 0; begin < num_blocks; begin += kBlocks) {
      units.push_back({head_idx, begin, std::min(begin + kBlocks, num_blocks), -1});
    }
  }
  return units;
}

std::vector<MassUnit> gathered_units(const Call& call) {
  std::vector<MassUnit> units;
  for (std::size_t head = 0; head < call.plan.gathered_of_head.size(); ++head) {
    for (std::int64_t set : call.plan.gathered_of_head[head]) {
      const std::int64_t num_blocks = ceil_div(num_panels(call.plan, set), kBlockPanels);
      units.push_back({static_cast<std::int64_t>(head), 0, num_blocks, set});
    }
  }
  return units;
}

std::vector<std::int64_t> first_keys_of(const KvView& kv) {
  std::vector<std::int64_t> first_keys = {0};
  for (std::int64_t length : kv.lengths) first_keys.push_back(first_keys.back() + length);
  return first_keys;
}

void check_mass(const Call& call, std::span<float> mass, std::span<const float> lse,
                std::int64_t num_keys) {
  const std::int64_t num_mass = num_keys * call.plan.heads.num_q_heads;
  if (static_cast<std::int64_t>(mass.size()) != num_mass) {
    throw Error(fmt::format("the size of mass is {}; allowed: query heads × keys = {}", mass.size(),
                            num_mass));
  }
  const std::int64_t num_lse = call.q.shape[0] * call.q.shape[1];
  if (static_cast<std::int64_t>(lse.size()) != num_lse) {
    throw Error(
        fmt::format("the size of lse is {}; allowed: rows × heads = {}", lse.size(), num_lse));
  }
}

}  // namespace

std::optional<Ledger> column_mass(std::span<float> mass, const Plan& plan, const TensorView& q,
                                  const KvView& kv, std::span<const float> lse,
                                  std::span<std::byte> workspace, const AttentionOptions& options) {
  const Call call = make_call(plan, q, kv, options);
  const std::vector<std::int64_t> first_keys = first_keys_of(kv);
  check_mass(call, mass, lse, first_keys.back());
  check_pages(call);
  Workspace space = checked_workspace(call, workspace);
  prepare(call, space);
  std::fill(mass.begin(), mass.end(), 0.0F);
  const auto items = items_by_head(call);
  std::vector<Ledger> ledgers(static_cast<std::size_t>(call.num_threads));
  // Gathered keys after the ordinary ones: both may add to one key.
  for (const std::vector<MassUnit>& units : {ordinary_units(call), gathered_units(call)}) {
    const auto make_worker = [&](std::size_t thread) {
      return [&, runner = MassRunner(call, space, space.threads[thread], lse, {mass, first_keys},
                                     ledgers[thread])](std::size_t unit) mutable {
        runner.run(units[unit], items[static_cast<std::size_t>(units[unit].head_idx)]);
      };
    };
    if (!work_through(call, units.size(), make_worker)) return std::nullopt;
  }
  return total_ledger(call, space, ledgers);
}

}  // namespace lacuna

#include "attention/workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

StateBlock state_space(const Call& call, std::int64_t num_rows, Carver& carver) {
  return {carver.take<float>(num_rows), carver.take<float>(num_rows * kPanelKeys),
          carver.take<float>(num_rows * call.o_stride()), true};
}

ThreadSpace thread_space(const Call& call, Carver& carver) {
  ThreadSpace space;
  space.k_panels = carver.take<std::uint32_t>(kBlockPanels * call.k_panel_lanes);
  space.v_panels = carver.take<std::uint32_t>(kBlockPanels * call.v_panel_lanes);
  space.q = carver.take<std::uint32_t>(call.max_rows * call.shape.q_lanes);
  for (StateBlock& state : space.states) state = state_space(call, call.max_rows, carver);
  space.scratch = carver.take<float>(kScratchLanes);
  space.slopes = carver.take<float>(call.max_parts * call.group);
  space.positions = carver.take<std::int64_t>(kBlockKeys);
  space.parts = carver.take<PartWork>(call.max_parts);
  space.lse2 = carver.take<float>(call.max_rows);
  space.sums = carver.take<float>(call.group * kBlockKeys);
  return space;
}

GatheredPanels gathered_space(const Call& call, std::int64_t head_idx, std::int64_t set,
                              Carver& carver) {
  const std::int64_t panels = num_panels(call.plan, set);
  const std::int64_t num_kv_heads = call.plan.heads.num_kv_heads;
  GatheredPanels space = {head_idx / num_kv_heads, head_idx % num_kv_heads, set};
  space.k = carver.take<std::uint32_t>(panels * call.k_panel_lanes);
  space.v = carver.take<std::uint32_t>(panels * call.v_panel_lanes);
  space.panels = carver.take<PanelPlace>(panels);
  space.executed = ExecutedTiles(panels, carver);
  return space;
}

CutStates cut_space(const Call& call, const ItemCut& cut, Carver& carver) {
  const WorkItem& item = call.plan.items[static_cast<std::size_t>(cut.item)];
  CutStates space;
  space.first_split = cut.splits.begin;
  space.num_states = 1 + cut.splits.end - cut.splits.begin;
  for_each_part(call.plan, item, [&](const TilePart& part) {
    space.num_rows += num_tokens(part) * num_heads(call.plan, part);
    ++space.num_parts;
  });
  space.states = state_space(call, space.num_states * space.num_rows, carver);
  space.filled = carver.take<std::uint8_t>(space.num_states * space.num_parts);
  space.pieces_left = carver.take<std::int64_t>(1);
  return space;
}

void pack_gathered(const Call& call, const GatheredPanels& gathered, std::int64_t panel,
                   const ThreadSpace& thread) {
  const auto& keys = call.plan.gathered_sets[static_cast<std::size_t>(gathered.set)];
  const auto num_keys = static_cast<std::int64_t>(keys.size());
  std::array<std::int64_t, kPanelKeys> positions = {};
  unsigned read = 0;
  for (int idx = 0; idx < kPanelKeys && panel * kPanelKeys + idx < num_keys; ++idx) {
    positions[static_cast<std::size_t>(idx)] =
        keys[static_cast<std::size_t>(panel * kPanelKeys + idx)];
    read |= 1U << idx;
  }
  const KeyAddress address(call, gathered.sequence, gathered.kv_head);
  const PanelSpace space = {gathered.k + panel * call.k_panel_lanes,
                            gathered.v + panel * call.v_panel_lanes};
  gathered.panels[panel] = gather_panel(call, address, positions, static_cast<std::uint16_t>(read),
                                        {thread.k_panels, thread.v_panels}, space);
}

}  // namespace

Workspace::Workspace(const Call& call, std::byte* base) {
  Carver carver(base);
  for (std::int64_t thread = 0; thread < call.num_threads; ++thread) {
    threads.push_back(thread_space(call, carver));
  }
  const Plan& plan = call.plan;
  for (std::size_t head = 0; head < plan.gathered_of_head.size(); ++head) {
    const auto head_idx = static_cast<std::int64_t>(head);
    executed_tiles.emplace_back(num_key_tiles(call, head_idx / plan.heads.num_kv_heads), carver);
    for (std::int64_t set : plan.gathered_of_head[head]) {
      gathered_panels.push_back(gathered_space(call, head_idx, set, carver));
    }
  }
  for (const ItemCut& cut : plan.cuts) cuts.push_back(cut_space(call, cut, carver));
  size_bytes = carver.used();
}

PanelSpace panel_space(const Call& call, const ThreadSpace& space, int panel) {
  return {space.k_panels + panel * call.k_panel_lanes, space.v_panels + panel * call.v_panel_lanes};
}

const GatheredPanels& Workspace::gathered(std::int64_t sequence, std::int64_t kv_head,
                                          std::int64_t set) const {
  return *std::find_if(
      gathered_panels.begin(), gathered_panels.end(), [&](const GatheredPanels& panels) {
        return panels.sequence == sequence && panels.kv_head == kv_head && panels.set == set;
      });
}

Workspace checked_workspace(const Call& call, std::span<std::byte> memory) {
  constexpr std::uintptr_t kAlignment = 64;
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment != 0) {
    throw Error(fmt::format("the workspace is at {}; allowed: multiples of {} bytes",
                            static_cast<const void*>(memory.data()), kAlignment));
  }
  Workspace workspace(call, memory.data());
  if (static_cast<std::int64_t>(memory.size()) < workspace.size_bytes) {
    throw Error(fmt::format("the workspace has {} bytes; allowed: at least {}", memory.size(),
                            workspace.size_bytes));
  }
  return workspace;
}

void prepare(const Call& call, Workspace& workspace) {
  for (const ExecutedTiles& tiles : workspace.executed_tiles) tiles.clear();
  for (const GatheredPanels& gathered : workspace.gathered_panels) gathered.executed.clear();
  for (std::size_t cut = 0; cut < workspace.cuts.size(); ++cut) {
    *workspace.cuts[cut].pieces_left = call.plan.cuts[cut].num_pieces;
  }
  if (workspace.gathered_panels.empty()) return;
  on_threads(call, [&](std::int64_t thread) {
    std::int64_t panel_idx = 0;
    for (const GatheredPanels& gathered : workspace.gathered_panels) {
      const std::int64_t count = num_panels(call.plan, gathered.set);
      for (std::int64_t panel = 0; panel < count; ++panel, ++panel_idx) {
        if (panel_idx % call.num_threads == thread) {
          pack_gathered(call, gathered, panel, workspace.threads[static_cast<std::size_t>(thread)]);
        }
      }
    }
  });
}

}  // namespace lacuna

#include "plan/head_tiles.h"

#include <algorithm>

namespace lacuna {
namespace {

void append_part(Draft& draft, TilePart part, std::int64_t head_set) {
  part.head_set = head_set;
  draft.plan().parts.push_back(part);
}

void close_tile(Draft& draft, std::int64_t parts_begin) {
  const std::int64_t parts_end = std::ssize(draft.plan().parts);
  if (parts_begin < parts_end) draft.plan().tiles.push_back({parts_begin, parts_end});
}

void append_ordinary(Draft& draft, const SequenceStrips& strips,
                     std::span<const HeadClass> classes) {
  for (std::size_t t = 0; t < static_cast<std::size_t>(strips.num_tiles); ++t) {
    const std::int64_t parts_begin = std::ssize(draft.plan().parts);
    for (const HeadClass& one : classes) {
      const TilePart& part = strips.strips[one.topology].ordinary[t];
      if (part.rows_begin < part.rows_end) append_part(draft, part, one.head_set);
    }
    close_tile(draft, parts_begin);
  }
}

// Classes with the same global rows are one there: those rows read all they may.
void append_global(Draft& draft, const SequenceStrips& strips, std::span<const HeadClass> classes) {
  for (std::size_t g = 0; g < strips.globals.size(); ++g) {
    std::vector<int> heads;
    for (const HeadClass& one : classes) {
      if (strips.strips[one.topology].global != g) continue;
      heads.insert(heads.end(), one.heads.begin(), one.heads.end());
    }
    if (heads.empty()) continue;
    std::sort(heads.begin(), heads.end());
    const std::int64_t head_set = draft.head_set(heads);
    for (const TilePart& part : strips.globals[g].parts) {
      const std::int64_t parts_begin = std::ssize(draft.plan().parts);
      append_part(draft, part, head_set);
      close_tile(draft, parts_begin);
    }
  }
}

std::vector<std::int64_t> gathered_of(const Plan& plan, std::int64_t parts_begin) {
  std::vector<std::int64_t> sets;
  for (auto part = plan.parts.begin() + parts_begin; part != plan.parts.end(); ++part) {
    if (part->gathered >= 0 && std::ranges::find(sets, part->gathered) == sets.end()) {
      sets.push_back(part->gathered);
    }
  }
  std::ranges::sort(sets);
  return sets;
}

}  // namespace

HeadTiles append_tiles(Draft& draft, const SequenceStrips& strips,
                       std::span<const HeadClass> classes) {
  const std::int64_t parts_begin = std::ssize(draft.plan().parts);
  HeadTiles tiles;
  tiles.begin = std::ssize(draft.plan().tiles);
  append_ordinary(draft, strips, classes);
  tiles.global_begin = std::ssize(draft.plan().tiles);
  append_global(draft, strips, classes);
  tiles.end = std::ssize(draft.plan().tiles);
  tiles.gathered = gathered_of(draft.plan(), parts_begin);
  return tiles;
}

}  // namespace lacuna

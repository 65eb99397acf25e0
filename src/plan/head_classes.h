#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lacuna/plan.h"
#include "plan/draft.h"
#include "plan/strip.h"

namespace lacuna {

// Query heads of one KV head that share a topology.
struct HeadClass {
  std::size_t topology = 0;  // into HeadClasses::topologies
  std::vector<int> heads;    // inside the group, ascending
  std::int64_t head_set = 0;
};

// How the heads of a call fall into classes.
struct HeadClasses {
  std::vector<TopologyParts> topologies;       // the different ones
  std::vector<std::vector<HeadClass>> groups;  // the different partitions of a KV head's group
  std::vector<std::size_t> group_of_kv_head;
};

// `topologies` holds one for all query heads, or one for each.
HeadClasses head_classes(Draft& draft, std::span<const Topology> topologies);

// All query heads of a KV head as one class.
std::vector<HeadClass> one_class(Draft& draft);

}  // namespace lacuna

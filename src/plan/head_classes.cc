#include "plan/head_classes.h"

#include <algorithm>
#include <numeric>

namespace lacuna {
namespace {

// Query heads of a KV head by topology, classes in the order of their first head.
std::vector<HeadClass> classes_of_group(Draft& draft, std::span<const std::size_t> topologies) {
  std::vector<HeadClass> classes;
  for (std::size_t head = 0; head < topologies.size(); ++head) {
    auto known = std::ranges::find(classes, topologies[head], &HeadClass::topology);
    if (known == classes.end()) known = classes.insert(known, {topologies[head], {}, 0});
    known->heads.push_back(static_cast<int>(head));
  }
  for (HeadClass& one : classes) one.head_set = draft.head_set(one.heads);
  return classes;
}

bool same_classes(std::span<const HeadClass> a, std::span<const HeadClass> b) {
  return std::ranges::equal(a, b, [](const HeadClass& x, const HeadClass& y) {
    return x.topology == y.topology && x.head_set == y.head_set;
  });
}

}  // namespace

HeadClasses head_classes(Draft& draft, std::span<const Topology> topologies) {
  HeadClasses result;
  const HeadCounts heads = draft.plan().heads;
  const auto num_kv_heads = static_cast<std::size_t>(heads.num_kv_heads);
  if (topologies.size() == 1) {
    result.topologies = {parts_of(topologies.front())};
    result.groups = {one_class(draft)};
    result.group_of_kv_head.assign(num_kv_heads, 0);
    return result;
  }
  std::vector<std::size_t> topology_of_head;
  for (const Topology& topology : topologies) {
    auto known = std::ranges::find(result.topologies, topology, &TopologyParts::whole);
    if (known == result.topologies.end()) {
      known = result.topologies.insert(known, parts_of(topology));
    }
    topology_of_head.push_back(static_cast<std::size_t>(known - result.topologies.begin()));
  }
  const std::size_t group_size = topologies.size() / num_kv_heads;
  for (std::size_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
    std::vector<HeadClass> classes = classes_of_group(
        draft, std::span(topology_of_head).subspan(kv_head * group_size, group_size));
    auto known = std::ranges::find_if(
        result.groups, [&](const auto& group) { return same_classes(group, classes); });
    if (known == result.groups.end()) {
      known = result.groups.insert(known, std::move(classes));
    }
    result.group_of_kv_head.push_back(static_cast<std::size_t>(known - result.groups.begin()));
  }
  return result;
}

std::vector<HeadClass> one_class(Draft& draft) {
  const HeadCounts heads = draft.plan().heads;
  std::vector<int> all(static_cast<std::size_t>(heads.num_q_heads / heads.num_kv_heads));
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t head_set = draft.head_set(all);
  return {{0, std::move(all), head_set}};
}

}  // namespace lacuna

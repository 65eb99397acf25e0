#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compare.h"
#include "generate.h"
#include "lacuna/attend.h"
#include "lacuna/layer_table.h"
#include "lacuna/topology.h"
#include "oracle.h"

// Heads that differ inside a layer, and what a KV head is read for, against the oracle.

namespace lacuna {
namespace {

// A layer of up to 6 query heads, in one group or split.
Attend any_heads(bool causal, int num_q_heads) {
  const auto groups = *rc::gen::inRange(1, 4).as("groups");
  Attend attend;
  for (int g = 0; g < groups; ++g) {
    attend.groups.push_back({{}, *generate::attend(causal, 1, 2).as("attend")});
  }
  if (groups == 1) return attend;
  for (std::int64_t h = 0; h < num_q_heads; ++h) {
    attend.groups[static_cast<std::size_t>(h % groups)].heads.push_back(h);
  }
  while (!attend.groups.empty() && attend.groups.back().heads.empty()) attend.groups.pop_back();
  return attend;
}

// How many heads have each adjacency, by definition and as production's classes say.
using HeadCount = std::map<oracle::Matrix, int>;

HeadCount counted(std::span<const LayerTopology::Class> classes, std::int64_t n) {
  HeadCount count;
  for (const auto& one : classes) {
    oracle::Matrix matrix(static_cast<std::size_t>(n), oracle::Row(static_cast<std::size_t>(n)));
    for (std::int64_t q = 0; q < n; ++q) {
      for (const Range& keys : one.topology.row(q, n)) {
        for (std::int64_t k = keys.begin; k < keys.end; ++k) {
          matrix[static_cast<std::size_t>(q)][static_cast<std::size_t>(k)] = true;
        }
      }
    }
    count[matrix] += one.count;
  }
  return count;
}

RC_GTEST_PROP(HeadsOfALayer, ArePartitionedAndUnitedAsDefined, ()) {
  const auto causal = *rc::gen::arbitrary<bool>().as("causal");
  const auto num_kv_heads = *rc::gen::inRange(1, 4).as("kv heads");
  const auto per_kv_head = *rc::gen::inRange(1, 4).as("query heads a kv head");
  const auto layer_idx = *rc::gen::inRange(0, 64).as("layer");
  const auto n = *generate::between(1, 40).as("length");
  Layer layer;
  layer.attend = any_heads(causal, num_kv_heads * per_kv_head);
  const LayerTopology heads(layer, causal, layer_idx, num_kv_heads * per_kv_head, num_kv_heads);

  HeadCount q_heads, kv_heads;
  oracle::Place at{causal, n, static_cast<std::uint32_t>(layer_idx), 0};
  for (int kv = 0; kv < num_kv_heads; ++kv) {
    oracle::Matrix together;
    for (int g = 0; g < per_kv_head; ++g, ++at.head) {
      const auto one = oracle::adjacency(oracle::attend_of(layer.attend, at.head), at);
      ++q_heads[one];
      together = together.empty() ? one : oracle::united(together, one);
    }
    ++kv_heads[together];
  }
  RC_ASSERT(counted(heads.q_heads(), n) == q_heads);
  RC_ASSERT(counted(heads.kv_heads(), n) == kv_heads);
  RC_ASSERT(!heads.uniform() || q_heads.size() == 1);
}

// The topology of a KV head answers every question for the union of its query heads.
RC_GTEST_PROP(HeadsOfALayer, AnswerForTheirUnion, ()) {
  const auto causal = *rc::gen::arbitrary<bool>().as("causal");
  const auto num_heads = *rc::gen::inRange(2, 4).as("query heads of the kv head");
  const auto n = *generate::between(0, 64).as("length");
  const auto seed = *rc::gen::arbitrary<std::uint32_t>().as("seed of intervals");
  std::vector<Topology> parts;
  std::string text;
  oracle::Matrix reads(static_cast<std::size_t>(n), oracle::Row(static_cast<std::size_t>(n)));
  oracle::Matrix possible = reads;
  std::vector<std::int64_t> last(static_cast<std::size_t>(n), -1);
  for (int h = 0; h < num_heads; ++h) {
    const auto attend = *generate::attend(causal, 1, 2).as("attend");
    const oracle::Place at{causal, n, 5, static_cast<std::uint32_t>(h)};
    parts.emplace_back(attend, causal, 5, h);
    text += "   [" + generate::describe(attend) + "]";
    reads = oracle::united(reads, oracle::adjacency(attend, at));
    possible = oracle::united(possible, oracle::possible(attend, at));
    if (!causal) continue;
    const auto readers = oracle::last_readers(attend, at, n);
    for (std::size_t j = 0; j < last.size(); ++j) last[j] = std::max(last[j], readers[j]);
  }
  const Topology merged = Topology::merged(parts);
  auto message = compare::all_answers({merged, reads, possible}, 6, seed);
  for (std::int64_t first = 0; causal && first <= n && message.empty(); first += 5) {
    message = compare::retention(merged, last, first, n);
  }
  if (!message.empty()) RC_FAIL(message + text);
}

}  // namespace
}  // namespace lacuna

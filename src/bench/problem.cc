#include "bench/problem.h"

#include <algorithm>
#include <string>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"

namespace lacuna {
namespace bench {
namespace {

constexpr std::int64_t kLongest = 1 << 24;
constexpr std::int64_t kMostHeads = 65536;
constexpr std::int64_t kWidest = 576;
constexpr std::int64_t kMostThreads = 4096;

// Throws Error where heads(…) does not name each query head once.
Attend checked_attend(const KernelProblem& problem) {
  LayerTable table;
  table.causal = problem.causal;
  Layer layer;
  layer.attend = parse_attend(problem.attend, problem.causal);
  table.layers.push_back(layer);
  lacuna::check(table, {problem.heads.num_q_heads});
  return layer.attend;
}

const Union& union_of(const Attend& attend, std::int64_t head) {
  for (const HeadGroup& group : attend.groups) {
    if (group.heads.empty() || std::ranges::binary_search(group.heads, head)) return group.attend;
  }
  throw Error("attend names no topology for head " + std::to_string(head));
}

}  // namespace

void require(const char* name, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return;
  throw Error(std::string(name) + " is " + std::to_string(value) +
              "; allowed: " + std::to_string(min) + ".." + std::to_string(max));
}

void check(const KernelProblem& problem) {
  require("length", problem.length, 1, kLongest);
  require("rows", problem.rows, 0, problem.length);
  require("num_kv_heads", problem.heads.num_kv_heads, 1, kMostHeads);
  require("num_q_heads", problem.heads.num_q_heads, 1, kMostHeads);
  if (problem.heads.num_q_heads % problem.heads.num_kv_heads != 0) {
    throw Error("num_q_heads is " + std::to_string(problem.heads.num_q_heads) +
                "; allowed: multiples of num_kv_heads, " +
                std::to_string(problem.heads.num_kv_heads));
  }
  require("head_dim", problem.head_dim, 1, kWidest);
  require("v_head_dim", problem.v_head_dim, 1, kWidest);
  require("threads", problem.threads, 1, kMostThreads);
  const std::vector<std::string> isas = kernel_isas();
  if (problem.isa.empty() || std::ranges::find(isas, problem.isa) != isas.end()) return;
  std::string allowed;
  for (const std::string& isa : isas) allowed += (allowed.empty() ? "" : ", ") + isa;
  throw Error("isa is '" + problem.isa + "'; allowed on this machine: " + allowed +
              did_you_mean(problem.isa, isas));
}

std::vector<Topology> topologies_of(const KernelProblem& problem) {
  const Attend attend = checked_attend(problem);
  std::vector<Topology> topologies;
  bool uniform = true;
  for (int head = 0; head < problem.heads.num_q_heads; ++head) {
    topologies.emplace_back(union_of(attend, head), problem.causal, 0, head);
    uniform = uniform && topologies.back() == topologies.front();
  }
  if (uniform) topologies.erase(topologies.begin() + 1, topologies.end());
  return topologies;
}

SequenceRows sequence_rows(const KernelProblem& problem) {
  return {{problem.length - problem.num_rows(), problem.length}, problem.length};
}

Plan plan_of(const KernelProblem& problem, std::span<const Topology> topologies) {
  const SequenceRows rows = sequence_rows(problem);
  PlanOptions options;
  options.tile = kernel_tile();
  options.num_threads = problem.threads;
  return make_plan(topologies, std::span(&rows, 1), problem.heads, options);
}

PredictedCall predicted_pairs(const KernelProblem& problem, std::span<const Topology> topologies) {
  const SequenceRows rows = sequence_rows(problem);
  PredictedCall call = predicted_call(topologies, problem.heads, rows);
  if (problem.path == KernelPath::kMaskedDense) {
    const Int128 of_head = checked_mul(problem.num_rows(), rows.length);
    call.pairs = to_int64(checked_mul(of_head, problem.heads.num_q_heads), "executed pairs");
  }
  return call;
}

}  // namespace bench

std::string_view to_string(KernelPath path) {
  switch (path) {
    case KernelPath::kRun:
      return "run";
    case KernelPath::kMaskedDense:
      return "masked_dense";
    case KernelPath::kPrepacked:
      return "prepacked";
  }
  return "unknown";
}

std::string KernelProblem::name() const {
  const auto number = [](const char* letter, std::int64_t value) {
    return std::string(" ") + letter + std::to_string(value);
  };
  std::string text = attend + (causal ? "" : " bidirectional") + number("n", length) +
                     number("h", heads.num_q_heads) + "/" + std::to_string(heads.num_kv_heads) +
                     number("d", head_dim);
  if (v_head_dim != head_dim) text += "/" + std::to_string(v_head_dim);
  text += " " + std::string(to_string(dtype)) + number("t", threads);
  if (rows > 0) text += number("rows ", rows);
  if (learned_sinks) text += " sinks";
  if (!isa.empty()) text += " " + isa;
  if (path != KernelPath::kRun) text += " " + std::string(to_string(path));
  return text;
}

}  // namespace lacuna

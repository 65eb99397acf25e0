#include "cost/workload.h"

#include <map>
#include <string>

#include <fmt/format.h>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// Positions stay below what a Topology answers for.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 59;

void require(const char* name, std::int64_t value, std::int64_t least) {
  if (value >= least && value <= kMostTokens) return;
  throw Error(fmt::format("{} is {}; allowed: {}..{}", name, value, least, kMostTokens));
}

}  // namespace

Workload::Workload(const CostQuery& query) : query_(query) {
  require("generate", query.generate, 0);
  require("verify_rows", query.verify_rows, 1);
  require("chunk", query.chunk, 0);
  require("tile rows", query.tile.q, 1);
  require("tile keys", query.tile.k, 1);
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t length : query.lengths) {
    require("a sequence's length", length, 0);
    if (length == 0 && decodes()) {
      throw Error("a decode step has length 0; allowed: prompts of 1 token and above");
    }
    require("a sequence's last length", length + query.generate + query.verify_rows, 0);
    if (length > 0) ++counts[length];
  }
  query_.lengths.clear();  // grouped below; a batch may hold millions
  for (const auto& [length, count] : counts) sequences_.push_back({length, count});
}

std::int64_t Workload::num_sequences() const {
  std::int64_t count = 0;
  for (const Sequence& sequence : sequences_) count += sequence.count;
  return count;
}

std::int64_t Workload::last_length(const Sequence& sequence) const {
  if (!decodes()) return sequence.length;
  return sequence.length + num_steps() + query_.verify_rows - 2;
}

Equation Workload::batch() const {
  const std::int64_t count = num_sequences();
  return count == 1 ? Equation(1) : Equation("B", count);
}

Equation Workload::rows() const {
  if (decodes()) {
    const Equation steps = batch() * Equation("m", num_steps());
    return step_rows() == 1 ? steps : steps * Equation("q", step_rows());
  }
  if (sequences_.empty()) return 0;
  if (sequences_.size() == 1) return batch() * Equation("n", sequences_.front().length);
  return Equation("Σn", sum_sequences([](const Sequence& s) { return Int128{s.length}; }));
}

Equation Workload::explain(Int128 sum, const std::optional<Equation>& of_one) const {
  if (sequences_.empty()) return 0;
  if (sequences_.size() == 1 && of_one) return batch() * *of_one;
  return Equation(fmt::format("Σ over {} sequences", num_sequences()), sum);
}

}  // namespace lacuna

#include "audit/intervention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "audit/best_paths.h"
#include "bench/committed_pass.h"

namespace lacuna::audit {
namespace {

using States = std::vector<std::vector<float>>;  // of one position, after each layer

// Reads tokens into a sequence, chunk by chunk; the states of the last one are what it returns.
class Reader {
 public:
  Reader(Transformer& transformer, const AuditOptions& options)
      : transformer_(transformer), options_(options) {
    transformer.observe([this](std::int64_t layer, std::span<const float> hidden) {
      const auto at = static_cast<std::size_t>(layer);
      states_.resize(std::max(states_.size(), at + 1));
      const std::size_t width = hidden.size() / num_rows_;
      states_[at].assign(hidden.end() - static_cast<std::ptrdiff_t>(width), hidden.end());
    });
  }
  ~Reader() {
    transformer_.observe({});
    transformer_.observe_attention({});
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const States& read(SequenceId sequence, std::span<const TokenId> tokens) {
    while (!tokens.empty()) {
      num_rows_ = std::min(tokens.size(), static_cast<std::size_t>(options_.bench.chunk));
      bench::committed_pass(transformer_, sequence, tokens.first(num_rows_), LogitRows::kNone,
                            options_.bench.stop);
      tokens = tokens.subspan(num_rows_);
    }
    return states_;
  }

 private:
  Transformer& transformer_;
  const AuditOptions& options_;
  std::size_t num_rows_ = 1;
  States states_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void compare(Intervention& to, const States& before, const States& after) {
  for (std::size_t layer = 0; layer < before.size() && !to.first_change; ++layer) {
    if (!same_bits(before[layer], after[layer])) to.first_change = static_cast<int>(layer);
  }
  float difference = 0;
  float largest = 0;
  for (std::size_t i = 0; i < before.back().size(); ++i) {
    difference = std::max(difference, std::abs(before.back()[i] - after.back()[i]));
    largest = std::max(largest, std::abs(before.back()[i]));
  }
  to.last_change = largest > 0 ? double{difference} / largest : 0;
}

}  // namespace

std::vector<std::int64_t> telling_evidence(const Graph& graph, std::int64_t query) {
  std::set<std::int64_t> found = {0, query / 2, query - 1};
  // A border between what is reached otherwise lies between two positions found by halving.
  const auto kind = [&](std::int64_t at) { return graph.first_layer(at, query).value_or(-2); };
  std::vector<std::pair<std::int64_t, std::int64_t>> open = {{0, query / 2},
                                                             {query / 2, query - 1}};
  while (!open.empty()) {
    const auto [low, high] = open.back();
    open.pop_back();
    if (low >= high || kind(low) == kind(high)) continue;
    if (high - low == 1) {
      found.insert({low, high});
      continue;
    }
    const std::int64_t middle = low + (high - low) / 2;
    open.push_back({low, middle});
    open.push_back({middle, high});
  }
  std::erase_if(found, [&](std::int64_t at) { return at < 0 || at >= query; });
  return {found.begin(), found.end()};
}

std::vector<Intervention> intervene(Transformer& transformer, const Graph& claimed,
                                    std::span<const TokenId> tokens,
                                    std::span<const std::int64_t> evidence, std::int64_t vocab_size,
                                    const AuditOptions& options) {
  Reader reader(transformer, options);
  const std::set<std::int64_t> positions(evidence.begin(), evidence.end());
  BestPaths best(transformer.table(), {positions.begin(), positions.end()}, std::ssize(tokens),
                 options.bench.stop);
  transformer.observe_attention(
      [&](std::int64_t layer, const LayerAttention& done) { best.add(layer, done); });
  KvCache& cache = transformer.cache();
  const SequenceId plain = cache.create();
  std::map<std::int64_t, SequenceId> forks;  // ascending evidence; what lies before it is shared
  std::int64_t at = 0;
  for (const std::int64_t position : positions) {
    reader.read(plain, tokens.subspan(static_cast<std::size_t>(at),
                                      static_cast<std::size_t>(position - at)));
    at = position;
    forks[position] = cache.fork(plain);
  }
  const States states = reader.read(plain, tokens.subspan(static_cast<std::size_t>(at)));
  transformer.observe_attention({});
  cache.free(plain);
  std::vector<Intervention> result;
  const std::int64_t query = std::ssize(tokens) - 1;
  for (const auto& [position, fork] : forks) {
    std::vector<TokenId> changed(tokens.begin() + position, tokens.end());
    changed.front() = static_cast<TokenId>((changed.front() + 1) % vocab_size);
    Intervention& one = result.emplace_back();
    one.evidence = position;
    one.query = query;
    one.hops = claimed.hops(position, query);
    one.first_layer = claimed.first_layer(position, query);
    one.bucket = claimed.bucket(position, query);
    one.best_path = best.to(query, result.size() - 1);
    compare(one, states, reader.read(fork, changed));
    cache.free(fork);
  }
  return result;
}

}  // namespace lacuna::audit

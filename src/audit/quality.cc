#include "audit/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "bench/committed_pass.h"
#include "model/row_math.h"

namespace lacuna::audit {
namespace {

float nll_of(std::span<const float> logits, TokenId next) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return static_cast<float>(largest + std::log(sum) - logits[static_cast<std::size_t>(next)]);
}

template <typename Name>
std::vector<NllBucket> buckets_of(std::span<const float> nll, const Name& name) {
  std::vector<NllBucket> buckets;
  for (std::size_t i = 0; i < nll.size(); ++i) {
    const std::string of = name(i);
    auto bucket = std::ranges::find(buckets, of, &NllBucket::name);
    if (bucket == buckets.end()) bucket = buckets.insert(buckets.end(), {of, 0, 0});
    ++bucket->positions;
    bucket->nll += nll[i];
  }
  for (NllBucket& bucket : buckets) bucket.nll /= static_cast<double>(bucket.positions);
  return buckets;
}

}  // namespace

std::vector<std::string> pair_buckets(const Graph& graph, std::span<const TokenId> tokens,
                                      std::int64_t positions) {
  std::map<std::pair<TokenId, TokenId>, std::int64_t> last;  // where the pair's second token stood
  std::vector<std::string> buckets;
  const std::int64_t end = std::ssize(tokens) - 1;
  for (std::int64_t at = 0; at < end; ++at) {
    const auto idx = static_cast<std::size_t>(at);
    const std::pair pair = {tokens[idx], tokens[idx + 1]};
    const auto before = last.find(pair);
    if (at >= end - positions) {
      buckets.emplace_back(before == last.end() ? "never before"
                                                : to_string(graph.bucket(before->second, at)));
    }
    last[pair] = at + 1;
  }
  return buckets;
}

Quality quality_of(Transformer& transformer, std::span<const TokenId> tokens,
                   const std::vector<std::string>& buckets, ThreadPool& pool,
                   const AuditOptions& options) {
  constexpr std::size_t kRows = 64;  // logits of more take gigabytes
  Quality quality;
  const std::size_t end = tokens.size() - 1;
  const std::size_t first = end - buckets.size();
  quality.first = static_cast<std::int64_t>(first);
  quality.nll.resize(buckets.size());
  const SequenceId sequence = transformer.cache().create();
  for (std::size_t at = 0; at < end;) {
    const bool is_counted = at >= first;
    const std::size_t most = is_counted ? kRows : static_cast<std::size_t>(options.bench.chunk);
    const std::size_t count = std::min(most, (is_counted ? end : first) - at);
    const Transformer::Pass pass =
        bench::committed_pass(transformer, sequence, tokens.subspan(at, count),
                              is_counted ? LogitRows::kAll : LogitRows::kNone, options.bench.stop);
    for_rows(pool, pass.num_logits(), [&](std::int64_t row) {
      const std::size_t position = at + static_cast<std::size_t>(row);
      quality.nll[position - first] = nll_of(pass.logits(row), tokens[position + 1]);
    });
    at += count;
  }
  transformer.cache().free(sequence);
  quality.mean = std::accumulate(quality.nll.begin(), quality.nll.end(), 0.0) /
                 static_cast<double>(quality.nll.size());
  quality.by_position = buckets_of(quality.nll, [&](std::size_t i) {
    const std::size_t part = std::max<std::size_t>(quality.nll.size() / 4, 1);
    const std::size_t begin = first + i / part * part;
    return fmt::format("{}..{}", begin, std::min(begin + part, end) - 1);
  });
  quality.by_distance = buckets_of(quality.nll, [&](std::size_t i) { return buckets[i]; });
  return quality;
}

}  // namespace lacuna::audit

#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/thread_pool.h"
#include "lacuna/transformer.h"
#include "model/row_math.h"

// What transformers answers, and how far logits are from it. For tests and benchmarks.
namespace lacuna::model_test {

struct ReferencePrompt {
  std::vector<TokenId> tokens;    // [N + 1]: the prompt, and the token behind its end
  std::vector<float> lse;         // [N]
  std::vector<float> target;      // [N]: logit of tokens[i + 1] at position i
  std::vector<TokenId> top_ids;   // [N, top]: the best first
  std::vector<float> top_logits;  // [N, top]
};

struct ModelReference {
  std::string file;
  std::size_t top = 0;
  std::vector<ReferencePrompt> prompts;
};

inline ReferencePrompt read_prompt(std::string_view packed, std::size_t count, std::size_t top) {
  std::vector<std::uint32_t> numbers(count + 1 + 2 * count + 2 * count * top);
  uLongf size = 4 * numbers.size();
  const int rc =
      uncompress(reinterpret_cast<Bytef*>(numbers.data()), &size,
                 reinterpret_cast<const Bytef*>(packed.data()), static_cast<uLong>(packed.size()));
  if (rc != Z_OK || size != 4 * numbers.size()) {
    throw Error(fmt::format("a prompt of {} tokens has {} bytes, zlib says {}; allowed: {} and 0",
                            count, size, rc, 4 * numbers.size()));
  }
  auto from = numbers.cbegin();
  const auto read = [&]<typename Number>(std::vector<Number>& to, std::size_t length) {
    for (const auto end = from + static_cast<std::ptrdiff_t>(length); from != end; ++from) {
      to.push_back(std::bit_cast<Number>(*from));
    }
  };
  ReferencePrompt prompt;
  read(prompt.tokens, count + 1);
  read(prompt.lse, count);
  read(prompt.target, count);
  read(prompt.top_ids, count * top);
  read(prompt.top_logits, count * top);
  return prompt;
}

// tools/make_model_reference.py writes the file, tools/model_reference.py says how it lies.
inline ModelReference read_model_reference(const std::string& path) {
  const std::string bytes = read_file(path, 1 << 28);
  std::uint32_t header_bytes = 0;
  if (bytes.size() < 12 || bytes.compare(0, 8, "LACREF01") != 0) {
    throw Error(path + ": does not begin with LACREF01");
  }
  std::memcpy(&header_bytes, bytes.data() + 8, sizeof(header_bytes));
  const auto header = nlohmann::json::parse(bytes.substr(12, header_bytes));
  ModelReference reference = {header.at("file"), header.at("top"), {}};
  for (const auto& entry : header.at("prompts")) {
    const auto offset = entry.at("offset").get<std::size_t>();
    const auto packed = std::string_view(bytes).substr(12 + header_bytes + offset,
                                                       entry.at("bytes").get<std::size_t>());
    reference.prompts.push_back(read_prompt(packed, entry.at("tokens"), reference.top));
  }
  return reference;
}

// The logits of one position beside the reference's.
struct PositionScore {
  TokenId best = 0;
  float margin = 0;       // of the best logit over the second, in ours
  float behind = 0;       // of the reference's best logit over its logit of our best; 0: the same
  float difference = 0;   // largest of a logit among the reference's top ones
  double divergence = 0;  // KL of ours from the reference, the ids below its top as one class
  double nll = 0;
  double reference_nll = 0;
};

inline double divergence(std::span<const float> logits, double lse, std::span<const TokenId> ids,
                         std::span<const float> expected, double expected_lse) {
  double sum = 0;
  double rest = 1;
  double expected_rest = 1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double ours = logits[static_cast<std::size_t>(ids[i])] - lse;
    const double theirs = expected[i] - expected_lse;
    sum += std::exp(theirs) * (theirs - ours);
    rest -= std::exp(ours);
    expected_rest -= std::exp(theirs);
  }
  rest = std::max(rest, 1e-12);  // rounding may leave less than nothing
  expected_rest = std::max(expected_rest, 1e-12);
  return sum + expected_rest * std::log(expected_rest / rest);
}

inline PositionScore score_of(std::span<const float> logits, const ReferencePrompt& prompt,
                              std::size_t at, std::size_t top) {
  const auto best = std::ranges::max_element(logits);
  float second = -INFINITY;
  double sum = 0;
  for (auto logit = logits.begin(); logit != logits.end(); ++logit) {
    sum += std::exp(double{*logit} - *best);
    if (logit != best) second = std::max(second, *logit);
  }
  const double lse = *best + std::log(sum);
  const auto ids = std::span(prompt.top_ids).subspan(at * top, top);
  const auto expected = std::span(prompt.top_logits).subspan(at * top, top);
  PositionScore score;
  score.best = static_cast<TokenId>(best - logits.begin());
  score.margin = *best - second;
  const auto found = static_cast<std::size_t>(std::ranges::find(ids, score.best) - ids.begin());
  score.behind = expected.front() - expected[std::min(found, top - 1)];
  for (std::size_t i = 0; i < top; ++i) {
    score.difference = std::max(score.difference,
                                std::abs(logits[static_cast<std::size_t>(ids[i])] - expected[i]));
  }
  score.divergence = divergence(logits, lse, ids, expected, prompt.lse[at]);
  score.nll = lse - logits[static_cast<std::size_t>(prompt.tokens[at + 1])];
  score.reference_nll = double{prompt.lse[at]} - prompt.target[at];
  return score;
}

// Of all positions of all prompts. 64 tokens a pass: logits of a whole prompt take gigabytes.
inline std::vector<PositionScore> scores_of(Transformer& transformer,
                                            const ModelReference& reference, ThreadPool& pool) {
  constexpr std::size_t kChunk = 64;
  std::vector<PositionScore> scores;
  for (const ReferencePrompt& prompt : reference.prompts) {
    const SequenceId sequence = transformer.cache().create();
    for (std::size_t first = 0; first < prompt.lse.size(); first += kChunk) {
      const std::size_t count = std::min(kChunk, prompt.lse.size() - first);
      const NewTokens batch[] = {{sequence, std::span(prompt.tokens).subspan(first, count)}};
      auto pass = transformer.forward(batch, LogitRows::kAll);
      if (!pass) throw Error("the cache has no room for the prompt");
      scores.resize(scores.size() + count);
      PositionScore* const to = scores.data() + scores.size() - count;
      for_rows(pool, pass->num_logits(), [&](std::int64_t row) {
        to[row] = score_of(pass->logits(row), prompt, first + static_cast<std::size_t>(row),
                           reference.top);
      });
      pass->commit();
    }
    transformer.cache().free(sequence);
  }
  return scores;
}

struct Agreement {
  double positions = 0;
  double same_best = 0;   // share of positions
  double near_best = 0;   // share of positions where ours is another, less than `tie` behind
  double divergence = 0;  // means over positions
  double nll = 0;
  double reference_nll = 0;

  double nll_spread = 0;  // standard error of the difference, over positions

  double off = 0;              // positions where ours has another best token
  float most_behind = 0;       // how far it is behind there, at most
  float most_difference = 0;   // of a logit
  double most_divergence = 0;  // of a position

  double nll_difference() const { return nll / reference_nll - 1; }
  double nll_error() const { return nll_spread / reference_nll; }
};

inline Agreement agreement(std::span<const PositionScore> scores, float tie) {
  Agreement result;
  result.positions = static_cast<double>(scores.size());
  for (const PositionScore& score : scores) {
    if (score.behind == 0) result.same_best += 1 / result.positions;
    if (score.behind > 0 && score.behind < tie) result.near_best += 1 / result.positions;
    result.off += score.behind > 0 ? 1 : 0;
    result.most_behind = std::max(result.most_behind, score.behind);
    result.most_difference = std::max(result.most_difference, score.difference);
    result.most_divergence = std::max(result.most_divergence, score.divergence);
    result.divergence += score.divergence / result.positions;
    result.nll += score.nll / result.positions;
    result.reference_nll += score.reference_nll / result.positions;
  }
  const double mean = result.nll - result.reference_nll;
  double squares = 0;
  for (const PositionScore& score : scores) {
    squares += std::pow(score.nll - score.reference_nll - mean, 2);
  }
  result.nll_spread = std::sqrt(squares) / result.positions;
  return result;
}

}  // namespace lacuna::model_test

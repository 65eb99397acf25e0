#pragma once

// Attention by definition: every pair of a query and a key that the definition lets it read, one
// after another, in double. It shares with production neither code nor order: no tile, no range, no
// running maximum. What a query reads comes from oracle.h, the tests' own transcription of the
// terms. For small lengths only.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "oracle.h"

namespace lacuna::oracle {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [tokens, heads, dims]: the numbers that a tensor really holds.
struct Values {
  Position tokens = 0;
  Position heads = 0;
  Position dims = 0;
  std::vector<double> data;

  Values() = default;
  Values(Position num_tokens, Position num_heads, Position num_dims, double fill = 0)
      : tokens(num_tokens),
        heads(num_heads),
        dims(num_dims),
        data(static_cast<std::size_t>(num_tokens * num_heads * num_dims), fill) {}

  std::size_t index(Position token, Position head, Position dim) const {
    return static_cast<std::size_t>((token * heads + head) * dims + dim);
  }
  double& at(Position token, Position head, Position dim) { return data[index(token, head, dim)]; }
  double at(Position token, Position head, Position dim) const {
    return data[index(token, head, dim)];
  }
};

// dot → scale → softcap → bias. A learned sink is one more logit of the softmax, without a value.
struct ScoreRule {
  double scale = 1;
  double softcap = 0;                // 0: off
  std::vector<double> alibi_slopes;  // [heads]; empty: off
  std::vector<double> sink_logits;   // [heads]; empty: off
};

// One sequence: q holds its rows first_row .., k and v its keys 0 ...
struct Sequence {
  const Values& q;
  const Values& k;
  const Values& v;
  Position first_row = 0;
};

struct Attended {
  Values out;               // [rows, heads, dims of v]
  std::vector<double> lse;  // [rows, heads]

  // What an error may be measured against: 1 + the largest Σ|q_d k_d|·|scale| + |bias| + softcap of
  // the row, and Σ p|v|.
  std::vector<double> size;  // [rows, heads]
  Values spread;             // [rows, heads, dims of v]
};

// Rows begin .. end-1 of the adjacency matrix, alone.
inline Matrix reads_of_rows(const Union& attend, const Place& at, Position begin, Position end) {
  Matrix matrix;
  for (Position i = begin; i < end; ++i) {
    Row row(static_cast<std::size_t>(at.n), false);
    for (const Term& term : attend) unite_into(row, term_row(term, at, attend, i, at.n));
    matrix.push_back(std::move(row));
  }
  return matrix;
}

inline const Matrix& reads_of_head(std::span<const Matrix> reads, Position head) {
  return reads[reads.size() == 1 ? 0 : static_cast<std::size_t>(head)];
}

// One query row of one head.
struct Query {
  const Sequence& sequence;
  const ScoreRule& rule;
  Position row = 0;
  Position head = 0;

  Position kv_head() const { return head / (sequence.q.heads / sequence.k.heads); }

  double bias(Position key) const {
    if (rule.alibi_slopes.empty()) return 0;
    const Position distance = std::abs(sequence.first_row + row - key);
    return -rule.alibi_slopes[static_cast<std::size_t>(head)] * static_cast<double>(distance);
  }
  double score(Position key) const {
    double dot = 0;
    for (Position d = 0; d < sequence.q.dims; ++d) {
      dot += sequence.q.at(row, head, d) * sequence.k.at(key, kv_head(), d);
    }
    double score = dot * rule.scale;
    if (rule.softcap > 0) score = rule.softcap * std::tanh(score / rule.softcap);
    return score + bias(key);
  }
  double size(Position key) const {
    double dot = 0;
    for (Position d = 0; d < sequence.q.dims; ++d) {
      dot += std::abs(sequence.q.at(row, head, d) * sequence.k.at(key, kv_head(), d));
    }
    return dot * std::abs(rule.scale) + std::abs(bias(key));
  }
};

// The weights of the keys that one row reads.
struct Softmax {
  std::vector<Position> keys;
  std::vector<double> weights;  // of keys; less than 1 together where there is a learned sink
  double lse = -kInfinity;
};

inline Softmax softmax(const Query& query, const Row& reads) {
  Softmax result;
  const bool has_sink = !query.rule.sink_logits.empty();
  const double sink =
      has_sink ? query.rule.sink_logits[static_cast<std::size_t>(query.head)] : -kInfinity;
  double largest = sink;
  for (std::size_t j = 0; j < reads.size(); ++j) {
    if (!reads[j]) continue;
    result.keys.push_back(static_cast<Position>(j));
    result.weights.push_back(query.score(result.keys.back()));
    largest = std::max(largest, result.weights.back());
  }
  if (largest == -kInfinity) {
    std::fill(result.weights.begin(), result.weights.end(), 0);
    return result;
  }
  double sum = has_sink ? std::exp(sink - largest) : 0;
  for (double& weight : result.weights) sum += weight = std::exp(weight - largest);
  for (double& weight : result.weights) weight /= sum;
  result.lse = largest + std::log(sum);
  return result;
}

// `reads` holds [row][key] for each query head, or once for all.
inline Attended attend_by_definition(const Sequence& sequence, std::span<const Matrix> reads,
                                     const ScoreRule& rule) {
  const auto& [q, k, v, first_row] = sequence;
  Attended result{Values(q.tokens, q.heads, v.dims), {}, {}, Values(q.tokens, q.heads, v.dims)};
  for (Position row = 0; row < q.tokens; ++row) {
    for (Position head = 0; head < q.heads; ++head) {
      const Query query{sequence, rule, row, head};
      const Softmax p =
          softmax(query, reads_of_head(reads, head).at(static_cast<std::size_t>(row)));
      double size = 0;
      for (std::size_t j = 0; j < p.keys.size(); ++j) {
        size = std::max(size, query.size(p.keys[j]));
        for (Position d = 0; d < v.dims; ++d) {
          const double value = v.at(p.keys[j], query.kv_head(), d);
          result.out.at(row, head, d) += p.weights[j] * value;
          result.spread.at(row, head, d) += p.weights[j] * std::abs(value);
        }
      }
      result.lse.push_back(p.lse);
      result.size.push_back(1 + size + rule.softcap);
    }
  }
  return result;
}

// Σ over the rows of e^(s - lse) for each key: [head][key].
inline std::vector<std::vector<double>> column_mass_by_definition(const Sequence& sequence,
                                                                  std::span<const Matrix> reads,
                                                                  const ScoreRule& rule) {
  const auto num_keys = static_cast<std::size_t>(sequence.k.tokens);
  std::vector<std::vector<double>> mass(static_cast<std::size_t>(sequence.q.heads),
                                        std::vector<double>(num_keys, 0));
  for (Position row = 0; row < sequence.q.tokens; ++row) {
    for (Position head = 0; head < sequence.q.heads; ++head) {
      const Softmax p = softmax({sequence, rule, row, head},
                                reads_of_head(reads, head).at(static_cast<std::size_t>(row)));
      for (std::size_t j = 0; j < p.keys.size(); ++j) {
        mass[static_cast<std::size_t>(head)][static_cast<std::size_t>(p.keys[j])] += p.weights[j];
      }
    }
  }
  return mass;
}

// ---- Merges -------------------------------------------------------------------------------------

// A row's state over some keys.
struct State {
  std::vector<double> out;
  double lse = -kInfinity;
};

// out = Σ out_x e^(lse_x - lse), a learned sink being a state whose out is 0.
inline State merged(std::span<const State> states) {
  State sum{std::vector<double>(states.front().out.size(), 0), -kInfinity};
  double largest = -kInfinity;
  for (const State& state : states) largest = std::max(largest, state.lse);
  if (largest == -kInfinity) return sum;
  double total = 0;
  for (const State& state : states) total += std::exp(state.lse - largest);
  sum.lse = largest + std::log(total);
  for (const State& state : states) {
    const double weight = std::exp(state.lse - sum.lse);
    for (std::size_t d = 0; d < sum.out.size(); ++d) sum.out[d] += weight * state.out[d];
  }
  return sum;
}

}  // namespace lacuna::oracle

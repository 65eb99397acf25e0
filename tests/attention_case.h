#pragma once

// One attention call as data, and its answer by definition.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention_oracle.h"
#include "lacuna/attend.h"
#include "lacuna/plan.h"
#include "lacuna/topology.h"
#include "problems.h"
#include "stored_tensor.h"

namespace lacuna::cases {

using oracle::Values;

inline std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// ---- The question -------------------------------------------------------------------------------

struct Case {
  AttentionShape shape{"case", 1, 1, 16, 16};
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  bool causal = true;
  std::vector<Union> attend = {{Full{}}};  // one for all query heads, or one for each
  std::vector<SequenceRows> sequences;
  // Instead of `attend`, as a selector says it: [sequence · num_kv_heads + kv_head].
  std::vector<KeyRanges> key_ranges;
  std::optional<float> sm_scale;
  float softcap = 0;
  std::vector<float> alibi_slopes;
  std::vector<float> sink_logits;

  Values q;               // [rows, num_q_heads, head_dim]
  std::vector<Values> k;  // a sequence each: [length, num_kv_heads, head_dim]
  std::vector<Values> v;  // [length, num_kv_heads, v_head_dim]

  std::int64_t num_rows() const {
    std::int64_t rows = 0;
    for (const SequenceRows& s : sequences) rows += s.rows.end - s.rows.begin;
    return rows;
  }
};

// q, k and v filled with random numbers that the dtypes hold; the same for the same seed.
inline Case filled(Case c, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  c.q = Values(c.num_rows(), c.shape.num_q_heads, c.shape.head_dim);
  stored::randomize(c.q, c.q_dtype, random);
  c.k.clear();
  c.v.clear();
  for (const SequenceRows& s : c.sequences) {
    c.k.emplace_back(s.length, c.shape.num_kv_heads, c.shape.head_dim);
    stored::randomize(c.k.back(), c.kv_dtype, random);
    c.v.emplace_back(s.length, c.shape.num_kv_heads, c.shape.v_head_dim);
    stored::randomize(c.v.back(), c.kv_dtype, random);
  }
  return c;
}

// The union of each group of heads, in the order of the text's heads.
inline std::vector<Union> unions(const char* text, bool causal, int num_q_heads) {
  const Attend attend = parse_attend(text, causal);
  if (attend.groups.size() == 1 && attend.groups[0].heads.empty()) {
    const Union& whole = attend.groups[0].attend;
    const bool by_head = std::any_of(whole.begin(), whole.end(), [](const Term& term) {
      const auto* vertical = std::get_if<VerticalBlocks>(&term);
      return oracle::is_random(term) || (vertical != nullptr && vertical->offset_is_head);
    });
    return std::vector<Union>(by_head ? idx(num_q_heads) : 1, whole);
  }
  std::vector<Union> result;
  for (int head = 0; head < num_q_heads; ++head) {
    result.push_back(oracle::attend_of(attend, static_cast<std::uint32_t>(head)));
  }
  return result;
}

inline SequenceRows whole(std::int64_t length) { return {{0, length}, length}; }
inline SequenceRows last_rows(std::int64_t count, std::int64_t length) {
  return {{length - count, length}, length};
}

inline std::vector<Topology> topologies(const Case& c) {
  std::vector<Topology> result;
  for (std::size_t head = 0; head < c.attend.size(); ++head) {
    result.emplace_back(c.attend[head], c.causal, 0, static_cast<int>(head));
  }
  return result;
}

inline HeadCounts heads(const Case& c) { return {c.shape.num_q_heads, c.shape.num_kv_heads}; }

inline Plan plan_of(const Case& c, const PlanOptions& options = {}) {
  if (!c.key_ranges.empty()) return make_plan(c.key_ranges, c.sequences, heads(c), options);
  return make_plan(topologies(c), c.sequences, heads(c), options);
}

// ---- The definition -----------------------------------------------------------------------------

inline oracle::ScoreRule rule_of(const Case& c) {
  oracle::ScoreRule rule;
  rule.scale = c.sm_scale ? *c.sm_scale : 1 / std::sqrt(static_cast<double>(c.shape.head_dim));
  rule.softcap = c.softcap;
  rule.alibi_slopes.assign(c.alibi_slopes.begin(), c.alibi_slopes.end());
  rule.sink_logits.assign(c.sink_logits.begin(), c.sink_logits.end());
  return rule;
}

// What the rows of one sequence read: [head][row][key], or once for all heads.
inline std::vector<oracle::Matrix> reads_of(const Case& c, std::size_t sequence) {
  const SequenceRows& s = c.sequences[sequence];
  std::vector<oracle::Matrix> reads;
  if (c.key_ranges.empty()) {
    for (std::size_t head = 0; head < c.attend.size(); ++head) {
      const oracle::Place at{c.causal, s.length, 0, static_cast<std::uint32_t>(head)};
      reads.push_back(oracle::reads_of_rows(c.attend[head], at, s.rows.begin, s.rows.end));
    }
    return reads;
  }
  for (int head = 0; head < c.shape.num_q_heads; ++head) {
    const std::size_t kv_head = idx(head / (c.shape.num_q_heads / c.shape.num_kv_heads));
    const KeyRanges& csr = c.key_ranges[sequence * idx(c.shape.num_kv_heads) + kv_head];
    oracle::Matrix matrix;
    for (std::size_t row = 0; row + 1 < csr.indptr.size(); ++row) {
      matrix.emplace_back(idx(s.length), false);
      for (std::int64_t r = csr.indptr[row]; r < csr.indptr[row + 1]; ++r) {
        const Range range = csr.ranges[idx(r)];
        std::fill(matrix.back().begin() + range.begin, matrix.back().begin() + range.end, true);
      }
    }
    reads.push_back(std::move(matrix));
  }
  return reads;
}

// Rows begin .. end-1 of the tensor.
inline Values rows_of(const Values& all, std::int64_t begin, std::int64_t end) {
  Values part(end - begin, all.heads, all.dims);
  const auto width = all.heads * all.dims;
  std::copy(all.data.begin() + begin * width, all.data.begin() + end * width, part.data.begin());
  return part;
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

inline oracle::Attended definition(const Case& c) {
  oracle::Attended all;
  all.out.tokens = all.spread.tokens = c.num_rows();
  all.out.heads = all.spread.heads = c.shape.num_q_heads;
  all.out.dims = all.spread.dims = c.shape.v_head_dim;
  std::int64_t row = 0;
  for (std::size_t s = 0; s < c.sequences.size(); ++s) {
    const Range rows = c.sequences[s].rows;
    const Values q = rows_of(c.q, row, row + rows.end - rows.begin);
    row += rows.end - rows.begin;
    const auto part =
        oracle::attend_by_definition({q, c.k[s], c.v[s], rows.begin}, reads_of(c, s), rule_of(c));
    append(all.out.data, part.out.data);
    append(all.spread.data, part.spread.data);
    append(all.lse, part.lse);
    append(all.size, part.size);
  }
  return all;
}

}  // namespace lacuna::cases

#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <vector>

#include "lacuna/cost.h"
#include "lacuna/equation.h"
#include "lacuna/integer.h"

namespace lacuna {

// A CostQuery with its sequences grouped by length, and where their rows lie. Immutable.
class Workload {
 public:
  struct Sequence {
    std::int64_t length = 0;  // of the prompt
    std::int64_t count = 0;   // sequences of exactly this length
  };
  // Throws Error naming the field of `query` that is out of range.
  explicit Workload(const CostQuery& query);

  const CostQuery& query() const { return query_; }
  bool trains() const { return query_.phase == Phase::kTrain; }
  bool decodes() const { return query_.phase == Phase::kDecode; }
  // Not empty sequences, ascending by length.
  const std::vector<Sequence>& sequences() const { return sequences_; }
  std::int64_t num_sequences() const;

  // Decode steps, and rows that one step computes for each sequence: m and q.
  std::int64_t num_steps() const { return std::max<std::int64_t>(1, query_.generate); }
  std::int64_t step_rows() const { return decodes() ? query_.verify_rows : 1; }
  // Length of the last step; prefill: of a one-token step at the prompt's length. Its rows are the
  // last step_rows() ones.
  std::int64_t last_length(const Sequence& sequence) const;

  // Query rows of all sequences: "n", "B·n", "m", "B·m·q".
  Equation rows() const;
  // Sequences with a token: "B", or the literal 1.
  Equation batch() const;

  // Σ over the rows of all sequences of `count(q_begin, q_end, length)`, which is additive over
  // consecutive rows.
  template <typename Count>
  requires std::invocable<Count, std::int64_t, std::int64_t, std::int64_t> Int128
  sum_rows(const Count& count)
  const {
    return sum_sequences([&](const Sequence& sequence) { return rows_of(sequence, count); });
  }
  template <typename Count>
  requires std::invocable<Count, const Sequence&> Int128 sum_sequences(const Count& count)
  const {
    Int128 sum = 0;
    for (const Sequence& sequence : sequences_) {
      sum = checked_add(sum, checked_mul(count(sequence), sequence.count));
    }
    return sum;
  }
  // The sum of `of_one` with the derivation of the only length, "B·(…)", or as a named sum.
  Equation explain(Int128 sum, const std::optional<Equation>& of_one) const;

 private:
  template <typename Count>
  Int128 rows_of(const Sequence& sequence, const Count& count) const {
    if (!decodes()) return count(0, sequence.length, sequence.length);
    // Step t computes rows n-1+t .. n-2+t+q. The j-th rows of all steps are consecutive, so that
    // min(m, q) sums serve them all.
    const std::int64_t first = sequence.length - 1;
    const std::int64_t num_sums = std::min(num_steps(), query_.verify_rows);
    const std::int64_t run = std::max(num_steps(), query_.verify_rows);
    Int128 sum = 0;
    for (std::int64_t offset = 0; offset < num_sums; ++offset) {
      const std::int64_t begin = first + offset;
      sum = checked_add(sum, count(begin, begin + run, begin + run));
    }
    return sum;
  }

  CostQuery query_;
  std::vector<Sequence> sequences_;
};

}  // namespace lacuna

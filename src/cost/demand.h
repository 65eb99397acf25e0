#pragma once

#include <cstdint>
#include <vector>

#include "cost/held_model.h"
#include "lacuna/integer.h"

namespace lacuna {

// Bytes of several requests at once under one policy, page tables counted. `lengths` are those of
// observed requests, in any order. Immutable; the model outlives it.
class Demand {
 public:
  Demand(const HeldModel& model, std::vector<std::int64_t> lengths, std::int64_t entry_bytes);

  // `requests` of one length; without page tables where `tables` is false.
  Int128 uniform(std::int64_t length, std::int64_t requests, bool tables) const;
  // The longest of the list, the longest again where the list is shorter. REQUIRES: lengths are
  // known.
  Int128 worst(std::int64_t requests) const;
  // `requests` times the mean of the list's bytes, rounded up. REQUIRES: lengths are known.
  Int128 mean(std::int64_t requests) const;

 private:
  // llama.cpp sizes one context for all sequences.
  bool shared_context() const { return model_.policy().name == "iswa"; }
  Int128 context(std::int64_t requests, std::int64_t tokens, std::int64_t longest) const;
  Int128 request(std::int64_t length) const;

  const HeldModel& model_;
  std::vector<std::int64_t> lengths_;  // longest first
  std::vector<Int128> sums_;           // sums_[r]: bytes of the r longest
  std::vector<std::int64_t> length_sums_;
  std::int64_t entry_bytes_;
};

}  // namespace lacuna

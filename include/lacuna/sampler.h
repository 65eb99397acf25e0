#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/tokenizer.h"

namespace lacuna {

// In this order: probabilities are those of logits / temperature; of these the top_k largest stay,
// of these the fewest whose sum reaches top_p of theirs, of these those of at least min_p times the
// largest; one of them is drawn. Equal ones count by id, lower first.
struct SamplerOptions {
  double temperature = 0;  // 0: the largest logit, whatever the others say
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  std::uint64_t seed = 0;
};

// Picks tokens. The pick of draw n depends on the options, n and the logits alone. One user at a
// time.
class Sampler {
 public:
  // Throws Error naming the option, its value and what is allowed: temperature 0 or more, top_k 0
  // or more, top_p in (0, 1], min_p in [0, 1].
  explicit Sampler(const SamplerOptions& options);

  // Throws Error where the largest logit is not finite. NaN is never picked.
  TokenId pick(std::span<const float> logits);

 private:
  SamplerOptions options_;
  std::uint64_t num_drawn_ = 0;
  std::vector<TokenId> order_;
};

}  // namespace lacuna

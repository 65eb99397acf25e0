#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lacuna/engine_log.h"
#include "lacuna/equation.h"
#include "lacuna/layer_table.h"
#include "lacuna/policy.h"
#include "lacuna/shape.h"

namespace lacuna {

// Accounts for every figure that an engine printed about its KV cache: which allocator policy, with
// which parameters, predicts each of them exactly, or where the first difference is. Parameters are
// those of the log, then those given here, then the engine's defaults, which are named.
struct AccountFlags {
  std::optional<std::int64_t> n_ctx;  // llama.cpp
  std::optional<std::int64_t> n_ubatch;
  std::optional<std::int64_t> n_seq_max;
  std::optional<std::int64_t> block_size;  // vLLM
  std::optional<std::int64_t> max_num_batched_tokens;
  std::optional<std::int64_t> max_model_len;
  std::optional<std::int64_t> tensor_parallel_size;
  std::string kv_dtype;  // both; empty: not given
};

struct AccountParameter {
  std::string name;
  std::string value;
  std::string source;  // "line 12", "--block-size", "default of vLLM"
};

struct AccountLine {
  LogFigure figure;
  // What the policy can print there: one number, or several where it rests on a rounded one.
  Int128 low = 0;
  Int128 high = 0;
  Int128 difference = 0;  // printed less predicted, at their nearest; 0: accounted for
  Equation equation;      // of a predicted number
  bool stated = false;    // nothing predicts it: the other lines rest on this one
  std::string hint;       // where it differs: what its bytes would be right for
};

struct AccountPolicy {
  Policy policy;
  std::string reading;             // what vLLM's token count means; else empty
  std::vector<AccountLine> lines;  // one for each figure, in their order
  Equation bytes;                  // llama.cpp: of all caches; vLLM: of the fewest blocks that fit
  // vLLM, where the longest request is known: what it holds. It tells policies apart that print the
  // same lines.
  std::optional<Equation> request;
  std::vector<std::string> alike;  // other policies that print the very same
};
// Lines that the policy does not account for.
std::int64_t num_differing(const AccountPolicy& policy);
// The first of them; nullptr: every line is accounted for.
const AccountLine* first_difference(const AccountPolicy& policy);

struct Account {
  bool accounted = false;
  // The policies that account for every line; where none does, the nearest alone: fewest lines that
  // differ, then the latest first difference, then the smallest.
  std::vector<AccountPolicy> policies;
  std::vector<AccountParameter> parameters;
  // Single changes, each of which would account for every line; what the first line that differs
  // would be right for.
  std::vector<std::string> causes;
  std::vector<std::string> notes;
};

// Throws Error naming what is missing or out of range: no length of the context, an unknown type of
// K and V, a table that no policy serves.
Account account(const EngineStart& start, const LayerTable& table, const ModelShape& shape,
                const AccountFlags& flags);

}  // namespace lacuna

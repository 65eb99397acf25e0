#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/policy.h"
#include "lacuna/sampler.h"
#include "lacuna/transformer.h"

namespace lacuna {

// What happens where prompt and answer together are longer than the model's context.
enum class Overflow {
  kError,  // refused before work starts
  kStop,   // the answer ends there
  // Before a token would stand behind the context's end, the sequence is evicted and begins anew
  // with some of its tokens, computed again from position 0 on as a prompt of theirs would be: the
  // most recent half of the context, and of these the oldest is the beginning of text where the
  // prompt has one. So no key is read at a position that it was not computed for, and none beyond
  // the context.
  kEvict,
};

struct GenerateOptions {
  std::int64_t max_tokens = 256;     // of the answer
  std::int64_t chunk = kPassTokens;  // tokens of the prompt at a time
  // Read by the answer alone, the prompt being read with the transformer's own.
  std::optional<LayerTable> decode_table = {};
  SamplerOptions sampler = {};
  std::vector<std::string> stop_texts = {};  // the answer ends before the first of them
  bool ignore_end = false;                   // go on after an end-of-text token
  Overflow overflow = Overflow::kError;
  std::stop_token stop = {};
  // Called after each chunk of the prompt: tokens done, tokens in all.
  std::function<void(std::int64_t, std::int64_t)> progress = {};
  // Called with text as it becomes certain: whole characters that begin no stop text.
  std::function<void(std::string_view)> text = {};
};

enum class Ended { kEndToken, kStopText, kMaxTokens, kContext, kInterrupted };
std::string_view to_string(Ended ended);

// The context was full, and the sequence began anew.
struct Eviction {
  std::int64_t position = 0;     // tokens of prompt and answer by then
  std::int64_t kept_tokens = 0;  // that the sequence began with
  double seconds = 0;            // to compute them, the next token's own among them
};

struct Generated {
  std::string text;
  std::vector<TokenId> tokens;
  Ended ended = Ended::kMaxTokens;
  std::int64_t prompt_tokens = 0;
  double first_token_seconds = 0;    // from the start to the first token (TTFT)
  std::vector<double> step_seconds;  // of each later token (TPOT), evictions among them
  std::vector<Eviction> evictions;
  std::int64_t held_tokens = 0;  // that passed through the model: the last one did not
  std::int64_t held_bytes = 0;   // keys and values at the end, summed from the pages
  Ledger prefill;                // what attention executed for the prompt
};

// What keys and values of a sequence of so many tokens take while a step writes the last
// `in_flight` of them: with 0 what is held between steps.
Held predicted_kv(const LayerTable& table, const ModelShape& shape,
                  const TransformerOptions& options, std::int64_t tokens, std::int64_t in_flight);
// TransformerOptions::cache_bytes that one such sequence needs, chunks of `chunk` tokens being in
// flight: pages lie in slabs, which have a rest at their end.
std::int64_t cache_bytes_for(const LayerTable& table, const ModelShape& shape,
                             const TransformerOptions& options, std::int64_t tokens,
                             std::int64_t chunk);

// Throws Error where prompt and answer together are longer than the model's context; `or_else` ends
// the list of what is allowed.
void require_context(const Model& model, std::int64_t prompt_tokens, std::int64_t answer_tokens,
                     std::string_view or_else = "");

// Prefills the prompt and generates. The sequence lives in the transformer's cache while it runs
// and is freed at the end. Throws Error for an empty prompt, where the context is too short (see
// Overflow), and where the cache has no room.
Generated generate(Transformer& transformer, const Model& model, std::span<const TokenId> prompt,
                   const GenerateOptions& options);

}  // namespace lacuna

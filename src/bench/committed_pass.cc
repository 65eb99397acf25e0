#include "bench/committed_pass.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "bench/timed_row.h"
#include "lacuna/error.h"

namespace lacuna::bench {

Transformer::Pass committed_pass(Transformer& transformer, SequenceId sequence,
                                 std::span<const TokenId> tokens, LogitRows rows,
                                 const std::stop_token& stop) {
  const NewTokens batch[] = {{sequence, tokens}};
  std::optional<Transformer::Pass> pass = transformer.forward(batch, rows, stop);
  if (!pass) {
    if (stop.stop_requested()) throw Stopped{};
    throw Error(fmt::format("the cache has no room for {} tokens after {}", tokens.size(),
                            transformer.cache().length(sequence)));
  }
  pass->commit();
  return std::move(*pass);
}

}  // namespace lacuna::bench

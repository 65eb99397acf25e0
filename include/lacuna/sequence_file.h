#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/kv_cache.h"

namespace lacuna {

// A sequence as a file: its tokens and every page it holds, with scales and summaries, checksummed.
// docs/kv_layout.md has the format byte by byte. It is the same under every instruction set, and
// equal states of a sequence give equal files.

// Writes the sequence of these tokens. `identity` is the caller's, any bytes: what else the pages
// depend on, as the model, its weights and its topology. The file at `path` is replaced in one
// moment when all is on the disk; until then, and where anything fails, the old one stays. Throws
// Error for an unknown sequence, one that is asleep or in a step, tokens that are not as many as
// its length, and where the file cannot be written.
void save_sequence(const KvCache& cache, SequenceId sequence, std::string_view identity,
                   std::span<const std::int32_t> tokens, const std::string& path);

struct LoadedSequence {
  SequenceId sequence = 0;
  std::vector<std::int32_t> tokens;
};

// A new sequence with the file's pages, tables and tokens, which shares no page. nullopt, and
// nothing taken or evicted, where memory is short even without what only the prefix index refers
// to, which is evicted as needed. Throws Error, and changes nothing, naming the file, the field,
// its offset, its value and what was expected: where the file is none, is of another version,
// damaged, cut or longer than it says, and where identity or shape are not these.
std::optional<LoadedSequence> load_sequence(KvCache& cache, const std::string& path,
                                            std::string_view identity);
// The same from bytes in memory, which errors call `name`.
std::optional<LoadedSequence> load_sequence_bytes(KvCache& cache, std::span<const std::byte> bytes,
                                                  const std::string& name,
                                                  std::string_view identity);

}  // namespace lacuna

#pragma once

#include <memory>
#include <string>

#include "lacuna/attend.h"

namespace lacuna::attend_text {

struct BlockList {
  std::int64_t block = 1;
  std::shared_ptr<const EdgeList> list;
};

// Reads the list of blocks(file): a line `block B`, then lines `query_block key_block`. Throws
// Error naming file and line.
BlockList read_block_list(const std::string& path);

}  // namespace lacuna::attend_text

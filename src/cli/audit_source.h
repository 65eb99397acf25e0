#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lacuna/tokenizer.h"

namespace lacuna::cli {

struct SourceFile {
  std::string path;
  std::int64_t size_bytes = 0;
  std::string sha256;
};
// The name that a file was given, and what tells it from others.
SourceFile source_file(const std::string& path);

// The text of an audit, with enough to have the same one again.
struct AuditSource {
  std::vector<SourceFile> files;       // one after another
  std::optional<std::string> package;  // that they belong to, with its version; of the default text
  bool is_repeated = false;            // a text seen before is easy to foretell
  std::vector<TokenId> tokens;

  std::string name() const;  // the file, or the first one and how many more
};

// As many tokens as asked for, of `path`, or of as many licences of Debian's base-files as it
// takes, which differ; over again where they end. Throws Error where there is no text.
AuditSource read_source(const std::string& path, std::int64_t num_tokens,
                        const Tokenizer& tokenizer);

}  // namespace lacuna::cli

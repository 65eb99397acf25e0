#include "cli/audit_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/runner.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/provenance.h"

namespace lacuna::cli {
namespace {

constexpr const char* kPackage = "base-files";
constexpr const char* kFolder = "/usr/share/common-licenses/";
// Neighbours of one family lie apart: a later one repeats paragraphs of an earlier one.
constexpr const char* kTexts[] = {"GPL-3",    "MPL-2.0",  "Apache-2.0", "GFDL-1.3",
                                  "LGPL-2.1", "Artistic", "CC0-1.0",    "MPL-1.1",
                                  "GPL-1",    "LGPL-3",   "GPL-2",      "GFDL-1.2"};

std::vector<std::string> default_texts() {
  std::vector<std::string> paths;
  for (const char* text : kTexts) {
    if (std::filesystem::exists(std::string(kFolder) + text))
      paths.push_back(kFolder + std::string(text));
  }
  if (paths.empty()) {
    throw Error(fmt::format("no text in {}; allowed: --file with one", kFolder));
  }
  return paths;
}

std::optional<std::string> package() {
  const std::optional<std::string> version = package_version(kPackage);
  if (!version) return {};
  return fmt::format("{} {}", kPackage, *version);
}

}  // namespace

SourceFile source_file(const std::string& path) {
  const MappedFile file(path);
  return {path, file.size(), sha256({file.data(), static_cast<std::size_t>(file.size())})};
}

std::string AuditSource::name() const {
  if (files.size() == 1) return files.front().path;
  return fmt::format("{} and {} more", files.front().path, files.size() - 1);
}

AuditSource read_source(const std::string& path, std::int64_t num_tokens,
                        const Tokenizer& tokenizer) {
  AuditSource source;
  std::string text;
  const auto is_enough = [&] {
    source.tokens = tokenizer.encode(text);
    return std::ssize(source.tokens) >= num_tokens;
  };
  if (path.empty()) source.package = package();
  for (const std::string& one : path.empty() ? default_texts() : std::vector{path}) {
    source.files.push_back(source_file(one));
    text += read_file(one, kLongestText);
    if (is_enough()) break;
  }
  if (text.empty()) throw Error("'" + path + "' is empty; allowed: a text");
  while (!is_enough()) {
    source.is_repeated = true;
    text += text;
  }
  source.tokens.resize(static_cast<std::size_t>(num_tokens));
  return source;
}

}  // namespace lacuna::cli

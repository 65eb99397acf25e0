#include "lacuna/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "config/check_model.h"
#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMaxConfigBytes = std::int64_t{64} << 20;

bool is_gguf_name(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".gguf";
}

// The file of a folder that says what the model is: its config.json, else its one .gguf.
std::string file_in(const std::string& folder) {
  const std::filesystem::path config = std::filesystem::path(folder) / "config.json";
  std::error_code error;
  if (std::filesystem::is_regular_file(config, error)) return config.string();
  std::vector<std::string> found;
  std::filesystem::directory_iterator files(folder, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    if (is_gguf_name(files->path().string())) found.push_back(files->path().string());
  }
  if (error) throw Error(fmt::format("{}: cannot be listed: {}", folder, error.message()));
  if (found.size() == 1) return found.front();
  throw Error(
      fmt::format("{}: a folder needs a config.json or one .gguf file; it has {} .gguf files",
                  folder, found.size()));
}

}  // namespace

namespace config {

void check_model(const ModelConfig& model, const std::string& file) {
  try {
    check(model.table, num_q_heads(model.shape));
    check(model.shape, model.table);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file, error.what()));
  }
}

}  // namespace config

ModelConfig read_model(const std::string& path, const Assumptions& assume) {
  std::error_code error;
  const std::string file = std::filesystem::is_directory(path, error) ? file_in(path) : path;
  if (is_gguf_name(file)) {
    const MappedFile mapped(file);
    const std::span<const std::uint8_t> bytes(mapped.data(),
                                              static_cast<std::size_t>(mapped.size()));
    return read_gguf_config(bytes, file, assume);
  }
  return read_config_json(read_file(file, kMaxConfigBytes), file, assume);
}

}  // namespace lacuna

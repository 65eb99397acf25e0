#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

// Types of metadata values, with their numbers in the file.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
std::string_view to_string(GgufType type);

// One metadata entry: where its value stands. Values are decoded on demand, so that a vocabulary of
// 262144 texts costs nothing to skip.
struct GgufEntry {
  std::string key;
  GgufType type = GgufType::kUint8;  // of the value; of each item where is_array
  bool is_array = false;
  std::int64_t count = 1;   // items
  std::int64_t offset = 0;  // of the first item, from the start of the file
  std::int64_t bytes = 0;   // of all items
};

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> dims;  // 1 to 4, the contiguous one first
  std::uint32_t type = 0;          // ggml's number
  std::string_view type_name;
  std::int64_t offset = 0;  // from the start of the file
  std::int64_t bytes = 0;
};

// The header of a GGUF file (version 2 or 3, little-endian). A plain value.
struct GgufHeader {
  int version = 0;
  std::int64_t alignment = 32;
  std::int64_t data_offset = 0;
  std::vector<GgufEntry> entries;   // keys are unique
  std::vector<GgufTensor> tensors;  // names are unique; regions lie in the file and do not overlap

  const GgufEntry* find(std::string_view key) const;
};

// Reads and checks the header; `bytes` is the whole file, of which only the header is touched.
// Input is hostile: counts are capped by the bytes that are left. Throws Error naming the file, the
// offset and what was wrong. Bytes after the last tensor are tolerated.
GgufHeader read_gguf_header(std::span<const std::uint8_t> bytes, const std::string& name);

// Decodes item `index` of an entry of that header. REQUIRES: index < count. Throws Error naming the
// key where the entry is of another kind (texts, numbers), or where a whole number does not fit 64
// bits.
std::int64_t gguf_integer(std::span<const std::uint8_t> bytes, const GgufEntry& entry,
                          std::int64_t index = 0);
double gguf_real(std::span<const std::uint8_t> bytes, const GgufEntry& entry,
                 std::int64_t index = 0);
// All texts of a text or an array of texts, as views into `bytes`.
std::vector<std::string_view> gguf_texts(std::span<const std::uint8_t> bytes,
                                         const GgufEntry& entry);

}  // namespace lacuna

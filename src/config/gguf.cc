#include "lacuna/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "config/gguf_cursor.h"
#include "config/tensor_types.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

using config::GgufCursor;

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::int64_t kMaxKeyBytes = 65535;
constexpr std::int64_t kMaxNameBytes = 65535;
// The fewest bytes that a metadata entry (length, one character, type, one byte) and a tensor info
// (length, one character, dims, one dim, type, offset) can take: counts are capped with them.
constexpr std::int64_t kLeastEntryBytes = 8 + 1 + 4 + 1;
constexpr std::int64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

std::int64_t item_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

GgufType read_type(GgufCursor& in, const std::string& what) {
  const std::uint32_t type = in.u32(what);
  if (type > static_cast<std::uint32_t>(GgufType::kFloat64)) {
    in.fail(fmt::format("{}: unknown value type {}; known are 0..12", what, type));
  }
  return static_cast<GgufType>(type);
}

void read_items(GgufCursor& in, GgufEntry& entry) {
  entry.offset = in.at();
  if (entry.type == GgufType::kString) {
    for (std::int64_t i = 0; i < entry.count; ++i) in.text(in.left(), entry.key);
  } else {
    // count * size is at most what is left: see read_entry.
    const std::int64_t size = item_bytes(entry.type);
    if (size > in.left() || entry.count > in.left() / size) {
      in.fail(fmt::format("{}: {} items of {} end past the file", entry.key, entry.count,
                          to_string(entry.type)));
    }
    if (entry.type == GgufType::kBool) {
      for (std::int64_t i = 0; i < entry.count; ++i) {
        const std::uint8_t flag = in.u8(entry.key);
        if (flag > 1)
          in.fail(fmt::format("{}: a bool of {}; allowed are 0 and 1", entry.key, flag));
      }
    } else {
      in.skip(entry.count * size);
    }
  }
  entry.bytes = in.at() - entry.offset;
}

GgufEntry read_entry(GgufCursor& in) {
  GgufEntry entry;
  entry.key = in.text(kMaxKeyBytes, "a key");
  if (entry.key.empty()) in.fail("a key without a name");
  for (const char c : entry.key) {
    if (static_cast<unsigned char>(c) < 32) in.fail("a key with a control character");
  }
  entry.type = read_type(in, entry.key);
  if (entry.type == GgufType::kArray) {
    entry.is_array = true;
    entry.type = read_type(in, entry.key);
    if (entry.type == GgufType::kArray) in.fail(fmt::format("{}: an array of arrays", entry.key));
    const std::int64_t least = entry.type == GgufType::kString ? 8 : item_bytes(entry.type);
    entry.count = in.count(least, entry.key + ": array length");
  }
  read_items(in, entry);
  return entry;
}

// Tensor infos hold offsets from the data; they are made absolute once that is known.
GgufTensor read_tensor(GgufCursor& in) {
  GgufTensor tensor;
  tensor.name = in.text(kMaxNameBytes, "a tensor's name");
  if (tensor.name.empty()) in.fail("a tensor without a name");
  for (char& c : tensor.name) {
    if (static_cast<unsigned char>(c) < 32) in.fail("a tensor's name with a control character");
  }
  const std::uint32_t num_dims = in.u32(tensor.name);
  if (num_dims < 1 || num_dims > 4) {
    in.fail(fmt::format("tensor {}: {} dimensions; allowed are 1..4", tensor.name, num_dims));
  }
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    const std::uint64_t dim = in.u64(tensor.name);
    if (dim < 1 || dim > static_cast<std::uint64_t>(INT64_MAX)) {
      in.fail(
          fmt::format("tensor {}: dimension {} is {}; allowed is 1 and more", tensor.name, i, dim));
    }
    tensor.dims.push_back(static_cast<std::int64_t>(dim));
    if (tensor.dims.back() > INT64_MAX / elements) {
      in.fail(fmt::format("tensor {}: its number of elements overflows", tensor.name));
    }
    elements *= tensor.dims.back();
  }
  tensor.type = in.u32(tensor.name);
  const config::TensorType* const known = config::find_tensor_type(tensor.type);
  if (known == nullptr) {
    in.fail(fmt::format("tensor {}: unknown type {}", tensor.name, tensor.type));
  }
  tensor.type_name = known->name;
  if (tensor.dims[0] % known->block != 0) {
    in.fail(fmt::format("tensor {}: rows of {} are no multiple of {}'s blocks of {}", tensor.name,
                        tensor.dims[0], known->name, known->block));
  }
  if (elements / known->block > INT64_MAX / known->bytes) {
    in.fail(fmt::format("tensor {}: its number of bytes overflows", tensor.name));
  }
  tensor.bytes = elements / known->block * known->bytes;
  const std::uint64_t offset = in.u64(tensor.name);
  if (offset > static_cast<std::uint64_t>(INT64_MAX)) {
    in.fail(fmt::format("tensor {}: offset {} lies outside the file", tensor.name, offset));
  }
  tensor.offset = static_cast<std::int64_t>(offset);
  return tensor;
}

void read_magic(GgufCursor& in, std::uint32_t* version) {
  const std::string magic = in.magic();
  for (std::string_view old : {"GGML", "ggml", "lmgg", "tjgg", "fmgg", "algg"}) {
    if (magic == old) in.fail("a GGML file from before GGUF; convert it to GGUF version 3");
  }
  if (magic == "FUGG") in.fail("a big-endian GGUF file; only little-endian is read");
  if (magic != "GGUF") in.fail("not a GGUF file: it does not begin with GGUF");
  *version = in.u32("the version");
  if (*version != 0 && (*version & 0xffffU) == 0) {
    in.fail("a big-endian GGUF file; only little-endian is read");
  }
  if (*version != 2 && *version != 3) {
    in.fail(fmt::format("GGUF version {}; versions 2 and 3 are read", *version));
  }
}

std::int64_t read_alignment(const GgufHeader& header, std::span<const std::uint8_t> bytes,
                            const GgufCursor& in) {
  const GgufEntry* entry = header.find("general.alignment");
  if (entry == nullptr) return 32;
  if (entry->is_array || entry->type != GgufType::kUint32) {
    in.fail("general.alignment: allowed is one uint32");
  }
  const std::int64_t alignment = gguf_integer(bytes, *entry);
  if (alignment == 0 || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    in.fail(fmt::format("general.alignment is {}: allowed are powers of two", alignment));
  }
  return alignment;
}

// Every tensor aligned, inside the file, and apart from every other.
void place_tensors(GgufHeader& header, std::int64_t size, const GgufCursor& in) {
  std::vector<const GgufTensor*> order;
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.offset % header.alignment != 0) {
      in.fail(fmt::format("tensor {}: offset {} is no multiple of the alignment {}", tensor.name,
                          tensor.offset, header.alignment));
    }
    const std::int64_t room = size - header.data_offset;
    if (room < 0 || tensor.offset > room || tensor.bytes > room - tensor.offset) {
      in.fail(fmt::format("tensor {}: {} bytes at offset {} end past the file's {} bytes of data",
                          tensor.name, tensor.bytes, tensor.offset,
                          std::max<std::int64_t>(room, 0)));
    }
    tensor.offset += header.data_offset;
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      in.fail(fmt::format("tensors {} and {} overlap", order[i - 1]->name, order[i]->name));
    }
  }
}

// The vocabulary's arrays are read by type later: a score array of bytes must not pass for floats.
void check_tokenizer(const GgufHeader& header, const GgufCursor& in) {
  const GgufEntry* tokens = header.find("tokenizer.ggml.tokens");
  const auto check = [&](std::string_view key, std::initializer_list<GgufType> allowed,
                         bool as_long) {
    const GgufEntry* entry = header.find(key);
    if (entry == nullptr) return;
    const bool fits = std::find(allowed.begin(), allowed.end(), entry->type) != allowed.end();
    if (!entry->is_array || !fits) {
      in.fail(fmt::format("{}: {} {}; allowed is an array of {}", key,
                          entry->is_array ? "an array of" : "a", to_string(entry->type),
                          to_string(*allowed.begin())));
    }
    if (as_long && tokens != nullptr && entry->count != tokens->count) {
      in.fail(fmt::format("{}: {} items for {} tokens", key, entry->count, tokens->count));
    }
  };
  check("tokenizer.ggml.tokens", {GgufType::kString}, false);
  check("tokenizer.ggml.merges", {GgufType::kString}, false);
  check("tokenizer.ggml.scores", {GgufType::kFloat32}, true);
  check("tokenizer.ggml.token_type", {GgufType::kInt32, GgufType::kUint32}, true);
}

}  // namespace

std::string_view to_string(GgufType type) {
  constexpr std::string_view kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                         "int32",  "float32", "bool",   "string", "array",
                                         "uint64", "int64",   "float64"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

const GgufEntry* GgufHeader::find(std::string_view key) const {
  for (const GgufEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

GgufHeader read_gguf_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  GgufCursor in(bytes, name);
  GgufHeader header;
  std::uint32_t version = 0;
  read_magic(in, &version);
  header.version = static_cast<int>(version);
  const std::int64_t num_tensors = in.count(kLeastTensorBytes, "the number of tensors");
  const std::int64_t num_entries = in.count(kLeastEntryBytes, "the number of metadata entries");
  std::unordered_set<std::string> seen;
  for (std::int64_t i = 0; i < num_entries; ++i) {
    header.entries.push_back(read_entry(in));
    if (!seen.insert(header.entries.back().key).second) {
      in.fail(fmt::format("the key {} stands twice", header.entries.back().key));
    }
  }
  header.alignment = read_alignment(header, bytes, in);
  check_tokenizer(header, in);
  seen.clear();
  for (std::int64_t i = 0; i < num_tensors; ++i) {
    header.tensors.push_back(read_tensor(in));
    if (!seen.insert(header.tensors.back().name).second) {
      in.fail(fmt::format("the tensor {} stands twice", header.tensors.back().name));
    }
  }
  header.data_offset = ceil_div(in.at(), header.alignment) * header.alignment;
  place_tensors(header, static_cast<std::int64_t>(bytes.size()), in);
  return header;
}

namespace {

template <typename T>
T load(std::span<const std::uint8_t> bytes, const GgufEntry& entry, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + entry.offset + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

}  // namespace

std::int64_t gguf_integer(std::span<const std::uint8_t> bytes, const GgufEntry& entry,
                          std::int64_t index) {
  switch (entry.type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return load<std::uint8_t>(bytes, entry, index);
    case GgufType::kInt8:
      return load<std::int8_t>(bytes, entry, index);
    case GgufType::kUint16:
      return load<std::uint16_t>(bytes, entry, index);
    case GgufType::kInt16:
      return load<std::int16_t>(bytes, entry, index);
    case GgufType::kUint32:
      return load<std::uint32_t>(bytes, entry, index);
    case GgufType::kInt32:
      return load<std::int32_t>(bytes, entry, index);
    case GgufType::kInt64:
      return load<std::int64_t>(bytes, entry, index);
    case GgufType::kUint64: {
      const auto value = load<std::uint64_t>(bytes, entry, index);
      if (value <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(value);
      throw Error(fmt::format("{}: {} does not fit 64 bits signed", entry.key, value));
    }
    default:
      throw Error(
          fmt::format("{}: a {} where a whole number is needed", entry.key, to_string(entry.type)));
  }
}

double gguf_real(std::span<const std::uint8_t> bytes, const GgufEntry& entry, std::int64_t index) {
  if (entry.type == GgufType::kFloat32) return load<float>(bytes, entry, index);
  if (entry.type == GgufType::kFloat64) return load<double>(bytes, entry, index);
  return static_cast<double>(gguf_integer(bytes, entry, index));
}

std::vector<std::string_view> gguf_texts(std::span<const std::uint8_t> bytes,
                                         const GgufEntry& entry) {
  if (entry.type != GgufType::kString) {
    throw Error(fmt::format("{}: a {} where a text is needed", entry.key, to_string(entry.type)));
  }
  std::vector<std::string_view> texts;
  GgufCursor in(bytes, entry.key);
  in.skip(entry.offset);
  for (std::int64_t i = 0; i < entry.count; ++i) texts.push_back(in.text(in.left(), entry.key));
  return texts;
}

}  // namespace lacuna

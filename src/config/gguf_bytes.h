#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/gguf.h"

// For tests: writes GGUF bytes, right ones and wrong ones. It shares nothing with the reader.
namespace lacuna::config_test {

class GgufBytes {
 public:
  GgufBytes& u8(std::uint8_t v) { return raw(&v, 1); }
  GgufBytes& u32(std::uint32_t v) { return raw(&v, 4); }
  GgufBytes& u64(std::uint64_t v) { return raw(&v, 8); }
  GgufBytes& f32(float v) { return raw(&v, 4); }
  GgufBytes& raw(const void* data, std::size_t size) {
    const auto* from = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
    return *this;
  }
  GgufBytes& text(std::string_view v) { return u64(v.size()).raw(v.data(), v.size()); }

  // The fixed part; the counts are those of what follows.
  GgufBytes& head(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF", 4).u32(version).u64(tensors).u64(entries);
  }
  GgufBytes& key(std::string_view name, GgufType type) {
    return text(name).u32(static_cast<std::uint32_t>(type));
  }
  GgufBytes& entry(std::string_view name, std::uint32_t v) {
    return key(name, GgufType::kUint32).u32(v);
  }
  GgufBytes& entry(std::string_view name, std::string_view v) {
    return key(name, GgufType::kString).text(v);
  }
  GgufBytes& array(std::string_view name, GgufType item, std::uint64_t count) {
    return key(name, GgufType::kArray).u32(static_cast<std::uint32_t>(item)).u64(count);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  // Pads to the alignment and adds `size` bytes of data.
  GgufBytes& data(std::size_t size, std::size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(0);
    bytes_.insert(bytes_.end(), size, 0);
    return *this;
  }

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

// Metadata of one model, written in any order and counted at the end.
class GgufFile {
 public:
  explicit GgufFile(std::string arch, int layers = 8) : arch_(std::move(arch)) {
    body_.entry("general.architecture", std::string_view(arch_));
    ++entries_;
    set("block_count", static_cast<std::uint32_t>(layers)).set("embedding_length", 64);
    set("context_length", 4096).set("feed_forward_length", 128).set("attention.head_count", 4);
  }
  GgufFile& set(std::string_view suffix, std::uint32_t value) {
    body_.entry(arch_ + "." + std::string(suffix), value);
    ++entries_;
    return *this;
  }
  GgufFile& set_list(std::string_view suffix, const std::vector<std::uint32_t>& values) {
    body_.array(arch_ + "." + std::string(suffix), GgufType::kUint32, values.size());
    for (const std::uint32_t value : values) body_.u32(value);
    ++entries_;
    return *this;
  }
  GgufFile& set_flags(std::string_view suffix, const std::vector<bool>& values) {
    body_.array(arch_ + "." + std::string(suffix), GgufType::kBool, values.size());
    for (const bool value : values) body_.u8(value ? 1 : 0);
    ++entries_;
    return *this;
  }
  GgufFile& tokens(const std::vector<std::string>& words) {
    body_.array("tokenizer.ggml.tokens", GgufType::kString, words.size());
    for (const std::string& word : words) body_.text(word);
    ++entries_;
    return *this;
  }
  std::vector<std::uint8_t> bytes(std::uint32_t version = 3) const {
    GgufBytes out;
    out.head(0, entries_, version).raw(body_.bytes().data(), body_.bytes().size());
    return out.bytes();
  }

 private:
  std::string arch_;
  GgufBytes body_;
  std::uint64_t entries_ = 0;
};

}  // namespace lacuna::config_test

#include "lacuna/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <unordered_map>
#include <utility>

#include "config/tensor_types.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "model/dequantize.h"

namespace lacuna {
namespace {

constexpr const config::TensorType& row_of(WeightType type) {
  return *config::find_tensor_type(static_cast<std::uint32_t>(type));
}

// nullptr where no tensor of that type is read.
const model::BlockReader* find_reader(std::uint32_t type) {
  for (const model::BlockReader& reader : model::block_readers()) {
    if (static_cast<std::uint32_t>(reader.type) == type) return &reader;
  }
  return nullptr;
}

const model::BlockReader& reader_of(WeightType type) {
  return *find_reader(static_cast<std::uint32_t>(type));
}

// Dims that a file leaves out are 1.
bool has_dims(const GgufTensor& tensor, std::int64_t cols, std::int64_t rows) {
  const std::int64_t wanted[] = {cols, rows, 1, 1};
  for (std::size_t i = 0; i < std::size(wanted); ++i) {
    if ((i < tensor.dims.size() ? tensor.dims[i] : 1) != wanted[i]) return false;
  }
  return true;
}

std::string dims_error(const std::string& path, const GgufTensor& tensor,
                       const std::string& wanted) {
  return fmt::format("{}: tensor {}: its dims are [{}], the contiguous one first; wanted are {}",
                     path, tensor.name, fmt::join(tensor.dims, ", "), wanted);
}

}  // namespace

std::string_view to_string(WeightType type) { return row_of(type).name; }

WeightBlock block_of(WeightType type) { return {row_of(type).block, row_of(type).bytes}; }

std::int64_t WeightMatrix::row_bytes() const {
  const WeightBlock block = block_of(type);
  return cols / block.size * block.bytes;
}

void read_row(std::span<float> to, const WeightMatrix& matrix, std::int64_t row) {
  assert(std::ssize(to) == matrix.cols);
  assert(0 <= row && row < matrix.rows);
  const WeightBlock block = block_of(matrix.type);
  reader_of(matrix.type)
      .dequantize(to.data(), matrix.data + row * matrix.row_bytes(), matrix.cols / block.size,
                  block);
}

int group_bits(WeightType type) { return reader_of(type).group_bits; }

void read_groups(std::span<DenseGroup> to, const WeightMatrix& matrix, std::int64_t row) {
  assert(std::ssize(to) * kDenseGroup == matrix.cols);
  assert(0 <= row && row < matrix.rows);
  const WeightBlock block = block_of(matrix.type);
  reader_of(matrix.type)
      .unpack(to.data(), matrix.data + row * matrix.row_bytes(), matrix.cols / block.size, block);
}

struct WeightFile::State {
  explicit State(const std::string& path_of_file)
      : path(path_of_file), file(path), header(read_gguf_header(bytes(), path)) {
    for (const GgufTensor& tensor : header.tensors) tensors.emplace(tensor.name, &tensor);
  }

  std::span<const std::uint8_t> bytes() const {
    return {file.data(), static_cast<std::size_t>(file.size())};
  }
  const GgufTensor& tensor(std::string_view name) const;
  WeightMatrix matrix(const GgufTensor& tensor, std::int64_t rows, std::int64_t cols) const;

  std::string path;
  MappedFile file;
  GgufHeader header;
  std::unordered_map<std::string_view, const GgufTensor*> tensors;
};

const GgufTensor& WeightFile::State::tensor(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return *found->second;
  std::vector<std::string> names;
  for (const GgufTensor& tensor : header.tensors) names.push_back(tensor.name);
  throw Error(fmt::format("{}: there is no tensor '{}'{}", path, name, did_you_mean(name, names)));
}

WeightMatrix WeightFile::State::matrix(const GgufTensor& tensor, std::int64_t rows,
                                       std::int64_t cols) const {
  const model::BlockReader* const reader = find_reader(tensor.type);
  if (reader == nullptr) {
    std::vector<std::string_view> known;
    for (const model::BlockReader& one : model::block_readers()) {
      known.push_back(to_string(one.type));
    }
    throw Error(fmt::format("{}: tensor {}: its type is {}; allowed are {}", path, tensor.name,
                            tensor.type_name, fmt::join(known, ", ")));
  }
  return {reader->type, rows, cols,
          reinterpret_cast<const std::byte*>(file.data() + tensor.offset)};
}

WeightFile::WeightFile(const std::string& path) : state_(std::make_unique<State>(path)) {}
WeightFile::~WeightFile() = default;
WeightFile::WeightFile(WeightFile&&) noexcept = default;
WeightFile& WeightFile::operator=(WeightFile&&) noexcept = default;

const std::string& WeightFile::path() const { return state_->path; }
const GgufHeader& WeightFile::header() const { return state_->header; }
std::span<const std::uint8_t> WeightFile::bytes() const { return state_->bytes(); }

bool WeightFile::has(std::string_view name) const { return state_->tensors.contains(name); }

WeightMatrix WeightFile::matrix(std::string_view name, std::int64_t rows, std::int64_t cols) const {
  const GgufTensor& tensor = state_->tensor(name);
  if (!has_dims(tensor, cols, rows)) {
    throw Error(dims_error(state_->path, tensor, fmt::format("[{}, {}]", cols, rows)));
  }
  return state_->matrix(tensor, rows, cols);
}

std::vector<float> WeightFile::vector(std::string_view name, std::int64_t size) const {
  const GgufTensor& tensor = state_->tensor(name);
  if (!has_dims(tensor, size, 1)) {
    throw Error(dims_error(state_->path, tensor, fmt::format("[{}]", size)));
  }
  std::vector<float> values(static_cast<std::size_t>(size));
  read_row(values, state_->matrix(tensor, 1, size), 0);
  return values;
}

}  // namespace lacuna

// libFuzzer: any bytes as a GGUF file end in tensors whose first and last row can be read from
// their own bytes alone, or in one Error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/weights.h"
#include "model/memory_file.h"

namespace {

// The row as it stands in the file and from a copy that ends with its allocation.
void read_twice(const lacuna::WeightMatrix& matrix, std::int64_t row) {
  std::vector<float> mapped(static_cast<std::size_t>(matrix.cols));
  std::vector<float> copied(mapped.size());
  lacuna::read_row(mapped, matrix, row);
  const std::byte* const from = matrix.data + row * matrix.row_bytes();
  const std::vector<std::byte> bytes(from, from + matrix.row_bytes());
  lacuna::read_row(copied, {matrix.type, 1, matrix.cols, bytes.data()}, 0);
  if (std::memcmp(mapped.data(), copied.data(), 4 * mapped.size()) != 0) std::abort();
}

void read_tensor(const lacuna::WeightFile& file, const lacuna::GgufTensor& tensor) {
  const std::int64_t rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  lacuna::WeightMatrix matrix;
  try {
    matrix = file.matrix(tensor.name, rows, tensor.dims[0]);
  } catch (const lacuna::Error&) {
    return;
  }
  const auto* const begin = reinterpret_cast<const std::byte*>(file.bytes().data());
  const bool inside = matrix.data >= begin && matrix.size_bytes() == tensor.bytes &&
                      matrix.data + matrix.size_bytes() <= begin + file.bytes().size();
  if (!inside) std::abort();
  read_twice(matrix, 0);
  read_twice(matrix, rows - 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lacuna::model_test::MemoryFile bytes(data, size);
  try {
    const lacuna::WeightFile file(bytes.path());
    for (const lacuna::GgufTensor& tensor : file.header().tensors) read_tensor(file, tensor);
  } catch (const lacuna::Error&) {
  }
  return 0;
}

// libFuzzer: any bytes as a GGUF file end in tensors whose first and last row can be read from
// their own bytes alone, or in one Error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/weights.h"

namespace {

// A file in memory, which is mapped as any other.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : file_(::memfd_create("fuzz", 0)) {
    const bool written = file_ >= 0 && ::write(file_, data, size) == static_cast<ssize_t>(size);
    if (!written) std::abort();
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

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
  const MemoryFile bytes(data, size);
  try {
    const lacuna::WeightFile file(bytes.path());
    for (const lacuna::GgufTensor& tensor : file.header().tensors) read_tensor(file, tensor);
  } catch (const lacuna::Error&) {
  }
  return 0;
}

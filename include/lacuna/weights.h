#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/dense.h"
#include "lacuna/gguf.h"

namespace lacuna {

// How a GGUF file stores the numbers of a tensor, with ggml's numbers.
enum class WeightType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kBf16 = 30,
};
// "q4_k": as GgufTensor names it.
std::string_view to_string(WeightType type);

// A block of block_size numbers of one row in block_bytes.
struct WeightBlock {
  std::int64_t size = 1;
  std::int64_t bytes = 4;
};
WeightBlock block_of(WeightType type);

// A matrix [rows, cols] as it lies in the file, row after row. It owns nothing.
struct WeightMatrix {
  WeightType type = WeightType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;  // any alignment

  std::int64_t row_bytes() const;
  std::int64_t size_bytes() const { return rows * row_bytes(); }
};

// Row `row` in f32, [cols]: each number is the f32 nearest to what ggml defines, scale times whole
// number plus minimum. The products are exact in f32 (only Q6_K's last one rounds), so that no
// order and no fused operation gives other bits; they are those of ggml and of its Python package.
// A scale that is not finite gives numbers that are not, with any bits of a NaN. REQUIRES: 0 <= row
// < rows and to.size() == cols.
void read_row(std::span<float> to, const WeightMatrix& matrix, std::int64_t row);

// The bits of a weight where 32 at a time are scale · number + offset, numbers of 4 or 5 bits
// (Q4_0, Q4_1, Q4_K: 4; Q5_0, Q5_1, Q5_K: 5); 0 of other types.
int group_bits(WeightType type);
// Row `row` as such groups. REQUIRES: group_bits(matrix.type) != 0, to.size() == cols / 32.
void read_groups(std::span<DenseGroup> to, const WeightMatrix& matrix, std::int64_t row);

// The tensors of a GGUF file, mapped read-only. Immutable; threads may share it. The file must not
// be changed while it is mapped.
class WeightFile {
 public:
  // Throws Error naming the file and what was wrong with its header.
  explicit WeightFile(const std::string& path);
  ~WeightFile();
  WeightFile(WeightFile&&) noexcept;
  WeightFile& operator=(WeightFile&&) noexcept;

  const std::string& path() const;
  const GgufHeader& header() const;
  std::span<const std::uint8_t> bytes() const;  // the whole file

  bool has(std::string_view name) const;
  // The tensor as [rows, cols], whose dims in the file are [cols, rows]; dims of 1 may stand
  // behind, and a tensor of one dim is one row. The matrix is valid while the file is mapped, also
  // after a move of the WeightFile. Throws Error naming the file, the tensor, its dims or its type,
  // and what was wanted: a tensor that is missing, of another size, or of a type that is not above.
  WeightMatrix matrix(std::string_view name, std::int64_t rows, std::int64_t cols) const;
  // A tensor of one dim, in f32.
  std::vector<float> vector(std::string_view name, std::int64_t size) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lacuna

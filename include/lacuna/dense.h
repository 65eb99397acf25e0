#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lacuna/memory.h"
#include "lacuna/thread_pool.h"

namespace lacuna {

// How the products of a weight matrix are computed.
//   f32   weights and rows in f32: a sum of multiply-adds in the order of the inputs
//   int8  both as whole numbers of 8 bits with a scale for each 32 inputs of a row (kDenseGroup):
//         scale = max|x| / 127 (of weights as f16), number = x / scale to the nearest. Sums of a
//         group are exact; groups are added in f32 in their order. 8.5 bits a weight. Weights that
//         a file has in 4 or 5 bits stay as they are there: scale · number + offset.
enum class DenseType { kF32, kInt8 };
std::string_view to_string(DenseType type);
inline constexpr std::int64_t kDenseGroup = 32;

// The weights of an output for a group of inputs: scale · number + offset, numbers below 2^bits.
struct DenseGroup {
  std::uint8_t numbers[kDenseGroup] = {};
  float scale = 0;
  float offset = 0;
};

// A weight matrix [outputs, inputs] packed for kernels: panels of 16 outputs, one after another,
//   f32     [inputs][16]
//   8 bits  for each group [8][16] lanes of four numbers + 128, then 16 scales in f16
//   4 bits  for each group [4][16] lanes, in a byte's low half lane l, in its high one lane l + 4,
//           then 16 scales and 16 offsets in f16: 5 bits a weight
//   5 bits  the same with [16] lanes more before the scales, bit l of a byte the fifth one of
//           lane l: 6 bits a weight
// Outputs are padded with zeros to 16, inputs of whole numbers to 32. Immutable; threads may share
// it.
class DenseWeights {
 public:
  DenseWeights() = default;
  // read_row(to, row) gives a row's numbers; threads of the pool call it together. Throws Error
  // naming the sizes where they are not positive or the memory is refused, and the output that has
  // a weight which is not finite or larger than 127 · 65504.
  using ReadRow = std::function<void(std::span<float> to, std::int64_t row)>;
  // Several matrices may share blocks of memory; without, each has its own.
  DenseWeights(DenseType type, std::int64_t outputs, std::int64_t inputs, const ReadRow& read_row,
               ThreadPool* pool = nullptr, MemoryBlocks* blocks = nullptr);
  // Of whole numbers of 4 or 5 bits; inputs are a multiple of 32. Scales and offsets are rounded to
  // f16. Throws Error naming the output that has one which is not finite there.
  using ReadGroups = std::function<void(std::span<DenseGroup> to, std::int64_t row)>;
  DenseWeights(int bits, std::int64_t outputs, std::int64_t inputs, const ReadGroups& read_groups,
               ThreadPool* pool = nullptr, MemoryBlocks* blocks = nullptr);

  DenseType type() const { return bits_ == 32 ? DenseType::kF32 : DenseType::kInt8; }
  int bits() const { return bits_; }
  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  std::int64_t padded_outputs() const { return (outputs_ + 15) / 16 * 16; }
  std::int64_t size_bytes() const;
  const std::byte* panel(std::int64_t idx) const;

 private:
  int bits_ = 32;
  std::int64_t outputs_ = 0;
  std::int64_t inputs_ = 0;
  std::shared_ptr<std::byte> panels_;
};

// Rows [num_rows, inputs] as products of one type read them; several products may follow.
class DenseRows {
 public:
  explicit DenseRows(DenseType type, const std::string& isa = "");
  // Of f32 it keeps the pointer alone.
  void set(const float* x, std::int64_t num_rows, std::int64_t inputs, ThreadPool* pool = nullptr);
  // make(to, row) writes the row's inputs; it is called on all threads of the pool, and a row is
  // packed while it is still in the nearest cache.
  using MakeRow = std::function<void(float* to, std::int64_t row)>;
  void make(const MakeRow& make, std::int64_t num_rows, std::int64_t inputs,
            ThreadPool* pool = nullptr);

  DenseType type() const { return type_; }
  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t inputs() const { return inputs_; }
  const void* lanes() const { return lanes_; }
  std::int64_t row_lanes() const;
  const std::string& isa() const { return isa_; }

 private:
  DenseType type_;
  std::string isa_;
  std::int64_t num_rows_ = 0;
  std::int64_t inputs_ = 0;
  const void* lanes_ = nullptr;
  Memory made_;
};

// out[r][o] = Σ_i rows[r][i] · weights[o][i], out [num_rows, out_stride] with out_stride >=
// padded_outputs(). The bits of a row depend on that row, the weights, their type and the
// instruction set alone: not on the other rows, their number, or threads. Throws Error where types
// or inputs differ.
void multiply(float* out, std::int64_t out_stride, const DenseRows& rows,
              const DenseWeights& weights, ThreadPool* pool = nullptr);

}  // namespace lacuna

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "lacuna/kernel_bench.h"
#include "lacuna/kv_view.h"
#include "lacuna/tensor.h"

namespace lacuna::bench {

// Memory as PyTorch's allocator gives it: 64-byte aligned. Move-only.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::int64_t size_bytes);

  std::byte* data() const { return bytes_.get(); }
  std::int64_t size() const { return size_bytes_; }
  std::span<std::byte> first(std::int64_t size_bytes) const;

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::int64_t size_bytes_ = 0;
};

// An owned contiguous row-major tensor [tokens, heads, dims].
struct Tensor {
  DType dtype = DType::kF32;
  std::array<std::int64_t, 3> shape = {0, 0, 0};
  AlignedBytes bytes;

  std::int64_t num_elements() const { return shape[0] * shape[1] * shape[2]; }
  TensorView view() const { return tensor_view(bytes.data(), dtype, shape); }
};

// Element `idx` of stored numbers, exactly; and the nearest that the dtype holds put there.
double element(const void* data, DType dtype, std::int64_t idx);
void put_element(void* data, DType dtype, std::int64_t idx, float value);

// What one problem's sequence is computed from: q of all its tokens, drawn from the seed with unit
// variance, so that scores spread as a model's do. Move-only.
struct Inputs {
  Tensor q;                        // [length, num_q_heads, head_dim]
  Tensor k;                        // [length, num_kv_heads, head_dim]
  Tensor v;                        // [length, num_kv_heads, v_head_dim]
  std::vector<float> sink_logits;  // [num_q_heads], used where a problem has learned sinks
  std::array<std::int64_t, 1> starts = {0};
  std::array<std::int64_t, 1> lengths = {0};

  // The query rows of a problem: the last ones.
  TensorView q_rows(std::int64_t num_rows) const;
  KvView kv() const;
};
Inputs draw_inputs(const KernelProblem& problem, std::uint64_t seed);

// Whether two problems are computed from the same inputs.
bool same_inputs(const KernelProblem& a, const KernelProblem& b);

}  // namespace lacuna::bench

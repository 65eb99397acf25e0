#include "bench/tensors.h"

#include <cmath>
#include <cstring>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/random.h"

namespace lacuna::bench {
namespace {

// Which stream of random numbers a tensor is drawn from.
enum class Stream : std::uint32_t { kQ, kK, kV, kSinks };

// Uniform in -√3 .. √3: unit variance.
float uniform(std::uint32_t bits) {
  constexpr double kWidth = 2 * 1.7320508075688772;
  return static_cast<float>((static_cast<double>(bits) * 0x1p-32 - 0.5) * kWidth);
}

// Calls put(idx, value) for each of `count` numbers of a stream.
template <typename Put>
void draw(Stream stream, std::uint64_t seed, std::int64_t count, const Put& put) {
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed),
                                            static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t first = 0; first < count; first += 4) {
    const auto block = static_cast<std::uint64_t>(first / 4);
    const auto bits =
        philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                static_cast<std::uint32_t>(stream), 0},
               key);
    for (std::int64_t lane = 0; lane < 4 && first + lane < count; ++lane) {
      put(first + lane, uniform(bits[static_cast<std::size_t>(lane)]));
    }
  }
}

Tensor draw_tensor(Stream stream, std::uint64_t seed, DType dtype,
                   std::array<std::int64_t, 3> shape) {
  const std::int64_t count = checked_mul64(checked_mul64(shape[0], shape[1]), shape[2]);
  Tensor tensor{dtype, shape, AlignedBytes(checked_mul64(count, size_bytes(dtype)))};
  draw(stream, seed, count,
       [&](std::int64_t idx, float value) { put_element(tensor.bytes.data(), dtype, idx, value); });
  return tensor;
}

}  // namespace

AlignedBytes::AlignedBytes(std::int64_t size_bytes)
    : bytes_(static_cast<std::byte*>(
          ::operator new(static_cast<std::size_t>(size_bytes), kAlignment))),
      size_bytes_(size_bytes) {}

std::span<std::byte> AlignedBytes::first(std::int64_t size_bytes) const {
  return std::span(bytes_.get(), static_cast<std::size_t>(size_bytes_))
      .first(static_cast<std::size_t>(size_bytes));
}

void put_element(void* data, DType dtype, std::int64_t idx, float value) {
  auto* const bytes = static_cast<std::byte*>(data) + idx * size_bytes(dtype);
  if (dtype == DType::kF32) {
    std::memcpy(bytes, &value, 4);
    return;
  }
  const std::uint16_t bits = dtype == DType::kBf16 ? to_bf16(value) : to_f16(value);
  std::memcpy(bytes, &bits, 2);
}

double element(const void* data, DType dtype, std::int64_t idx) {
  const auto* const bytes = static_cast<const std::byte*>(data) + idx * size_bytes(dtype);
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes, 4);
    return static_cast<double>(value);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return static_cast<double>(dtype == DType::kBf16 ? from_bf16(bits) : from_f16(bits));
}

TensorView Inputs::q_rows(std::int64_t num_rows) const {
  const std::int64_t skipped = q.shape[0] - num_rows;
  const std::int64_t row_bytes = q.shape[1] * q.shape[2] * size_bytes(q.dtype);
  return tensor_view(q.bytes.data() + skipped * row_bytes, q.dtype,
                     {num_rows, q.shape[1], q.shape[2]});
}

KvView Inputs::kv() const { return kv_view(k.view(), v.view(), starts, lengths); }

Inputs draw_inputs(const KernelProblem& problem, std::uint64_t seed) {
  const std::int64_t length = problem.length;
  const HeadCounts& heads = problem.heads;
  Inputs inputs;
  inputs.q =
      draw_tensor(Stream::kQ, seed, problem.dtype, {length, heads.num_q_heads, problem.head_dim});
  inputs.k =
      draw_tensor(Stream::kK, seed, problem.dtype, {length, heads.num_kv_heads, problem.head_dim});
  inputs.v = draw_tensor(Stream::kV, seed, problem.dtype,
                         {length, heads.num_kv_heads, problem.v_head_dim});
  inputs.sink_logits.resize(static_cast<std::size_t>(heads.num_q_heads));
  draw(Stream::kSinks, seed, heads.num_q_heads, [&](std::int64_t idx, float value) {
    inputs.sink_logits[static_cast<std::size_t>(idx)] = value;
  });
  inputs.lengths = {length};
  return inputs;
}

bool same_inputs(const KernelProblem& a, const KernelProblem& b) {
  return a.length == b.length && a.heads == b.heads && a.head_dim == b.head_dim &&
         a.v_head_dim == b.v_head_dim && a.dtype == b.dtype;
}

}  // namespace lacuna::bench

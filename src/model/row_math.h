#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lacuna/thread_pool.h"
#include "model/architecture.h"

// What a layer does to single rows between its products. A row's bits depend on that row alone.
namespace lacuna {

// Calls work(row) for all rows on the threads of the pool.
template <typename Work>
void for_rows(ThreadPool& pool, std::int64_t num_rows, const Work& work) {
  const std::int64_t threads = num_rows < pool.num_threads() ? 1 : pool.num_threads();
  if (threads == 1) {
    for (std::int64_t row = 0; row < num_rows; ++row) work(row);
    return;
  }
  pool.run([&](std::int64_t thread) {
    for (std::int64_t row = thread * num_rows / threads; row < (thread + 1) * num_rows / threads;
         ++row) {
      work(row);
    }
  });
}

// to = x / √(mean(x²) + ε) ∘ weight. `to` may be x.
void rms_norm(float* to, const float* x, std::span<const float> weight, float epsilon);

// to[i] += x[i]
void add(float* to, const float* x, std::int64_t size);

// cos and sin of a position's angles, [head_dim / 2] each.
struct Angles {
  std::vector<float> cos;
  std::vector<float> sin;
};
Angles angles_of(const Rotary& rotary, std::span<const float> divisors, std::int64_t head_dim,
                 std::int64_t position);
// Turns the pairs of dims of one head.
void rotate(float* head, const Angles& angles, bool neighbours);

// to[i] = x[i] as bfloat16, ties to even. NaN stays NaN.
void round_to_bf16(std::uint16_t* to, const float* x, std::int64_t size);

// x[i] = cap · tanh(x[i] / cap)
void soft_cap(std::span<float> x, float cap);

}  // namespace lacuna

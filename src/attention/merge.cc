// Merging finished partial results: out = Σ out_x·e^(lse_x − lse) (docs/math.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/call.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void check_view(const char* name, const std::array<std::int64_t, 3>& shape, DType dtype,
                const std::array<std::int64_t, 3>& allowed) {
  if (shape != allowed) {
    throw Error(fmt::format("the shape of {} is {}×{}×{}; allowed: that of out, {}×{}×{}", name,
                            shape[0], shape[1], shape[2], allowed[0], allowed[1], allowed[2]));
  }
  if (dtype != DType::kF32) {
    throw Error(fmt::format("dtype of {} is {}; allowed: f32", name, to_string(dtype)));
  }
}

void check_size(const char* name, std::size_t size, std::int64_t allowed, const char* of_what) {
  if (static_cast<std::int64_t>(size) != allowed) {
    throw Error(
        fmt::format("the size of {} is {}; allowed: {} = {}", name, size, of_what, allowed));
  }
}

void check_lse(const char* name, std::span<const float> lse, std::int64_t size) {
  check_size(name, lse.size(), size, "rows × heads");
  const auto infinite = std::find(lse.begin(), lse.end(), -kMinusInfinity);
  if (infinite != lse.end()) {
    throw Error(fmt::format("{}[{}] is inf; allowed: finite numbers, and -inf for no keys", name,
                            infinite - lse.begin()));
  }
}

// How much of each side a row keeps, and its log-sum-exp.
struct Shares {
  float a;
  float b;
  float lse;
};

Shares shares(float a, float b, float sink) {
  const float top = std::fmax(std::fmax(a, b), sink);
  if (top == kMinusInfinity) return {0, 0, kMinusInfinity};
  // One side alone is kept as it is: the empty state is an exact identity.
  if (sink == kMinusInfinity && b == kMinusInfinity) return {1, 0, a};
  if (sink == kMinusInfinity && a == kMinusInfinity) return {0, 1, b};
  const auto weight = [&](float lse) {
    return std::exp(static_cast<double>(lse) - static_cast<double>(top));
  };
  const double sum = weight(a) + weight(b) + weight(sink);
  return {static_cast<float>(weight(a) / sum), static_cast<float>(weight(b) / sum),
          static_cast<float>(static_cast<double>(top) + std::log(sum))};
}

// share · x, where a share of nothing is 0 whatever x holds.
float part(float share, float x) { return share == 0 ? 0.0F : share * x; }

}  // namespace

void merge(const MutableTensorView& out, std::span<float> lse, const TensorView& out_a,
           std::span<const float> lse_a, const TensorView& out_b, std::span<const float> lse_b,
           std::span<const float> sink_logits) {
  const auto [num_rows, num_heads, dim] = out.shape;
  check_view("out", out.shape, out.dtype, out.shape);
  check_view("out_a", out_a.shape, out_a.dtype, out.shape);
  check_view("out_b", out_b.shape, out_b.dtype, out.shape);
  const std::int64_t num_lse = num_rows * num_heads;
  check_lse("lse_a", lse_a, num_lse);
  check_lse("lse_b", lse_b, num_lse);
  if (!lse.empty()) check_size("lse", lse.size(), num_lse, "rows × heads");
  if (!sink_logits.empty()) check_size("sink_logits", sink_logits.size(), num_heads, "heads");
  check_sink_logits(sink_logits);

  const auto* const a = static_cast<const float*>(out_a.data);
  const auto* const b = static_cast<const float*>(out_b.data);
  auto* const to = static_cast<float*>(out.data);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      const auto at = static_cast<std::size_t>(row * num_heads + head);
      const float sink =
          sink_logits.empty() ? kMinusInfinity : sink_logits[static_cast<std::size_t>(head)];
      const Shares share = shares(lse_a[at], lse_b[at], sink);
      for (std::int64_t d = 0; d < dim; ++d) {
        to[out.offset(row, head) + d * out.strides[2]] =
            part(share.a, a[out_a.offset(row, head) + d * out_a.strides[2]]) +
            part(share.b, b[out_b.offset(row, head) + d * out_b.strides[2]]);
      }
      if (!lse.empty()) lse[at] = share.lse;
    }
  }
}

}  // namespace lacuna

#include "lacuna/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/kernel_table.h"
#include "lacuna/error.h"
#include "lacuna/tensor.h"

namespace lacuna {
namespace {

std::int64_t panel_bytes(DenseType type, std::int64_t inputs) {
  return type == DenseType::kF32 ? inputs * kPanelKeys * 4
                                 : num_dense_groups(inputs) * kDenseGroupBytes;
}

const TileKernel& kernel_of(DenseType type, const std::string& isa) {
  const ElementType weights = type == DenseType::kF32 ? ElementType::kF32 : ElementType::kInt8;
  return tile_kernel(isa.c_str(), ElementType::kF32, weights);
}

// Calls work(first, end) for stretches of 0 .. count-1 on the threads of the pool.
template <typename Work>
void for_stretches(ThreadPool* pool, std::int64_t count, std::int64_t stretch, const Work& work) {
  if (pool == nullptr || pool->num_threads() == 1 || count <= stretch) {
    work(0, count);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  pool->run([&](std::int64_t) {
    for (std::int64_t first = next.fetch_add(stretch); first < count;
         first = next.fetch_add(stretch)) {
      work(first, std::min(first + stretch, count));
    }
  });
}

void pack_f32(std::byte* panel, std::span<const float> row, std::int64_t output) {
  auto* const lanes = reinterpret_cast<float*>(panel) + output;
  for (std::size_t input = 0; input < row.size(); ++input) lanes[input * kPanelKeys] = row[input];
}

// x / scale to the nearest whole number, ties to even, + 128; written so that compilers use
// vectors.
void round_group(std::uint8_t (&numbers)[kDenseGroup], const float (&x)[kDenseGroup], float scale) {
  constexpr float kLimit = 127;
  constexpr float kMagic = 12582912;  // 1.5 · 2^23: its sum with y ends in round(y)
  for (std::int64_t i = 0; i < kDenseGroup; ++i) {
    const float y = std::min(std::max(x[i] / scale, -kLimit), kLimit);
    numbers[i] = static_cast<std::uint8_t>(static_cast<int>((y + kMagic) - kMagic) + 128);
  }
}

void pack_int8(std::byte* panel, std::span<const float> row, std::int64_t output) {
  constexpr float kLimit = 127;
  const auto inputs = static_cast<std::int64_t>(row.size());
  for (std::int64_t first = 0; first < inputs; first += kDenseGroup, panel += kDenseGroupBytes) {
    float x[kDenseGroup] = {};
    const std::int64_t count = std::min(kDenseGroup, inputs - first);
    std::memcpy(x, row.data() + first, static_cast<std::size_t>(count) * sizeof(float));
    float largest = 0;
    for (const float number : x) largest = std::max(largest, std::abs(number));
    const std::uint16_t bits = to_f16(largest / kLimit);
    const float scale = from_f16(bits);
    std::uint8_t numbers[kDenseGroup];
    if (scale > 0) {
      round_group(numbers, x, scale);
    } else {
      std::memset(numbers, 128, sizeof(numbers));
    }
    for (std::int64_t lane = 0; lane < kDenseGroupLanes; ++lane) {
      std::memcpy(panel + (lane * kPanelKeys + output) * 4, numbers + lane * 4, 4);
    }
    std::memcpy(panel + kDenseGroupLanes * kPanelKeys * 4 + output * 2, &bits, 2);
  }
}

// A number that is not finite, or whose scale would not be, has no place in whole numbers.
void require_finite(std::span<const float> row, std::int64_t output) {
  constexpr std::uint32_t kMostBits = 0x4afde040U;  // of 127 · 65504
  std::uint32_t largest = 0;
  for (const float x : row) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x) & 0x7fffffffU);
  }
  if (largest <= kMostBits) return;
  throw Error(
      fmt::format("output {} of a weight matrix has a weight of size {}; allowed: at most "
                  "{}",
                  output, std::bit_cast<float>(largest), std::bit_cast<float>(kMostBits)));
}

}  // namespace

std::string_view to_string(DenseType type) { return type == DenseType::kF32 ? "f32" : "int8"; }

DenseWeights::DenseWeights(DenseType type, std::int64_t outputs, std::int64_t inputs,
                           const ReadRow& read_row, ThreadPool* pool)
    : type_(type), outputs_(outputs), inputs_(inputs) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  if (outputs < 1 || inputs < 1 || outputs > kMost || inputs > kMost) {
    throw Error(fmt::format("a weight matrix has {} outputs and {} inputs; allowed: 1..{} of each",
                            outputs, inputs, kMost));
  }
  const std::int64_t num_panels = padded_outputs() / kPanelKeys;
  memory_ = Memory(num_panels * panel_bytes(type, inputs));
  for_stretches(pool, num_panels, 8, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(inputs));
    for (std::int64_t output = first * kPanelKeys; output < end * kPanelKeys; ++output) {
      if (output < outputs) {
        read_row(row, output);
        require_finite(row, output);
      } else {
        std::ranges::fill(row, 0.0F);
      }
      std::byte* const panel = memory_.data() + output / kPanelKeys * panel_bytes(type, inputs);
      const auto pack = type == DenseType::kF32 ? pack_f32 : pack_int8;
      pack(panel, row, output % kPanelKeys);
    }
  });
}

const std::byte* DenseWeights::panel(std::int64_t idx) const {
  return memory_.data() + idx * panel_bytes(type_, inputs_);
}

DenseRows::DenseRows(DenseType type, const std::string& isa) : type_(type), isa_(isa) {}

void DenseRows::set(const float* x, std::int64_t num_rows, std::int64_t inputs, ThreadPool* pool) {
  num_rows_ = num_rows;
  inputs_ = inputs;
  x_ = x;
  if (type_ == DenseType::kF32) return;
  const std::int64_t row_bytes = row_lanes() * 4;
  if (packed_.size() < num_rows * row_bytes) packed_ = Memory(num_rows * row_bytes);
  const TileKernel& kernel = kernel_of(type_, isa_);
  for_stretches(pool, num_rows, 16, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      kernel.pack_dense_row(packed_.data() + row * row_bytes, x + row * inputs, inputs);
    }
  });
}

const void* DenseRows::lanes() const {
  return type_ == DenseType::kF32 ? static_cast<const void*>(x_) : packed_.data();
}

std::int64_t DenseRows::row_lanes() const {
  return type_ == DenseType::kF32 ? inputs_ : num_dense_groups(inputs_) * kDenseRowLanes;
}

void multiply(float* out, std::int64_t out_stride, const DenseRows& rows,
              const DenseWeights& weights, ThreadPool* pool) {
  if (rows.type() != weights.type() || rows.inputs() != weights.inputs() ||
      out_stride < weights.padded_outputs()) {
    throw Error(fmt::format(
        "rows of {} with {} inputs into {} outputs; allowed: {} with {} inputs, at least {}",
        to_string(rows.type()), rows.inputs(), out_stride, to_string(weights.type()),
        weights.inputs(), weights.padded_outputs()));
  }
  constexpr std::int64_t kPanelsAtOnce = 8;
  const TileKernel& kernel = kernel_of(rows.type(), rows.isa());
  const DenseRowBlock block = {rows.lanes(), rows.row_lanes(), rows.num_rows(), rows.inputs()};
  for_stretches(pool, weights.padded_outputs() / kPanelKeys, kPanelsAtOnce,
                [&](std::int64_t first, std::int64_t end) {
                  kernel.multiply(out + first * kPanelKeys, out_stride, block, weights.panel(first),
                                  end - first);
                });
}

}  // namespace lacuna

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
#include "lacuna/ranges.h"
#include "lacuna/tensor.h"

namespace lacuna {
namespace {

std::int64_t panel_bytes(int bits, std::int64_t inputs) {
  return bits == 32 ? inputs * kPanelKeys * 4 : num_dense_groups(inputs) * dense_group_bytes(bits);
}

const TileKernel& kernel_of(DenseType type, const std::string& isa) {
  const ElementType weights = type == DenseType::kF32 ? ElementType::kF32 : ElementType::kInt8;
  return tile_kernel(isa.c_str(), ElementType::kF32, weights);
}

// What is left of a thread's part of some work.
class alignas(64) Part {
 public:
  void set(std::int64_t begin, std::int64_t end) {
    next_ = begin;
    end_ = end;
  }
  // Half of what is left, or all where that is at most `least`; empty where nothing is.
  Range take(std::int64_t least) {
    for (std::int64_t first = next_; first < end_;) {
      const std::int64_t end = std::min(end_, first + std::max(least, (end_ - first) / 2));
      if (next_.compare_exchange_weak(first, end)) return {first, end};
    }
    return {end_, end_};
  }

 private:
  std::atomic<std::int64_t> next_ = 0;
  std::int64_t end_ = 0;
};

// Calls work(first, end) for stretches of 0 .. count-1 on the threads of the pool. Each thread has
// a part of its own, which it takes in few pieces: one row's reading starts anew with every piece,
// and pieces of eight panels by turns cost it nearly a third of the bandwidth. Who is done helps
// the others.
template <typename Work>
void for_stretches(ThreadPool* pool, std::int64_t count, std::int64_t least, const Work& work) {
  if (pool == nullptr || pool->num_threads() == 1 || count <= least) {
    work(0, count);
    return;
  }
  const std::int64_t num_parts = pool->num_threads();
  std::vector<Part> parts(static_cast<std::size_t>(num_parts));
  for (std::int64_t idx = 0; idx < num_parts; ++idx) {
    parts[static_cast<std::size_t>(idx)].set(idx * count / num_parts,
                                             (idx + 1) * count / num_parts);
  }
  pool->run([&](std::int64_t thread) {
    for (std::int64_t other = 0; other < num_parts; ++other) {
      Part& part = parts[static_cast<std::size_t>((thread + other) % num_parts)];
      for (Range taken = part.take(least); taken.begin < taken.end; taken = part.take(least)) {
        work(taken.begin, taken.end);
      }
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

// A group's numbers of one output.
void put_numbers(std::byte* group, int bits, std::int64_t output,
                 const std::uint8_t (&numbers)[kDenseGroup]) {
  const auto lane_at = [&](std::int64_t lane) {
    return reinterpret_cast<std::uint8_t*>(group) + (lane * kPanelKeys + output) * 4;
  };
  if (bits == 8) {
    for (std::int64_t lane = 0; lane < kDenseGroupLanes; ++lane) {
      std::memcpy(lane_at(lane), numbers + lane * 4, 4);
    }
    return;
  }
  constexpr std::int64_t kHalf = kDenseGroup / 2;
  std::uint8_t fifth[4] = {};
  for (std::int64_t i = 0; i < kHalf; ++i) {
    lane_at(i / 4)[i % 4] =
        static_cast<std::uint8_t>((numbers[i] & 15) | (numbers[kHalf + i] & 15) << 4);
  }
  for (std::int64_t i = 0; i < kDenseGroup; ++i) {
    fifth[i % 4] = static_cast<std::uint8_t>(fifth[i % 4] | (numbers[i] >> 4 & 1) << i / 4);
  }
  if (bits == 5) std::memcpy(lane_at(4), fifth, 4);
}

void put_scale(std::byte* scales, std::int64_t idx, std::uint16_t bits) {
  std::memcpy(scales + idx * 2, &bits, 2);
}

void pack_int8(std::byte* panel, std::span<const float> row, std::int64_t output) {
  constexpr float kLimit = 127;
  const auto inputs = static_cast<std::int64_t>(row.size());
  for (std::int64_t first = 0; first < inputs; first += kDenseGroup) {
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
    put_numbers(panel, 8, output, numbers);
    put_scale(panel + dense_number_bytes(8), output, bits);
    panel += dense_group_bytes(8);
  }
}

void pack_groups(std::byte* panel, int bits, std::span<const DenseGroup> row, std::int64_t output) {
  for (const DenseGroup& group : row) {
    put_numbers(panel, bits, output, group.numbers);
    std::byte* const scales = panel + dense_number_bytes(bits);
    put_scale(scales, output, to_f16(group.scale));
    put_scale(scales, kPanelKeys + output, to_f16(group.offset));
    panel += dense_group_bytes(bits);
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

void require_finite(std::span<const DenseGroup> row, std::int64_t output) {
  for (const DenseGroup& group : row) {
    for (const float x : {group.scale, group.offset}) {
      if (std::isfinite(from_f16(to_f16(x)))) continue;
      throw Error(fmt::format(
          "output {} of a weight matrix has a scale or offset of {}; allowed: at most 65504",
          output, x));
    }
  }
}

void require_sizes(std::int64_t outputs, std::int64_t inputs) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  if (outputs >= 1 && inputs >= 1 && outputs <= kMost && inputs <= kMost) return;
  throw Error(fmt::format("a weight matrix has {} outputs and {} inputs; allowed: 1..{} of each",
                          outputs, inputs, kMost));
}

std::shared_ptr<std::byte> taken_from(MemoryBlocks* blocks, std::int64_t size_bytes) {
  return blocks != nullptr ? blocks->take(size_bytes) : MemoryBlocks{}.take(size_bytes);
}

// Rows of `row_size` numbers or groups into panels; those behind the last output are zeros.
// pack(panel, row, output of the panel).
template <typename Item, typename Pack>
void pack_rows(std::byte* panels, std::int64_t bytes, std::int64_t outputs, std::int64_t row_size,
               const std::function<void(std::span<Item>, std::int64_t)>& read, ThreadPool* pool,
               const Pack& pack) {
  for_stretches(pool, (outputs + kPanelKeys - 1) / kPanelKeys, 8,
                [&](std::int64_t first, std::int64_t end) {
                  std::vector<Item> row(static_cast<std::size_t>(row_size));
                  for (std::int64_t at = first * kPanelKeys; at < end * kPanelKeys; ++at) {
                    if (at < outputs) {
                      read(row, at);
                      require_finite(row, at);
                    } else {
                      std::ranges::fill(row, Item{});
                    }
                    pack(panels + at / kPanelKeys * bytes, row, at % kPanelKeys);
                  }
                });
}

}  // namespace

std::string_view to_string(DenseType type) { return type == DenseType::kF32 ? "f32" : "int8"; }

DenseWeights::DenseWeights(DenseType type, std::int64_t outputs, std::int64_t inputs,
                           const ReadRow& read_row, ThreadPool* pool, MemoryBlocks* blocks)
    : bits_(type == DenseType::kF32 ? 32 : 8), outputs_(outputs), inputs_(inputs) {
  require_sizes(outputs, inputs);
  panels_ = taken_from(blocks, size_bytes());
  pack_rows(panels_.get(), panel_bytes(bits_, inputs), outputs, inputs, read_row, pool,
            type == DenseType::kF32 ? pack_f32 : pack_int8);
}

DenseWeights::DenseWeights(int bits, std::int64_t outputs, std::int64_t inputs,
                           const ReadGroups& read_groups, ThreadPool* pool, MemoryBlocks* blocks)
    : bits_(bits), outputs_(outputs), inputs_(inputs) {
  require_sizes(outputs, inputs);
  if ((bits != 4 && bits != 5) || inputs % kDenseGroup != 0) {
    throw Error(
        fmt::format("weights of {} bits with {} inputs; allowed: 4 or 5 bits, multiples of {}",
                    bits, inputs, kDenseGroup));
  }
  panels_ = taken_from(blocks, size_bytes());
  pack_rows(panels_.get(), panel_bytes(bits, inputs), outputs, inputs / kDenseGroup, read_groups,
            pool, [&](std::byte* panel, std::span<const DenseGroup> row, std::int64_t output) {
              pack_groups(panel, bits, row, output);
            });
}

std::int64_t DenseWeights::size_bytes() const {
  return padded_outputs() / kPanelKeys * panel_bytes(bits_, inputs_);
}

const std::byte* DenseWeights::panel(std::int64_t idx) const {
  return panels_.get() + idx * panel_bytes(bits_, inputs_);
}

DenseRows::DenseRows(DenseType type, const std::string& isa) : type_(type), isa_(isa) {}

void DenseRows::set(const float* x, std::int64_t num_rows, std::int64_t inputs, ThreadPool* pool) {
  if (type_ == DenseType::kF32) {
    num_rows_ = num_rows;
    inputs_ = inputs;
    lanes_ = x;
    return;
  }
  make([&](float* to, std::int64_t row) { std::copy_n(x + row * inputs, inputs, to); }, num_rows,
       inputs, pool);
}

void DenseRows::make(const MakeRow& make, std::int64_t num_rows, std::int64_t inputs,
                     ThreadPool* pool) {
  constexpr std::int64_t kLeastRows = 4;
  num_rows_ = num_rows;
  inputs_ = inputs;
  const std::int64_t row_bytes = row_lanes() * 4;
  if (made_.size() < num_rows * row_bytes) made_ = Memory(num_rows * row_bytes);
  lanes_ = made_.data();
  const TileKernel& kernel = kernel_of(type_, isa_);
  for_stretches(pool, num_rows, kLeastRows, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> one(type_ == DenseType::kF32 ? 0 : static_cast<std::size_t>(inputs));
    for (std::int64_t row = first; row < end; ++row) {
      std::byte* const to = made_.data() + row * row_bytes;
      if (type_ == DenseType::kF32) {
        make(reinterpret_cast<float*>(to), row);
      } else {
        make(one.data(), row);
        kernel.pack_dense_row(to, one.data(), inputs);
      }
    }
  });
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
  // Rows that stay in the nearest caches while all panels pass.
  constexpr std::int64_t kRowsAtOnce = 96;
  constexpr std::int64_t kLeastPanels = 8;
  const TileKernel& kernel = kernel_of(rows.type(), rows.isa());
  const auto* const lanes = static_cast<const std::uint32_t*>(rows.lanes());
  const std::int64_t num_panels = weights.padded_outputs() / kPanelKeys;
  const std::int64_t row_blocks = (rows.num_rows() + kRowsAtOnce - 1) / kRowsAtOnce;
  for_stretches(
      pool, row_blocks * num_panels, kLeastPanels, [&](std::int64_t first, std::int64_t end) {
        while (first < end) {
          const std::int64_t row = first / num_panels * kRowsAtOnce;
          const std::int64_t panel = first % num_panels;
          const std::int64_t count = std::min(end - first, num_panels - panel);
          const DenseRowBlock block = {lanes + row * rows.row_lanes(), rows.row_lanes(),
                                       std::min(kRowsAtOnce, rows.num_rows() - row), rows.inputs()};
          kernel.multiply(out + row * out_stride + panel * kPanelKeys, out_stride, block,
                          {weights.panel(panel), count, weights.bits()});
          first += count;
        }
      });
}

}  // namespace lacuna

// The tile level: one block of 256 keys on packed panels, and what stands around it (packing,
// merging, writing). `of_product` is the rate over what this instruction set's product reaches on
// one thread; `flop/s` counts 2·(head_dim + v_head_dim) a pair of the block, masked or not. Names
// end in the instruction set, the dtype and the head dim; rows are tokens × query heads of a KV
// head.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "lacuna/kernels.h"
#include "lacuna/product_rates.h"
#include "lacuna/tensor.h"

namespace lacuna {
namespace {

constexpr std::int64_t kHeads = 4;  // query heads of the KV head

// One repeating row of 32-bit lanes, 64-byte aligned.
class Lanes {
 public:
  explicit Lanes(std::int64_t count)
      : storage_(static_cast<std::size_t>(count) + 16), begin_(storage_.data()) {
    while (reinterpret_cast<std::uintptr_t>(begin_) % 64 != 0) ++begin_;
  }
  template <typename T>
  T* at(std::int64_t lane) {
    return reinterpret_cast<T*>(begin_ + lane);
  }

 private:
  std::vector<std::uint32_t> storage_;
  std::uint32_t* begin_;
};

// Small numbers without a pattern that a wrong layout could hide behind.
float value_of(std::int64_t idx) {
  const auto mixed = static_cast<std::uint32_t>(idx + 1) * 2654435761U;
  return static_cast<float>(mixed >> 8) * 0x1p-23F - 1;
}

// Vectors of one tensor as a caller stores them.
class Vectors {
 public:
  Vectors(DType dtype, std::int64_t count, std::int64_t dim, std::int64_t first)
      : dtype_(dtype),
        dim_(dim),
        bytes_(static_cast<std::size_t>(count * dim * size_bytes(dtype))) {
    for (std::int64_t idx = 0; idx < count * dim; ++idx) {
      const float value = value_of(first + idx);
      const auto at = static_cast<std::size_t>(idx * size_bytes(dtype));
      if (dtype == DType::kF32) {
        std::memcpy(&bytes_[at], &value, 4);
      } else {
        const std::uint16_t bits = dtype == DType::kBf16 ? to_bf16(value) : to_f16(value);
        std::memcpy(&bytes_[at], &bits, 2);
      }
    }
  }
  const void* vector(std::int64_t idx) const {
    return &bytes_[static_cast<std::size_t>(idx * dim_ * size_bytes(dtype_))];
  }
  double number(std::int64_t idx, std::int64_t dim) const {
    const auto at = static_cast<std::size_t>((idx * dim_ + dim) * size_bytes(dtype_));
    if (dtype_ == DType::kF32) {
      float value = 0;
      std::memcpy(&value, &bytes_[at], 4);
      return static_cast<double>(value);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, &bytes_[at], 2);
    return static_cast<double>(dtype_ == DType::kBf16 ? from_bf16(bits) : from_f16(bits));
  }
  PanelSource panel(std::int64_t first) const {
    PanelSource source = {};
    for (int key = 0; key < kPanelKeys; ++key) source.vectors[key] = vector(first + key);
    source.type = static_cast<ElementType>(dtype_);
    source.dim_stride = 1;
    source.dim = dim_;
    return source;
  }

 private:
  DType dtype_;
  std::int64_t dim_;
  std::vector<std::byte> bytes_;
};

struct Case {
  std::string isa;
  DType dtype;
  std::int64_t dim;
};

// A block of keys and the rows that attend to it, packed.
class Block {
 public:
  Block(const Case& what, std::int64_t num_tokens)
      : kernel_(tile_kernel(what.isa.c_str(), static_cast<ElementType>(what.dtype),
                            static_cast<ElementType>(what.dtype))),
        dim_(what.dim),
        num_rows_(num_tokens * kHeads),
        q_(what.dtype, num_rows_, dim_, 0),
        k_(what.dtype, kBlockKeys, dim_, 1 << 20),
        v_(what.dtype, kBlockKeys, dim_, 1 << 21),
        shape_{kernel_.k_steps(dim_), (dim_ + kDimBlock - 1) / kDimBlock, kernel_.q_lanes(dim_)},
        packed_q_(num_rows_ * shape_.k_steps),
        packed_k_(kBlockPanels * kernel_.k_panel_lanes(dim_)),
        packed_v_(kBlockPanels * kernel_.v_panel_lanes(dim_)),
        masks_(static_cast<std::size_t>(num_tokens)),
        state_(num_rows_ * (1 + kPanelKeys + o_stride())),
        scratch_(kScratchLanes) {
    rows_ = {packed_q_.at<void>(0), num_tokens, kHeads, nullptr};
    for (std::int64_t row = 0; row < num_rows_; ++row) {
      kernel_.pack_q(packed_q_.at<void>(row * shape_.k_steps), q_.vector(row),
                     static_cast<ElementType>(what.dtype), 1, dim_);
    }
    panels_.num_panels = kBlockPanels;
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      masks_[static_cast<std::size_t>(token)] = static_cast<std::uint16_t>(0xFFFF >> (token % 16));
    }
    pack();
  }

  void pack() {
    for (int panel = 0; panel < kBlockPanels; ++panel) {
      void* const k = packed_k_.at<void>(panel * kernel_.k_panel_lanes(dim_));
      void* const v = packed_v_.at<void>(panel * kernel_.v_panel_lanes(dim_));
      kernel_.pack_k(k, k_.panel(panel * kPanelKeys));
      panels_.non_finite[panel] = kernel_.pack_v(v, v_.panel(panel * kPanelKeys));
      panels_.k[panel] = k;
      panels_.v[panel] = v;
    }
  }
  void mask_every_panel() { std::fill_n(panels_.masks, kBlockPanels, masks_.data()); }

  void attend(bool empty) {
    kernel_.attend(state(empty), rows_, panels_, shape_, rule(), scratch_.at<float>(0), &counts_);
  }
  StateBlock state(bool empty) {
    return {state_.at<float>(0), state_.at<float>(num_rows_),
            state_.at<float>(num_rows_ * (1 + kPanelKeys)), empty};
  }
  ScoreRule rule() const { return {1 / std::sqrt(static_cast<float>(dim_)), 0, nullptr}; }

  // Largest error of a few rows against the softmax over all keys by definition.
  double error() {
    attend(true);
    const StateBlock now = state(false);
    double worst = 0;
    for (const std::int64_t row : {std::int64_t{0}, num_rows_ / 2, num_rows_ - 1}) {
      double sum = 0;
      for (int lane = 0; lane < kPanelKeys; ++lane) {
        sum += static_cast<double>(now.l[row * kPanelKeys + lane]);
      }
      const std::vector<double> exact = definition(row);
      for (std::int64_t dim = 0; dim < dim_; ++dim) {
        const double value = static_cast<double>(now.o[row * o_stride() + dim]) / sum;
        const double error = std::abs(value - exact[static_cast<std::size_t>(dim)]);
        worst = error <= worst ? worst : error;  // what is no number is worse than all
      }
    }
    return worst;
  }

  const TileKernel& kernel() const { return kernel_; }
  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t o_stride() const { return shape_.dim_blocks * kDimBlock; }
  double block_flops() const {
    return 4 * static_cast<double>(dim_) * static_cast<double>(num_rows_) * kBlockKeys;
  }

 private:
  std::vector<double> definition(std::int64_t row) const {
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t key = 0; key < kBlockKeys; ++key) {
      double score = 0;
      for (std::int64_t dim = 0; dim < dim_; ++dim)
        score += q_.number(row, dim) * k_.number(key, dim);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim_))));
      sum += weights.back();
    }
    std::vector<double> out(static_cast<std::size_t>(dim_));
    for (std::int64_t dim = 0; dim < dim_; ++dim) {
      for (std::int64_t key = 0; key < kBlockKeys; ++key) {
        out[static_cast<std::size_t>(dim)] +=
            weights[static_cast<std::size_t>(key)] / sum * v_.number(key, dim);
      }
    }
    return out;
  }

  const TileKernel& kernel_;
  std::int64_t dim_;
  std::int64_t num_rows_;
  Vectors q_;
  Vectors k_;
  Vectors v_;
  BlockShape shape_;
  Lanes packed_q_;
  Lanes packed_k_;
  Lanes packed_v_;
  std::vector<std::uint16_t> masks_;
  Lanes state_;
  Lanes scratch_;
  RowBlock rows_ = {};
  PanelBlock panels_ = {};
  KernelCounts counts_;
};

// What the kernel's product reaches on one thread; 0 where it was not measured.
double product_rate(const TileKernel& kernel) {
  const std::string isa = kernel.isa;
  double rate = 0;
  for (const ProductRate& known : product_rates()) {
    if (known.product != (kernel.lanes == ElementType::kBf16 ? "bf16" : "f32")) continue;
    const bool same_product =
        known.isa == isa || (isa.starts_with("avx512") && kernel.lanes == ElementType::kF32);
    if (same_product) rate = std::max(rate, known.flops_per_s);
  }
  return rate;
}

void count_rate(benchmark::State& state, const Block& block) {
  const double flops = block.block_flops() * static_cast<double>(state.iterations());
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  const double rate = product_rate(block.kernel());
  if (rate > 0) {
    state.counters["of_product"] = benchmark::Counter(flops / rate, benchmark::Counter::kIsRate);
  }
}

// Weights may be rounded to bf16, whose values are of size one here.
bool is_right(benchmark::State& state, Block& block) {
  const double allowed = block.kernel().lanes == ElementType::kBf16 ? 0x1p-8 : 1e-5;
  const double error = block.error();
  if (error <= allowed) return true;
  state.SkipWithError(("off by " + std::to_string(error)).c_str());
  return false;
}

void attend(benchmark::State& state, const Case& what, bool masked) {
  Block block(what, state.range(0));
  if (!is_right(state, block)) return;
  if (masked) block.mask_every_panel();
  for (auto _ : state) block.attend(false);
  count_rate(state, block);
}

void pack_block(benchmark::State& state, const Case& what) {
  Block block(what, 16);
  if (!is_right(state, block)) return;
  for (auto _ : state) block.pack();
  state.SetBytesProcessed(state.iterations() * kBlockKeys * 2 * what.dim * size_bytes(what.dtype));
}

void merge_states(benchmark::State& state, const Case& what) {
  Block into(what, 16);
  Block from(what, 16);
  if (!is_right(state, into) || !is_right(state, from)) return;
  for (auto _ : state) {
    into.kernel().merge(into.state(false), from.state(false), into.num_rows(), into.o_stride(),
                        into.rule().unit());
  }
  state.SetItemsProcessed(state.iterations() * into.num_rows());
}

std::string name_of(const char* what, const Case& one) {
  return std::string(what) + "/" + one.isa + "/" + std::string(to_string(one.dtype)) + "/d" +
         std::to_string(one.dim);
}

void add_case(const Case& one) {
  const auto add = [&](const char* what, auto run) {
    return benchmark::RegisterBenchmark(name_of(what, one).c_str(), run);
  };
  // 16 tokens are a tile's rows; 1 is a decode step.
  add("Attend", [one](benchmark::State& state) { attend(state, one, false); })
      ->Arg(1)
      ->Arg(4)
      ->Arg(16);
  add("AttendMasked", [one](benchmark::State& state) { attend(state, one, true); })->Arg(16);
  add("PackBlock", [one](benchmark::State& state) { pack_block(state, one); });
  add("Merge", [one](benchmark::State& state) { merge_states(state, one); });
}

// Every instruction set that this machine runs.
[[maybe_unused]] const bool g_is_registered = [] {
  for (const std::string& isa : kernel_isas()) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const std::int64_t dim : {64, 128, 256}) add_case({isa, dtype, dim});
    }
  }
  return true;
}();

}  // namespace
}  // namespace lacuna

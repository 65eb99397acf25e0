#pragma once

// The library's answer to a case, out of memory laid out in any way, and how far it lies from the
// definition or from another answer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "attention_oracle.h"
#include "kv_memory.h"
#include "lacuna/attention.h"
#include "lacuna/kernels.h"
#include "lacuna/plan.h"
#include "lacuna/thread_pool.h"
#include "problems.h"
#include "stored_tensor.h"

namespace lacuna::cases {

// Exactly as many bytes as were asked for, 64-byte aligned, with a guard behind them, holding
// nothing that anybody could rely on.
class Workspace {
 public:
  explicit Workspace(std::int64_t num_bytes)
      : size_(idx(num_bytes)), bytes_(size_ + kGuard + 64, std::byte{0xFF}) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    begin_ = static_cast<std::size_t>((64 - address % 64) % 64);
  }
  std::span<std::byte> span() { return {bytes_.data() + begin_, size_}; }
  bool guard_is_untouched() const {
    const auto guard = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_);
    return std::all_of(guard, guard + kGuard, [](std::byte b) { return b == std::byte{0xFF}; });
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 256;
  std::size_t size_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

// ---- The library's answer -----------------------------------------------------------------------

struct How {
  std::string isa;
  ThreadPool* pool = nullptr;
  DType out_dtype = DType::kF32;
  bool lse = true;
  Layout q;
  Layout out;
  KvLayout kv;
  PlanOptions plan;
  bool exact_kv = false;
};

struct Answer {
  Values out;
  std::vector<std::uint32_t> out_bits;  // as stored; [rows, num_q_heads, v_head_dim]
  std::vector<float> lse;               // [rows, num_q_heads]
  Ledger ledger;
};

inline AttentionOptions options_of(const Case& c, const How& how) {
  AttentionOptions options;
  options.sm_scale = c.sm_scale;
  options.softcap = c.softcap;
  options.alibi_slopes = c.alibi_slopes;
  options.sink_logits = c.sink_logits;
  options.pool = how.pool;
  options.isa = how.isa;
  options.exact_kv = how.exact_kv;
  return options;
}

inline How how_in(const std::string& isa, std::int64_t page_size = 0) {
  How how;
  how.isa = isa;
  how.kv.page_size = page_size;
  return how;
}

enum class Path { kRun, kMaskedDense };

inline Answer answer_with(const Plan& plan, const Case& c, const How& how, Path path = Path::kRun) {
  const stored::Tensor q(c.q, c.q_dtype, how.q);
  const KvMemory kv(c, how.kv);
  stored::Tensor out(stored::Tensor::Shape{c.num_rows(), c.shape.num_q_heads, c.shape.v_head_dim},
                     how.out_dtype, how.out);
  std::vector<float> lse(how.lse ? idx(c.num_rows() * c.shape.num_q_heads) : 0,
                         std::numeric_limits<float>::quiet_NaN());
  const AttentionOptions options = options_of(c, how);
  std::optional<Ledger> ledger;
  if (path == Path::kRun) {
    Workspace workspace(workspace_bytes(plan, q.view(), kv.view(), options));
    ledger = run(out.mutable_view(), lse, plan, q.view(), kv.view(), workspace.span(), options);
    EXPECT_TRUE(workspace.guard_is_untouched()) << "wrote past its workspace";
  } else {
    ledger = masked_dense(out.mutable_view(), lse, plan, q.view(), kv.view(), options);
  }
  EXPECT_TRUE(out.rest_is_untouched()) << "wrote outside out";
  EXPECT_TRUE(ledger.has_value()) << "stopped without being asked";
  return {out.values(), out.words(), std::move(lse), ledger.value_or(Ledger{})};
}

inline Answer answer(const Case& c, const How& how) {
  return answer_with(plan_of(c, how.plan), c, how);
}

// ---- Comparisons --------------------------------------------------------------------------------

// The bf16 product rounds weights; it is asked for bf16 inputs only.
inline const AttentionTolerance& tolerance_of(const Case& c, const std::string& isa) {
  const bool bf16 = c.q_dtype == DType::kBf16 && c.kv_dtype == DType::kBf16;
  return bf16 && isa == "avx512_bf16" ? kBf16ProductTolerance : kF32Tolerance;
}

inline bool close(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance;
}

inline std::string disagreement(const char* what, std::size_t row, std::size_t head, double got,
                                double want) {
  char text[160];
  std::snprintf(text, sizeof text, "%s of row %zu head %zu is %.9g, by definition %.9g", what, row,
                head, got, want);
  return text;
}

// "" where the answer lies within the tolerance of the definition; otherwise the first that does
// not.
inline std::string difference(const Answer& got, const oracle::Attended& want,
                              const AttentionTolerance& tolerance, DType out_dtype = DType::kF32) {
  const std::size_t dims = want.lse.empty() ? 0 : want.out.data.size() / want.lse.size();
  const auto heads = std::max<std::size_t>(idx(got.out.heads), 1);
  if (got.out.data.size() != want.out.data.size()) return "another number of rows";
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    const double lse = want.lse[i];
    const double score = tolerance.score * want.size[i];
    if (!got.lse.empty() && !close(got.lse[i], lse, score + tolerance.sum * (1 + std::abs(lse)))) {
      return disagreement("lse", i / heads, i % heads, got.lse[i], lse);
    }
    for (std::size_t d = i * dims; d < (i + 1) * dims; ++d) {
      const double value = want.out.data[d];
      double allowed =
          (2 * (score + tolerance.sum) + tolerance.weight) * want.spread.data[d] + 1e-30;
      if (out_dtype != DType::kF32) allowed += stored::half_unit(value, out_dtype) * 1.01;
      if (!close(got.out.data[d], value, allowed)) {
        return disagreement(("out[" + std::to_string(d % dims) + "]").c_str(), i / heads, i % heads,
                            got.out.data[d], value);
      }
    }
  }
  return "";
}

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// "" where both have the same bits in rows a_begin .. and b_begin .. for `count` rows.
inline std::string other_bits(const Answer& a, std::int64_t a_begin, const Answer& b,
                              std::int64_t b_begin, std::int64_t count) {
  const auto heads = idx(a.out.heads);
  const auto width = heads * idx(a.out.dims);
  for (std::size_t row = 0; row < idx(count); ++row) {
    const std::size_t ra = idx(a_begin) + row;
    const std::size_t rb = idx(b_begin) + row;
    for (std::size_t h = 0; h < heads && !a.lse.empty() && !b.lse.empty(); ++h) {
      const float x = a.lse[ra * heads + h];
      const float y = b.lse[rb * heads + h];
      if (!same_bits(x, y)) return disagreement("lse", row, h, x, y) + " (other bits)";
    }
    for (std::size_t i = 0; i < width; ++i) {
      if (a.out_bits[ra * width + i] != b.out_bits[rb * width + i]) {
        return disagreement("out", row, i / idx(a.out.dims), a.out.data[ra * width + i],
                            b.out.data[rb * width + i]) +
               " (other bits)";
      }
    }
  }
  return "";
}

inline std::string other_bits(const Answer& a, const Answer& b) {
  if (a.out_bits.size() != b.out_bits.size()) return "another number of rows";
  return other_bits(a, 0, b, 0, a.out.tokens);
}

// Calls check(isa) for every table that this machine can run.
template <typename Check>
void for_each_isa(Check check) {
  for (const std::string& isa : kernel_isas()) {
    SCOPED_TRACE("isa " + isa);
    check(isa);
  }
}

// The library's answer agrees with the definition under every table.
inline void expect_definition(const Case& c, How how = {}) {
  const oracle::Attended want = definition(c);
  const Plan plan = plan_of(c, how.plan);
  for_each_isa([&](const std::string& isa) {
    how.isa = isa;
    EXPECT_EQ(difference(answer_with(plan, c, how), want, tolerance_of(c, isa), how.out_dtype), "");
  });
}

}  // namespace lacuna::cases

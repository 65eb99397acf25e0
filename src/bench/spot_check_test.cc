#include "bench/spot_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bench/problem.h"

namespace lacuna::bench {
namespace {

// A small problem with its result, computed here by the definition over an explicit mask.
class Computed {
 public:
  explicit Computed(KernelProblem problem)
      : problem_(std::move(problem)), inputs_(draw_inputs(problem_, 7)) {
    out_.resize(static_cast<std::size_t>(problem_.num_rows() * problem_.heads.num_q_heads *
                                         problem_.v_head_dim));
    lse_.resize(static_cast<std::size_t>(problem_.num_rows() * problem_.heads.num_q_heads));
    for (std::int64_t row = 0; row < problem_.num_rows(); ++row) {
      for (std::int64_t head = 0; head < problem_.heads.num_q_heads; ++head) fill(row, head);
    }
  }

  SpotCheck check(std::string_view isa = "avx512") const {
    const std::vector<Topology> topologies = topologies_of(problem_);
    return spot_check(problem_, topologies, inputs_, {view(), lse_}, isa);
  }

  std::vector<float>& out() { return out_; }
  std::vector<float>& lse() { return lse_; }

 private:
  TensorView view() const {
    return tensor_view(out_.data(), DType::kF32,
                       {problem_.num_rows(), problem_.heads.num_q_heads, problem_.v_head_dim});
  }

  // window(3) or full, as the problems below have them.
  bool reads(std::int64_t query, std::int64_t key) const {
    return key <= query && (problem_.attend == "full" || query - key < 3);
  }

  double number(const Tensor& tensor, std::int64_t token, std::int64_t head,
                std::int64_t dim) const {
    return element(tensor.bytes.data(), tensor.dtype,
                   (token * tensor.shape[1] + head) * tensor.shape[2] + dim);
  }

  void fill(std::int64_t row, std::int64_t head) {
    const std::int64_t query = problem_.length - problem_.num_rows() + row;
    const std::int64_t kv = head * problem_.heads.num_kv_heads / problem_.heads.num_q_heads;
    std::vector<double> weights(static_cast<std::size_t>(problem_.length), 0);
    double sum = 0;
    if (problem_.learned_sinks) {
      sum = std::exp(static_cast<double>(inputs_.sink_logits[static_cast<std::size_t>(head)]));
    }
    for (std::int64_t key = 0; key < problem_.length; ++key) {
      if (!reads(query, key)) continue;
      double score = 0;
      for (std::int64_t dim = 0; dim < problem_.head_dim; ++dim) {
        score += number(inputs_.q, query, head, dim) * number(inputs_.k, key, kv, dim);
      }
      double& weight = weights[static_cast<std::size_t>(key)];
      weight = std::exp(score / std::sqrt(static_cast<double>(problem_.head_dim)));
      sum += weight;
    }
    const std::int64_t lane = row * problem_.heads.num_q_heads + head;
    lse_[static_cast<std::size_t>(lane)] = static_cast<float>(std::log(sum));
    for (std::int64_t dim = 0; dim < problem_.v_head_dim; ++dim) {
      double value = 0;
      for (std::int64_t key = 0; key < problem_.length; ++key) {
        value += weights[static_cast<std::size_t>(key)] / sum * number(inputs_.v, key, kv, dim);
      }
      out_[static_cast<std::size_t>(lane * problem_.v_head_dim + dim)] = static_cast<float>(value);
    }
  }

  KernelProblem problem_;
  Inputs inputs_;
  std::vector<float> out_;
  std::vector<float> lse_;
};

KernelProblem small(const char* attend) {
  KernelProblem problem;
  problem.attend = attend;
  problem.length = 9;
  problem.heads = {4, 2};
  problem.head_dim = 5;
  problem.v_head_dim = 3;
  return problem;
}

TEST(SpotCheck, AcceptsTheDefinition) {
  for (const char* attend : {"full", "window(3)"}) {
    const SpotCheck check = Computed(small(attend)).check();
    EXPECT_TRUE(check.agrees()) << attend << ": " << check.worst;
    EXPECT_GE(check.num_rows, 8);
  }
}

TEST(SpotCheck, AcceptsLearnedSinksAndTheLastRowsAlone) {
  KernelProblem problem = small("full");
  problem.learned_sinks = true;
  problem.rows = 2;
  EXPECT_TRUE(Computed(problem).check().agrees());
}

TEST(SpotCheck, RefusesAnOtherMask) {
  Computed computed(small("window(3)"));
  computed.out() = Computed(small("full")).out();
  EXPECT_FALSE(computed.check().agrees());
}

TEST(SpotCheck, RefusesAWrongLastRow) {
  Computed computed(small("full"));
  const std::size_t row = computed.out().size() / 9;
  for (std::size_t idx = computed.out().size() - row; idx < computed.out().size(); ++idx) {
    computed.out()[idx] += 1e-3F;
  }
  const SpotCheck check = computed.check();
  EXPECT_FALSE(check.agrees());
  EXPECT_NEAR(check.max_error, 1e-3, 1e-5);
}

TEST(SpotCheck, RefusesAWrongLse) {
  Computed computed(small("full"));
  for (float& lse : computed.lse()) lse += 1e-3F;
  EXPECT_FALSE(computed.check().agrees());
}

TEST(SpotCheck, RefusesWhatIsNoNumber) {
  Computed computed(small("full"));
  for (float& out : computed.out()) out = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(computed.check().agrees());
}

TEST(SpotCheck, AllowsRoundedWeightsOnlyWhereBf16ProductsRan) {
  KernelProblem problem = small("full");
  problem.dtype = DType::kBf16;
  Computed computed(problem);
  for (float& out : computed.out()) out *= 1 + 0x1p-11F;
  EXPECT_TRUE(computed.check("avx512_bf16").agrees());
  EXPECT_FALSE(computed.check("avx512").agrees());
}

}  // namespace
}  // namespace lacuna::bench

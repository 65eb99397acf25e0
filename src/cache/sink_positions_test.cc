// StreamingLLM over a cache of keys that stay rotated at their true position (methods.md 3.7): the
// window is attended with the query as it is, the sinks with the query rotated to its place in the
// kept set, and the two are merged. Equal to rotating the kept keys anew to slots 0, 1, 2, ….
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cache/cache_rig.h"

namespace lacuna {
namespace {

constexpr std::int64_t kHeadDim = 16;
constexpr std::int64_t kValueDim = 16;
constexpr std::int64_t kSinks = 4;
constexpr std::int64_t kRecent = 40;
constexpr int kQueryHeads = 4;
constexpr int kKvHeads = 2;

using Vector = std::vector<double>;

Vector plain(rig::Kind kind, std::int64_t position, std::int64_t head, std::int64_t dims) {
  Vector vector;
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    vector.push_back(rig::number(kind, 1, position, 0, head, dim));
  }
  return vector;
}

// RoPE with pairs (d, d + half) and base 10000.
Vector rotated(const Vector& vector, std::int64_t position) {
  const std::size_t half = vector.size() / 2;
  Vector result(vector.size());
  for (std::size_t d = 0; d < half; ++d) {
    const double exponent = static_cast<double>(d) / static_cast<double>(half);
    const double angle = static_cast<double>(position) * std::pow(10000.0, -exponent);
    result[d] = vector[d] * std::cos(angle) - vector[d + half] * std::sin(angle);
    result[d + half] = vector[d] * std::sin(angle) + vector[d + half] * std::cos(angle);
  }
  return result;
}

void append(rig::Rows& rows, const Vector& vector) {
  for (const double x : vector) rows.data.push_back(static_cast<float>(x));
}

struct Slot {
  std::int64_t position;
  std::int64_t slot;  // in the kept set
};

// What a query at `position` keeps: sinks, then the most recent tokens up to itself.
std::vector<Slot> kept_slots(std::int64_t position) {
  std::vector<Slot> slots;
  for (std::int64_t p = 0; p <= position; ++p) {
    if (p < kSinks || p > position - kRecent) slots.push_back({p, std::ssize(slots)});
  }
  return slots;
}

// The kept keys rotated anew, in double.
Vector by_rerotation(std::int64_t position, std::int64_t head) {
  const std::vector<Slot> slots = kept_slots(position);
  const std::int64_t kv_head = head / (kQueryHeads / kKvHeads);
  const Vector q = rotated(plain(rig::kQ, position, head, kHeadDim), std::ssize(slots) - 1);
  Vector out(kValueDim, 0);
  double sum = 0;
  for (const Slot& slot : slots) {
    const Vector k = rotated(plain(rig::kK, slot.position, kv_head, kHeadDim), slot.slot);
    double score = 0;
    for (std::size_t d = 0; d < k.size(); ++d) score += q[d] * k[d];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadDim)));
    const Vector v = plain(rig::kV, slot.position, kv_head, kValueDim);
    for (std::size_t d = 0; d < v.size(); ++d) out[d] += weight * v[d];
    sum += weight;
  }
  for (double& x : out) x /= sum;
  return out;
}

class StreamingCache {
 public:
  // One token at its true position.
  void append_token() {
    const std::int64_t position = cache_.length(id_);
    auto step = cache_.begin({{{id_, 1}}});
    ASSERT_TRUE(step);
    rig::Rows k = {{}, {1, kKvHeads, kHeadDim}};
    rig::Rows v = {{}, {1, kKvHeads, kValueDim}};
    for (int head = 0; head < kKvHeads; ++head) {
      append(k, rotated(plain(rig::kK, position, head, kHeadDim), position));
      append(v, plain(rig::kV, position, head, kValueDim));
    }
    step->append(0, k.view(), v.view());
    step->commit();
    cache_.retain(id_, retention_.kept(position, position + 1));  // its query is still to come
  }

  // The last token's query, rotated to `rotation`, over keys of these positions.
  rig::Answer part(std::int64_t rotation, const Ranges& keys) {
    const std::int64_t position = cache_.length(id_) - 1;
    rig::Rows q = {{}, {1, kQueryHeads, kHeadDim}};
    for (int head = 0; head < kQueryHeads; ++head) {
      append(q, rotated(plain(rig::kQ, position, head, kHeadDim), rotation));
    }
    const CacheView view = cache_.view(0, {&id_, 1});
    std::vector<KeyRanges> of_heads(kKvHeads);
    for (KeyRanges& of_head : of_heads) of_head.append_row(keys);
    const SequenceRows row = {{position, position + 1}, position + 1};
    const Plan plan = make_plan(of_heads, {{row}}, {kQueryHeads, kKvHeads});
    rig::Answer answer = {std::vector<float>(kQueryHeads * kValueDim),
                          std::vector<float>(kQueryHeads)};
    const TensorView queries = q.view();
    Memory workspace(workspace_bytes(plan, queries, view.kv()));
    run(mutable_tensor_view(answer.out.data(), DType::kF32, {1, kQueryHeads, kValueDim}),
        answer.lse, plan, queries, view.kv(),
        {workspace.data(), static_cast<std::size_t>(workspace.size())});
    return answer;
  }

  std::vector<float> attend_cache_relative() {
    const std::int64_t position = cache_.length(id_) - 1;
    const std::int64_t first_recent = std::max<std::int64_t>(kSinks, position - kRecent + 1);
    const std::int64_t slot = std::ssize(kept_slots(position)) - 1;
    const rig::Answer sinks = part(slot, Ranges{{0, std::min(kSinks, position + 1)}});
    const rig::Answer recent = part(position, Ranges{{first_recent, position + 1}});
    std::vector<float> out(kQueryHeads * kValueDim);
    std::vector<float> lse(kQueryHeads);
    constexpr std::array<std::int64_t, 3> kShape = {1, kQueryHeads, kValueDim};
    merge(mutable_tensor_view(out.data(), DType::kF32, kShape), lse,
          tensor_view(sinks.out.data(), DType::kF32, kShape), sinks.lse,
          tensor_view(recent.out.data(), DType::kF32, kShape), recent.lse);
    return out;
  }

  const KvCache& cache() const { return cache_; }
  SequenceId id() const { return id_; }

 private:
  rig::Model model_ =
      rig::model("window(40)+sink(4)", 1, rig::sizes(kQueryHeads, kKvHeads, kHeadDim, kValueDim));
  Retention retention_{model_.table, model_.shape};
  KvCache cache_{rig::cache_shape(retention_, 16, DType::kF32),
                 {.budget_bytes = 1 << 20, .slab_bytes = 1 << 16, .poison = true}};
  SequenceId id_ = cache_.create();
};

double largest_difference(const std::vector<float>& out, std::int64_t position) {
  double largest = 0;
  for (std::int64_t head = 0; head < kQueryHeads; ++head) {
    const Vector want = by_rerotation(position, head);
    for (std::size_t d = 0; d < want.size(); ++d) {
      const double is = out[static_cast<std::size_t>(head * kValueDim) + d];
      largest = std::max(largest, std::abs(is - want[d]));
    }
  }
  return largest;
}

TEST(CacheRelativePositions, EqualRotatingTheKeptKeysAnewAtEveryLength) {
  StreamingCache streaming;
  for (std::int64_t position = 0; position < 4 * kRecent; ++position) {
    streaming.append_token();
    // Rotation in double, rounded to f32 once; positions up to 160 in the angles of neither side.
    EXPECT_LT(largest_difference(streaming.attend_cache_relative(), position), 4e-6) << position;
  }
}

TEST(CacheRelativePositions, DifferFromAbsoluteOnesOnceTokensAreLeftOut) {
  StreamingCache streaming;
  for (std::int64_t position = 0; position < 3 * kRecent; ++position) {
    streaming.append_token();
    const Ranges kept =
        unite(Ranges{{0, std::min(kSinks, position + 1)}},
              Ranges{{std::max<std::int64_t>(0, position - kRecent + 1), position + 1}});
    const double difference = largest_difference(streaming.part(position, kept).out, position);
    if (position < kSinks + kRecent) {
      EXPECT_LT(difference, 4e-6) << position;
    } else if (position > kSinks + kRecent + 8) {
      EXPECT_GT(difference, 1e-4) << position;
    }
  }
}

TEST(CacheRelativePositions, NeedNoKeyBetweenSinksAndWindow) {
  StreamingCache streaming;
  for (std::int64_t position = 0; position < 200; ++position) streaming.append_token();
  const std::span<const PageId> table = streaming.cache().block_table(streaming.id(), 0);
  EXPECT_NE(table[0], KvView::kNullPage);
  for (std::size_t column = 1; column < 10; ++column) {
    EXPECT_EQ(table[column], KvView::kNullPage) << column;
  }
  EXPECT_LT(largest_difference(streaming.attend_cache_relative(), 199), 4e-6);
}

}  // namespace
}  // namespace lacuna

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "generate.h"
#include "lacuna/attention.h"
#include "lacuna/executed.h"
#include "lacuna/integer.h"

// Random unions × shapes × dtypes × chunks × memory layouts: the definition, the ledger and the
// bits, all at once.

namespace lacuna {
namespace {

using cases::Answer;
using cases::Case;
using cases::How;
using cases::idx;

rc::Gen<DType> dtype() { return rc::gen::element(DType::kF32, DType::kBf16, DType::kF16); }

AttentionShape any_shape() {
  const auto num_kv_heads = *rc::gen::inRange(1, 4).as("kv heads");
  const auto group = *rc::gen::inRange(1, 5).as("query heads a kv head");
  const auto head_dim = *generate::between(1, 40).as("head_dim");
  const auto v_head_dim = *generate::between(1, 40).as("v_head_dim");
  return {"any", num_kv_heads * group, num_kv_heads, head_dim, v_head_dim};
}

// One union for all heads, or one for each.
std::vector<Union> any_attend(bool causal, int num_q_heads) {
  const bool split = *rc::gen::weightedElement<bool>({{3, false}, {1, true}}).as("split heads");
  std::vector<Union> attend;
  for (int head = 0; head < (split ? num_q_heads : 1); ++head) {
    attend.push_back(*generate::attend(causal, 1, 3).as("attend"));
  }
  return attend;
}

SequenceRows any_rows() {
  const auto length = *generate::between(0, 70).as("length");
  if (*rc::gen::arbitrary<bool>().as("all rows")) return cases::whole(length);
  const auto begin = *generate::between(0, length).as("first row");
  return {{begin, *generate::between(begin, length).as("end of rows")}, length};
}

void add_options(Case& c) {
  const auto numbers = [&](const char* name) {
    return *rc::gen::container<std::vector<float>>(
                idx(c.shape.num_q_heads),
                rc::gen::map(generate::between(-8, 16),
                             [](std::int64_t x) { return static_cast<float>(x) / 8; }))
                .as(name);
  };
  if (*rc::gen::weightedElement<bool>({{3, false}, {1, true}}).as("alibi")) {
    c.alibi_slopes = numbers("slopes");
  }
  if (*rc::gen::weightedElement<bool>({{3, false}, {1, true}}).as("sinks")) {
    c.sink_logits = numbers("sink logits");
  }
  c.softcap = *rc::gen::weightedElement<float>({{3, 0.0F}, {1, 1.5F}, {1, 30.0F}}).as("softcap");
}

Case any_case(std::int64_t max_sequences) {
  Case c;
  c.causal = *rc::gen::weightedElement<bool>({{2, true}, {1, false}}).as("causal");
  c.shape = any_shape();
  c.attend = any_attend(c.causal, c.shape.num_q_heads);
  c.q_dtype = *dtype().as("dtype of q");
  c.kv_dtype = *dtype().as("dtype of kv");
  const auto num_sequences = *generate::between(1, max_sequences).as("sequences");
  for (std::int64_t s = 0; s < num_sequences; ++s) c.sequences.push_back(any_rows());
  add_options(c);
  return cases::filled(std::move(c), *rc::gen::arbitrary<std::uint64_t>().as("seed of numbers"));
}

std::string text(const Case& c) {
  std::string result;
  for (const Union& attend : c.attend) result += "   [" + generate::describe(attend) + "]";
  for (const SequenceRows& s : c.sequences) {
    result += "   rows " + std::to_string(s.rows.begin) + ".." + std::to_string(s.rows.end - 1) +
              " of " + std::to_string(s.length);
  }
  return result;
}

How any_how(const Case& c) {
  How how;
  how.isa = *rc::gen::elementOf(kernel_isas()).as("isa");
  how.out_dtype = *rc::gen::element(DType::kF32, c.q_dtype).as("dtype of out");
  how.kv.page_size = *rc::gen::element<std::int64_t>(0, 0, 1, 5, 16, 64).as("page size");
  how.kv.null_unread = *rc::gen::arbitrary<bool>().as("null pages where nobody reads");
  how.plan.tiles_per_item = *generate::between(0, 3).as("tiles an item");
  const auto layout = [&](const char* name) {
    constexpr std::array<int, 3> kOrders[] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {1, 2, 0}};
    const auto& order = kOrders[*rc::gen::inRange<std::size_t>(0, 4).as(name)];
    return stored::Layout{order, 1 + order[0], order[1], order[2]};
  };
  how.q = layout("layout of q");
  how.out = layout("layout of out");
  how.kv.k = layout("layout of k");
  how.kv.v = layout("layout of v");
  return how;
}

TEST(IsaRandomAttention, FollowsTheDefinition) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case(3);
    const How how = any_how(c);
    const Answer got = cases::answer(c, how);
    const std::string message = cases::difference(got, cases::definition(c),
                                                  cases::tolerance_of(c, how.isa), how.out_dtype);
    if (!message.empty()) RC_FAIL(message + text(c));
    RC_ASSERT(!::testing::Test::HasFailure());
  }));
}

TEST(IsaRandomAttention, ExecutesWhatCostPredicts) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case(3);
    const How how = any_how(c);
    std::vector<Topology> heads = cases::topologies(c);
    heads.resize(idx(c.shape.num_q_heads), heads[0]);
    Int128 pairs = 0;
    for (const SequenceRows& s : c.sequences) {
      for (const Topology& head : heads) {
        pairs += executed(head, s.rows, s.length, kernel_tile()).pairs;
      }
    }
    const Plan plan = cases::plan_of(c, how.plan);
    const Ledger got = cases::answer_with(plan, c, how).ledger;
    const std::string all = " pairs predicted " + to_string(pairs) + ", planned " +
                            to_string(plan.executed_pairs()) + ", executed " +
                            std::to_string(got.executed_pairs);
    if (pairs != got.executed_pairs || pairs != plan.executed_pairs()) RC_FAIL(all + text(c));
    RC_ASSERT(plan.needed_pairs() == got.needed_pairs);
    if (plan.loaded_keys() != got.loaded_keys) {
      RC_FAIL(" keys to load " + to_string(plan.loaded_keys()) + ", loaded " +
              std::to_string(got.loaded_keys) + text(c));
    }
  }));
}

TEST(IsaRandomAttention, HasTheSameBitsInChunksOverAnyMemory) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case(1);
    c.sequences = {cases::whole(c.sequences[0].length)};
    c = cases::filled(std::move(c), 5);
    const How how = any_how(c);
    How plain;
    plain.isa = how.isa;
    plain.out_dtype = how.out_dtype;
    const Answer want = cases::answer(c, plain);
    const std::int64_t length = c.sequences[0].length;
    const auto size = *generate::between(1, 20).as("chunk");
    for (std::int64_t begin = 0; begin < length; begin += size) {
      const std::int64_t end = std::min(begin + size, length);
      Case chunk = c;
      const std::int64_t keys = c.causal ? end : length;
      chunk.sequences = {{{begin, end}, keys}};
      chunk.q = cases::rows_of(c.q, begin, end);
      chunk.k = {cases::rows_of(c.k[0], 0, keys)};
      chunk.v = {cases::rows_of(c.v[0], 0, keys)};
      const std::string message =
          cases::other_bits(cases::answer(chunk, how), 0, want, begin, end - begin);
      if (!message.empty()) RC_FAIL(message + text(c));
    }
  }));
}

// A selector's ranges: any keys in any row, not only those that a topology could ask for.
KeyRanges any_ranges(std::int64_t num_rows, std::int64_t length) {
  KeyRanges csr;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::vector<Range> parts;
    const auto count = *rc::gen::inRange(0, 4).as("ranges of a row");
    for (int part = 0; part < count; ++part) {
      const auto begin = *generate::between(0, length).as("range");
      parts.push_back({begin, *generate::between(begin, length).as("its end")});
    }
    csr.append_row(Ranges(std::move(parts)));
  }
  return csr;
}

TEST(IsaRandomAttention, FollowsTheDefinitionOfASelectorsRanges) {
  EXPECT_TRUE(rc::check([] {
    Case c;
    c.shape = any_shape();
    c.q_dtype = c.kv_dtype = *dtype().as("dtype");
    const auto length = *generate::between(0, 60).as("length");
    const auto rows = *generate::between(0, std::min<std::int64_t>(length, 24)).as("rows");
    c.sequences = {cases::last_rows(rows, length)};
    for (int head = 0; head < c.shape.num_kv_heads; ++head) {
      c.key_ranges.push_back(any_ranges(rows, length));
    }
    add_options(c);
    c = cases::filled(std::move(c), 6);
    const How how = any_how(c);
    const Answer got = cases::answer(c, how);
    const std::string message = cases::difference(got, cases::definition(c),
                                                  cases::tolerance_of(c, how.isa), how.out_dtype);
    if (!message.empty()) RC_FAIL(message);
  }));
}

}  // namespace
}  // namespace lacuna

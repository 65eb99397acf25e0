#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/plan.h"

// What make_plan refuses, and how it says so.

namespace lacuna {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::vector<SequenceRows>& sequences, HeadCounts heads = {8, 2},
                    const PlanOptions& options = {}, std::size_t num_topologies = 1) {
  const std::vector<Topology> topologies(num_topologies, Topology({Full{}}, true));
  return refusal([&] { make_plan(topologies, sequences, heads, options); });
}

const std::vector<SequenceRows> kGood = {{{0, 4}, 4}};

TEST(PlanCheck, RefusesHeadsThatKvHeadsDoNotDivide) {
  const std::string allowed = "; allowed: 1..65536, and query heads a multiple of KV heads";
  EXPECT_EQ(refusal(kGood, {6, 4}), "num_q_heads is 6 on 4 KV heads" + allowed);
  EXPECT_EQ(refusal(kGood, {2, 4}), "num_q_heads is 2 on 4 KV heads" + allowed);
  EXPECT_EQ(refusal(kGood, {0, 1}), "num_q_heads is 0 on 1 KV heads" + allowed);
  EXPECT_EQ(refusal(kGood, {65537, 1}), "num_q_heads is 65537 on 1 KV heads" + allowed);
  EXPECT_EQ(refusal(kGood, {4, 0}), "num_q_heads is 4 on 0 KV heads" + allowed);
}

TEST(PlanCheck, RefusesAnotherNumberOfTopologies) {
  const std::string allowed = "; allowed: 1 for all query heads, or one for each of 8";
  EXPECT_EQ(refusal(kGood, {8, 2}, {}, 2), "the number of topologies is 2" + allowed);
  EXPECT_EQ(refusal(kGood, {8, 2}, {}, 0), "the number of topologies is 0" + allowed);
}

TEST(PlanCheck, RefusesRowsOutsideTheirSequence) {
  EXPECT_EQ(refusal({{{0, 4}, 4}, {{2, 5}, 4}}),
            "sequences[1].rows is 2..5; allowed: an ascending pair inside 0..4");
  EXPECT_EQ(refusal({{{-1, 2}, 4}}),
            "sequences[0].rows is -1..2; allowed: an ascending pair inside 0..4");
  EXPECT_EQ(refusal({{{3, 2}, 4}}),
            "sequences[0].rows is 3..2; allowed: an ascending pair inside 0..4");
  EXPECT_EQ(refusal({{{0, 0}, -3}}), "sequences[0].length is -3; allowed: 0..2^60-1");
  EXPECT_EQ(refusal({{{0, 1}, std::int64_t{1} << 60}}),
            "sequences[0].length is 1152921504606846976; allowed: 0..2^60-1");
}

TEST(PlanCheck, RefusesMoreRowsThanAMachineHolds) {
  const std::int64_t many = std::int64_t{1} << 31;
  EXPECT_EQ(refusal({{{0, many}, many}, {{0, 1}, 1}}),
            "the number of rows up to sequences[1] is 2147483649; allowed: up to 2147483648");
}

TEST(PlanCheck, RefusesTilesTheKernelsDoNotHave) {
  const std::string allowed = "; allowed: 1..64 rows and 1..16 keys";
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {65, 16}}), "tile is 65,16" + allowed);
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {16, 17}}), "tile is 16,17" + allowed);
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {0, 16}}), "tile is 0,16" + allowed);
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {16, -1}}), "tile is 16,-1" + allowed);
}

TEST(PlanCheck, RefusesANegativeNumberOfTilesAnItem) {
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {16, 16}, .tiles_per_item = -1}),
            "tiles_per_item is -1; allowed: 0, which chooses, or at least 1");
}

TEST(PlanCheck, RefusesSplitsWithoutKeys) {
  EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {16, 16}, .split_tokens = 0}),
            "split_tokens is 0; allowed: at least 1");
}

TEST(PlanCheck, RefusesThreadsThatNobodyHas) {
  for (std::int64_t num_threads : {0, -1, 4097}) {
    EXPECT_EQ(refusal(kGood, {8, 2}, {.tile = {16, 16}, .num_threads = num_threads}),
              "num_threads is " + std::to_string(num_threads) + "; allowed: 1..4096");
  }
}

TEST(PlanCheck, RefusesGlobalTokensThatAreNotResolved) {
  const Topology topology({GlobalTokens{{7}}}, true);
  EXPECT_THROW(make_plan(std::span(&topology, 1), kGood, {1, 1}), Error);
}

std::string refusal(const std::vector<KeyRanges>& key_ranges) {
  const std::vector<SequenceRows> sequences = {{{6, 8}, 10}};
  return refusal([&] { make_plan(key_ranges, sequences, {2, 1}); });
}

KeyRanges ranges(std::vector<std::int64_t> indptr, std::vector<Range> parts) {
  KeyRanges made;
  made.indptr = std::move(indptr);
  made.ranges = std::move(parts);
  return made;
}

TEST(PlanCheck, AcceptsKeyRangesThatTouch) {
  EXPECT_EQ(refusal(std::vector{ranges({0, 2, 2}, {{0, 4}, {4, 10}})}), "accepted");
}

TEST(PlanCheck, RefusesKeyRangesOfAnotherShape) {
  EXPECT_EQ(
      refusal(std::vector<KeyRanges>(3)),
      "the number of key_ranges is 3; allowed: 1: one for each of 1 sequences and 1 KV heads");
  EXPECT_EQ(
      refusal(std::vector{ranges({0, 0}, {})}),
      "key_ranges[0].indptr is of 2 entries; allowed: 3, one more than its sequence has rows");
  EXPECT_EQ(refusal(std::vector{ranges({1, 1, 1}, {{0, 1}})}),
            "key_ranges[0].indptr[0] is 1; allowed: 0");
  EXPECT_EQ(refusal(std::vector{ranges({0, 1, 0}, {{0, 1}})}),
            "key_ranges[0].indptr[2] is 0; allowed: 1..1");
  EXPECT_EQ(refusal(std::vector{ranges({0, 1, 9}, {{0, 1}})}),
            "key_ranges[0].indptr[2] is 9; allowed: 1..1");
  EXPECT_EQ(refusal(std::vector{ranges({0, 1, 1}, {{0, 1}, {3, 4}})}),
            "key_ranges[0].indptr's end is 1; allowed: 2, the number of ranges");
}

TEST(PlanCheck, RefusesKeysThatARowCannotHave) {
  const auto says = [](std::vector<Range> parts, const std::string& what) {
    const auto count = std::ssize(parts);
    EXPECT_EQ(refusal(std::vector{ranges({0, count, count}, std::move(parts))}),
              "key_ranges[0].ranges" + what + ", sorted and disjoint in each row");
  };
  says({{2, 2}}, "[0] is 2..2; allowed: not empty, inside 0..10");
  says({{3, 2}}, "[0] is 3..2; allowed: not empty, inside 0..10");
  says({{-1, 2}}, "[0] is -1..2; allowed: not empty, inside 0..10");
  says({{8, 11}}, "[0] is 8..11; allowed: not empty, inside 0..10");
  says({{4, 6}, {5, 7}}, "[1] is 5..7; allowed: not empty, inside 6..10");
}

}  // namespace
}  // namespace lacuna

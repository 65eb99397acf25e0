#include "plan/mask_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

namespace lacuna {
namespace {

using Mask = std::vector<std::uint16_t>;

TEST(MaskPool, KeepsEqualMasksOnce) {
  std::vector<std::uint16_t> words;
  MaskPool pool(words);
  const Mask one = {1, 2, 3, 4, 5};
  const Mask other = {1, 2, 3, 4, 6};
  const std::int64_t first = pool.intern(one);
  const std::int64_t second = pool.intern(other);
  EXPECT_NE(first, second);
  EXPECT_EQ(pool.intern(one), first);
  EXPECT_EQ(pool.intern(other), second);
  EXPECT_EQ(words.size(), 10u);
  EXPECT_EQ(pool.row(second, 4), 6);
}

TEST(MaskPool, TellsALongerMaskFromItsBeginning) {
  std::vector<std::uint16_t> words;
  MaskPool pool(words);
  const std::int64_t longer = pool.intern(Mask{7, 0, 0});
  EXPECT_NE(pool.intern(Mask{7, 0}), longer);
  EXPECT_NE(pool.intern(Mask{7}), longer);
}

// More masks than the first table holds, against a map.
RC_GTEST_PROP(MaskPool, AnswersAsAMapDoes, ()) {
  std::vector<std::uint16_t> words;
  MaskPool pool(words);
  std::map<Mask, std::int64_t> known;
  const int count = *rc::gen::inRange(1, 2000);
  for (int i = 0; i < count; ++i) {
    const Mask mask = *rc::gen::container<Mask>(*rc::gen::inRange<std::size_t>(1, 4),
                                                rc::gen::inRange<std::uint16_t>(0, 12));
    const std::int64_t begin = pool.intern(mask);
    const auto [found, is_new] = known.try_emplace(mask, begin);
    RC_ASSERT(found->second == begin);
    for (std::size_t row = 0; row < mask.size(); ++row)
      RC_ASSERT(pool.row(begin, row) == mask[row]);
  }
  std::size_t num_words = 0;
  for (const auto& [mask, begin] : known) num_words += mask.size();
  RC_ASSERT(words.size() == num_words);
}

}  // namespace
}  // namespace lacuna

#include "lacuna/error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lacuna {
namespace {

const std::vector<std::string> kTerms = {"window", "window_blocks", "sink", "full"};

TEST(Nearest, FindsTheWordWithAFewWrongLetters) {
  EXPECT_EQ(nearest("windw", kTerms), "window");
  EXPECT_EQ(nearest("sinks", kTerms), "sink");
  EXPECT_EQ(nearest("fulll", kTerms), "full");
}

TEST(Nearest, FindsTheWordItself) { EXPECT_EQ(nearest("window_blocks", kTerms), "window_blocks"); }

TEST(Nearest, TakesTheFirstOfEquallyNearWords) { EXPECT_EQ(nearest("bat", {"cat", "rat"}), "cat"); }

TEST(Nearest, IsEmptyWhereNothingIsMeant) {
  EXPECT_EQ(nearest("xyz", kTerms), "");
  EXPECT_EQ(nearest("window", {}), "");
  EXPECT_EQ(nearest("", kTerms), "");
}

TEST(Nearest, AllowsAThirdOfTheLettersToBeWrong) {
  EXPECT_EQ(nearest("wixxow", {"window"}), "window");
  EXPECT_EQ(nearest("wxxxow", {"window"}), "");
}

TEST(Nearest, DoesNotCompareWordsLongerThan64Letters) {
  const std::string longest(64, 'a');
  EXPECT_EQ(nearest(longest, {longest}), longest);
  EXPECT_EQ(nearest(longest + 'a', {longest}), "");
}

TEST(DidYouMean, SuggestsTheNearestWord) {
  EXPECT_EQ(did_you_mean("windw", kTerms), "; did you mean 'window'?");
}

TEST(DidYouMean, IsEmptyWhereNothingIsNear) { EXPECT_EQ(did_you_mean("xyz", kTerms), ""); }

TEST(Error, CarriesItsMessage) { EXPECT_STREQ(Error("what it was").what(), "what it was"); }

}  // namespace
}  // namespace lacuna

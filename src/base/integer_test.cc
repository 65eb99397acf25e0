#include "lacuna/integer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <limits>
#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax64 = std::numeric_limits<std::int64_t>::max();
constexpr Int128 kMax128 = (((Int128{1} << 126) - 1) << 1) + 1;
constexpr Int128 kMin128 = -kMax128 - 1;

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Checked, ReachesTheEdgesOfItsType) {
  EXPECT_EQ(checked_add(kMax128 - 1, 1), kMax128);
  EXPECT_EQ(checked_add(kMin128 + 1, -1), kMin128);
  EXPECT_EQ(checked_mul(Int128{1} << 63, Int128{1} << 63), Int128{1} << 126);
  EXPECT_EQ(checked_add64(kMax64 - 1, 1), kMax64);
  EXPECT_EQ(checked_mul64(kMin64 / 2, 2), kMin64);
}

TEST(Checked, RefusesWhatWouldWrap) {
  EXPECT_EQ(message_of([] { checked_add(kMax128, 1); }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([] { checked_add(kMin128, -1); }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([] { checked_mul(kMax128, 2); }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([] { checked_mul(kMin128, -1); }), "a count exceeds 128 bits");
  EXPECT_EQ(message_of([] { checked_add64(kMax64, 1); }), "a size exceeds 64 bits");
  EXPECT_EQ(message_of([] { checked_mul64(kMin64, -1); }), "a size exceeds 64 bits");
}

TEST(ToInt64, KeepsWhatFits) {
  EXPECT_EQ(to_int64(kMax64, "edges"), kMax64);
  EXPECT_EQ(to_int64(kMin64, "edges"), kMin64);
}

TEST(ToInt64, NamesWhatDoesNotFit) {
  EXPECT_EQ(message_of([] { to_int64(Int128{kMax64} + 1, "edges"); }),
            "edges is 9223372036854775808; allowed: 64-bit integers");
  EXPECT_EQ(message_of([] { to_int64(Int128{kMin64} - 1, "edges"); }),
            "edges is -9223372036854775809; allowed: 64-bit integers");
}

TEST(ToString, WritesTheEdgesOf128Bits) {
  EXPECT_EQ(to_string(Int128{0}), "0");
  EXPECT_EQ(to_string(Int128{-7}), "-7");
  EXPECT_EQ(to_string(kMax128), "170141183460469231731687303715884105727");
  EXPECT_EQ(to_string(kMin128), "-170141183460469231731687303715884105728");
}

TEST(ToString, EqualsTheStandardLibraryIn64Bits) {
  EXPECT_TRUE(rc::check(
      [](std::int64_t value) { RC_ASSERT(to_string(Int128{value}) == std::to_string(value)); }));
}

TEST(ParseInt64, ReadsBackWhatWasWritten) {
  EXPECT_TRUE(rc::check([](std::int64_t value) {
    RC_ASSERT(parse_int64(std::to_string(value), "n", kMin64, kMax64) == value);
  }));
}

TEST(ParseInt64, ReadsTheEdgesOfItsRange) {
  EXPECT_EQ(parse_int64("-3", "n", -3, 5), -3);
  EXPECT_EQ(parse_int64("5", "n", -3, 5), 5);
  EXPECT_EQ(parse_int64("-9223372036854775808", "n", kMin64, kMax64), kMin64);
}

TEST(ParseInt64, NamesWhatIsNoNumberOfItsRange) {
  for (const std::string text : {"", "-", "6", "-4", "+5", " 5", "5 ", "5x", "1e0", "0x5", "5.0",
                                 "9223372036854775808", "99999999999999999999"}) {
    EXPECT_EQ(message_of([&] { parse_int64(text, "--tile", -3, 5); }),
              "--tile is '" + text + "'; allowed: whole numbers -3..5");
  }
}

TEST(Division, RoundsUpAndDownForBothSigns) {
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(ceil_div(8, 2), 4);
  EXPECT_EQ(ceil_div(-7, 2), -3);
  EXPECT_EQ(floor_div(7, 2), 3);
  EXPECT_EQ(floor_div(-8, 2), -4);
  EXPECT_EQ(floor_div(-7, 2), -4);
  EXPECT_EQ(floor_div(kMin64, 1), kMin64);
  EXPECT_EQ(ceil_div(kMax64, 1), kMax64);
}

TEST(Division, BracketsTheQuotient) {
  EXPECT_TRUE(rc::check([](std::int32_t a, std::uint16_t divisor) {
    const std::int64_t b = std::int64_t{divisor} + 1;
    RC_ASSERT(floor_div(a, b) * b <= a && a < (floor_div(a, b) + 1) * b);
    RC_ASSERT(ceil_div(a, b) * b >= a && a > (ceil_div(a, b) - 1) * b);
  }));
}

}  // namespace
}  // namespace lacuna

#include "lacuna/quantity.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>

namespace lacuna {
namespace {

constexpr Int128 kLargest = static_cast<Int128>(~static_cast<unsigned __int128>(0) >> 1);
constexpr Int128 kSmallest = -kLargest - 1;

TEST(Quantity, CountsAreExactAndGroupedOnRequest) {
  EXPECT_EQ(count_text(33030656), "33030656");
  EXPECT_EQ(count_text(33030656, Grouping::kThousands), "33,030,656");
  EXPECT_EQ(count_text(0, Grouping::kThousands), "0");
  EXPECT_EQ(count_text(999, Grouping::kThousands), "999");
  EXPECT_EQ(count_text(1000, Grouping::kThousands), "1,000");
  EXPECT_EQ(count_text(-999, Grouping::kThousands), "-999");
  EXPECT_EQ(count_text(-123456, Grouping::kThousands), "-123,456");
  EXPECT_EQ(count_text(kLargest, Grouping::kThousands),
            "170,141,183,460,469,231,731,687,303,715,884,105,727");
  EXPECT_EQ(count_text(kSmallest), "-170141183460469231731687303715884105728");
}

TEST(Quantity, BytesShowDecimalAndBinaryWhereTheyDiffer) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB (1000 B)");
  EXPECT_EQ(bytes_text(1024), "1.02 kB (1.00 KiB)");
  EXPECT_EQ(bytes_text(108527616), "108.53 MB (103.50 MiB)");
  EXPECT_EQ(bytes_text(Int128{1} << 40), "1.10 TB (1.00 TiB)");
  EXPECT_EQ(bytes_text(-2048), "-2.05 kB (-2.00 KiB)");
}

TEST(Quantity, RoundingCarriesIntoTheNextPrefix) {
  EXPECT_EQ(si_text(999994, "B"), "999.99 kB");
  EXPECT_EQ(si_text(999995, "B"), "1.00 MB");
  EXPECT_EQ(bytes_text((Int128{1} << 20) - 1), "1.05 MB (1.00 MiB)");
  EXPECT_EQ(si_text(1005, "B"), "1.01 kB");  // half away from zero
  EXPECT_EQ(si_text(-1005, "B"), "-1.01 kB");
}

TEST(Quantity, FlopsHaveSiPrefixesUpToTheLargestCount) {
  EXPECT_EQ(flops_text(640), "640 FLOP");
  EXPECT_EQ(flops_text(422'212'465'065'984), "422.21 TFLOP");
  EXPECT_EQ(flops_text(kLargest), "170,141,183,460,469.23 YFLOP");
  EXPECT_EQ(flops_text(kSmallest), "-170,141,183,460,469.23 YFLOP");
}

TEST(Quantity, RatesHaveSiPrefixes) {
  EXPECT_EQ(rate_text(25.7e9, "B/s"), "25.70 GB/s");
  EXPECT_EQ(rate_text(117.4e9, "FLOP/s"), "117.40 GFLOP/s");
  EXPECT_EQ(rate_text(999.999e6, "B/s"), "1.00 GB/s");
  EXPECT_EQ(rate_text(0.25, "FLOP/B"), "0.25 FLOP/B");
  EXPECT_EQ(rate_text(std::numeric_limits<double>::infinity(), "B/s"), "inf B/s");
  EXPECT_EQ(rate_text(std::nan(""), "B/s"), "nan B/s");
}

TEST(Quantity, SecondsChooseTheFittingUnit) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(1.5), "1.50 s");
  EXPECT_EQ(seconds_text(0.999996), "1.00 s");
  EXPECT_EQ(seconds_text(0.00123), "1.23 ms");
  EXPECT_EQ(seconds_text(45.6e-6), "45.60 µs");
  EXPECT_EQ(seconds_text(12e-9), "12.00 ns");
  EXPECT_EQ(seconds_text(1e-12), "0.00 ns");
  EXPECT_EQ(seconds_text(-0.002), "-2.00 ms");
}

TEST(Quantity, RatiosNameTheirDenominator) {
  EXPECT_EQ(ratio_text(16.254, "dense"), "16.25× dense");
  EXPECT_EQ(percent_text(0.125, "full"), "12.50 % of full");
}

TEST(Quantity, TextsDoNotDependOnTheLocale) {
  const char* const before = std::setlocale(LC_ALL, nullptr);
  const std::string saved = before == nullptr ? "C" : before;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    EXPECT_EQ(rate_text(25.7e9, "B/s"), "25.70 GB/s");
  }
  std::setlocale(LC_ALL, saved.c_str());
}

}  // namespace
}  // namespace lacuna

#include "lacuna/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// LACUNA_ISA for the life of one test.
class ForcedIsa {
 public:
  explicit ForcedIsa(const std::string& isa) {
    const char* const before = std::getenv("LACUNA_ISA");
    if (before != nullptr) before_ = before;
    setenv("LACUNA_ISA", isa.c_str(), 1);
  }
  ~ForcedIsa() {
    if (before_.empty()) {
      unsetenv("LACUNA_ISA");
    } else {
      setenv("LACUNA_ISA", before_.c_str(), 1);
    }
  }

 private:
  std::string before_;
};

TEST(KernelList, IsOrderedAndEndsWithPortable) {
  const std::vector<std::string> all = {"avx512_bf16", "avx512_vnni", "avx512", "avx2", "portable"};
  const std::vector<std::string> isas = kernel_isas();
  auto at = all.begin();
  for (const std::string& isa : isas) {
    at = std::find(at, all.end(), isa);
    ASSERT_NE(at, all.end()) << isa;
  }
  EXPECT_EQ(isas.back(), "portable");
}

TEST(KernelList, ChoosesOneOfItsOwn) {
  const ForcedIsa none("");
  for (DType q : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (DType kv : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4}) {
      const std::string isa = kernel_isa(q, kv);
      const std::vector<std::string> isas = kernel_isas();
      EXPECT_NE(std::find(isas.begin(), isas.end(), isa), isas.end()) << isa;
    }
  }
}

TEST(KernelList, ObeysTheOneVariable) {
  for (const std::string& isa : kernel_isas()) {
    const ForcedIsa forced(isa);
    EXPECT_EQ(kernel_isa(DType::kF32, DType::kF32), isa);
    EXPECT_EQ(kernel_isa(DType::kBf16, DType::kBf16), isa);
    EXPECT_EQ(kernel_isa(DType::kBf16, DType::kInt8), isa);
  }
}

TEST(KernelList, RefusesAnUnknownSetByName) {
  const ForcedIsa forced("avx51");
  try {
    kernel_isa(DType::kF32, DType::kF32);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("LACUNA_ISA is 'avx51'"), std::string::npos) << text;
    EXPECT_NE(text.find("portable"), std::string::npos) << text;
  }
}

TEST(KernelList, StatesTheDimsThatItPadsTo) {
  EXPECT_EQ(executed_dims("portable", DType::kF32, DType::kF32, 7, 7), 7 + 16);
  EXPECT_EQ(executed_dims("portable", DType::kBf16, DType::kBf16, 64, 64), 128);
  for (const std::string& isa : kernel_isas()) {
    const bool pairs = tile_kernel(isa.c_str(), ElementType::kBf16, ElementType::kBf16).lanes ==
                       ElementType::kBf16;
    EXPECT_EQ(executed_dims(isa, DType::kBf16, DType::kBf16, 7, 17), (pairs ? 8 : 7) + 32) << isa;
    EXPECT_EQ(executed_dims(isa, DType::kF16, DType::kBf16, 7, 17), 7 + 32) << isa;
    EXPECT_EQ(executed_dims(isa, DType::kBf16, DType::kInt8, 7, 17), 8 + 32) << isa;
    EXPECT_EQ(executed_dims(isa, DType::kF32, DType::kInt4, 96, 32), 96 + 32) << isa;
  }
}

// Numbers at and around every place where a 16-bit format rounds, overflows or loses bits.
std::vector<float> hard_numbers() {
  std::vector<float> numbers = {
      0.0F,     -0.0F,      INFINITY, -INFINITY, std::nanf(""),
      65504,    65519.99F,  65520,    1e-8F,     0x1p-24F,
      0x1p-25F, 0x1.8p-25F, 0x1p-14F, 3.4e38F,   std::numeric_limits<float>::denorm_min()};
  for (std::uint32_t bits = 0x30000000U; bits < 0x48000000U; bits += 0x7fU) {
    float x = 0;
    std::memcpy(&x, &bits, 4);
    numbers.push_back(bits % 2 == 0 ? x : -x);
  }
  return numbers;
}

TEST(IsaWriteRow, RoundsAsTheStoredTypesDo) {
  const std::vector<float> numbers = hard_numbers();
  for (const std::string& isa : kernel_isas()) {
    const TileKernel& kernel = tile_kernel(isa.c_str(), ElementType::kF32, ElementType::kF32);
    for (std::size_t first = 0; first + 16 <= numbers.size(); first += 16) {
      std::uint16_t bf16[16];
      std::uint16_t f16[16];
      kernel.write_row(bf16, ElementType::kBf16, 1, 16, numbers.data() + first, 1.0F);
      kernel.write_row(f16, ElementType::kF16, 1, 16, numbers.data() + first, 1.0F);
      for (std::size_t idx = 0; idx < 16; ++idx) {
        const float x = numbers[first + idx] + 0.0F;  // −0 is written as 0
        if (std::isnan(x)) {
          EXPECT_TRUE(std::isnan(from_bf16(bf16[idx])) && std::isnan(from_f16(f16[idx])));
          continue;
        }
        ASSERT_EQ(f16[idx], to_f16(x)) << isa << " " << x;
        // The instruction flushes numbers below the normal ones.
        if (std::fabs(x) >= std::numeric_limits<float>::min()) {
          ASSERT_EQ(bf16[idx], to_bf16(x)) << isa << " " << x;
        }
      }
    }
  }
}

TEST(IsaPackPanel, WidensEveryHalfExactly) {
  for (const std::string& isa : kernel_isas()) {
    const TileKernel& kernel = tile_kernel(isa.c_str(), ElementType::kF16, ElementType::kF16);
    for (std::uint32_t first = 0; first < 0x10000U; first += 16) {
      std::uint16_t halves[16];
      for (std::uint32_t idx = 0; idx < 16; ++idx)
        halves[idx] = static_cast<std::uint16_t>(first + idx);
      float wide[16];
      kernel.pack_q(wide, halves, ElementType::kF16, 1, 16);
      for (std::size_t idx = 0; idx < 16; ++idx) {
        const float want = from_f16(halves[idx]);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(wide[idx])) << isa << " " << halves[idx];
        } else {
          ASSERT_EQ(std::memcmp(&wide[idx], &want, 4), 0) << isa << " " << halves[idx];
        }
      }
    }
  }
}

}  // namespace
}  // namespace lacuna

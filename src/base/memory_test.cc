#include "lacuna/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

bool is_zero(const std::byte* begin, std::int64_t size_bytes) {
  return std::all_of(begin, begin + size_bytes, [](std::byte byte) { return byte == std::byte{}; });
}

TEST(Memory, IsZeroAndAlignedAtAnySize) {
  constexpr std::int64_t kHuge = std::int64_t{2} << 20;
  for (const std::int64_t size :
       {std::int64_t{1}, std::int64_t{4097}, kHuge - 1, kHuge, kHuge + 1}) {
    const Memory memory(size);
    EXPECT_EQ(memory.size(), size);
    const std::int64_t unit = size < kHuge ? 4096 : kHuge;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % static_cast<std::uintptr_t>(unit),
              0U);
    EXPECT_TRUE(is_zero(memory.data(), size));
    Memory populated(size);
    populated.populate();
    EXPECT_TRUE(is_zero(populated.data(), size));
  }
  Memory(0).populate();
  EXPECT_EQ(Memory(0).data(), nullptr);
  EXPECT_THROW(Memory(-1), Error);
}

TEST(MemoryBlocks, PiecesAreAlignedZeroAndApart) {
  MemoryBlocks blocks;
  std::vector<std::shared_ptr<std::byte>> pieces;
  const std::int64_t sizes[] = {1, 64, 65, 4096, std::int64_t{70} << 20, 1, std::int64_t{63} << 20};
  for (const std::int64_t size : sizes) {
    pieces.push_back(blocks.take(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().get()) % 64, 0U);
    EXPECT_TRUE(is_zero(pieces.back().get(), size)) << size;
    std::fill_n(pieces.back().get(), size, std::byte{0xa5});
  }
}

TEST(MemoryBlocks, APieceKeepsItsBlock) {
  std::shared_ptr<std::byte> piece;
  {
    MemoryBlocks blocks;
    blocks.take(100);
    piece = blocks.take(100);
  }
  std::fill_n(piece.get(), 100, std::byte{1});
  EXPECT_EQ(piece.get()[99], std::byte{1});
}

}  // namespace
}  // namespace lacuna

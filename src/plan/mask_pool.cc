#include "plan/mask_pool.h"

#include <algorithm>
#include <cstring>

namespace lacuna {
namespace {

constexpr std::size_t kFirstSlots = 64;

std::uint64_t hash(std::span<const std::uint16_t> mask) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  std::uint64_t mixed = mask.size();
  for (std::size_t row = 0; row < mask.size(); row += 4) {
    std::uint64_t word = 0;
    std::memcpy(&word, mask.data() + row, 2 * std::min<std::size_t>(4, mask.size() - row));
    mixed = (mixed ^ word) * kOdd;
    mixed ^= mixed >> 29;
  }
  return mixed * kOdd;
}

}  // namespace

MaskPool::MaskPool(std::vector<std::uint16_t>& words) : words_(words), slots_(kFirstSlots) {}

bool MaskPool::holds(const Slot& slot, std::uint32_t tag,
                     std::span<const std::uint16_t> mask) const {
  return slot.tag == tag && slot.num_rows == mask.size() &&
         std::memcmp(words_.data() + slot.begin, mask.data(), 2 * mask.size()) == 0;
}

std::int64_t MaskPool::intern(std::span<const std::uint16_t> mask) {
  const std::uint64_t mixed = hash(mask);
  const auto tag = static_cast<std::uint32_t>(mixed >> 32);
  if (holds(slots_[last_], tag, mask)) return slots_[last_].begin;
  std::size_t at = tag & (slots_.size() - 1);
  while (slots_[at].num_rows != 0 && !holds(slots_[at], tag, mask)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  last_ = at;
  if (slots_[at].num_rows != 0) return slots_[at].begin;
  const auto begin = static_cast<std::int64_t>(words_.size());
  slots_[at] = {tag, static_cast<std::uint32_t>(mask.size()), begin};
  words_.insert(words_.end(), mask.begin(), mask.end());
  if (2 * ++num_masks_ > slots_.size()) grow();
  return begin;
}

void MaskPool::grow() {
  std::vector<Slot> slots(2 * slots_.size());
  for (const Slot& slot : slots_) {
    if (slot.num_rows == 0) continue;
    std::size_t at = slot.tag & (slots.size() - 1);
    while (slots[at].num_rows != 0) at = (at + 1) & (slots.size() - 1);
    slots[at] = slot;
  }
  slots_ = std::move(slots);
  last_ = 0;
}

}  // namespace lacuna

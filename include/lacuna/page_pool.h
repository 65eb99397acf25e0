#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace lacuna {

// A page by its place: kPageUnitBytes · id bytes into the pool's memory, which is how a KvView's
// block table names it.
using PageId = std::int64_t;
inline constexpr std::int64_t kPageUnitBytes = 32;

struct PoolOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  // never exceeded; whole slabs are used of it
  std::int64_t slab_bytes = std::int64_t{2} << 20;    // a multiple of 4096
  // Pages are filled with 0xff, which reads as NaN, when they are taken and when they are freed:
  // for tests, which so find what reads memory that it must not.
  bool poison = false;
  bool populate = false;  // Memory::populate()
};

// Memory for KV pages of several sizes under one budget. It is cut into slabs, a slab into pages of
// one size class; a slab without a page in use serves any class. Pages count their references. One
// mutator at a time; const members may be called together.
class PagePool {
 public:
  // `page_bytes` holds the size of each class, multiples of kPageUnitBytes. Throws Error where a
  // page does not fit into a slab, the budget holds no slab, or the system refuses the memory.
  PagePool(std::span<const std::int64_t> page_bytes, const PoolOptions& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page with one reference; nullopt where neither the class nor the pool has one left.
  std::optional<PageId> take(int size_class);
  // One reference more, one less; the last one frees the page. Throw Error for a page that is not
  // in use.
  void share(PageId page);
  void drop(PageId page);
  std::int64_t references(PageId page) const;

  std::byte* bytes(PageId page);
  const std::byte* bytes(PageId page) const;
  const std::byte* base() const;
  std::int64_t num_units() const;  // page ids are below it
  int num_classes() const;
  std::int64_t page_bytes(int size_class) const;
  int size_class(PageId page) const;
  std::int64_t slab(PageId page) const;

  // Could so many more pages of a class be taken, were no other class to take any?
  std::int64_t num_available(int size_class) const;
  // Could num_pages[c] pages of every class c be taken at once, if the pages of `freed`, which are
  // in use, were free before?
  bool can_take(std::span<const std::int64_t> num_pages, std::span<const PageId> freed = {}) const;
  std::int64_t num_free_slabs() const;
  std::int64_t num_slabs() const;
  std::int64_t pages_per_slab(int size_class) const;

  // Walks what is in use, slab by slab, without looking at any running count.
  void for_each_live(const std::function<void(PageId, int size_class)>& visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lacuna

#include "lacuna/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_view.h"
#include "lacuna/memory.h"

namespace lacuna {
namespace {

constexpr int kNoClass = -1;

struct Slab {
  int size_class = kNoClass;
  std::int64_t num_live = 0;
  std::vector<std::int32_t> references;  // [pages] 0: free
  std::vector<std::int32_t> free_pages;  // a stack
};

struct SizeClass {
  std::int64_t page_bytes = 0;
  std::int64_t pages_per_slab = 0;
  std::set<std::int64_t> open_slabs;  // with a free page; the first is used first
  std::int64_t num_free = 0;
};

void require(bool holds, const char* name, std::int64_t value, const std::string& allowed) {
  if (!holds) throw Error(fmt::format("{} is {}; allowed: {}", name, value, allowed));
}

}  // namespace

struct PagePool::State {
  PoolOptions options;
  Memory memory;
  std::vector<Slab> slabs;
  std::vector<std::int64_t> free_slabs;  // a stack
  std::vector<SizeClass> classes;

  struct Place {
    std::int64_t slab;
    std::int64_t idx;  // of the page in its slab
  };

  // Throws Error where no page in use has this id.
  Place place(PageId page) const {
    if (page >= 0 && page < memory.size() / kPageUnitBytes) {
      const std::int64_t offset = page * kPageUnitBytes;
      const std::int64_t slab_idx = offset / options.slab_bytes;
      const Slab& slab = slabs[static_cast<std::size_t>(slab_idx)];
      if (slab.size_class != kNoClass) {
        const std::int64_t page_bytes = of(slab.size_class).page_bytes;
        const std::int64_t in_slab = offset % options.slab_bytes;
        const std::int64_t idx = in_slab / page_bytes;
        if (in_slab % page_bytes == 0 && idx < of(slab.size_class).pages_per_slab &&
            slab.references[static_cast<std::size_t>(idx)] > 0) {
          return {slab_idx, idx};
        }
      }
    }
    throw Error(fmt::format("page is {}; allowed: pages in use", page));
  }

  const SizeClass& of(int size_class) const {
    require(size_class >= 0 && size_class < std::ssize(classes), "size_class", size_class,
            fmt::format("0..{}", std::ssize(classes) - 1));
    return classes[static_cast<std::size_t>(size_class)];
  }
  SizeClass& of(int size_class) {
    return const_cast<SizeClass&>(std::as_const(*this).of(size_class));
  }
  Slab& slab(std::int64_t idx) { return slabs[static_cast<std::size_t>(idx)]; }

  std::int64_t offset(std::int64_t slab_idx, std::int64_t page_idx) const {
    return slab_idx * options.slab_bytes +
           page_idx * of(slabs[static_cast<std::size_t>(slab_idx)].size_class).page_bytes;
  }

  void poison(std::int64_t slab_idx, std::int64_t page_idx) {
    if (!options.poison) return;
    std::memset(memory.data() + offset(slab_idx, page_idx), 0xff,
                static_cast<std::size_t>(of(slab(slab_idx).size_class).page_bytes));
  }

  // Cuts a free slab into pages of a class.
  void open_slab(int size_class) {
    const std::int64_t slab_idx = free_slabs.back();
    free_slabs.pop_back();
    SizeClass& kind = of(size_class);
    Slab& fresh = slab(slab_idx);
    fresh.size_class = size_class;
    fresh.references.assign(static_cast<std::size_t>(kind.pages_per_slab), 0);
    fresh.free_pages.clear();
    for (std::int64_t idx = kind.pages_per_slab - 1; idx >= 0; --idx) {
      fresh.free_pages.push_back(static_cast<std::int32_t>(idx));
    }
    kind.open_slabs.insert(slab_idx);
    kind.num_free += kind.pages_per_slab;
  }

  void close_slab(std::int64_t slab_idx) {
    Slab& empty = slab(slab_idx);
    SizeClass& kind = of(empty.size_class);
    kind.open_slabs.erase(slab_idx);
    kind.num_free -= kind.pages_per_slab;
    empty.size_class = kNoClass;
    free_slabs.push_back(slab_idx);
  }
};

PagePool::PagePool(std::span<const std::int64_t> page_bytes, const PoolOptions& options)
    : state_(std::make_unique<State>()) {
  require(options.slab_bytes > 0 && options.slab_bytes % 4096 == 0, "slab_bytes",
          options.slab_bytes, "positive multiples of 4096");
  require(options.budget_bytes >= options.slab_bytes, "budget_bytes", options.budget_bytes,
          fmt::format("at least one slab of {} bytes", options.slab_bytes));
  state_->options = options;
  for (const std::int64_t bytes : page_bytes) {
    require(bytes > 0 && bytes % kPageUnitBytes == 0 && bytes <= options.slab_bytes, "page_bytes",
            bytes,
            fmt::format("multiples of {} up to the slab's {}", kPageUnitBytes, options.slab_bytes));
    state_->classes.push_back({bytes, options.slab_bytes / bytes, {}, 0});
  }
  const std::int64_t num_slabs = options.budget_bytes / options.slab_bytes;
  state_->memory = Memory(num_slabs * options.slab_bytes);
  if (options.populate) state_->memory.populate();
  state_->slabs.resize(static_cast<std::size_t>(num_slabs));
  for (std::int64_t slab = num_slabs - 1; slab >= 0; --slab) state_->free_slabs.push_back(slab);
}

PagePool::~PagePool() = default;

std::optional<PageId> PagePool::take(int size_class) {
  SizeClass& kind = state_->of(size_class);
  if (kind.open_slabs.empty()) {
    if (state_->free_slabs.empty()) return std::nullopt;
    state_->open_slab(size_class);
  }
  const std::int64_t slab_idx = *kind.open_slabs.begin();
  Slab& slab = state_->slab(slab_idx);
  const std::int32_t idx = slab.free_pages.back();
  slab.free_pages.pop_back();
  slab.references[static_cast<std::size_t>(idx)] = 1;
  ++slab.num_live;
  --kind.num_free;
  if (slab.free_pages.empty()) kind.open_slabs.erase(slab_idx);
  state_->poison(slab_idx, idx);
  return state_->offset(slab_idx, idx) / kPageUnitBytes;
}

void PagePool::share(PageId page) {
  const State::Place place = state_->place(page);
  ++state_->slab(place.slab).references[static_cast<std::size_t>(place.idx)];
}

void PagePool::drop(PageId page) {
  const State::Place place = state_->place(page);
  Slab& slab = state_->slab(place.slab);
  if (--slab.references[static_cast<std::size_t>(place.idx)] > 0) return;
  state_->poison(place.slab, place.idx);
  slab.free_pages.push_back(static_cast<std::int32_t>(place.idx));
  SizeClass& kind = state_->of(slab.size_class);
  kind.open_slabs.insert(place.slab);
  ++kind.num_free;
  if (--slab.num_live == 0) state_->close_slab(place.slab);
}

std::int64_t PagePool::references(PageId page) const {
  const State::Place place = state_->place(page);
  return state_->slab(place.slab).references[static_cast<std::size_t>(place.idx)];
}

std::byte* PagePool::bytes(PageId page) {
  state_->place(page);
  return state_->memory.data() + page * kPageUnitBytes;
}

const std::byte* PagePool::bytes(PageId page) const {
  state_->place(page);
  return base() + page * kPageUnitBytes;
}

const std::byte* PagePool::base() const { return std::as_const(state_->memory).data(); }

std::int64_t PagePool::num_units() const { return state_->memory.size() / kPageUnitBytes; }

int PagePool::num_classes() const { return static_cast<int>(state_->classes.size()); }

std::int64_t PagePool::page_bytes(int size_class) const {
  return state_->of(size_class).page_bytes;
}

int PagePool::size_class(PageId page) const {
  return state_->slab(state_->place(page).slab).size_class;
}

std::int64_t PagePool::slab(PageId page) const { return state_->place(page).slab; }

bool PagePool::can_take(std::span<const std::int64_t> num_pages,
                        std::span<const PageId> freed) const {
  std::vector<std::int64_t> num_free;
  for (const SizeClass& kind : state_->classes) num_free.push_back(kind.num_free);
  std::int64_t free_slabs = num_free_slabs();
  std::unordered_map<std::int64_t, std::int64_t> freed_of_slab;
  for (const PageId page : freed) ++freed_of_slab[slab(page)];
  for (const auto& [slab_idx, count] : freed_of_slab) {
    const Slab& of = state_->slab(slab_idx);
    std::int64_t& of_class = num_free[static_cast<std::size_t>(of.size_class)];
    of_class += count;
    if (count < of.num_live) continue;
    of_class -= pages_per_slab(of.size_class);
    ++free_slabs;
  }
  for (std::size_t idx = 0; idx < num_pages.size(); ++idx) {
    const std::int64_t missing = std::max<std::int64_t>(0, num_pages[idx] - num_free[idx]);
    free_slabs -= ceil_div(missing, pages_per_slab(static_cast<int>(idx)));
  }
  return free_slabs >= 0;
}

std::int64_t PagePool::num_available(int size_class) const {
  const SizeClass& kind = state_->of(size_class);
  return kind.num_free + num_free_slabs() * kind.pages_per_slab;
}

std::int64_t PagePool::num_free_slabs() const { return std::ssize(state_->free_slabs); }

std::int64_t PagePool::num_slabs() const { return std::ssize(state_->slabs); }

std::int64_t PagePool::pages_per_slab(int size_class) const {
  return state_->of(size_class).pages_per_slab;
}

void PagePool::for_each_live(const std::function<void(PageId, int size_class)>& visit) const {
  for (std::int64_t slab_idx = 0; slab_idx < num_slabs(); ++slab_idx) {
    const Slab& slab = state_->slabs[static_cast<std::size_t>(slab_idx)];
    if (slab.size_class == kNoClass) continue;
    for (std::size_t idx = 0; idx < slab.references.size(); ++idx) {
      if (slab.references[idx] == 0) continue;
      visit(state_->offset(slab_idx, static_cast<std::int64_t>(idx)) / kPageUnitBytes,
            slab.size_class);
    }
  }
}

}  // namespace lacuna

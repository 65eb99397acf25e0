#include "lacuna/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "cache/checksum.h"
#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/stopwatch.h"

namespace lacuna {

// The file and what of it is free: extents that do not touch, by their offset. Every page takes the
// first one that it fits into, so that a sequence lies in few pieces and room is used again.
struct OffloadFile {
  OffloadFile(const std::string& path, std::int64_t budget_bytes) : file(path) {
    if (budget_bytes > 0) free.emplace(0, budget_bytes);
  }

  std::optional<std::int64_t> take(std::int64_t size_bytes) {
    const auto found = std::find_if(
        free.begin(), free.end(), [&](const auto& extent) { return extent.second >= size_bytes; });
    if (found == free.end()) return std::nullopt;
    const auto [offset, available] = *found;
    free.erase(found);
    if (available > size_bytes) free.emplace(offset + size_bytes, available - size_bytes);
    used_bytes += size_bytes;
    return offset;
  }

  void give_back(std::int64_t offset, std::int64_t size_bytes) {
    used_bytes -= size_bytes;
    const auto next = free.lower_bound(offset);
    if (next != free.end() && next->first == offset + size_bytes) {
      size_bytes += next->second;
      free.erase(next);
    }
    const auto after = free.upper_bound(offset);
    if (after != free.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += size_bytes;
        return;
      }
    }
    free.emplace(offset, size_bytes);
  }

  ScratchFile file;
  std::map<std::int64_t, std::int64_t> free;  // offset → bytes
  std::int64_t used_bytes = 0;
};

namespace {

struct SleepingPage {
  std::size_t table;
  std::size_t column;
  std::int64_t offset;
  std::int64_t size_bytes;
  std::int64_t first_slot;  // KvCache::State::first_slots
  std::int64_t checksum;
};

}  // namespace

struct SleepingPages {
  explicit SleepingPages(std::shared_ptr<OffloadFile> in) : file(std::move(in)) {}
  ~SleepingPages() {
    for (const SleepingPage& page : pages) file->give_back(page.offset, page.size_bytes);
  }
  SleepingPages(const SleepingPages&) = delete;
  SleepingPages& operator=(const SleepingPages&) = delete;

  std::int64_t size_bytes() const {
    std::int64_t sum = 0;
    for (const SleepingPage& page : pages) sum += page.size_bytes;
    return sum;
  }

  std::shared_ptr<OffloadFile> file;
  std::vector<SleepingPage> pages;
};

namespace {

// Room in the file for the pages that only this sequence refers to; null where there is none.
std::shared_ptr<SleepingPages> take_room(const std::shared_ptr<OffloadFile>& file,
                                         const KvCache::State& state, const Sequence& of) {
  auto room = std::make_shared<SleepingPages>(file);
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    for (std::size_t column = 0; column < of.tables[table].size(); ++column) {
      const PageId page = of.tables[table][column];
      if (page == KvView::kNullPage || state.pool.references(page) > 1) continue;
      const std::int64_t size_bytes = state.tables[table].page_bytes;
      const std::optional<std::int64_t> offset = file->take(size_bytes);
      if (!offset) return nullptr;
      room->pages.push_back({table, column, *offset, size_bytes, state.first_slot(page), 0});
    }
  }
  return room;
}

// The sequence's bytes in the file; throws Error where it does not sleep there.
const SleepingPages& sleeping(const KvCache& cache, const OffloadFile* file, SequenceId id) {
  const Sequence& of = cache.state().sequence(id);
  if (of.asleep != nullptr && of.asleep->file.get() == file) return *of.asleep;
  throw Error(fmt::format("sequence {} is {}; allowed: those asleep in '{}'", id,
                          of.asleep == nullptr ? "awake" : "asleep elsewhere", file->file.path()));
}

// Throws Error where the bytes are not those that were written.
void read_page(std::span<std::byte> bytes, const SleepingPages& from, const SleepingPage& page) {
  from.file->file.read(bytes, page.offset);
  const std::int64_t there = checksum(bytes);
  if (there == page.checksum) return;
  throw Error(fmt::format(
      "'{}' is damaged: the checksum of offsets {}..{} is {:#x}; expected {:#x}, as page {} of "
      "table {} had when it was written",
      from.file->file.path(), page.offset, page.offset + page.size_bytes - 1, there, page.checksum,
      page.column, page.table));
}

// Pages with what was written; none where memory is short. Throws Error, and keeps none, where what
// is read is not that.
std::optional<std::vector<PageId>> read_pages(KvCache::State& state, const SleepingPages& from) {
  std::vector<std::size_t> tables;
  for (const SleepingPage& page : from.pages) tables.push_back(page.table);
  std::optional<std::vector<PageId>> pages = state.take(tables);
  if (!pages) return std::nullopt;
  try {
    for (std::size_t idx = 0; idx < pages->size(); ++idx) {
      const SleepingPage& page = from.pages[idx];
      read_page({state.pool.bytes((*pages)[idx]), static_cast<std::size_t>(page.size_bytes)}, from,
                page);
      state.set_first_slot((*pages)[idx], page.first_slot);
    }
  } catch (...) {
    for (const PageId page : *pages) state.pool.drop(page);
    throw;
  }
  return pages;
}

}  // namespace

KvOffload::KvOffload(KvCache& cache, const std::string& path, std::int64_t budget_bytes)
    : cache_(cache) {
  if (budget_bytes < 0) {
    throw Error(fmt::format("budget_bytes is {}; allowed: 0 and more", budget_bytes));
  }
  file_ = std::make_shared<OffloadFile>(path, budget_bytes);
}

KvOffload::~KvOffload() = default;

bool KvOffload::sleep(SequenceId sequence) {
  const Stopwatch watch;
  KvCache::State& state = cache_.state();
  Sequence& of = state.idle_sequence(sequence);
  const std::shared_ptr<SleepingPages> room = take_room(file_, state, of);
  if (room == nullptr) return false;
  for (SleepingPage& page : room->pages) {
    const std::span<const std::byte> bytes(state.pool.bytes(of.tables[page.table][page.column]),
                                           static_cast<std::size_t>(page.size_bytes));
    page.checksum = checksum(bytes);
    file_->file.write(page.offset, bytes);
  }
  for (const SleepingPage& page : room->pages) {
    state.pool.drop(std::exchange(of.tables[page.table][page.column], KvView::kNullPage));
  }
  of.asleep = room;
  ++statistics_.num_sleeps;
  statistics_.written_bytes += room->size_bytes();
  statistics_.sleep_seconds += watch.seconds();
  return true;
}

bool KvOffload::wake(SequenceId sequence) {
  const Stopwatch watch;
  const SleepingPages& from = sleeping(cache_, file_.get(), sequence);
  KvCache::State& state = cache_.state();
  const std::optional<std::vector<PageId>> pages = read_pages(state, from);
  if (!pages) return false;
  Sequence& of = state.sequence(sequence);
  for (std::size_t idx = 0; idx < pages->size(); ++idx) {
    of.tables[from.pages[idx].table][from.pages[idx].column] = (*pages)[idx];
  }
  ++statistics_.num_wakes;
  statistics_.read_bytes += from.size_bytes();
  statistics_.wake_seconds += watch.seconds();
  of.asleep.reset();  // `from` ends here
  return true;
}

bool KvOffload::is_asleep(SequenceId sequence) const {
  const Sequence& of = cache_.state().sequence(sequence);
  return of.asleep != nullptr && of.asleep->file == file_;
}

void KvOffload::prefetch(SequenceId sequence) const {
  std::int64_t begin = 0;  // of the piece that is not asked for yet
  std::int64_t end = 0;
  for (const SleepingPage& page : sleeping(cache_, file_.get(), sequence).pages) {
    if (page.offset != end) {
      file_->file.read_ahead(begin, end - begin);
      begin = page.offset;
    }
    end = page.offset + page.size_bytes;
  }
  file_->file.read_ahead(begin, end - begin);
}

void KvOffload::drop_from_page_cache() const { file_->file.drop_from_page_cache(); }

std::int64_t KvOffload::used_bytes() const { return file_->used_bytes; }

}  // namespace lacuna

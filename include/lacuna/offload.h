#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lacuna/kv_cache.h"

namespace lacuna {

struct OffloadFile;  // private to src/cache

struct OffloadStatistics {
  std::int64_t num_sleeps = 0;  // those that succeeded, as with all counts
  std::int64_t num_wakes = 0;
  std::int64_t written_bytes = 0;
  std::int64_t read_bytes = 0;
  double sleep_seconds = 0;
  double wake_seconds = 0;
};

// A file that pages of sleeping sequences lie in, so that memory serves others. A sequence goes to
// sleep and wakes up as a whole; its pages come back as they were, bit for bit. Asleep, it has its
// length and what it shares with others, and can be freed, which gives its room in the file back;
// every other call of the cache that names it throws Error. One mutator of the cache at a time, as
// whose part this counts.
class KvOffload {
 public:
  // The file at `path` has at most budget_bytes and no name after this call, so that it is gone
  // with this object and the sequences that sleep in it. The cache must outlive the object; a
  // sequence still asleep when it ends can only be freed. Throws Error naming the path where
  // something is there or no file can be made, and where the budget is negative.
  KvOffload(KvCache& cache, const std::string& path, std::int64_t budget_bytes);
  ~KvOffload();
  KvOffload(const KvOffload&) = delete;
  KvOffload& operator=(const KvOffload&) = delete;

  // Writes the pages that only this sequence refers to into the file and frees them. Pages that
  // others refer to, too, stay where they are, and stay its own. False, and nothing changed, where
  // the file has no room. Throws Error, and changes nothing, for an unknown sequence, one that is
  // asleep or in a step, and where the file cannot be written.
  bool sleep(SequenceId sequence);

  // Takes pages and reads what they held. False, and nothing changed, where memory is short even
  // without what only the prefix index refers to, which is evicted as needed. Throws Error, and
  // leaves it asleep, where the file cannot be read or holds other bytes than were written; and for
  // an unknown sequence or one that does not sleep here.
  bool wake(SequenceId sequence);

  bool is_asleep(SequenceId sequence) const;  // here

  // Asks the system to read the sleeping sequence's bytes ahead of wake; does not wait for them.
  void prefetch(SequenceId sequence) const;
  // So that the next wake reads from the disk: for measurements.
  void drop_from_page_cache() const;

  std::int64_t used_bytes() const;  // of the file, by sleeping sequences
  const OffloadStatistics& statistics() const { return statistics_; }

 private:
  KvCache& cache_;
  std::shared_ptr<OffloadFile> file_;
  OffloadStatistics statistics_;
};

}  // namespace lacuna

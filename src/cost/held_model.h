#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cost/stored_kv.h"
#include "lacuna/policy.h"

namespace lacuna {

// Throws Error where a parameter is missing, unknown or out of range.
void check_policy(const Policy& policy);
// REQUIRES: checked.
std::int64_t param(const Policy& policy, const std::string& name);

// What one stored layer, or one class of its KV heads, holds.
struct HeldPart {
  std::size_t entry = 0;  // index into the stored layers
  Equation bytes;         // of one of `count`
  std::int64_t tokens = 0;
  std::int64_t count = 1;  // KV heads; 1 where `bytes` is of the whole layer
};

// What a policy makes of a table. `padding` is of the empty layers of pool groups.
struct HeldParts {
  std::vector<HeldPart> parts;
  struct Padding {
    Equation bytes;  // of one empty layer
    std::int64_t count = 0;
  };
  std::vector<Padding> padding;
  std::map<std::string, std::int64_t> chosen;
  std::vector<std::string> notes;
};

// The policies that look at the whole table (pool.cc, iswa.cc).
HeldParts pool_parts(const Policy& policy, const std::vector<StoredKv>& stored,
                     std::int64_t max_length);
// The cells of one stream under policy iswa: of a full layer, and of a layer with a window of
// `width` keys. `streams` of them make a layer.
struct IswaCells {
  Equation streams;
  Equation full;
  Equation window;
};
IswaCells iswa_cells(const Policy& policy, std::int64_t width, std::int64_t max_length);
HeldParts iswa_parts(const Policy& policy, const std::vector<StoredKv>& stored,
                     std::int64_t max_length);

// One table under one policy, prepared for many lengths. Immutable.
class HeldModel {
 public:
  HeldModel(Policy policy, const LayerTable& table, const ModelShape& shape, const KvDtype& dtype);
  // The same table under the same policy with other parameters.
  HeldModel(const HeldModel& model, Policy policy);

  Held held(std::int64_t length, std::int64_t max_length) const;

  // The most that a request holds on its way to `length` tokens, reserved for `length`: each layer
  // at the largest it is at any length up to there. Never falls as `length` grows, unlike what is
  // held: a chunk is dropped whole, and a window's pages come and go. Regular topologies only are
  // exact; for explicit edge lists the last lengths stand for all.
  Int128 peak_bytes(std::int64_t length) const;

  // Bytes of page tables for a request of `length` tokens, of absolute page numbers: an entry a
  // page below `length`, whether or not the page is still held. 0 where a policy has no pages.
  Int128 page_table_bytes(std::int64_t length, std::int64_t entry_bytes) const;

  const Policy& policy() const { return policy_; }
  const std::vector<StoredKv>& stored() const { return stored_; }

 private:
  HeldParts parts(std::int64_t length, std::int64_t max_length) const;
  std::vector<std::string> engine_notes() const;

  Policy policy_;
  std::size_t num_layers_ = 0;
  std::vector<StoredKv> stored_;
  std::vector<std::string> table_notes_;
};

}  // namespace lacuna

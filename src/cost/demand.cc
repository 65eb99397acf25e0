#include "cost/demand.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lacuna {

Demand::Demand(const HeldModel& model, std::vector<std::int64_t> lengths, std::int64_t entry_bytes)
    : model_(model), lengths_(std::move(lengths)), entry_bytes_(entry_bytes) {
  std::ranges::sort(lengths_, std::greater<>());
  sums_.push_back(0);
  length_sums_.push_back(0);
  Int128 bytes = 0;
  for (std::size_t idx = 0; idx < lengths_.size(); ++idx) {
    const bool known = idx > 0 && lengths_[idx] == lengths_[idx - 1];
    if (!known && !shared_context()) bytes = request(lengths_[idx]);
    sums_.push_back(checked_add(sums_.back(), bytes));
    length_sums_.push_back(checked_add64(length_sums_.back(), lengths_[idx]));
  }
}

Int128 Demand::uniform(std::int64_t length, std::int64_t requests, bool tables) const {
  if (shared_context()) return context(requests, checked_mul64(length, requests), length);
  return checked_mul(requests, tables ? request(length) : model_.peak_bytes(length));
}

Int128 Demand::worst(std::int64_t requests) const {
  const auto listed = std::min(static_cast<std::int64_t>(lengths_.size()), requests);
  const auto idx = static_cast<std::size_t>(listed);
  const Int128 more = requests - listed;  // the longest length may come again
  if (!shared_context()) return checked_add(sums_[idx], checked_mul(more, sums_[1]));
  const Int128 tokens = checked_add(length_sums_[idx], checked_mul(more, lengths_.front()));
  return context(requests, to_int64(tokens, "tokens of all requests"), lengths_.front());
}

Int128 Demand::mean(std::int64_t requests) const {
  const auto share_of = [&](Int128 sum) {
    const auto listed = static_cast<Int128>(lengths_.size());
    return (checked_mul(requests, sum) + listed - 1) / listed;
  };
  if (!shared_context()) return share_of(sums_.back());
  return context(requests, to_int64(share_of(length_sums_.back()), "tokens of all requests"),
                 lengths_.front());
}

Int128 Demand::context(std::int64_t requests, std::int64_t tokens, std::int64_t longest) const {
  Policy policy = model_.policy();
  policy.params["seqs"] = std::max<std::int64_t>(1, requests);
  // Streams of their own are equally long: the longest request decides.
  const bool unified = policy.params.at("unified") != 0;
  const std::int64_t cells = unified ? tokens : checked_mul64(longest, requests);
  return HeldModel(model_, policy).held(cells, cells).bytes.value();
}

Int128 Demand::request(std::int64_t length) const {
  return checked_add(model_.peak_bytes(length), model_.page_table_bytes(length, entry_bytes_));
}

}  // namespace lacuna

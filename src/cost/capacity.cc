#include "lacuna/capacity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "cost/demand.h"
#include "cost/held_model.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMostRequests = std::int64_t{1} << 20;

void require(bool met, const char* name, double value, const char* allowed) {
  if (!met) throw Error(fmt::format("{} is {}; allowed: {}", name, value, allowed));
}

void check_query(const CapacityQuery& query) {
  require(query.budget_bytes >= 0, "budget_bytes", static_cast<double>(query.budget_bytes),
          "0 and above");
  require(query.requests >= 1 && query.requests <= kMostRequests, "requests",
          static_cast<double>(query.requests), "1..2^20");
  require(query.margin_share >= 0 && query.margin_share < 1, "margin_share", query.margin_share,
          "0 and above, below 1");
  require(query.page_entry_bytes >= 0, "page_entry_bytes",
          static_cast<double>(query.page_entry_bytes), "0 and above");
  for (const std::int64_t length : query.lengths) {
    require(length >= 0 && length <= kMostTokens, "a length", static_cast<double>(length),
            "0..2^40");
  }
}

// The largest value in 0..most that fits; `fits` never turns true again once it is false.
std::int64_t largest(std::int64_t most, const std::function<bool(std::int64_t)>& fits) {
  std::int64_t good = 0;
  std::int64_t bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    if (bad > most / 2) break;
    bad *= 2;
  }
  if (bad == good) bad = most + 1;
  bad = std::min(bad, most + 1);
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

TokensKept tokens_kept(const Demand& demand, std::int64_t requests, std::int64_t bytes,
                       bool tables) {
  const std::int64_t most = std::min(kMostTokens, (std::int64_t{1} << 50) / requests);
  TokensKept kept;
  kept.tokens = largest(
      most, [&](std::int64_t length) { return demand.uniform(length, requests, tables) <= bytes; });
  kept.unbounded = kept.tokens == most;
  kept.bytes = demand.uniform(kept.tokens, requests, tables);
  return kept;
}

// Pages that the budget gives every group, times the tokens of a page.
std::optional<std::int64_t> tokens_of_one_group(const HeldModel& model, std::int64_t budget) {
  const Policy& policy = model.policy();
  if ((policy.name != "uniform" && policy.name != "pool") || model.stored().empty()) return {};
  const std::int64_t page = param(policy, "P");
  const Held one = model.held(page, page);
  if (policy.name == "uniform") {
    return checked_mul64(to_int64(Int128{budget} / one.bytes.value(), "pages"), page);
  }
  const Int128 logical_page = checked_mul(one.chosen.at("group_size"), one.chosen.at("page_bytes"));
  const Int128 pages = Int128{budget} / logical_page / one.chosen.at("num_groups");
  return checked_mul64(to_int64(pages, "pages"), page);
}

Int128 usable(Int128 budget, double margin_share) {
  return static_cast<Int128>(std::floor(static_cast<long double>(budget) * (1 - margin_share)));
}

// The least budget that still holds the bytes once its margin is taken off.
Int128 with_margin(Int128 bytes, double margin_share) {
  auto budget = static_cast<Int128>(static_cast<long double>(bytes) / (1 - margin_share));
  while (usable(budget, margin_share) < bytes) ++budget;
  return budget;
}

void answer_lengths(const Demand& demand, const CapacityQuery& query, Capacity& result) {
  const auto fit = [&](const auto& bytes_of) {
    return largest(kMostRequests, [&](std::int64_t requests) {
      return bytes_of(requests) <= result.usable_bytes;
    });
  };
  Capacity::Fit fits;
  fits.mean = fit([&](std::int64_t requests) { return demand.mean(requests); });
  fits.worst = fit([&](std::int64_t requests) { return demand.worst(requests); });
  fits.unbounded = fits.worst == kMostRequests;
  result.requests_fit = fits;
  result.held_bytes = {demand.mean(query.requests), demand.worst(query.requests)};
  result.budget_bytes = {with_margin(result.held_bytes->mean, query.margin_share),
                         with_margin(result.held_bytes->worst, query.margin_share)};
}

}  // namespace

Capacity capacity(const LayerTable& table, const ModelShape& shape, const CapacityQuery& query) {
  check_query(query);
  const HeldModel model(query.policy, table, shape, query.kv_dtype);
  const Demand demand(model, query.lengths, query.page_entry_bytes);
  Capacity result;
  result.policy = query.policy;
  result.usable_bytes = static_cast<std::int64_t>(usable(query.budget_bytes, query.margin_share));
  result.limit = tokens_kept(demand, query.requests, query.budget_bytes, false);
  result.kept = tokens_kept(demand, query.requests, result.usable_bytes, true);
  result.requests_times_length_tokens = checked_mul(query.requests, result.kept.tokens);
  result.group_tokens = tokens_of_one_group(model, query.budget_bytes);
  result.page_table_bytes = checked_mul(
      query.requests, model.page_table_bytes(result.kept.tokens, query.page_entry_bytes));
  if (!query.lengths.empty()) answer_lengths(demand, query, result);
  if (query.policy.name == "iswa") {
    result.notes.push_back("iswa: one context for all requests, its seqs set to their number");
  }
  if (result.kept.unbounded) {
    result.notes.push_back("no layer grows with the length any more: any length fits");
  } else if (shape.context_length && result.kept.tokens > *shape.context_length) {
    result.notes.push_back(fmt::format("{} tokens exceed the model's context of {}",
                                       result.kept.tokens, *shape.context_length));
  }
  return result;
}

}  // namespace lacuna

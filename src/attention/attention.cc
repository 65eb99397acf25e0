#include "lacuna/attention.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>

#include "attention/call.h"
#include "attention/item.h"
#include "attention/ledger.h"
#include "attention/workspace.h"
#include "lacuna/error.h"

namespace lacuna {

std::int64_t workspace_bytes(const Plan& plan, const TensorView& q, const KvView& kv,
                             const AttentionOptions& options) {
  return Workspace(make_call(plan, q, kv, options), nullptr).size_bytes;
}

Workspace checked_workspace(const Call& call, std::span<std::byte> workspace) {
  constexpr std::uintptr_t kAlignment = 64;
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % kAlignment != 0) {
    throw Error(fmt::format("the workspace is at {}; allowed: multiples of {} bytes",
                            static_cast<const void*>(workspace.data()), kAlignment));
  }
  const std::int64_t needed = Workspace(call, nullptr).size_bytes;
  if (static_cast<std::int64_t>(workspace.size()) < needed) {
    throw Error(
        fmt::format("the workspace has {} bytes; allowed: at least {}", workspace.size(), needed));
  }
  return Workspace(call, workspace.data());
}

std::optional<Ledger> run(const MutableTensorView& out, std::span<float> lse, const Plan& plan,
                          const TensorView& q, const KvView& kv, std::span<std::byte> workspace,
                          const AttentionOptions& options) {
  const Call call = make_call(plan, q, kv, options);
  check_output(call, out, lse);
  check_pages(call);
  Workspace space = checked_workspace(call, workspace);
  prepare(call, space);

  std::vector<Ledger> ledgers(static_cast<std::size_t>(call.num_threads));
  std::atomic<std::size_t> next = 0;
  on_threads(call, [&](std::int64_t thread_idx) {
    const auto thread = static_cast<std::size_t>(thread_idx);
    Ledger ledger;
    ItemRunner runner(call, space, space.threads[thread], ledger);
    while (!options.stop.stop_requested()) {
      const std::size_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= plan.items.size()) break;
      runner.run(plan.items[item], {out, lse});
    }
    ledgers[thread] = ledger;
  });
  if (options.stop.stop_requested() && next < plan.items.size()) return std::nullopt;
  return total_ledger(call, space, ledgers);
}

}  // namespace lacuna

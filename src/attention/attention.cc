#include "lacuna/attention.h"

#include <vector>

#include "attention/call.h"
#include "attention/item.h"
#include "attention/ledger.h"
#include "attention/workspace.h"

namespace lacuna {

std::int64_t workspace_bytes(const Plan& plan, const TensorView& q, const KvView& kv,
                             const AttentionOptions& options) {
  return Workspace(make_call(plan, q, kv, options), nullptr).size_bytes;
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
  const auto make_worker = [&](std::size_t thread) {
    return [&, runner = ItemRunner(call, space, space.threads[thread], ledgers[thread])](
               std::size_t piece) mutable {
      runner.run(plan.pieces[piece], {out, lse});
    };
  };
  if (!work_through(call, plan.pieces.size(), make_worker)) return std::nullopt;
  return total_ledger(call, space, ledgers);
}

}  // namespace lacuna

#include "model/planted.h"

#include <vector>

#include "lacuna/error.h"
#include "lacuna/stopwatch.h"

namespace lacuna {

void leak(KvCache& cache) {
  const StepRows rows = {cache.create(), 1};
  std::optional<KvCache::Step> step = cache.begin({&rows, 1});
  if (!step) throw Error("the cache has no room for one token");
  for (std::size_t layer = 0; layer < cache.shape().layers.size(); ++layer) {
    const CacheLayer& sizes = cache.shape().layers[layer];
    const std::vector<float> zeros(static_cast<std::size_t>(sizes.num_kv_heads * sizes.head_dim),
                                   0);
    const TensorView view =
        tensor_view(zeros.data(), DType::kF32, {1, sizes.num_kv_heads, sizes.head_dim});
    step->append(static_cast<int>(layer), view, view);
  }
  step->commit();
}

std::optional<Ledger> run_masked_dense(const MutableTensorView& out, std::span<float> lse,
                                       const Plan& plan, const TensorView& q, const KvView& kv,
                                       std::span<std::byte>, const AttentionOptions& options) {
  return masked_dense(out, lse, plan, q, kv, options);
}

void spend(double seconds) {
  const Stopwatch watch;
  while (watch.seconds() < seconds) {
  }
}

}  // namespace lacuna
